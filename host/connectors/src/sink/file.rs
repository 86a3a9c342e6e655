//! Writes files, exactly once.
//!
//! A micro-batch goes through three steps. Its files are written to `_pelton/pending`, under names that belong to
//! this run alone; the entry `_pelton/log/<batch>` is created, which decides that the micro-batch is done; the files
//! get their names, `part-<batch>-<number>` below `column=value` directories. After a crash the next run finishes
//! the moves that the log has decided and removes what it has not. So whatever lies at a final name is committed,
//! and the log need not grow: only its last entries are kept, each with the totals of all before.
//!
//! With a rollover the rows of several micro-batches go into one file: `rollover.rs` says when, `staging.rs` how. Small files
//! that are there already are put together by `compaction.rs`, also while a run writes.
//!
//! A reader that knows nothing of the log may see a micro-batch appear file by file, but never a file that is not
//! committed or not whole. Two runs that write to one directory at once are told apart by the creation of the log
//! entry, which only one of them can do (and, on a local disk, by a lock).

mod commit;
mod committed;
mod compaction;
mod escape;
mod layout;
mod log;
mod merge;
mod output;
mod rollover;
mod split;
mod staging;

#[cfg(test)]
mod compaction_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod rollover_tests;
#[cfg(test)]
pub(crate) mod test_rows;
#[cfg(test)]
mod tests;

pub use committed::{CommittedFile, OutputFiles, ReplacedFile, WaitingFile, committed_files, output_files};
pub use compaction::{CompactOptions, CompactedGroup, Compaction, compact};
pub use rollover::Rollover;

pub(crate) use compaction::{
    COMPACTED_PREFIX, Entry as CompactionEntry, HIDDEN_COMPACTED, HIDDEN_COMPACTIONS, read_compaction,
};

use crate::decode::options::OptionMap;
use crate::encode::{Encoder, FileFormat};
use arrow::datatypes::Schema;
use async_trait::async_trait;
use commit::Directory;
use layout::layout_of;
use output::write_pending;
use pelton_core::{
    BatchInfo, Error, FileManager, OutputMode, Result, RowStream, Sink, SinkContext, SinkReport,
};
use rollover::Due;
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
    /// Rows of several micro-batches go into one file. Not together with `max_records_per_file`.
    pub rollover: Option<Rollover>,
}

impl FileSinkOptions {
    /// Whether rows of this schema can be written so; the error says what to change.
    pub fn check(&self, schema: &Schema) -> Result<()> {
        self.layout(schema).map(|_| ())
    }

    fn layout(&self, schema: &Schema) -> Result<(Splitter, Encoder)> {
        let mut limits = Limits::for_format(self.format, self.max_records_per_file)?;
        if let Some(rule) = &self.rollover {
            rule.check()?;
            if self.max_records_per_file.is_some() {
                return Err(Error::invalid("rollover and max_records_per_file exclude each other"));
            }
            limits.file_bytes = limits.file_bytes.min(usize::try_from(rule.size_bytes).unwrap_or(usize::MAX));
        }
        let splitter = Splitter::new(schema, &self.partition_by, limits)?;
        let encoder = Encoder::new(self.format, splitter.file_schema(), &self.options)?;
        encoder.check_files()?;
        if self.rollover.is_some() && !merge::can_merge(&encoder.extension()) {
            let format = self.format.as_str();
            return Err(Error::invalid(format!("files of format {format} cannot roll over"))
                .hint("leave out `rollover`, or write json, csv, text or parquet"));
        }
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
        let layout = layout_of(&self.options, splitter.file_schema(), encoder.head()?.len());
        let files = Arc::clone(&self.files);
        let directory = Directory::open(files, &context, &layout, self.options.rollover.is_some()).await?;
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
        }
        let visible = run.directory.commit(batch, written.files, self.options.rollover).await?;
        report.files = visible as u64;
        run.unfinished = false;
        Ok(report)
    }

    /// What has waited long enough rolls over, though no micro-batch comes.
    async fn rest(&self, now_ms: i64) -> Result<()> {
        match self.options.rollover {
            Some(rule) => self.roll(Due::At(rule, now_ms)).await,
            None => Ok(()),
        }
    }

    /// Nothing waits after the end.
    async fn finish(&self) -> Result<()> {
        self.roll(Due::Now).await
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

impl FileSink {
    async fn roll(&self, due: Due) -> Result<()> {
        let mut run = self.run.lock().await;
        let Some(run) = run.as_mut() else { return Ok(()) };
        if run.unfinished {
            run.directory.recover().await?;
        }
        run.unfinished = true;
        run.directory.roll(due).await?;
        run.unfinished = false;
        Ok(())
    }
}
