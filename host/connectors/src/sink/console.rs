//! Prints micro-batches: as Spark's tables for people, or as lines of JSON, CSV or text for pipes.
//!
//! It is not exactly-once: what was printed before a crash is printed again.

use super::drawn::DrawnTable;
use super::parallelism;
use crate::decode::options::OptionMap;
use crate::encode::{Encoded, Encoder, FileFormat};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use pelton_core::{BatchId, BatchInfo, Error, OutputMode, Result, RowStream, Sink, SinkContext, SinkReport};
use std::fmt;
use std::io::Write;
use std::sync::Arc;

/// Encoded rows of a micro-batch that wait for its end; beyond this they are printed as they come, in bounded memory.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConsoleFormat {
    /// A table a micro-batch.
    #[default]
    Table,
    /// All rows, one JSON object a line, and nothing else.
    Json,
    /// All rows as comma-separated values.
    Csv,
    /// One string column, a line each.
    Text,
}

impl ConsoleFormat {
    /// As lines of files have it; `None` for tables.
    fn of_lines(self) -> Option<FileFormat> {
        match self {
            Self::Table => None,
            Self::Json => Some(FileFormat::Json),
            Self::Csv => Some(FileFormat::Csv),
            Self::Text => Some(FileFormat::Text),
        }
    }
}

/// The console's options, with Spark's defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleOptions {
    /// Tables or lines.
    pub format: ConsoleFormat,
    /// The options of lines, as for files.
    pub options: OptionMap,
    /// Rows that a table shows at most.
    pub num_rows: usize,
    /// Characters that a cell of a table keeps; `None` for all of them.
    pub truncate: Option<usize>,
}

impl Default for ConsoleOptions {
    fn default() -> Self {
        let options = OptionMap::new();
        Self { format: ConsoleFormat::Table, options, num_rows: 20, truncate: Some(20) }
    }
}

impl ConsoleOptions {
    /// Whether rows of this schema can be printed so; the error says what to change.
    pub fn check(&self, schema: &Schema) -> Result<()> {
        self.encoder(schema).map(|_| ())
    }

    fn encoder(&self, schema: &Schema) -> Result<Option<Arc<Encoder>>> {
        match self.format.of_lines() {
            Some(format) => {
                Encoder::new(format, schema, &self.options).map(|encoder| Some(Arc::new(encoder)))
            }
            None if self.options.is_empty() => Ok(None),
            None => {
                Err(Error::invalid("a table has no `options`").hint("they are for format json, csv and text"))
            }
        }
    }
}

/// A sink that prints. If the reader has gone away, [`Error::is_broken_pipe`] says so.
pub struct ConsoleSink {
    options: ConsoleOptions,
    out: Arc<Mutex<Box<dyn Write + Send>>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    schema: Option<SchemaRef>,
    /// Of lines.
    encoder: Option<Arc<Encoder>>,
    /// What stands above the first line, until it is printed.
    head: Vec<u8>,
    printed: Option<BatchId>,
}

impl fmt::Debug for ConsoleSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleSink").field("options", &self.options).finish_non_exhaustive()
    }
}

impl ConsoleSink {
    /// Prints to `out`, which is stdout in the binary.
    pub fn new(out: Box<dyn Write + Send>, options: ConsoleOptions) -> Self {
        Self { options, out: Arc::new(Mutex::new(out)), state: Mutex::default() }
    }

    async fn print_table(&self, batch: &BatchInfo, mut rows: RowStream) -> Result<SinkReport> {
        let schema = self.state.lock().schema.clone();
        let schema = schema.ok_or_else(|| Error::internal("the console sink was not opened"))?;
        let mut table = DrawnTable::new(&schema, self.options.num_rows, self.options.truncate);
        let mut report = SinkReport::default();
        while let Some(rows) = rows.try_next().await? {
            report.rows += rows.num_rows() as u64;
            table.push(&rows)?;
        }
        let line = "-".repeat(43);
        let text = format!("{line}\nBatch: {}\n{line}\n{}\n", batch.batch_id, table.draw());
        report.bytes = text.len() as u64;
        self.print(vec![text.into_bytes()]).await?;
        Ok(report)
    }

    /// A micro-batch that fails early prints nothing: its rows wait for the end, as long as they are few.
    async fn print_lines(&self, encoder: Arc<Encoder>, rows: RowStream) -> Result<SinkReport> {
        let encode = |rows: RecordBatch| {
            let encoder = Arc::clone(&encoder);
            async move {
                let work = move || -> Result<(u64, Vec<u8>)> {
                    match encoder.encode(std::slice::from_ref(&rows))? {
                        Encoded::Bytes(out) => Ok((rows.num_rows() as u64, out)),
                        Encoded::RowGroup(_) | Encoded::Rows(_) => {
                            Err(Error::internal("rows without lines for the console"))
                        }
                    }
                };
                let done = tokio::task::spawn_blocking(work).await;
                done.map_err(|e| Error::internal(format!("encoding rows did not end: {e}")))?
            }
        };
        let mut pieces = rows.map_ok(encode).try_buffered(parallelism()).boxed();
        let (mut waiting, mut waiting_bytes) = (vec![std::mem::take(&mut self.state.lock().head)], 0);
        let mut report = SinkReport::default();
        while let Some((rows, bytes)) = pieces.try_next().await? {
            report.rows += rows;
            report.bytes += bytes.len() as u64;
            waiting_bytes += bytes.len();
            waiting.push(bytes);
            if waiting_bytes > WAITING_BYTES_MAX {
                self.print(std::mem::take(&mut waiting)).await?;
            }
        }
        self.print(waiting).await?;
        Ok(report)
    }

