//! Runs a micro-batch again as the logs have it, for whoever wants to look. Nothing is written, nobody is told.
//!
//! Called by the binary with the parts that it has opened for reading: what the offset log says of the micro-batch, the
//! state that the one before left, the code that it ran with or another. It goes through the same steps 3 to 5 as in its
//! own time, and gives what the sink was given then. Whoever goes on from one micro-batch to the next gets the state
//! back: so a version of a plugin runs beside a query.

use crate::letters::Letters;
use crate::meters::Meters;
use crate::query::Input;
use crate::reset;
use crate::rows::{RowsOfBatch, open_inputs};
use crate::watermark::EventTimes;
use arrow::array::RecordBatch;
use futures::TryStreamExt;
use pelton_checkpoint::{DeadLetterFile, OffsetEntry, SourceOffsets, layout};
use pelton_core::sink::RowStream;
use pelton_core::{
    BatchId, BatchInfo, Dataflow, Error, FileManager, MemoryFiles, OperatorReport, QueryId, Result, Source,
    StateStore, Table,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The parts of a query that a micro-batch runs with.
pub struct Replay {
    query_id: QueryId,
    dataflow: Arc<dyn Dataflow>,
    inputs: Vec<Input>,
    tables: Vec<(String, Arc<dyn Table>)>,
    parallelism: usize,
}

/// A micro-batch that runs again: its rows come when they are asked for.
pub struct ReplayedBatch {
    /// The rows for the sink, in order.
    pub rows: RowStream,
    /// The state after it, if the query is stateful.
    pub state: Option<Box<dyn StateStore>>,
    /// What the stateful operators did.
    pub operators: Vec<OperatorReport>,
    /// What it loses, complete when the rows have come to their end.
    pub losses: Losses,
}

/// What a micro-batch that runs again loses.
pub struct Losses {
    batch_id: BatchId,
    letters: Arc<MemoryFiles>,
    meters: Arc<Meters>,
}

/// Rows that a micro-batch lost, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostRows {
    /// A function refused them.
    pub refused: u64,
    /// A function failed on them.
    pub poison: u64,
    /// They came behind the watermark.
    pub late: u64,
}

/// What a micro-batch gave.
pub struct Replayed {
    /// The rows for the sink, in order.
    pub rows: Vec<RecordBatch>,
    /// What went to the dead letters, as it is written there.
    pub dead_letters: Vec<Value>,
}

/// What is known of a micro-batch whose entry in the offset log this is.
pub(crate) fn batch_info(
    query_id: &QueryId,
    batch_id: BatchId,
    entry: &OffsetEntry,
    dataflow: &dyn Dataflow,
) -> BatchInfo {
    // A plan that has changed since the entry was written may have its first watermark, or none any more.
    let has_watermarks = !dataflow.watermarks().is_empty();
    let known = |recorded: Option<i64>| has_watermarks.then(|| recorded.unwrap_or(0));
    BatchInfo {
        query_id: query_id.clone(),
        batch_id,
        time_ms: entry.batch_time_ms,
        watermark_ms: known(entry.watermark_ms),
        late_watermark_ms: known(entry.late_watermark_ms),
    }
}

/// What a micro-batch reads of each input, as its entry says.
pub(crate) fn ranges(inputs: &[Input], entry: &OffsetEntry) -> Vec<SourceOffsets> {
    let nothing = SourceOffsets { start: None, end: None };
    let range = |input: &Input| entry.sources.get(&input.name).cloned().unwrap_or(nothing.clone());
    inputs.iter().map(range).collect()
}

impl Replay {
    /// Of a query; `query_id` decides about the functions' randomness.
    pub fn new(
        query_id: QueryId,
        dataflow: Arc<dyn Dataflow>,
        inputs: impl IntoIterator<Item = (String, Arc<dyn Source>)>,
        tables: impl IntoIterator<Item = (String, Arc<dyn Table>)>,
    ) -> Self {
        let inputs = inputs.into_iter().map(|(name, source)| Input { name, source }).collect();
        let parallelism = std::thread::available_parallelism().map_or(1, usize::from);
        Self { query_id, dataflow, inputs, tables: tables.into_iter().collect(), parallelism }
    }

