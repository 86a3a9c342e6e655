//! Where plugins' log lines and their standard output go, and how much of them. `services` and `wasi` write to it
//! for a guest; every instance has its part and shares what a second may hold. Nothing a guest can see depends on it.

use crate::contract::LogLevel;
use crate::limits::{Limits, bytes_text, clean_text};
use crate::stats::Stopwatch;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

/// One log line is cut after so many bytes.
pub(crate) const LINE_BYTES: usize = 8 << 10;

/// How the message of a panic begins that a guest in Rust logs.
const PANICKED: &str = "panicked at ";

/// Of that so much is told as the reason of a failure.
const PANIC_BYTES: usize = 500;

/// Is told every line that a plugin logs and that its limits let through. For tests of plugins.
#[derive(Clone)]
pub struct LogListener(Arc<Listen>);

type Listen = dyn Fn(Level, &str) + Send + Sync;

impl LogListener {
    /// Calls `listen` with level and text of every line, on the thread that runs the plugin.
    pub fn new(listen: impl Fn(Level, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listen))
    }
}

impl std::fmt::Debug for LogListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogListener")
    }
}

/// The log of a plugin, shared by its instances: bounds what all of them write in a second.
/// The time of day is used for nothing but this bound, which no row depends on.
pub(crate) struct PluginLog {
    plugin: String,
    listener: Option<LogListener>,
    bytes_per_second: u64,
    second: Mutex<Second>,
}

struct Second {
    since: Stopwatch,
    bytes: u64,
    dropped_lines: u64,
    dropped_bytes: u64,
}

impl PluginLog {
    pub(crate) fn new(plugin: &str, listener: Option<LogListener>, limits: &Limits) -> Self {
        let second = Second { since: Stopwatch::start(), bytes: 0, dropped_lines: 0, dropped_bytes: 0 };
        Self {
            plugin: plugin.to_owned(),
            listener,
            bytes_per_second: limits.log_bytes_per_second,
            second: Mutex::new(second),
        }
    }

    /// Takes `bytes` out of what may still be written in this second.
    fn take(&self, bytes: u64) -> bool {
        let mut second = self.second.lock();
        if second.since.elapsed() >= Duration::from_secs(1) {
            second.since = Stopwatch::start();
            second.bytes = 0;
            self.tell_dropped(&mut second);
        }
        second.bytes = second.bytes.saturating_add(bytes);
        second.bytes <= self.bytes_per_second
    }

    /// Counts lines that were not written; says so once a second and in the end.
    fn dropped(&self, lines: u64, bytes: u64) {
        let mut second = self.second.lock();
        let quiet = second.since.elapsed() < Duration::from_secs(1);
        second.dropped_lines += lines;
        second.dropped_bytes = second.dropped_bytes.saturating_add(bytes);
        if !quiet {
            second.since = Stopwatch::start();
            second.bytes = 0;
            self.tell_dropped(&mut second);
        }
    }

    fn tell_dropped(&self, second: &mut Second) {
        if second.dropped_lines == 0 {
            return;
        }
        let bytes = bytes_text(second.dropped_bytes);
        let lines = second.dropped_lines;
        tracing::warn!(plugin = %self.plugin, "{lines} log lines ({bytes}) exceeded the log limit and were dropped");
        (second.dropped_lines, second.dropped_bytes) = (0, 0);
    }
}

impl Drop for PluginLog {
    fn drop(&mut self) {
        let mut second = self.second.lock();
        self.tell_dropped(&mut second);
    }
}

/// The log as one instance sees it: bounds what one call writes.
pub(crate) struct CallLog {
    shared: Arc<PluginLog>,
    bytes_per_call: u64,
    bytes: u64,
    dropped_lines: u64,
    dropped_bytes: u64,
    /// Unfinished lines of standard output and standard error.
    partial: [Vec<u8>; 2],
    /// The call repeats a part of one that has failed: its lines are said already.
    is_repeated: bool,
    /// The message of a panic that the guest has logged in this call.
    panic: Option<String>,
}

impl CallLog {
    pub(crate) fn new(shared: Arc<PluginLog>, limits: &Limits) -> Self {
        Self {
            shared,
            bytes_per_call: limits.log_bytes_per_call,
            bytes: 0,
            dropped_lines: 0,
            dropped_bytes: 0,
            partial: [Vec::new(), Vec::new()],
            is_repeated: false,
            panic: None,
        }
    }

    /// A call begins.
    pub(crate) fn start(&mut self) {
        (self.bytes, self.dropped_lines, self.dropped_bytes) = (0, 0, 0);
        self.panic = None;
    }

    /// Whether the next call repeats a part of one that has failed. What it logs goes to the log at most at level debug.
    pub(crate) fn repeats(&mut self, is_repeated: bool) {
        self.is_repeated = is_repeated;
    }

    /// What a panic in this call said, shortened.
    pub(crate) fn panic(&self) -> Option<&str> {
        self.panic.as_deref()
    }

    /// A call is over: unfinished lines are written.
    pub(crate) fn finish(&mut self) {
        for stream in [Stream::Output, Stream::Error] {
            let rest = std::mem::take(&mut self.partial[stream as usize]);
            if !rest.is_empty() {
                self.line(stream.level(), &String::from_utf8_lossy(&rest), rest.len() as u64);
            }
        }
        if self.dropped_lines > 0 {
            self.shared.dropped(self.dropped_lines, self.dropped_bytes);
        }
    }

