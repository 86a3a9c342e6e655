//! What a shadow has found: kept while it runs, answered by the API, printed by `pelton swap --shadow` and `pelton shadow`.

use super::PromoteIf;
use crate::compare::Differences;
use crate::runner::Swapped;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Differences of a kind that are kept as they are.
const SAMPLES_MAX: usize = 20;

/// How far a shadow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShadowOutcome {
    /// It runs, or waits for the next micro-batch.
    Running,
    /// It has run for as many micro-batches as it was to.
    Done,
    /// The new version has failed, or the micro-batches cannot be run again: see `message`.
    Failed,
    /// It was ended before its time: see `message`.
    Ended,
}

/// How many rows of both versions belong together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DifferenceCounts {
    /// Of the version that runs.
    pub(crate) running: u64,
    /// Of the new one.
    pub(crate) new: u64,
    /// The same in both.
    pub(crate) equal: u64,
    /// With the same key, and other columns.
    pub(crate) changed: u64,
    /// In the version that runs alone.
    pub(crate) only_running: u64,
    /// In the new one alone.
    pub(crate) only_new: u64,
}

/// A difference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Sample {
    /// The micro-batch.
    pub(crate) batch_id: u64,
    /// It is a dead letter, not a row for the sink.
    pub(crate) is_dead_letter: bool,
    /// As the version that runs has it; none if only the new one does.
    #[schema(value_type = Option<Object>)]
    pub(crate) running: Option<Value>,
    /// As the new version has it; none if only the one that runs does.
    #[schema(value_type = Option<Object>)]
    pub(crate) new: Option<Value>,
}

/// What a version has done in the shadow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct VersionReport {
    /// Calls of its functions.
    pub(crate) calls: u64,
    /// Rows that they were called with.
    pub(crate) rows: u64,
    /// Time inside calls, summed over threads. A guest waits for nothing, so it is CPU time if there is enough of that.
    pub(crate) busy_seconds: f64,
    /// The largest guest memory.
    pub(crate) memory_bytes_max: u64,
    /// Rows that functions refused.
    pub(crate) refused_rows: u64,
    /// Rows that functions failed on, and that went to the dead letters.
    pub(crate) poison_rows: u64,
    /// Rows behind the watermark.
    pub(crate) late_rows: u64,
    /// Rows of state after the last micro-batch.
    pub(crate) state_rows: u64,
    /// The bytes of their keys and values.
    pub(crate) state_bytes: u64,
}

/// What was found so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ShadowReport {
    /// The plugin's name in the pipeline file.
    pub(crate) plugin: String,
    /// SHA-256 of the version that runs.
    pub(crate) from: String,
    /// SHA-256 of the version that is tried.
    pub(crate) to: String,
    /// How far it is.
    pub(crate) outcome: ShadowOutcome,
    /// Why it failed or was ended.
    pub(crate) message: Option<String>,
    /// Micro-batches that were to be run.
    pub(crate) batches_wanted: u64,
    /// Micro-batches that both versions have run.
    pub(crate) batches: u64,
    /// Of these, in which the version that runs gave another number of rows in the query: the source has given other rows
    /// the second time, or the plugin does not keep to its contract.
    pub(crate) unlike_batches: u64,
    /// The first micro-batch.
    pub(crate) first_batch: Option<u64>,
    /// The last one so far.
    pub(crate) last_batch: Option<u64>,
    /// The columns by which rows belong together; without any they are compared as a whole.
    pub(crate) key: Vec<String>,
    /// Rows for the sink.
    pub(crate) rows: DifferenceCounts,
    /// Dead letters. Which version lost a row makes no difference.
    pub(crate) dead_letters: DifferenceCounts,
    /// The first differences of each kind.
    pub(crate) samples: Vec<Sample>,
    /// Entries of state that differ at the end; none if it was not reached, or if the new version lays them out otherwise.
    pub(crate) differing_state: Option<u64>,
    /// What the version that runs did, in the shadow.
    pub(crate) running: VersionReport,
    /// What the new one did.
    pub(crate) new: VersionReport,
    /// When it takes over by itself: `identical`, or `within=P%`.
    #[schema(value_type = Option<String>)]
    pub(crate) promote_if: Option<PromoteIf>,
    /// That it took over.
    pub(crate) promoted: Option<Swapped>,
    /// Why it did not take over.
    pub(crate) not_promoted: Option<String>,
}

