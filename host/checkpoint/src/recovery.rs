//! What to do on a start, decided from nothing but which entries the two logs have. Pure: no file is opened here.
//!
//! `offsets/N` is written before micro-batch N runs, `commits/N` after it, and micro-batch N+1 is planned only
//! then. So a crash leaves the logs in one of three states: both empty, level, or the offset log one ahead. As in
//! Spark only the newest entries decide; everything else is somebody's deletion, judged by whether the answer is
//! still certain:
//!
//! | offsets' newest | commits' newest | answer | why |
//! |---|---|---|---|
//! | none | none | fresh | nothing was ever planned |
//! | N | N | N+1 is next | |
//! | N | N−1, or none if N = 0 | N runs again | it was planned and perhaps ran |
//! | N | older, or none | N runs again | `offsets/N` proves that N−1 was committed; its record is lost, not the fact |
//! | N | newer | refused | what the micro-batches after N read is lost; to plan them again would lose or double rows |
//! | none | any | refused | the same, for all of them |
//! | N, without N−1 | | refused | a gap where the newest two entries should vouch for each other, as in Spark |
//!
//! A hole further back changes nothing, in either log.

use pelton_core::BatchId;
use std::fmt;

/// Where a run begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumePoint {
    /// A new query: micro-batch 0 is to be planned.
    Fresh,
    /// This micro-batch was planned and is not known to be done: it runs again, from its entry.
    Rerun {
        /// Which one.
        batch_id: BatchId,
        /// Records of the commit log between its newest entry and this micro-batch are lost.
        commits_lost: bool,
    },
    /// All is done up to the one before this, which is to be planned.
    Next {
        /// Which one.
        batch_id: BatchId,
    },
}

/// Logs that no crash leaves behind and from which no certain answer follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDamage {
    /// `commits/N` is there, `offsets/N` is not, nor is anything after it.
    OffsetsBehind {
        /// The newest commit.
        committed: BatchId,
    },
    /// `offsets/N` is there, `offsets/N−1` is not.
    Gap {
        /// The missing one.
        missing: BatchId,
    },
}

impl fmt::Display for LogDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OffsetsBehind { committed } => write!(
                f,
                "commits/{committed} says that micro-batch {committed} is done, but offsets/{committed}, which says \
                 what it read, is missing"
            ),
            Self::Gap { missing } => {
                write!(f, "offsets/{missing} is missing, though offsets/{} is there", missing.next())
            }
        }
    }
}

/// Decides where a run begins, given the entries of the two logs in any order.
pub fn resume(offsets: &[BatchId], commits: &[BatchId]) -> Result<ResumePoint, LogDamage> {
    let committed = commits.iter().max().copied();
    let planned = match (offsets.iter().max().copied(), committed) {
        (None, None) => return Ok(ResumePoint::Fresh),
        (None, Some(committed)) => return Err(LogDamage::OffsetsBehind { committed }),
        (Some(planned), Some(committed)) if committed > planned => {
            return Err(LogDamage::OffsetsBehind { committed });
        }
        (Some(planned), _) => planned,
    };
    let before = planned.0.checked_sub(1).map(BatchId);
    match before {
        Some(missing) if !offsets.contains(&missing) => Err(LogDamage::Gap { missing }),
        _ if committed == Some(planned) => Ok(ResumePoint::Next { batch_id: planned.next() }),
        _ => Ok(ResumePoint::Rerun { batch_id: planned, commits_lost: committed != before }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(bits: u32) -> Vec<BatchId> {
        (0..32).filter(|n| bits & (1 << n) != 0).map(BatchId).collect()
    }

    /// Every pair of logs over micro-batches 0 to 6, holes and all, against the table above said in other words.
    #[test]
    fn every_pair_of_logs_has_the_answer_of_the_table() {
        for offsets in 0..128_u32 {
            for commits in 0..128_u32 {
                let newest = |log: u32| 31 - i64::from(log.leading_zeros());
                let (planned, committed) = (newest(offsets), newest(commits));
                let answer = resume(&ids(offsets), &ids(commits));
                let case = format!("offsets {:?}, commits {:?}", ids(offsets), ids(commits));
                let vouched = planned <= 0 || offsets & (1 << (planned - 1)) != 0;
                match answer {
                    Ok(ResumePoint::Fresh) => assert_eq!((planned, committed), (-1, -1), "{case}"),
                    Ok(ResumePoint::Next { batch_id }) => {
                        assert!(vouched && planned == committed, "{case}");
                        assert_eq!(batch_id.0 as i64, planned + 1, "{case}");
                    }
                    Ok(ResumePoint::Rerun { batch_id, commits_lost }) => {
                        assert!(vouched && committed < planned, "{case}");
                        assert_eq!(batch_id.0 as i64, planned, "{case}");
                        assert_eq!(commits_lost, committed != planned - 1, "{case}");
                    }
                    Err(LogDamage::OffsetsBehind { committed: newest }) => {
                        assert!(committed > planned, "{case}");
                        assert_eq!(newest.0 as i64, committed, "{case}");
                    }
                    Err(LogDamage::Gap { missing }) => {
                        assert!(committed <= planned && !vouched, "{case}");
                        assert_eq!(missing.0 as i64, planned - 1, "{case}");
                    }
                }
            }
        }
    }

    /// Whatever a crash can leave is answered, and the answer never skips or forgets a micro-batch.
    #[test]
    fn what_a_crash_leaves_is_never_damage() {
        for trimmed_to in 0..5_u64 {
            for planned in trimmed_to + 1..10 {
                let offsets: Vec<_> = (trimmed_to..=planned).map(BatchId).collect();
                let behind: Vec<_> = (trimmed_to..planned).map(BatchId).collect();
                let rerun = ResumePoint::Rerun { batch_id: BatchId(planned), commits_lost: false };
                assert_eq!(resume(&offsets, &behind), Ok(rerun));
                let next = ResumePoint::Next { batch_id: BatchId(planned + 1) };
                assert_eq!(resume(&offsets, &offsets), Ok(next));
            }
        }
        let first = ResumePoint::Rerun { batch_id: BatchId(0), commits_lost: false };
        assert_eq!(resume(&[BatchId(0)], &[]), Ok(first));
    }

    /// Spark's answer to the same (oracle case `commit_log_hole_is_ignored`).
    #[test]
    fn a_hole_further_back_is_ignored() {
        let next = ResumePoint::Next { batch_id: BatchId(4) };
        assert_eq!(resume(&ids(0b1111), &ids(0b1011)), Ok(next));
        assert_eq!(resume(&ids(0b1101), &ids(0b1111)), Ok(next));
    }
}
