//! Progress on a terminal: one line a query, rewritten in place.
//!
//! Whoever else writes to stderr does it through [`above`], so that it comes above the lines and not into them.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use pelton_core::words::counted;
use pelton_engine::Progress;
use pelton_engine::progress::SourceMetrics;
use std::io::{self, Write};
use std::sync::OnceLock;

/// The lines of this process.
static LINES: OnceLock<MultiProgress> = OnceLock::new();

/// The line of one query.
#[derive(Clone)]
pub(super) struct ProgressLine {
    bar: ProgressBar,
}

impl ProgressLine {
    /// Below those that are there.
    pub(super) fn new() -> Self {
        let lines = LINES.get_or_init(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
        let bar = lines.add(ProgressBar::no_length());
        // The template is fixed; should it ever be wrong, the default shows the message as well.
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Shows a micro-batch in the place of the one before.
    pub(super) fn show(&self, progress: &Progress) {
        self.bar.set_message(words(progress));
    }

    /// Leaves nothing behind.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// `flights batch 17 · 12000 rows/s · 4 files, 1.2 MiB behind`.
fn words(progress: &Progress) -> String {
    let rate = progress.processed_rows_per_second;
    let behind: Vec<String> = progress
        .sources
        .iter()
        .filter_map(|source| {
            let behind = behind(&source.metrics)?;
            Some(if progress.sources.len() > 1 { format!("{}: {behind}", source.name) } else { behind })
        })
        .collect();
    let behind = if behind.is_empty() { String::new() } else { format!(" · {}", behind.join(", ")) };
    format!("{} batch {} · {rate:.0} rows/s{behind}", progress.name, progress.batch_id)
}

fn behind(metrics: &SourceMetrics) -> Option<String> {
    let count = |count: Option<u64>, what: &str| count.map(|count| counted(count, what));
    let parts: Vec<String> = [
        count(metrics.num_records_outstanding, "row"),
        count(metrics.num_files_outstanding, "file"),
        metrics.num_bytes_outstanding.map(|bytes| indicatif::BinaryBytes(bytes).to_string()),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!parts.is_empty()).then(|| format!("{} behind", parts.join(", ")))
}

/// Stderr, above the lines.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Above;

/// Where others write to stderr.
pub(crate) fn above() -> Above {
    Above
}

impl Write for Above {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // If nobody reads any more, a query goes on without.
        let write = || drop(io::stderr().write_all(bytes));
        match LINES.get() {
            Some(lines) => lines.suspend(write),
            None => write(),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_told_if_the_source_knows() {
        assert_eq!(behind(&SourceMetrics::default()), None);
        let metrics = SourceMetrics {
            num_bytes_outstanding: Some(3 << 20),
            num_files_outstanding: Some(4),
            ..SourceMetrics::default()
        };
        assert_eq!(behind(&metrics).unwrap(), "4 files, 3.00 MiB behind");
    }
}