    /// Blocks that are decoded and processed at a time. Default: the machine's cores.
    #[must_use]
    pub fn parallelism(mut self, parallelism: usize) -> Self {
        self.parallelism = parallelism.max(1);
        self
    }

    /// Whether its operators keep state.
    pub fn is_stateful(&self) -> bool {
        !self.dataflow.operators().is_empty()
    }

    /// Runs a micro-batch. `state` is what the one before it left, if the query is stateful; it is changed and let go.
    pub async fn run(
        &self,
        batch_id: BatchId,
        entry: &OffsetEntry,
        state: Option<Box<dyn StateStore>>,
    ) -> Result<Replayed> {
        let ReplayedBatch { rows, losses, .. } = self.begin(batch_id, entry, state).await?;
        let rows = rows.try_collect().await?;
        Ok(Replayed { rows, dead_letters: losses.dead_letters().await? })
    }

    /// The same, for whoever goes on with the state and takes the rows one by one. If the query is stateful, all of the
    /// work is done when this returns.
    pub async fn begin(
        &self,
        batch_id: BatchId,
        entry: &OffsetEntry,
        state: Option<Box<dyn StateStore>>,
    ) -> Result<ReplayedBatch> {
        for (name, table) in &self.tables {
            let Some(version) = entry.tables.get(name) else { continue };
            let pinned = table.pin(version).await;
            pinned.map_err(|failed| failed.context(format_args!("table '{name}'")))?;
        }
        let letters = Arc::new(MemoryFiles::new());
        let rows = self.rows(batch_id, entry, &letters).await?;
        let meters = Arc::clone(&rows.meters);
        let (rows, state, operators) = match (self.is_stateful(), state) {
            (false, _) => (rows.into_stream(), None, Vec::new()),
            (true, None) => return Err(Error::internal("a stateful query was replayed without its state")),
            (true, Some(mut state)) => {
                let operators = self.dataflow.operators();
                entry
                    .reset
                    .iter()
                    .try_for_each(|named| reset::clear_recorded(state.as_mut(), named, operators))?;
                let gathered = rows.gather(state).await?;
                (gathered.rows, Some(gathered.state), gathered.operators)
            }
        };
        Ok(ReplayedBatch { rows, state, operators, losses: Losses { batch_id, letters, meters } })
    }

    async fn rows(
        &self,
        batch_id: BatchId,
        entry: &OffsetEntry,
        letters: &Arc<MemoryFiles>,
    ) -> Result<RowsOfBatch> {
        let info = batch_info(&self.query_id, batch_id, entry, self.dataflow.as_ref());
        let inputs = open_inputs(&self.inputs, &ranges(&self.inputs, entry), batch_id).await?;
        Ok(RowsOfBatch {
            info: Arc::new(info),
            dataflow: Arc::clone(&self.dataflow),
            parallelism: self.parallelism,
            dead_letters: Letters::new(DeadLetterFile::new(
                Arc::clone(letters) as Arc<dyn FileManager>,
                batch_id,
            )),
            event_times: Arc::new(EventTimes::new(self.dataflow.watermarks())),
            on_probation: BTreeSet::new(),
            meters: Arc::new(Meters::new(self.inputs.len())),
            inputs,
        })
    }
}

impl Losses {
    /// What went to the dead letters, as it is written there.
    pub async fn dead_letters(&self) -> Result<Vec<Value>> {
        let written = self.letters.read(&layout::dead_letters(self.batch_id)).await?.unwrap_or_default();
        let lines = written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let dead_letters = lines.map(|line| {
            serde_json::from_slice(line)
                .map_err(|e| Error::internal(format!("a dead letter is no JSON: {e}")))
        });
        dead_letters.collect()
    }

    /// How many rows.
    pub fn rows(&self) -> LostRows {
        LostRows {
            refused: self.meters.refused.load(Relaxed),
            poison: self.meters.poison.load(Relaxed),
            late: self.meters.late.load(Relaxed),
        }
    }
}
