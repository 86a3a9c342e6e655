//! When files that wait become one larger file: a pure decision over what waits, the sizes and the time of the micro-batch.
//!
//! A micro-batch of a sink with a rollover leaves *parts*: committed and durable, but not visible. Each partition rolls over
//! by itself, when its parts are large enough or its oldest rows have waited long enough. The decision is taken in the commit
//! of a micro-batch and depends on nothing but that commit and the one before, so a rerun takes the same.

use super::log::StagedFile;
use pelton_core::{Error, Result};
use std::collections::BTreeMap;

/// Parts of a partition that may wait as they are; more are put together, so that the log's entries stay small.
const PARTS_MAX: usize = 64;
/// An object store copies no more in one request.
const SIZE_BYTES_MAX: u64 = 4 << 30;

/// When a partition's parts become a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollover {
    /// They have this many bytes.
    pub size_bytes: u64,
    /// The micro-batch of the first of them is this long ago.
    pub interval_ms: i64,
}

impl Default for Rollover {
    fn default() -> Self {
        Self { size_bytes: 128 << 20, interval_ms: 5 * 60 * 1000 }
    }
}

impl Rollover {
    /// The error is of kind `Invalid`.
    pub fn check(&self) -> Result<()> {
        if !(1..=SIZE_BYTES_MAX).contains(&self.size_bytes) {
            return Err(Error::invalid("the size of a rollover must be between 1 byte and 4GiB"));
        }
        Ok(())
    }
}

/// How far a rollover goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// What the rule says at this time.
    At(Rollover, i64),
    /// Everything: nothing will come.
    Now,
}

/// What becomes of the parts that wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    /// Each becomes a visible file, in this order.
    pub(super) roll: Vec<Vec<StagedFile>>,
    /// Each becomes one part that waits.
    pub(super) merge: Vec<Vec<StagedFile>>,
    /// They wait as they are.
    pub(super) keep: Vec<StagedFile>,
}

/// Decides over all parts, which come in the order of their rows.
pub(super) fn decide(parts: Vec<StagedFile>, due: Due) -> Decision {
    let mut by_directory: BTreeMap<String, Vec<StagedFile>> = BTreeMap::new();
    for part in parts {
        by_directory.entry(part.directory.clone()).or_default().push(part);
    }
    let mut decision = Decision::default();
    for parts in by_directory.into_values() {
        decision.take(parts, due);
    }
    decision
}

impl Decision {
    /// Parts of one partition.
    fn take(&mut self, parts: Vec<StagedFile>, due: Due) {
        let size_bytes = match due {
            Due::At(rule, _) => rule.size_bytes,
            Due::Now => SIZE_BYTES_MAX,
        };
        let (mut waiting, mut waiting_bytes) = (Vec::new(), 0);
        for part in parts {
            waiting_bytes += part.size_bytes;
            waiting.push(part);
            if waiting_bytes >= size_bytes {
                self.roll.push(std::mem::take(&mut waiting));
                waiting_bytes = 0;
            }
        }
        match (due, waiting.first()) {
            (_, None) => {}
            (Due::At(rule, now_ms), Some(first)) if now_ms - first.time_ms < rule.interval_ms => {
                self.wait(waiting);
            }
            _ => self.roll.push(waiting),
        }
    }

    /// Those that are merged already stay as they are: rows are copied a few times, not once a micro-batch.
    fn wait(&mut self, mut parts: Vec<StagedFile>) {
        let merged = parts.iter().take_while(|part| part.merged).count();
        if parts.len() - merged > PARTS_MAX {
            self.merge.push(parts.split_off(merged));
        }
        self.keep.extend(parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(directory: &str, nth: u64, size_bytes: u64) -> StagedFile {
        StagedFile {
            directory: directory.into(),
            pending: format!("{nth}"),
            size_bytes,
            rows: 1,
            time_ms: nth as i64 * 100,
            merged: false,
        }
    }

    fn names(groups: &[Vec<StagedFile>]) -> Vec<String> {
        let name = |parts: &Vec<StagedFile>| parts.iter().map(|part| part.pending.as_str()).collect();
        groups.iter().map(name).collect()
    }

    const RULE: Rollover = Rollover { size_bytes: 10, interval_ms: 1000 };

    #[test]
    fn a_partition_rolls_over_when_it_is_large_enough() {
        let parts =
            vec![part("b", 1, 4), part("a", 2, 9), part("b", 3, 6), part("b", 4, 1), part("a", 5, 12)];
        let decision = decide(parts, Due::At(RULE, 500));
        assert_eq!(names(&decision.roll), ["25", "13"]);
        assert_eq!(names(&[decision.keep]), ["4"]);
    }

    #[test]
    fn a_partition_rolls_over_when_its_first_rows_have_waited_long_enough() {
        let parts = || vec![part("a", 1, 1), part("b", 2, 1), part("a", 8, 1)];
        assert_eq!(decide(parts(), Due::At(RULE, 1099)).roll, Vec::<Vec<_>>::new());
        let decision = decide(parts(), Due::At(RULE, 1100));
        assert_eq!(
            (names(&decision.roll), names(&[decision.keep])),
            (vec!["18".to_owned()], vec!["2".into()])
        );
        assert_eq!(names(&decide(parts(), Due::Now).roll), ["18", "2"]);
    }

    #[test]
    fn many_small_parts_are_put_together_once() {
        let rule = Rollover { size_bytes: 1 << 20, interval_ms: 1 << 40 };
        let parts: Vec<StagedFile> = (0..=PARTS_MAX as u64).map(|nth| part("", nth, 1)).collect();
        let decision = decide(parts[1..].to_vec(), Due::At(rule, 0));
        assert_eq!((decision.merge.len(), decision.keep.len()), (0, PARTS_MAX));
        let decision = decide(parts.clone(), Due::At(rule, 0));
        assert_eq!((decision.merge[0].len(), decision.keep.len()), (PARTS_MAX + 1, 0));
        let merged = StagedFile { merged: true, ..parts[0].clone() };
        let decision = decide([&[merged], &parts[2..]].concat(), Due::At(rule, 0));
        assert_eq!((decision.merge.len(), decision.keep.len()), (0, PARTS_MAX));
    }

    #[test]
    fn a_size_of_nothing_is_refused() {
        assert!(Rollover { size_bytes: 0, ..RULE }.check().is_err());
        RULE.check().unwrap();
    }
}
