//! How far the query's watermarks are: a pure account of event times, moved once a micro-batch.
//! Spark's `WatermarkTracker`.
//!
//! `rows` notes event times in [`EventTimes`] while rows pass; `micro_batch` takes them over into the
//! [`WatermarkTracker`] when the sink has the rows. A watermark that is kept by partition also moves when a micro-batch is
//! planned and a partition has become idle (`partitions`). Nothing here reads a clock or judges a row.

pub(crate) mod partitions;

use partitions::SourcePartitions;
use pelton_checkpoint::{PartitionMark, PartitionMarks};
use pelton_core::{PerPartition, WatermarkInfo, WatermarkPolicy};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The watermark of a query that has seen nothing, and the lowest there is: 1970, as in Spark. Rows before it are late
/// from the first micro-batch on.
const BEGINNING_MS: i64 = 0;

/// The latest event times of a micro-batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LatestTimes {
    /// Of each watermark, in their order.
    pub(crate) all: Vec<Option<i64>>,
    /// Of each partition, by name, of those watermarks that are kept by partition; in the same order.
    pub(crate) partitions: Vec<BTreeMap<String, i64>>,
}

/// The latest event time that each watermark has seen in a micro-batch; noted from many threads.
#[derive(Debug, Default)]
pub(crate) struct EventTimes {
    by_partition: Vec<bool>,
    latest: Mutex<LatestTimes>,
}

impl EventTimes {
    pub(crate) fn new(watermarks: &[WatermarkInfo]) -> Self {
        let latest = LatestTimes {
            all: vec![None; watermarks.len()],
            partitions: vec![BTreeMap::new(); watermarks.len()],
        };
        Self {
            by_partition: watermarks.iter().map(|info| info.per_partition.is_some()).collect(),
            latest: Mutex::new(latest),
        }
    }

    /// Takes note of what a part of the micro-batch has seen. The order of the parts does not matter.
    pub(crate) fn note(&self, seen: &[Option<i64>]) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        for (latest, seen) in latest.all.iter_mut().zip(seen) {
            *latest = (*latest).max(*seen);
        }
    }

    /// The same of rows that come from a partition of a source.
    pub(crate) fn note_of(&self, source: &str, partition: &str, seen: &[Option<i64>]) {
        self.note(seen);
        if !self.by_partition.contains(&true) {
            return;
        }
        let name = partitions::full_name(source, partition);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let marks = latest.partitions.iter_mut().zip(&self.by_partition).zip(seen);
        for ((partitions, _), seen) in marks.filter(|((_, by_partition), _)| **by_partition) {
            let Some(seen) = *seen else { continue };
            let latest = partitions.entry(name.clone()).or_insert(seen);
            *latest = (*latest).max(seen);
        }
    }

    pub(crate) fn latest(&self) -> LatestTimes {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One watermark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) name: String,
    delay_ms: i64,
    /// Where it is.
    pub(crate) at_ms: i64,
    per_partition: Option<PerPartition>,
    /// How far its partitions are; none if it is not kept by partition.
    pub(crate) partitions: PartitionMarks,
}

impl Mark {
    /// It never falls.
    fn rise(&mut self, latest_ms: Option<i64>) {
        if let Some(latest_ms) = latest_ms {
            self.at_ms = self.at_ms.max(latest_ms.saturating_sub(self.delay_ms));
        }
    }
}

/// All watermarks of a query, and the one that follows from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatermarkTracker {
    policy: WatermarkPolicy,
    marks: Vec<Mark>,
    query_ms: i64,
}

/// What a checkpoint says of a query's watermarks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    /// Each watermark by name.
    pub(crate) marks: BTreeMap<String, i64>,
    /// Their partitions; of a micro-batch that runs again as they were when it was planned.
    pub(crate) partitions: BTreeMap<String, PartitionMarks>,
    /// The query's own.
    pub(crate) query_ms: Option<i64>,
}

