//! Keeps the rows in memory, for tests: Spark's `memory` sink. It forgets everything with the process.

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::TryStreamExt;
use parking_lot::Mutex;
use pelton_core::{BatchId, BatchInfo, Error, OutputMode, Result, RowStream, Sink, SinkContext, SinkReport};
use std::collections::BTreeMap;

/// Rows kept unless another limit is set.
pub const ROWS_MAX: u64 = 10_000_000;

/// A sink whose rows a test can look at. Several runs of a query may write to one after the other.
#[derive(Debug)]
pub struct MemorySink {
    rows_max: u64,
    batches: Mutex<BTreeMap<BatchId, Vec<RecordBatch>>>,
}

impl Default for MemorySink {
    fn default() -> Self {
        Self::new(ROWS_MAX)
    }
}

impl MemorySink {
    /// A sink that takes up to `rows_max` rows in all and refuses more.
    pub fn new(rows_max: u64) -> Self {
        Self { rows_max, batches: Mutex::default() }
    }

    /// The rows of every micro-batch that was written, empty ones included, in order.
    pub fn batches(&self) -> Vec<(BatchId, Vec<RecordBatch>)> {
        self.batches.lock().iter().map(|(id, rows)| (*id, rows.clone())).collect()
    }

    /// Rows in all.
    pub fn row_count(&self) -> u64 {
        self.batches.lock().values().flatten().map(|batch| batch.num_rows() as u64).sum()
    }
}

#[async_trait]
impl Sink for MemorySink {
    fn description(&self) -> String {
        "memory".into()
    }

    fn output_modes(&self) -> &[OutputMode] {
        &[OutputMode::Append, OutputMode::Update, OutputMode::Complete]
    }

    async fn open(&self, _context: SinkContext) -> Result<()> {
        Ok(())
    }

    async fn may_hold(&self, batch: &BatchInfo, _begun_before: bool) -> Result<bool> {
        Ok(self.batches.lock().contains_key(&batch.batch_id))
    }

    async fn write(&self, batch: &BatchInfo, mut rows: RowStream) -> Result<SinkReport> {
        if let Some(known) = self.batches.lock().get(&batch.batch_id) {
            let rows = known.iter().map(|rows| rows.num_rows() as u64).sum();
            return Ok(SinkReport { rows, already_committed: true, ..SinkReport::default() });
        }
        let before = self.row_count();
        let mut taken = Vec::new();
        let mut report = SinkReport::default();
        while let Some(rows) = rows.try_next().await? {
            report.rows += rows.num_rows() as u64;
            if before + report.rows > self.rows_max {
                return Err(Error::data(format!(
                    "the memory sink is full: it holds {} rows at most",
                    self.rows_max
                ))
                .hint("write to files, or keep only what the test looks at"));
            }
            taken.push(rows);
        }
        self.batches.lock().insert(batch.batch_id, taken);
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::file::test_rows::{batch_info, numbers, stream};

    #[tokio::test]
    async fn a_micro_batch_is_kept_once() {
        let sink = MemorySink::new(5);
        let report = sink.write(&batch_info(0), stream(vec![numbers(0..2), numbers(2..3)])).await.unwrap();
        assert_eq!((report.rows, report.already_committed), (3, false));
        let again = sink.write(&batch_info(0), stream(vec![numbers(0..3)])).await.unwrap();
        assert_eq!((again.rows, again.already_committed), (3, true));
        sink.write(&batch_info(1), stream(vec![])).await.unwrap();
        assert_eq!(sink.batches().len(), 2);
        assert_eq!(sink.batches()[0].1, [numbers(0..2), numbers(2..3)]);
        let full = sink.write(&batch_info(2), stream(vec![numbers(0..3)])).await.unwrap_err();
        assert!(full.message().contains("5 rows at most"), "{full}");
        assert_eq!(sink.row_count(), 3);
    }
}
