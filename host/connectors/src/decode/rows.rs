//! Collects the rows of one call of a decoder: cuts batches and does with malformed records what the
//! source's policy says. Called by every text format's decoder.

use super::column::{Column, Values};
use super::{BATCH_ROWS, DecoderSettings, corrupt_column};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pelton_core::{DeadLetter, Decoded, Error, LossKind, MalformedPolicy, Result};

/// What stays the same over all calls.
#[derive(Debug)]
pub(crate) struct RowSettings {
    pub(crate) schema: SchemaRef,
    /// The column that keeps malformed records, if it is wanted.
    pub(crate) corrupt: Option<usize>,
    policy: MalformedPolicy,
    origin: String,
}

impl RowSettings {
    pub(crate) fn new(settings: &DecoderSettings, corrupt_name: &str) -> Result<Self> {
        let schema = settings.wanted()?;
        let corrupt = corrupt_column(schema.fields(), corrupt_name)?;
        // Types that cannot be decoded are refused now, not at the first row.
        schema.fields().iter().try_for_each(|f| Column::new(f.data_type()).map(drop))?;
        Ok(Self { schema, corrupt, policy: settings.on_malformed, origin: settings.origin.clone() })
    }
}

/// The rows of one call. Columns may hold rows that are not yet accepted, by [`Rows::good`] or [`Rows::malformed`].
pub(crate) struct Rows<'a> {
    settings: &'a RowSettings,
    position: &'a dyn Fn(u64) -> String,
    pub(crate) columns: Vec<Column>,
    accepted: usize,
    /// The record that the next rows come of, if records come one by one.
    record: Option<u32>,
    decoded: Decoded,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(settings: &'a RowSettings, position: &'a dyn Fn(u64) -> String) -> Result<Self> {
        let columns = settings.schema.fields().iter().map(|f| Column::new(f.data_type()));
        let columns = columns.collect::<Result<_>>()?;
        Ok(Self { settings, position, columns, accepted: 0, record: None, decoded: Decoded::default() })
    }

    /// The next rows come of record `n`: [`Decoded::records`] will say so.
    pub(crate) fn begin_record(&mut self, n: usize) {
        self.record = u32::try_from(n).ok();
    }

    fn accept(&mut self, rows: usize) -> Result<()> {
        self.accepted += rows;
        if let Some(record) = self.record {
            self.decoded.records.extend(std::iter::repeat_n(record, rows));
        }
        if self.accepted >= BATCH_ROWS { self.flush() } else { Ok(()) }
    }

    /// `rows` rows were appended to every column but the one for malformed records, and are fine.
    #[inline]
    pub(crate) fn good(&mut self, rows: usize) -> Result<()> {
        if let Some(corrupt) = self.settings.corrupt {
            (0..rows).for_each(|_| self.columns[corrupt].push_null());
        }
        self.accept(rows)
    }

    /// Rows that are arrays already, and which record each comes of. They come behind those that were collected.
    pub(crate) fn arrays(&mut self, batch: &RecordBatch, records: &[u32]) -> Result<()> {
        self.flush()?;
        let starts = (0..batch.num_rows()).step_by(BATCH_ROWS);
        let slice = |at: usize| batch.slice(at, BATCH_ROWS.min(batch.num_rows() - at));
        self.decoded.batches.extend(starts.map(slice));
        self.decoded.records.extend_from_slice(records);
        Ok(())
    }

    /// Record `n` is malformed; `rows` rows of what could be read of it were appended (maybe none).
    #[cold]
    pub(crate) fn malformed(&mut self, n: u64, record: &[u8], rows: usize, reason: String) -> Result<()> {
        match self.settings.policy {
            MalformedPolicy::Null => return self.keep(record, rows),
            MalformedPolicy::Fail => {
                let shown = String::from_utf8_lossy(&record[..record.len().min(200)]).into_owned();
                return Err(Error::data(format!("{}: {reason}; the record: {shown}", (self.position)(n)))
                    .hint("on_malformed: drop, null or dead_letter lets the query go on"));
            }
            MalformedPolicy::Drop => self.decoded.dropped_rows += 1,
            MalformedPolicy::DeadLetter => self.decoded.dead_letters.push(DeadLetter {
                kind: LossKind::Malformed,
                origin: self.settings.origin.clone(),
                position: Some((self.position)(n)),
                reason,
                plugin: None,
                payload: Bytes::copy_from_slice(record),
                message: None,
            }),
        }
        self.discard();
        Ok(())
    }

    /// Takes back what was appended and not accepted.
    pub(crate) fn discard(&mut self) {
        self.columns.iter_mut().for_each(|column| column.truncate(self.accepted));
    }

    fn keep(&mut self, record: &[u8], rows: usize) -> Result<()> {
        let corrupt = self.settings.corrupt;
        if rows == 0 {
            let others = self.columns.iter_mut().enumerate().filter(|(i, _)| Some(*i) != corrupt);
            others.for_each(|(_, column)| column.push_null());
        }
        let rows = rows.max(1);
        if let Some(Column { values: Values::Text(pieces), .. }) = corrupt.map(|i| &mut self.columns[i]) {
            let text = String::from_utf8_lossy(record);
            (0..rows).for_each(|_| pieces.push(text.as_bytes()));
            corrupt.into_iter().for_each(|i| (0..rows).for_each(|_| self.columns[i].valid()));
        }
        self.accept(rows)
    }

    fn flush(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.accepted);
        if rows == 0 {
            return Ok(());
        }
        let columns = self.columns.iter_mut().map(Column::finish).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.settings.schema.clone(), columns, &options)?;
        let starts = (0..rows).step_by(BATCH_ROWS);
        self.decoded.batches.extend(starts.map(|at| batch.slice(at, BATCH_ROWS.min(rows - at))));
        Ok(())
    }

    /// All that was collected.
    pub(crate) fn finish(mut self) -> Result<Decoded> {
        self.flush()?;
        Ok(self.decoded)
    }
}