impl WatermarkTracker {
    /// Goes on from what the checkpoint says. A watermark that is new begins in 1970; the query's own never goes back,
    /// whatever the plan has become.
    pub(crate) fn new(infos: &[WatermarkInfo], policy: WatermarkPolicy, recorded: &Recorded) -> Self {
        let mark = |info: &WatermarkInfo| {
            let partitions = info.per_partition.as_ref().and_then(|_| recorded.partitions.get(&info.name));
            let mut mark = Mark {
                name: info.name.clone(),
                delay_ms: info.delay_ms,
                at_ms: recorded.marks.get(&info.name).copied().unwrap_or(BEGINNING_MS),
                per_partition: info.per_partition.clone(),
                partitions: partitions.cloned().unwrap_or_default(),
            };
            mark.rise(partitions::latest_ms(&mark.partitions));
            mark
        };
        let query_ms = recorded.query_ms.unwrap_or(BEGINNING_MS).max(BEGINNING_MS);
        Self { policy, marks: infos.iter().map(mark).collect(), query_ms }
    }

    pub(crate) fn policy(&self) -> WatermarkPolicy {
        self.policy
    }

    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The query's watermark; `None` if it has none.
    pub(crate) fn current_ms(&self) -> Option<i64> {
        (!self.marks.is_empty()).then_some(self.query_ms)
    }

    /// What the commit log records: each watermark by name.
    pub(crate) fn record(&self) -> BTreeMap<String, i64> {
        self.marks.iter().map(|mark| (mark.name.clone(), mark.at_ms)).collect()
    }

    /// What both logs record of the watermarks that are kept by partition.
    pub(crate) fn record_partitions(&self) -> BTreeMap<String, PartitionMarks> {
        let kept = self.marks.iter().filter(|mark| mark.per_partition.is_some());
        kept.map(|mark| (mark.name.clone(), mark.partitions.clone())).collect()
    }

    /// Whether the partitions of a source matter.
    pub(crate) fn watches_partitions_of(&self, source: &str) -> bool {
        let kept = self.marks.iter().filter_map(|mark| mark.per_partition.as_ref());
        kept.flat_map(|kept| &kept.sources).any(|name| name == source)
    }

    /// A micro-batch is planned for this time, and this is what the sources say of their partitions. One that has become
    /// idle holds its watermark back no longer: the micro-batch may run with a later one than the last has left.
    pub(crate) fn plan(&mut self, sources: &[SourcePartitions<'_>], time_ms: i64) {
        for mark in &mut self.marks {
            let Some(kept) = &mark.per_partition else { continue };
            mark.partitions = partitions::planned(&mark.partitions, kept, sources, time_ms);
            mark.rise(partitions::latest_ms(&mark.partitions));
        }
        self.follow();
    }

    /// A micro-batch of this time is at its end, and these are the latest event times that it saw.
    pub(crate) fn advance(&mut self, seen: &LatestTimes, time_ms: i64) {
        let seen = seen.all.iter().zip(&seen.partitions);
        for (mark, (all, by_partition)) in self.marks.iter_mut().zip(seen) {
            if mark.per_partition.is_none() {
                mark.rise(*all);
                continue;
            }
            for (name, latest_ms) in by_partition {
                let new =
                    PartitionMark { latest_ms: None, active_ms: time_ms, caught_up: false, idle: false };
                let partition = mark.partitions.entry(name.clone()).or_insert(new);
                partition.latest_ms = partition.latest_ms.max(Some(*latest_ms));
            }
            mark.rise(partitions::latest_ms(&mark.partitions));
        }
        self.follow();
    }

    /// Whether the query's watermark waits for this one.
    pub(crate) fn waits_for(&self, mark: &Mark) -> bool {
        let chosen = partitions::query_ms(self.policy, self.at());
        let counts = self.policy == WatermarkPolicy::Max || !partitions::all_idle(&mark.partitions);
        counts && chosen == Some(mark.at_ms)
    }

    fn at(&self) -> impl Iterator<Item = (i64, bool)> + Clone {
        self.marks.iter().map(|mark| (mark.at_ms, partitions::all_idle(&mark.partitions)))
    }

    fn follow(&mut self) {
        let chosen = partitions::query_ms(self.policy, self.at());
        self.query_ms = self.query_ms.max(chosen.unwrap_or(BEGINNING_MS));
    }
}

#[cfg(test)]
mod tests;
