//! Looks for the rows on which a function of a plugin fails.
//!
//! A call that fails is cut by halves, and its pieces by halves again, until each piece goes well or is a single row (of a
//! stateful function: a group). A row that fails alone is guilty; it goes to the dead letters, all others go on as if it had
//! never been there. A call that only was too large (for a limit of time, memory or output) is simply cut, and nobody is
//! guilty.
//!
//! What a piece is called with follows from the piece alone, pieces are called in the order of their rows, and the budget
//! is counted by part of the micro-batch here and in the order of the parts by the engine: so no number of threads shows in
//! what is found, nor in whether it is too much.

use arrow::array::RecordBatch;
use pelton_core::{DeadLetter, Error, ErrorKind, LossKind, PoisonReport, Result};
use pelton_plan::json::{Nulls, row_json};
use pelton_plan::{FailedCall, FunctionRef};
use std::ops::Range;

/// What falls out of a part of a micro-batch beside the rows that go on.
#[derive(Default)]
pub(crate) struct Losses {
    pub(crate) letters: Vec<DeadLetter>,
    pub(crate) poison: PoisonSearch,
}

/// The function that failed, and why.
pub(crate) struct Blame {
    pub(crate) function: FunctionRef,
    pub(crate) reason: String,
}

/// What came of a piece of a call that was cut.
pub(crate) enum Piece<T> {
    /// These rows went well.
    Good(Range<usize>, T),
    /// This row did not.
    Guilty(usize, Blame),
}

/// What is being cut.
pub(crate) struct Whole<'a> {
    pub(crate) operator: &'a str,
    /// What it can be cut into: `rows` or `groups`.
    pub(crate) unit: &'static str,
    /// How many.
    pub(crate) count: usize,
}

/// The searches of a part of a micro-batch.
#[derive(Default)]
pub(crate) struct PoisonSearch {
    pub(crate) reports: Vec<PoisonReport>,
}

impl Blame {
    /// Who is to blame for the error of a call of this function; nobody if guilty rows are not to be looked for.
    pub(crate) fn of_call(function: &FunctionRef, error: &Error) -> Option<Self> {
        let is_wanted = error.kind() == ErrorKind::Plugin && function.on_failure.budget().is_some();
        is_wanted.then(|| Self { function: function.clone(), reason: error.call_failure().to_owned() })
    }

    /// The same for the error of an expression in which functions are called.
    pub(crate) fn of_expression(error: &Error) -> Option<Self> {
        let FailedCall { function, reason } = FailedCall::of(error)?;
        function.on_failure.budget()?;
        Some(Self { function: function.clone(), reason: reason.clone() })
    }
}

impl PoisonSearch {
    /// Cuts a call that has failed. `call` makes the call of a piece.
    pub(crate) fn cut<T>(
        &mut self,
        whole: &Whole<'_>,
        failed: Error,
        blame: &dyn Fn(&Error) -> Option<Blame>,
        mut call: impl FnMut(Range<usize>) -> Result<T>,
    ) -> Result<Vec<Piece<T>>> {
        let Some(first) = blame(&failed) else { return Err(failed) };
        self.count(whole, &first, 0, 0)?;
        let mut pieces = Vec::new();
        // The last is the next. A call of one row is made once more before the row is found guilty.
        let mut left = vec![(0..whole.count, (whole.count > 1).then_some(failed))];
        while let Some((range, failed)) = left.pop() {
            let failed = match failed {
                Some(failed) => failed,
                None => {
                    self.count(whole, &first, 0, 1)?;
                    match call(range.clone()) {
                        Ok(made) => {
                            pieces.push(Piece::Good(range, made));
                            continue;
                        }
                        Err(failed) => failed,
                    }
                }
            };
            let Some(found) = blame(&failed) else { return Err(failed) };
            if range.len() > 1 {
                let middle = range.start + range.len() / 2;
                left.extend([(middle..range.end, None), (range.start..middle, None)]);
            } else {
                self.count(whole, &found, 1, 0)?;
                pieces.push(Piece::Guilty(range.start, found));
            }
        }
        Ok(pieces)
    }

    /// Takes note of what was found and of the calls that it took, and sees that it is not too much.
    fn count(&mut self, whole: &Whole<'_>, blame: &Blame, found: u64, calls: u64) -> Result<()> {
        let report = PoisonReport {
            operator: whole.operator.to_owned(),
            plugin: blame.function.plugin.clone(),
            function: blame.function.function.clone(),
            unit: whole.unit,
            found,
            calls,
            budget: blame.function.on_failure.budget().unwrap_or_default(),
            first_reason: blame.reason.clone(),
        };
        let at = self.reports.iter().position(|known| known.is_of(&report)).unwrap_or(self.reports.len());
        pelton_core::failure::add_reports(&mut self.reports, [report]);
        self.reports.get(at).map_or(Ok(()), PoisonReport::check)
    }
}

