//! Calls of plugins' functions that fail, and what becomes of the rows on which they do: *poison rows*.
//!
//! A call fails if it traps, overruns a limit, says that it failed, or answers what the contract does not allow; its
//! error is of kind [`ErrorKind::Plugin`]. The pipeline file decides what follows. Operators act on it, the engine sees to
//! the budget of a micro-batch.

use crate::{Error, ErrorKind, Result};
use std::fmt;

/// What follows when a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    /// The micro-batch fails.
    #[default]
    Fail,
    /// The same call again, so many times at most, each on a new instance; then the micro-batch fails.
    Retry(u32),
    /// The call is cut by halves until the rows (of a stateful function: the groups) are found on which it fails. They go to
    /// the dead letters, all others go on.
    DeadLetter(PoisonBudget),
}

/// How much may be found in one micro-batch. Beyond it the micro-batch fails: the plugin is broken, not the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoisonBudget {
    /// Rows; of a stateful function groups.
    pub rows_max: u64,
    /// Calls that are made to find them.
    pub calls_max: u64,
}

impl Default for PoisonBudget {
    /// A hundred rows, and as many calls as it takes to find them if each stands in a batch of its own.
    fn default() -> Self {
        Self { rows_max: 100, calls_max: 3_000 }
    }
}

impl FailurePolicy {
    /// Makes a call, again if it fails and the policy says so.
    pub fn run<T>(self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        let Self::Retry(retries) = self else { return call() };
        for _ in 0..retries {
            match call() {
                Err(failed) if failed.kind() == ErrorKind::Plugin => {}
                done => return done,
            }
        }
        call().map_err(|failed| match (failed.kind(), retries) {
            (ErrorKind::Plugin, 1) => failed.context("after 1 retry"),
            (ErrorKind::Plugin, 2..) => failed.context(format_args!("after {retries} retries")),
            _ => failed,
        })
    }

    /// The budget, if guilty rows are looked for.
    pub fn budget(self) -> Option<PoisonBudget> {
        match self {
            Self::DeadLetter(budget) => Some(budget),
            Self::Fail | Self::Retry(_) => None,
        }
    }
}

impl fmt::Display for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail => f.write_str("fail"),
            Self::Retry(times) => write!(f, "retry {times}"),
            Self::DeadLetter(PoisonBudget { rows_max, calls_max }) => {
                write!(f, "dead_letter, at most {rows_max} and {calls_max} calls in a micro-batch")
            }
        }
    }
}

/// Why a call gave no answer: the source of an error of kind [`ErrorKind::Plugin`], without the names around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// As the end of "function 'f' …": `trapped: integer divide by zero`.
    pub reason: String,
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for CallFailure {}

/// What the calls of one function in one operator were found to fail on: in a part of a micro-batch, or in all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoisonReport {
    /// The operator's stable name.
    pub operator: String,
    /// The plugin's name in the pipeline file.
    pub plugin: String,
    /// The function's name.
    pub function: String,
    /// What [`PoisonReport::found`] counts: `rows` or `groups`.
    pub unit: &'static str,
    /// What was found.
    pub found: u64,
    /// Calls that were made to find it.
    pub calls: u64,
    /// What is allowed.
    pub budget: PoisonBudget,
    /// Why the first call failed.
    pub first_reason: String,
}

impl PoisonReport {
    /// Whether both are about the same function in the same operator.
    pub fn is_of(&self, other: &Self) -> bool {
        (&self.operator, &self.plugin, &self.function) == (&other.operator, &other.plugin, &other.function)
    }

    /// That a function failed at all, of a plugin whose failures are not to be looked into.
    pub fn on_probation(&self) -> Error {
        let Self { operator, plugin, function, first_reason, .. } = self;
        Error::plugin(format!(
            "operator '{operator}': plugin '{plugin}', function '{function}' fails on probation: {first_reason}"
        ))
        .of_plugin(plugin)
    }

    /// An error if there is more than the budget allows.
    pub fn check(&self) -> Result<()> {
        let Self { operator, plugin, function, unit, found, calls, budget, first_reason } = self;
        let PoisonBudget { rows_max, calls_max } = budget;
        if found <= rows_max && calls <= calls_max {
            return Ok(());
        }
        Err(Error::plugin(format!(
            "operator '{operator}': plugin '{plugin}', function '{function}' fails on too many {unit} of the micro-batch: \
             {found} are found (rows_max: {rows_max}) in {calls} calls (calls_max: {calls_max}); the first failure: \
             {first_reason}"
        ))
        .of_plugin(plugin)
        .hint(
            "mend the plugin and start with --rerun-with-current-plugins; or raise on_plugin_failure: {dead_letter: \
             {rows_max: …, calls_max: …}}",
        ))
    }
}

/// Adds reports to those of the same functions.
pub fn add_reports(to: &mut Vec<PoisonReport>, reports: impl IntoIterator<Item = PoisonReport>) {
    for report in reports {
        match to.iter_mut().find(|known| known.is_of(&report)) {
            Some(known) => {
                known.found += report.found;
                known.calls += report.calls;
            }
            None => to.push(report),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(times: u32) -> impl FnMut() -> Result<u32> {
        let mut calls = 0;
        move || {
            calls += 1;
            if calls <= times { Err(Error::plugin("it trapped")) } else { Ok(calls) }
        }
    }

    #[test]
    fn a_call_is_tried_again_as_often_as_the_policy_says() {
        assert_eq!(FailurePolicy::Retry(2).run(failing(2)).expect("the third goes well"), 3);
        let failed = FailurePolicy::Retry(2).run(failing(3)).expect_err("fails");
        assert_eq!(failed.message(), "after 2 retries: it trapped");
        assert_eq!(FailurePolicy::Fail.run(failing(1)).expect_err("fails").message(), "it trapped");
        let mut calls = 0;
        let other = FailurePolicy::Retry(5).run(|| -> Result<()> {
            calls += 1;
            Err(Error::data("no"))
        });
        assert_eq!(
            (other.expect_err("fails").message(), calls),
            ("no", 1),
            "only a plugin's failure comes again"
        );
    }

    #[test]
    fn reports_add_up_and_a_budget_is_kept() {
        let budget = PoisonBudget { rows_max: 2, calls_max: 10 };
        let report = |operator: &str, found, calls| PoisonReport {
            operator: operator.into(),
            plugin: "p".into(),
            function: "f".into(),
            unit: "rows",
            found,
            calls,
            budget,
            first_reason: "trapped".into(),
        };
        let mut sum = Vec::new();
        add_reports(&mut sum, [report("a", 1, 4), report("b", 2, 5)]);
        add_reports(&mut sum, [report("a", 1, 6)]);
        assert_eq!(sum, [report("a", 2, 10), report("b", 2, 5)]);
        sum.iter().for_each(|sum| sum.check().expect("within its budget"));
        let refused = report("a", 3, 10).check().expect_err("too many rows");
        assert_eq!(
            refused.message(),
            "operator 'a': plugin 'p', function 'f' fails on too many rows of the micro-batch: 3 are found (rows_max: 2) in \
             10 calls (calls_max: 10); the first failure: trapped"
        );
        report("a", 0, 11).check().expect_err("too many calls");
    }
}
