//! How far a query is and what its watermark waits for, read from its checkpoint while it runs or when it does not.
//!
//! Called by `pelton explain --live`. Takes no lock and writes nothing: it reads what the two logs have.

use crate::watermark::partitions;
use pelton_checkpoint::{
    CommitEntry, CommitLog, Metadata, OffsetEntry, OffsetLog, PartitionMarks, SourceOffsets,
};
use pelton_core::{BatchId, FileManager, Result, WatermarkPolicy};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often the newest entries are looked for anew if they were trimmed in the meantime.
const ATTEMPTS: usize = 5;

/// A query as its checkpoint has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Live {
    /// The last micro-batch that is done; none: nothing is.
    pub last_committed: Option<BatchId>,
    /// The micro-batch after it, if it is planned: it runs, or it died and will run again.
    pub planned: Option<BatchId>,
    /// How far each source is read, or is being read.
    pub sources: BTreeMap<String, SourceOffsets>,
    /// How the query's watermark follows from several.
    pub policy: Option<WatermarkPolicy>,
    /// The query's watermark: the planned micro-batch's, or else the next one's. None: it has none.
    pub watermark: Option<Standing>,
    /// Each of the query's watermarks, by name.
    pub watermarks: BTreeMap<String, Standing>,
    /// The partitions of those that are kept by partition.
    pub partitions: BTreeMap<String, PartitionMarks>,
    /// What the query's watermark waits for.
    pub holders: Vec<Holder>,
}

/// Where a watermark stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The micro-batch that moved it there, or the oldest that the log still remembers; none: no record is left.
    pub since: Option<BatchId>,
}

/// A watermark that the query's waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its name: the source's or the step's.
    pub watermark: String,
    /// Which of its partitions it waits for in turn, if it is kept by partition.
    pub partitions: Vec<String>,
    /// The micro-batch since which it is so, or the oldest that the log still remembers.
    pub since: BatchId,
}

/// Reads the checkpoint of the query of this name. One that has none yet is a query of which nothing is known.
pub async fn read(files: Arc<dyn FileManager>, query_name: &str) -> Result<Live> {
    let Some(metadata) = Metadata::read(files.as_ref()).await? else { return Ok(Live::default()) };
    metadata.check_name(query_name, &files.url())?;
    let (offsets, commits) = (OffsetLog::new(Arc::clone(&files)), CommitLog::new(files));
    for _ in 0..ATTEMPTS {
        let (planned, ids) = (offsets.ids().await?.pop(), commits.ids().await?);
        let Some(planned) = planned else { break };
        let Some(entry) = offsets.get(planned).await? else { continue };
        let mut live = Live::new(planned, &entry, ids.last().copied());
        for id in ids.into_iter().rev() {
            // Entries go while the query runs; what is gone was too old to matter.
            match commits.get(id).await? {
                Some(commit) if live.goes_back(id, &commit) => {}
                _ => break,
            }
        }
        return Ok(live);
    }
    Ok(Live::default())
}

impl Live {
    fn new(newest: BatchId, entry: &OffsetEntry, last_committed: Option<BatchId>) -> Self {
        let planned = (last_committed != Some(newest)).then_some(newest);
        Self {
            last_committed,
            planned,
            sources: entry.sources.clone(),
            policy: entry.watermark_policy,
            watermark: entry.watermark_ms.filter(|_| planned.is_some()).map(standing),
            partitions: entry.partitions.clone(),
            ..Self::default()
        }
    }

    /// Takes note of what a commit says, newest first. Whether an older one may still say something: since when.
    fn goes_back(&mut self, id: BatchId, commit: &CommitEntry) -> bool {
        let policy = self.policy.unwrap_or_default();
        if Some(id) == self.last_committed {
            self.watermarks =
                commit.watermarks.iter().map(|(name, at)| (name.clone(), standing(*at))).collect();
            self.watermark = self.watermark.or(commit.next_watermark_ms.map(standing));
            if self.planned.is_none() {
                self.partitions = commit.partitions.clone();
            }
            self.holders = holders(commit, policy, id);
        }
        let mut on = false;
        if let Some(watermark) = &mut self.watermark {
            on |= watermark.stood(id, commit.next_watermark_ms);
        }
        for (name, watermark) in &mut self.watermarks {
            on |= watermark.stood(id, commit.watermarks.get(name).copied());
        }
        let then = holders(commit, policy, id);
        for holder in &mut self.holders {
            let same = |other: &&Holder| {
                other.watermark == holder.watermark && other.partitions == holder.partitions
            };
            let held = holder.since.0 <= id.0 + 1 && then.iter().any(|other| same(&other));
            if held {
                holder.since = id;
            }
            on |= held;
        }
        on
    }
}

fn standing(at_ms: i64) -> Standing {
    Standing { at_ms, since: None }
}

impl Standing {
    /// Whether it stood there after this micro-batch, and after all later ones.
    fn stood(&mut self, id: BatchId, at_ms: Option<i64>) -> bool {
        let without_gap = self.since.is_none_or(|since| since.0 == id.0 + 1);
        let stood = without_gap && at_ms == Some(self.at_ms);
        if stood {
            self.since = Some(id);
        }
        stood
    }
}

/// What the query's watermark waits for after a micro-batch.
fn holders(commit: &CommitEntry, policy: WatermarkPolicy, since: BatchId) -> Vec<Holder> {
    let nothing = PartitionMarks::new();
    let of = |name: &String| commit.partitions.get(name).unwrap_or(&nothing);
    let marks = commit.watermarks.iter().map(|(name, at_ms)| (*at_ms, partitions::all_idle(of(name))));
    let chosen = partitions::query_ms(policy, marks);
    let waited_for = commit.watermarks.iter().filter(|(name, at_ms)| {
        let counts = policy == WatermarkPolicy::Max || !partitions::all_idle(of(name));
        counts && chosen == Some(**at_ms)
    });
    let holder = |(name, _): (&String, &i64)| Holder {
        watermark: name.clone(),
        partitions: of(name).keys().filter(|part| partitions::holds(of(name), part)).cloned().collect(),
        since,
    };
    waited_for.map(holder).collect()
}
