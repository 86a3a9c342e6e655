//! What a watermark follows if it is kept by partition, and what it waits for. Pure.
//!
//! | the partition | so |
//! |---|---|
//! | has delivered something | it holds the watermark at its latest event time, less the delay |
//! | has delivered nothing yet | it holds the watermark where it is |
//! | has had nothing to read for the idle timeout, by the times of micro-batches | it is *idle*: it is left out |
//! | has something to read again, though a limit leaves it unread | it counts again; the watermark does not fall |
//!
//! If all are idle nothing is waited for, and the latest event time of all counts: so the answer does not depend on
//! which of them became idle first. Watermarks that make the query's do the same with each other.
//!
//! Called by the tracker, by progress and by `explain --live`.

use pelton_checkpoint::{PartitionMark, PartitionMarks};
use pelton_core::{PartitionStatus, PerPartition, WatermarkPolicy};

/// What a source says of its partitions.
#[derive(Debug, Clone)]
pub(crate) struct SourcePartitions<'a> {
    /// The source's name.
    pub(crate) source: &'a str,
    /// All of them.
    pub(crate) partitions: Vec<PartitionStatus>,
}

/// A partition's name among those of several sources.
pub(crate) fn full_name(source: &str, partition: &str) -> String {
    match partition {
        "" => source.to_owned(),
        partition => format!("{source}/{partition}"),
    }
}

/// The partitions as a micro-batch of this time is planned. One that a source no longer names is gone.
pub(crate) fn planned(
    before: &PartitionMarks,
    kept: &PerPartition,
    sources: &[SourcePartitions<'_>],
    time_ms: i64,
) -> PartitionMarks {
    let seen = sources.iter().filter(|source| kept.sources.iter().any(|name| name == source.source));
    let all = seen.flat_map(|source| source.partitions.iter().map(|status| (source.source, status)));
    let mark = |(source, status): (&str, &PartitionStatus)| {
        let name = full_name(source, &status.name);
        let before = before.get(&name);
        let quiet = status.caught_up && !status.has_data;
        let active_ms = before.filter(|_| quiet).map_or(time_ms, |before| before.active_ms);
        let idle = quiet && kept.idle_timeout_ms.is_some_and(|ms| time_ms.saturating_sub(active_ms) >= ms);
        let latest_ms = before.and_then(|before| before.latest_ms);
        (name, PartitionMark { latest_ms, active_ms, caught_up: status.caught_up, idle })
    };
    all.map(mark).collect()
}

/// The event time that the watermark follows; `None` if it stays where it is.
pub(crate) fn latest_ms(partitions: &PartitionMarks) -> Option<i64> {
    match all_idle(partitions) {
        true => partitions.values().filter_map(|partition| partition.latest_ms).max(),
        // `None` is less than all times.
        false => partitions.values().filter(|partition| !partition.idle).map(|p| p.latest_ms).min().flatten(),
    }
}

/// Whether there are partitions and none is waited for.
pub(crate) fn all_idle(partitions: &PartitionMarks) -> bool {
    !partitions.is_empty() && partitions.values().all(|partition| partition.idle)
}

/// Whether the watermark waits for this partition: no other has an earlier latest event time.
pub(crate) fn holds(partitions: &PartitionMarks, name: &str) -> bool {
    let Some(partition) = partitions.get(name) else { return false };
    let waited_for = partitions.values().filter(|partition| !partition.idle);
    !partition.idle && waited_for.map(|p| p.latest_ms).min() == Some(partition.latest_ms)
}

/// The query's watermark, of those of its sources and steps: where each is, and whether it is idle.
pub(crate) fn query_ms(
    policy: WatermarkPolicy,
    marks: impl Iterator<Item = (i64, bool)> + Clone,
) -> Option<i64> {
    let waited_for = marks.clone().filter(|(_, idle)| !idle).map(|(at_ms, _)| at_ms);
    let earliest = waited_for.min().filter(|_| policy == WatermarkPolicy::Min);
    earliest.or_else(|| marks.map(|(at_ms, _)| at_ms).max())
}
