//! Writes files, exactly once.
//!
//! A micro-batch goes through three steps. Its files are written to `_pelton/pending`, under names that belong to
//! this run alone; the entry `_pelton/log/<batch>` is created, which decides that the micro-batch is done; the files
//! get their names, `part-<batch>-<number>` below `column=value` directories. After a crash the next run finishes
//! the moves that the log has decided and removes what it has not. So whatever lies at a final name is committed,
//! and the log need not grow: only its last entries are kept, each with the totals of all before.
//!
//! A reader that knows nothing of the log may see a micro-batch appear file by file, but never a file that is not
//! committed or not whole. Two runs that write to one directory at once are told apart by the creation of the log
//! entry, which only one of them can do (and, on a local disk, by a lock).

mod commit;
mod escape;
mod log;
mod output;
mod split;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
pub(crate) mod test_rows;
#[cfg(test)]
mod tests;

pub use log::{CommittedFile, committed_files};

use crate::decode::options::OptionMap;
use crate::encode::{Encoder, FileFormat};
use arrow::datatypes::Schema;
use async_trait::async_trait;
use commit::Directory;
use output::write_pending;
use pelton_core::{
    BatchInfo, Error, FileManager, OutputMode, Result, RowStream, Sink, SinkContext, SinkReport,
};
use split::{Limits, Splitter};
use std::sync::Arc;
use tokio::sync::Mutex;

/// What the files look like and where rows go among them.
#[derive(Debug, Clone, Default)]
pub struct FileSinkOptions {
    /// How rows are written.
    pub format: FileFormat,
    /// The format's own options, `compression` among them.
    pub options: OptionMap,
    /// Columns that become directories, in this order. They are left out of the files.
    pub partition_by: Vec<String>,
    /// Rows in a file, at most. Whatever is said here, a file ends at about 1 GiB of rows (as Arrow).
    pub max_records_per_file: Option<u64>,
}

impl FileSinkOptions {
    /// Whether rows of this schema can be written so; the error says what to change.
    pub fn check(&self, schema: &Schema) -> Result<()> {
        self.layout(schema).map(|_| ())
    }

    fn layout(&self, schema: &Schema) -> Result<(Splitter, Encoder)> {
        let limits = Limits::for_format(self.format, self.max_records_per_file)?;
        let splitter = Splitter::new(schema, &self.partition_by, limits)?;
        let encoder = Encoder::new(self.format, splitter.file_schema(), &self.options)?;
        Ok((splitter, encoder))
    }
}

/// The file sink. It takes `append` alone, as Spark's: files that are there do not change.
#[derive(Debug)]
pub struct FileSink {
    files: Arc<dyn FileManager>,
    options: FileSinkOptions,
    run: Mutex<Option<Run>>,
}

/// Between `open` and the next one.
#[derive(Debug)]
struct Run {
    directory: Directory,
    splitter: Splitter,
    encoder: Arc<Encoder>,
    /// A write did not come to its end: what it left must be looked at before the next.
    unfinished: bool,
}

impl FileSink {
    /// A sink that writes to the tree `files`. Nothing is touched before [`Sink::open`].
    pub fn new(files: Arc<dyn FileManager>, options: FileSinkOptions) -> Self {
        Self { files, options, run: Mutex::new(None) }
    }
}

#[async_trait]
impl Sink for FileSink {
    fn description(&self) -> String {
        format!("file {} ({})", self.files.url(), self.options.format.as_str())
    }

    fn output_modes(&self) -> &[OutputMode] {
        &[OutputMode::Append]
    }

    async fn open(&self, context: SinkContext) -> Result<()> {
        if context.output_mode != OutputMode::Append {
            return Err(Error::invalid(format!(
                "the file sink cannot take output mode {}",
                context.output_mode
            ))
            .hint("use output_mode: append; files that are written do not change"));
        }
        let (splitter, encoder) = self.options.layout(&context.schema)?;
        let mut run = self.run.lock().await;
        // The lock of an earlier run of this process must go first.
        *run = None;
        let directory = Directory::open(Arc::clone(&self.files), &context).await?;
        *run = Some(Run { directory, splitter, encoder: Arc::new(encoder), unfinished: false });
        Ok(())
    }

    async fn write(&self, batch: &BatchInfo, rows: RowStream) -> Result<SinkReport> {
        let mut run = self.run.lock().await;
        let run = run.as_mut().ok_or_else(|| Error::internal("the file sink was not opened"))?;
        if run.unfinished {
            run.directory.recover().await?;
            run.unfinished = false;
        }
        if let Some(report) = run.directory.done(batch)? {
            return Ok(report);
        }
        run.unfinished = true;
        let pending = run.directory.pending(batch.batch_id, run.encoder.extension());
        let written = write_pending(pending, &run.splitter, Arc::clone(&run.encoder), rows).await?;
        let mut report = SinkReport { busy_nanos: written.busy_nanos, ..SinkReport::default() };
        for file in &written.files {
            report.rows += file.rows;
            report.bytes += file.size_bytes;
            report.files += 1;
        }
        run.directory.commit(batch.batch_id, written.files).await?;
        run.unfinished = false;
        Ok(report)
    }

    /// The log decides.
    async fn may_hold(&self, batch: &BatchInfo, _begun_before: bool) -> Result<bool> {
        let mut run = self.run.lock().await;
        let run = run.as_mut().ok_or_else(|| Error::internal("the file sink was not opened"))?;
        if run.unfinished {
            run.directory.recover().await?;
            run.unfinished = false;
        }
        Ok(run.directory.done(batch)?.is_some())
    }
}
