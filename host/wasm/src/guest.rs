//! What the host keeps beside one instance: its limits, its log, its counters, its clock and its randomness.
//! `code` makes one for every instance; `services` and `wasi` act on it when the guest calls. It never touches
//! guest memory.

use crate::contract::{Clock, LogLevel};
use crate::limits::{Limits, bytes_text, clean_text};
use crate::stats::Stats;
use parking_lot::Mutex;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::Level;
use wasmtime::ResourceLimiter;

/// One log line is cut after so many bytes.
pub(crate) const LINE_BYTES: usize = 8 << 10;

/// The data of a Wasmtime store.
pub(crate) struct Guest {
    pub(crate) limiter: Limiter,
    pub(crate) log: CallLog,
    pub(crate) counts: BTreeMap<String, u64>,
    /// Name and bytes of the limit that holds for what the guest hands over in a call.
    pub(crate) transfer_limit: (&'static str, u64),
    limits: Arc<Limits>,
    stats: Arc<Stats>,
    clock_micros: i64,
    seed: u64,
    random: Option<ChaCha8Rng>,
}

impl Guest {
    pub(crate) fn new(limits: Arc<Limits>, stats: Arc<Stats>, log: Arc<PluginLog>) -> Self {
        Self {
            limiter: Limiter::new(&limits),
            log: CallLog::new(log, &limits),
            counts: BTreeMap::new(),
            transfer_limit: ("output", limits.output_bytes),
            limits,
            stats,
            clock_micros: 0,
            seed: 0,
            random: None,
        }
    }

    /// Before a call: everything that a guest could tell calls apart by is that of the call.
    pub(crate) fn enter(&mut self, clock: &Clock) {
        (self.clock_micros, self.seed, self.random) = (clock.processing_time, clock.seed, None);
        self.log.start();
        self.limiter.denied = None;
    }

    /// After a call, whatever became of it.
    pub(crate) fn leave(&mut self) {
        self.log.finish();
        if !self.counts.is_empty() {
            self.stats.add_counts(std::mem::take(&mut self.counts), self.limits.counters);
        }
        self.stats.saw_memory(self.limiter.memory_peak);
    }

    /// The guest's clock: the micro-batch's time, in microseconds since the Unix epoch.
    pub(crate) fn now_micros(&self) -> u64 {
        u64::try_from(self.clock_micros).unwrap_or(0)
    }

    /// The guest's randomness: the same in every rerun of the call.
    pub(crate) fn random(&mut self) -> &mut impl RngCore {
        self.random.get_or_insert_with(|| ChaCha8Rng::seed_from_u64(self.seed))
    }

    /// Adds to a counter of the plugin.
    pub(crate) fn count(&mut self, name: &str, by: u64) {
        let fits = name.len() <= self.limits.counter_name_bytes && !name.is_empty();
        if let Some(value) = self.counts.get_mut(name) {
            *value = value.saturating_add(by);
        } else if fits && self.counts.len() < self.limits.counters && !name.contains(char::is_control) {
            self.counts.insert(name.to_owned(), by);
        } else {
            self.stats.dropped_count();
        }
    }
}

/// Says how far memories and tables may grow.
pub(crate) struct Limiter {
    memory: u64,
    memory_max: u64,
    memory_peak: u64,
    tables: u64,
    tables_max: u64,
    parts: usize,
    /// The last growth that was refused: the usual reason of the trap that follows.
    pub(crate) denied: Option<String>,
}

impl Limiter {
    fn new(limits: &Limits) -> Self {
        Self {
            memory: 0,
            memory_max: limits.memory_bytes,
            memory_peak: 0,
            tables: 0,
            tables_max: limits.table_elements,
            parts: limits.core_instances as usize,
            denied: None,
        }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        now: usize,
        wanted: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| wanted > maximum) {
            return Ok(false);
        }
        let total = self.memory.saturating_sub(now as u64).saturating_add(wanted as u64);
        if total > self.memory_max {
            let (wanted, limit) = (bytes_text(total), bytes_text(self.memory_max));
            self.denied = Some(format!("it wanted {wanted} of memory (limit memory: {limit})"));
            return Ok(false);
        }
        self.memory = total;
        self.memory_peak = self.memory_peak.max(total);
        Ok(true)
    }

    fn table_growing(&mut self, now: usize, wanted: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| wanted > maximum) {
            return Ok(false);
        }
        let total = self.tables.saturating_sub(now as u64).saturating_add(wanted as u64);
        if total > self.tables_max {
            let limit = self.tables_max;
            self.denied = Some(format!("it wanted {total} table elements (limit table_elements: {limit})"));
            return Ok(false);
        }
        self.tables = total;
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.parts
    }
    fn tables(&self) -> usize {
        self.parts
    }
    fn memories(&self) -> usize {
        self.parts
    }
}

/// Is told every line that a plugin logs and that its limits let through. For tests of plugins.
#[derive(Clone)]
pub struct LogListener(pub Arc<dyn Fn(Level, &str) + Send + Sync>);

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
    since: Instant,
    bytes: u64,
    dropped_lines: u64,
    dropped_bytes: u64,
}

impl PluginLog {
    pub(crate) fn new(plugin: &str, listener: Option<LogListener>, limits: &Limits) -> Self {
        let second = Second { since: Instant::now(), bytes: 0, dropped_lines: 0, dropped_bytes: 0 };
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
            second.since = Instant::now();
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
            second.since = Instant::now();
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
}

impl CallLog {
    fn new(shared: Arc<PluginLog>, limits: &Limits) -> Self {
        Self {
            shared,
            bytes_per_call: limits.log_bytes_per_call,
            bytes: 0,
            dropped_lines: 0,
            dropped_bytes: 0,
            partial: [Vec::new(), Vec::new()],
        }
    }

    fn start(&mut self) {
        (self.bytes, self.dropped_lines, self.dropped_bytes) = (0, 0, 0);
    }

    fn finish(&mut self) {
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
        match level {
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