impl DifferenceCounts {
    /// Rows that do not have their like.
    pub(crate) fn differing(&self) -> u64 {
        self.changed + self.only_running + self.only_new
    }

    fn add(&mut self, found: &Differences) {
        self.running += found.old as u64;
        self.new += found.new as u64;
        self.equal += found.equal as u64;
        self.changed += found.changed.len() as u64;
        self.only_running += found.only_old.len() as u64;
        self.only_new += found.only_new.len() as u64;
    }
}

impl ShadowReport {
    /// Of one that begins.
    pub(crate) fn new(
        plugin: &str,
        (from, to): (&str, &str),
        batches_wanted: u64,
        promote_if: Option<PromoteIf>,
        key: Vec<String>,
    ) -> Self {
        Self {
            plugin: plugin.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            outcome: ShadowOutcome::Running,
            message: None,
            batches_wanted,
            batches: 0,
            unlike_batches: 0,
            first_batch: None,
            last_batch: None,
            key,
            rows: DifferenceCounts::default(),
            dead_letters: DifferenceCounts::default(),
            samples: Vec::new(),
            differing_state: None,
            running: VersionReport::default(),
            new: VersionReport::default(),
            promote_if,
            promoted: None,
            not_promoted: None,
        }
    }

    /// Rows and dead letters that differ.
    pub(crate) fn differing_rows(&self) -> u64 {
        self.rows.differing() + self.dead_letters.differing()
    }

    /// Adds a micro-batch that both versions have run.
    pub(super) fn add(&mut self, batch_id: u64, rows: &Differences, dead_letters: &Differences) {
        self.batches += 1;
        self.first_batch.get_or_insert(batch_id);
        self.last_batch = Some(batch_id);
        self.rows.add(rows);
        self.dead_letters.add(dead_letters);
        for (found, is_dead_letter) in [(rows, false), (dead_letters, true)] {
            let sample = |running: Option<&Value>, new: Option<&Value>| Sample {
                batch_id,
                is_dead_letter,
                running: running.cloned(),
                new: new.cloned(),
            };
            self.keep(found.changed.iter().map(|(old, new)| sample(Some(old), Some(new))));
            self.keep(found.only_old.iter().map(|old| sample(Some(old), None)));
            self.keep(found.only_new.iter().map(|new| sample(None, Some(new))));
        }
    }

    /// Keeps as many of one kind as there is room for.
    fn keep(&mut self, samples: impl Iterator<Item = Sample>) {
        let mut samples = samples.peekable();
        let kind = |sample: &Sample| (sample.is_dead_letter, sample.running.is_some(), sample.new.is_some());
        let Some(of) = samples.peek().map(kind) else { return };
        let kept = self.samples.iter().filter(|sample| kind(sample) == of).count();
        self.samples.extend(samples.take(SAMPLES_MAX.saturating_sub(kept)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_the_first_of_each_kind_are_kept() {
        let mut report = ShadowReport::new("p", ("a", "b"), 5, None, Vec::new());
        let found = Differences {
            old: 16,
            new: 15,
            equal: 0,
            changed: (0..15).map(|n| (n.into(), (-n).into())).collect(),
            only_old: vec!["x".into()],
            only_new: Vec::new(),
        };
        report.add(7, &found, &Differences::default());
        report.add(8, &found, &found);
        assert_eq!((report.batches, report.first_batch, report.last_batch), (2, Some(7), Some(8)));
        assert_eq!((report.rows.running, report.rows.changed, report.rows.only_running), (32, 30, 2));
        assert_eq!(report.differing_rows(), 32 + 16);
        let kept = |is_dead_letter, batch_id| {
            let of =
                |sample: &&Sample| sample.is_dead_letter == is_dead_letter && sample.batch_id == batch_id;
            report.samples.iter().filter(of).count()
        };
        assert_eq!([kept(false, 7), kept(false, 8), kept(true, 8)], [16, 6, 16]);
    }
}