    /// A reader may be slow, so printing is the business of a blocking thread.
    async fn print(&self, pieces: Vec<Vec<u8>>) -> Result<()> {
        let out = Arc::clone(&self.out);
        let print = move || {
            let mut out = out.lock();
            pieces.iter().try_for_each(|piece| out.write_all(piece)).and_then(|()| out.flush())
        };
        match tokio::task::spawn_blocking(print).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(Error::unavailable(format!("cannot print rows: {e}")).caused_by(e)),
            Err(e) => Err(Error::internal(format!("printing rows did not end: {e}"))),
        }
    }
}

#[async_trait]
impl Sink for ConsoleSink {
    fn description(&self) -> String {
        match self.options.format {
            ConsoleFormat::Table => "console".into(),
            ConsoleFormat::Json => "console (json)".into(),
            ConsoleFormat::Csv => "console (csv)".into(),
            ConsoleFormat::Text => "console (text)".into(),
        }
    }

    fn output_modes(&self) -> &[OutputMode] {
        &[OutputMode::Append, OutputMode::Update, OutputMode::Complete]
    }

    async fn open(&self, context: SinkContext) -> Result<()> {
        let encoder = self.options.encoder(&context.schema)?;
        let head = encoder.as_ref().map_or(Ok(Vec::new()), |encoder| encoder.head())?;
        let (schema, printed) = (Some(context.schema), context.last_committed);
        *self.state.lock() = State { schema, encoder, head, printed };
        Ok(())
    }

    async fn write(&self, batch: &BatchInfo, rows: RowStream) -> Result<SinkReport> {
        if self.state.lock().printed >= Some(batch.batch_id) {
            return Ok(SinkReport { already_committed: true, ..SinkReport::default() });
        }
        let encoder = self.state.lock().encoder.clone();
        let report = match encoder {
            Some(encoder) => self.print_lines(encoder, rows).await?,
            None => self.print_table(batch, rows).await?,
        };
        self.state.lock().printed = Some(batch.batch_id);
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::file::test_rows::{batch_info, context, numbers, stream};
    use std::io;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().clone()).unwrap()
        }
    }

    #[tokio::test]
    async fn a_micro_batch_is_printed_once_as_a_table() {
        let page = Page::default();
        let options = ConsoleOptions { num_rows: 1, ..ConsoleOptions::default() };
        let sink = ConsoleSink::new(Box::new(page.clone()), options);
        sink.open(context(numbers(0..1).schema(), None)).await.unwrap();
        let report = sink.write(&batch_info(0), stream(vec![numbers(0..1), numbers(1..2)])).await.unwrap();
        assert_eq!(report.rows, 2);
        assert!(sink.write(&batch_info(0), stream(vec![])).await.unwrap().already_committed);
        sink.write(&batch_info(1), stream(vec![])).await.unwrap();
        let line = "-------------------------------------------";
        let expected = format!(
            "{line}\nBatch: 0\n{line}\n+---+---+\n|  n|key|\n+---+---+\n|  0|k 0|\n+---+---+\nonly showing top 1 row\n\n\
             {line}\nBatch: 1\n{line}\n+---+---+\n|  n|key|\n+---+---+\n+---+---+\n\n"
        );
        assert_eq!(page.text(), expected);
    }

    #[tokio::test]
    async fn json_lines_keep_their_order() {
        let page = Page::default();
        let options = ConsoleOptions { format: ConsoleFormat::Json, ..ConsoleOptions::default() };
        let sink = ConsoleSink::new(Box::new(page.clone()), options);
        sink.open(context(numbers(0..1).schema(), None)).await.unwrap();
        let batches = (0..50).map(|n| numbers(n..n + 1)).collect();
        assert_eq!(sink.write(&batch_info(0), stream(batches)).await.unwrap().rows, 50);
        let expected: String = (0..50).map(|n| format!("{{\"n\":{n},\"key\":\"k {}\"}}\n", n % 3)).collect();
        assert_eq!(page.text(), expected);
    }

    #[tokio::test]
    async fn a_header_is_printed_once() {
        let page = Page::default();
        let header = OptionMap::from([("header".to_owned(), true.into())]);
        let options = ConsoleOptions {
            format: ConsoleFormat::Csv,
            options: header.clone(),
            ..ConsoleOptions::default()
        };
        let sink = ConsoleSink::new(Box::new(page.clone()), options);
        sink.open(context(numbers(0..1).schema(), None)).await.unwrap();
        for batch in 0..2 {
            sink.write(&batch_info(batch), stream(vec![numbers(4..5)])).await.unwrap();
        }
        assert_eq!(page.text(), "n,key\n4,k 1\n4,k 1\n");
        let table = ConsoleOptions { options: header, ..ConsoleOptions::default() };
        assert!(table.check(&numbers(0..1).schema()).is_err());
        let text = ConsoleOptions { format: ConsoleFormat::Text, ..ConsoleOptions::default() };
        assert!(text.check(&numbers(0..1).schema()).is_err(), "text has one column");
    }

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_reader_that_has_gone_is_recognised() {
        let sink = ConsoleSink::new(Box::new(Gone), ConsoleOptions::default());
        sink.open(context(numbers(0..1).schema(), None)).await.unwrap();
        let error = sink.write(&batch_info(0), stream(vec![numbers(0..1)])).await.unwrap_err();
        assert!(error.is_broken_pipe(), "{error}");
    }
}
