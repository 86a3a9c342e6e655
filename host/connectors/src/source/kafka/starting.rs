//! Where a query begins and where it ends: words, numbers and times of the pipeline file to offsets of partitions.
//!
//! The beginning is found out once and kept in the source's log, so that a first micro-batch that runs again begins where
//! it began. Spark's `initialPartitionOffsets`.

use super::cluster::Cluster;
use super::offsets::{PartitionOffsets, TopicPartition, from_json, to_json};
use super::options::{Boundary, EARLIEST, LATEST};
use crate::kafka::Failure;
use bytes::Bytes;
use pelton_core::{Error, FileManager, Result};
use std::collections::BTreeSet;

/// The name of the file, as Spark has it.
const INITIAL: &str = "0";

/// Where the query began, if it has.
pub(super) async fn recorded(name: &str, log: &dyn FileManager) -> Result<Option<PartitionOffsets>> {
    let Some(content) = log.read(INITIAL).await? else { return Ok(None) };
    let text = String::from_utf8_lossy(&content);
    let json = text.strip_prefix("v1\n").and_then(|json| serde_json::from_str(json).ok());
    json.as_ref().and_then(from_json).map(Some).ok_or_else(|| {
        Error::data(format!("{}/{INITIAL}, which says where '{name}' began, is damaged", log.url()))
            .hint("restore it from a backup, or start the query with a new checkpoint")
    })
}

/// Writes it down. What is there already counts.
pub(super) async fn record(
    name: &str,
    log: &dyn FileManager,
    offsets: &PartitionOffsets,
) -> Result<PartitionOffsets> {
    log.create(INITIAL, Bytes::from(format!("v1\n{}", to_json(offsets)))).await?;
    let missing = || Error::data(format!("{}/{INITIAL} is not there after it was written", log.url()));
    recorded(name, log).await?.ok_or_else(missing)
}

/// The offsets at which a new query begins.
pub(super) fn starting(
    cluster: &Cluster,
    boundary: &Boundary,
    no_record_is_latest: bool,
    of: &BTreeSet<TopicPartition>,
) -> Result<PartitionOffsets, Failure> {
    let times = match boundary {
        Boundary::Earliest => return cluster.begins(of),
        Boundary::Latest => return cluster.ends(of),
        Boundary::Offsets(offsets) => {
            all_named("starting_offsets", offsets, of)?;
            return resolved(cluster, offsets, of);
        }
        Boundary::Timestamp(ms) => of.iter().map(|at| (at.clone(), *ms)).collect(),
        Boundary::Timestamps(times) => {
            all_named("starting_offsets_by_timestamp", times, of)?;
            times.clone()
        }
    };
    let ends = cluster.ends(of)?;
    let mut begins = PartitionOffsets::new();
    for (at, offset) in cluster.at_times(&times)? {
        let end = ends.get(&at).copied().unwrap_or(0);
        match offset {
            // Whoever does not answer leaves the time where the offset should be.
            Some(offset) if offset > end && times.get(&at) == Some(&offset) => {
                return Err(Failure::Unavailable(format!("{at} has no leader")));
            }
            // One of a transaction that is open lies beyond what can be read.
            Some(offset) => begins.insert(at, offset.min(end)),
            None if no_record_is_latest => begins.insert(at, end),
            None => {
                let ms = times.get(&at).copied().unwrap_or(0);
                return Err(Error::invalid(format!(
                    "{at} has no record of the time {ms} ms or later to begin with"
                ))
                .hint("starting_offsets_by_timestamp_strategy: latest begins at the end then")
                .into());
            }
        };
    }
    Ok(begins)
}

/// The offsets at which the source ends; a partition that is not in there has no end.
pub(super) fn ending(
    cluster: &Cluster,
    boundary: &Boundary,
    of: &BTreeSet<TopicPartition>,
) -> Result<PartitionOffsets, Failure> {
    let times = match boundary {
        Boundary::Earliest | Boundary::Latest => return cluster.ends(of),
        Boundary::Offsets(offsets) => {
            all_named("ending_offsets", offsets, of)?;
            return resolved(cluster, offsets, of);
        }
        Boundary::Timestamp(ms) => of.iter().map(|at| (at.clone(), *ms)).collect(),
        Boundary::Timestamps(times) => {
            all_named("ending_offsets_by_timestamp", times, of)?;
            times.clone()
        }
    };
    let ends = cluster.ends(of)?;
    let found = cluster.at_times(&times)?;
    let end = |(at, offset): (TopicPartition, Option<i64>)| {
        let end = offset.or_else(|| ends.get(&at).copied())?;
        Some((at, end))
    };
    Ok(found.into_iter().filter_map(end).collect())
}

/// Spark's rule: either all partitions or none.
fn all_named(key: &str, given: &PartitionOffsets, of: &BTreeSet<TopicPartition>) -> Result<()> {
    let list = |of: Vec<&TopicPartition>| of.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let missing: Vec<_> = of.iter().filter(|at| !given.contains_key(*at)).collect();
    let unknown: Vec<_> = given.keys().filter(|at| !of.contains(*at)).collect();
    let wrong = match (missing.is_empty(), unknown.is_empty()) {
        (true, true) => return Ok(()),
        (false, _) => format!("{key} does not name {}", list(missing)),
        (true, false) => format!("{key} names {}, which the source does not read", list(unknown)),
    };
    Err(Error::invalid(wrong).hint("it must name all partitions that are read, and no others"))
}

fn resolved(
    cluster: &Cluster,
    given: &PartitionOffsets,
    of: &BTreeSet<TopicPartition>,
) -> Result<PartitionOffsets, Failure> {
    let special = |wanted: i64| given.values().any(|offset| *offset == wanted);
    let begins = if special(EARLIEST) { cluster.begins(of)? } else { PartitionOffsets::new() };
    let ends = if special(LATEST) { cluster.ends(of)? } else { PartitionOffsets::new() };
    let offset = |at: &TopicPartition, offset: i64| match offset {
        EARLIEST => begins.get(at).copied().unwrap_or(0),
        LATEST => ends.get(at).copied().unwrap_or(0),
        offset => offset,
    };
    Ok(given.iter().map(|(at, given)| (at.clone(), offset(at, *given))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::MemoryFiles;

    #[tokio::test]
    async fn where_a_query_began_is_kept() {
        let log = MemoryFiles::new();
        assert_eq!(recorded("s", &log).await.unwrap(), None);
        let first = PartitionOffsets::from([(TopicPartition::new("a", 0), 7)]);
        assert_eq!(record("s", &log, &first).await.unwrap(), first);
        let later = PartitionOffsets::from([(TopicPartition::new("a", 0), 9)]);
        assert_eq!(record("s", &log, &later).await.unwrap(), first);
        assert_eq!(recorded("s", &log).await.unwrap(), Some(first));
    }

    #[test]
    fn offsets_name_all_partitions_and_no_others() {
        let of = BTreeSet::from([TopicPartition::new("a", 0), TopicPartition::new("a", 1)]);
        let given =
            |of: &[i32]| of.iter().map(|n| (TopicPartition::new("a", *n), 0)).collect::<PartitionOffsets>();
        let told = |given: PartitionOffsets| all_named("k", &given, &of).map_err(|e| e.message().to_owned());
        assert_eq!(told(given(&[0, 1])), Ok(()));
        assert_eq!(told(given(&[0])), Err("k does not name a-1".into()));
        assert_eq!(told(given(&[0, 1, 2])), Err("k names a-2, which the source does not read".into()));
    }
}