    /// Whether the call has written all it may: what follows need not even be read.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= self.bytes_per_call
    }

    /// Counts a line that was not read.
    pub(crate) fn drop_line(&mut self, bytes: u64) {
        self.dropped_lines += 1;
        self.dropped_bytes = self.dropped_bytes.saturating_add(bytes);
    }

    /// Writes a line, or counts it as dropped. `bytes` is its full length, of which `text` is the beginning.
    pub(crate) fn line(&mut self, level: LogLevel, text: &str, bytes: u64) {
        if matches!(level, LogLevel::Error | LogLevel::Warn) && text.starts_with(PANICKED) {
            self.panic = Some(clean_text(text, PANIC_BYTES));
        }
        let full = self.is_full();
        // A long line is cut, and uses up what it would have taken whole.
        self.bytes = self.bytes.saturating_add(bytes.max(1));
        if full || !self.shared.take(bytes.clamp(1, LINE_BYTES as u64)) {
            return self.drop_line(bytes);
        }
        let mut text = clean_text(text, LINE_BYTES);
        if bytes > LINE_BYTES as u64 && !text.ends_with('…') {
            text.push('…');
        }
        let plugin = &self.shared.plugin;
        let level = match level {
            LogLevel::Trace => Level::TRACE,
            LogLevel::Debug => Level::DEBUG,
            LogLevel::Info => Level::INFO,
            LogLevel::Warn => Level::WARN,
            LogLevel::Error => Level::ERROR,
        };
        // (Levels are ordered by how much they let through.)
        match if self.is_repeated { level.max(Level::DEBUG) } else { level } {
            Level::TRACE => tracing::trace!(%plugin, "{text}"),
            Level::DEBUG => tracing::debug!(%plugin, "{text}"),
            Level::INFO => tracing::info!(%plugin, "{text}"),
            Level::WARN => tracing::warn!(%plugin, "{text}"),
            Level::ERROR => tracing::error!(%plugin, "{text}"),
        }
        if let Some(listener) = &self.shared.listener {
            (listener.0)(level, &text);
        }
    }

    /// What a guest writes to its standard output or error goes to the log line by line.
    pub(crate) fn write(&mut self, stream: Stream, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            self.append(stream, &bytes[..end]);
            let line = std::mem::take(&mut self.partial[stream as usize]);
            self.line(stream.level(), &String::from_utf8_lossy(&line), line.len() as u64);
            bytes = &bytes[end + 1..];
            if self.is_full() {
                return self.drop_line(bytes.len() as u64);
            }
        }
        self.append(stream, bytes);
    }

    fn append(&mut self, stream: Stream, bytes: &[u8]) {
        let partial = &mut self.partial[stream as usize];
        let room = (LINE_BYTES + 1).saturating_sub(partial.len()).min(bytes.len());
        partial.extend_from_slice(&bytes[..room]);
        self.dropped_bytes = self.dropped_bytes.saturating_add((bytes.len() - room) as u64);
    }
}

/// A guest's output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Output = 0,
    Error = 1,
}

impl Stream {
    fn level(self) -> LogLevel {
        match self {
            Self::Output => LogLevel::Info,
            Self::Error => LogLevel::Warn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 1,000 lines of 1,000 bytes are heard in each of several calls.
    fn heard_of_calls(limits: &Limits, calls: usize, write: impl Fn(&mut CallLog)) -> Vec<usize> {
        let lines = Arc::new(Mutex::new(0));
        let heard = lines.clone();
        let listener = LogListener::new(move |_, _| *heard.lock() += 1);
        let mut log = CallLog::new(Arc::new(PluginLog::new("p", Some(listener), limits)), limits);
        let call = |_| {
            log.start();
            (0..1000).for_each(|_| write(&mut log));
            log.finish();
            std::mem::take(&mut *lines.lock())
        };
        (0..calls).map(call).collect()
    }

    #[test]
    fn a_call_and_a_second_have_their_limits() {
        let limits = Limits { log_bytes_per_call: 10_000, log_bytes_per_second: 25_000, ..Limits::default() };
        let text = "x".repeat(1000);
        let heard = heard_of_calls(&limits, 4, |log| log.line(LogLevel::Info, &text, 1000));
        assert_eq!(heard, [10, 10, 5, 0]);
        let line = format!("{text}\n");
        let heard = heard_of_calls(&limits, 4, |log| log.write(Stream::Error, line.as_bytes()));
        assert_eq!(heard, [10, 10, 5, 0]);
    }

    #[test]
    fn the_message_of_a_panic_is_kept_for_its_call() {
        let limits = Limits { log_bytes_per_call: 10, ..Limits::default() };
        let mut log = CallLog::new(Arc::new(PluginLog::new("p", None, &limits)), &limits);
        log.start();
        log.line(LogLevel::Error, "no panic", 8);
        assert_eq!(log.panic(), None);
        let text = format!("panicked at src/lib.rs:1:2:\n{}", "x".repeat(PANIC_BYTES));
        log.line(LogLevel::Error, &text, text.len() as u64);
        let panic = log.panic().expect("is kept");
        assert!(panic.starts_with("panicked at src/lib.rs:1:2: xxx") && panic.ends_with("x…"), "{panic}");
        log.start();
        assert_eq!(log.panic(), None, "another call");
    }

    #[test]
    fn an_unfinished_line_is_written_when_the_call_is_over() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = lines.clone();
        let listener = LogListener::new(move |level, text| heard.lock().push(format!("{level} {text}")));
        let limits = Limits::default();
        let mut log = CallLog::new(Arc::new(PluginLog::new("p", Some(listener), &limits)), &limits);
        log.start();
        log.write(Stream::Output, b"one\ntw");
        log.write(Stream::Error, b"other");
        log.write(Stream::Output, b"o");
        log.finish();
        assert_eq!(*lines.lock(), ["INFO one", "INFO two", "WARN other"]);
    }
}