/// The dead letter of a row on which a function failed.
pub(crate) fn poisoned(operator: &str, blame: &Blame, rows: &RecordBatch, row: usize) -> Result<DeadLetter> {
    Ok(DeadLetter {
        kind: LossKind::Poison,
        origin: operator.to_owned(),
        position: None,
        reason: format!("{}: {}", blame.function, blame.reason),
        plugin: Some(blame.function.digest.clone()),
        payload: row_json(rows, row, Nulls::Written)?.to_string().into(),
        message: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::{FailurePolicy, PluginDigest, PoisonBudget};

    fn function(rows_max: u64, calls_max: u64) -> FunctionRef {
        FunctionRef {
            plugin: "p".into(),
            function: "f".into(),
            digest: PluginDigest("d".repeat(64)),
            on_failure: FailurePolicy::DeadLetter(PoisonBudget { rows_max, calls_max }),
        }
    }

    /// Cuts a call of so many rows that fails on those for which `guilty` is true. Gives the good ones in order, the guilty
    /// ones, and how many calls it took.
    fn cut(
        count: usize,
        function: &FunctionRef,
        fails: impl Fn(&Range<usize>) -> bool,
    ) -> Result<(Vec<usize>, Vec<usize>, u64)> {
        let mut search = PoisonSearch::default();
        let whole = Whole { operator: "o", unit: "rows", count };
        let blame = |error: &Error| Blame::of_call(function, error);
        let pieces = search.cut(&whole, Error::plugin("trapped"), &blame, |range| match fails(&range) {
            true => Err(Error::plugin("trapped")),
            false => Ok(()),
        })?;
        let (mut good, mut guilty) = (Vec::new(), Vec::new());
        for piece in pieces {
            match piece {
                Piece::Good(range, ()) => good.extend(range),
                Piece::Guilty(row, blame) => {
                    assert_eq!(blame.reason, "trapped");
                    guilty.push(row);
                }
            }
        }
        Ok((good, guilty, search.reports[0].calls))
    }

    #[test]
    fn guilty_rows_are_found_and_all_others_stay_in_order() {
        let function = function(100, 3000);
        for guilty in [vec![], vec![0], vec![7], vec![3, 4], vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9]] {
            let fails = |range: &Range<usize>| guilty.iter().any(|row| range.contains(row));
            let (good, found, _) = cut(10, &function, fails).expect("within the budget");
            assert_eq!(found, guilty);
            assert_eq!(good, (0..10).filter(|row| !guilty.contains(row)).collect::<Vec<_>>());
        }
        let (_, found, calls) =
            cut(8192, &function, |range| range.contains(&4711)).expect("within the budget");
        assert_eq!((found, calls), (vec![4711], 26));
    }

    #[test]
    fn a_call_that_is_only_too_large_makes_nobody_guilty() {
        let (good, guilty, _) = cut(9, &function(0, 100), |range| range.len() > 2).expect("cut");
        assert_eq!((good, guilty), ((0..9).collect(), vec![]));
        let once = std::cell::Cell::new(false);
        let (good, guilty, calls) =
            cut(1, &function(0, 100), |_| once.replace(false)).expect("the second goes well");
        assert_eq!((good, guilty, calls), (vec![0], vec![], 1));
    }

    #[test]
    fn a_function_that_fails_on_everything_is_stopped() {
        let refused = cut(1000, &function(3, 3000), |_| true).expect_err("too many rows");
        assert!(refused.message().contains("4 are found (rows_max: 3)"), "{refused}");
        let refused = cut(1000, &function(1000, 20), |_| true).expect_err("too many calls");
        assert!(refused.message().contains("in 21 calls (calls_max: 20)"), "{refused}");
    }

    #[test]
    fn other_errors_are_not_looked_into() {
        let mut search = PoisonSearch::default();
        let whole = Whole { operator: "o", unit: "rows", count: 4 };
        let function = function(9, 99);
        let blame = |error: &Error| Blame::of_call(&function, error);
        let failed = search.cut::<()>(&whole, Error::data("no"), &blame, |_| unreachable!("no call"));
        assert_eq!(failed.err().expect("fails").message(), "no");
        let failed =
            search.cut::<()>(&whole, Error::plugin("trapped"), &blame, |_| Err(Error::internal("no")));
        assert_eq!(failed.err().expect("fails").message(), "no");
        let strict = FunctionRef { on_failure: FailurePolicy::Fail, ..function.clone() };
        assert!(Blame::of_call(&strict, &Error::plugin("trapped")).is_none());
    }
}
