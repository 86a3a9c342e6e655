//! What a plugin has cost, counted by many threads. `opened` and `guest` write it, `plugin` shows it. No decision
//! depends on it.

use parking_lot::Mutex;
use pelton_core::function::{MigrationMetrics, PluginMetrics};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Under this name a plugin's counters show how often it counted in vain: too many counters, or too long a name.
const DROPPED: &str = "pelton.counts_dropped";

/// Sums since the plugin was loaded.
#[derive(Default)]
pub(crate) struct Stats {
    calls: AtomicU64,
    busy_nanos: AtomicU64,
    rows: AtomicU64,
    migrating: Migrating,
    refused_rows: AtomicU64,
    traps: AtomicU64,
    errors: AtomicU64,
    instances: AtomicU64,
    recycled: AtomicU64,
    memory_bytes: AtomicU64,
    memory_bytes_max: AtomicU64,
    counts_dropped: AtomicU64,
    counters: Mutex<BTreeMap<String, u64>>,
}

/// Of these sums, what migrations took.
#[derive(Default)]
struct Migrating {
    calls: AtomicU64,
    busy_nanos: AtomicU64,
    rows: AtomicU64,
}

impl Stats {
    pub(crate) fn called(&self, rows: usize, busy: Duration) {
        self.calls.fetch_add(1, Relaxed);
        self.rows.fetch_add(rows as u64, Relaxed);
        self.busy_nanos.fetch_add(busy.as_nanos() as u64, Relaxed);
    }
    /// Counted among the calls, too.
    pub(crate) fn migrated(&self, rows: usize, busy: Duration) {
        self.migrating.calls.fetch_add(1, Relaxed);
        self.migrating.rows.fetch_add(rows as u64, Relaxed);
        self.migrating.busy_nanos.fetch_add(busy.as_nanos() as u64, Relaxed);
    }
    pub(crate) fn refused(&self, rows: usize) {
        if rows > 0 {
            self.refused_rows.fetch_add(rows as u64, Relaxed);
        }
    }
    pub(crate) fn failed(&self) {
        self.errors.fetch_add(1, Relaxed);
    }
    pub(crate) fn trapped(&self) {
        self.traps.fetch_add(1, Relaxed);
    }
    pub(crate) fn made_instance(&self) {
        self.instances.fetch_add(1, Relaxed);
    }
    pub(crate) fn recycled_instance(&self) {
        self.recycled.fetch_add(1, Relaxed);
    }
    pub(crate) fn took_memory(&self, bytes: u64) {
        self.memory_bytes.fetch_add(bytes, Relaxed);
    }
    pub(crate) fn gave_memory_back(&self, bytes: u64) {
        self.memory_bytes.fetch_sub(bytes, Relaxed);
    }
    pub(crate) fn saw_memory(&self, bytes: u64) {
        // Mostly nothing new: reading first keeps the line shared between cores.
        if bytes > self.memory_bytes_max.load(Relaxed) {
            self.memory_bytes_max.fetch_max(bytes, Relaxed);
        }
    }
    pub(crate) fn dropped_count(&self) {
        self.counts_dropped.fetch_add(1, Relaxed);
    }
    /// Adds what one call counted; at most `names_max` names are kept.
    pub(crate) fn add_counts(&self, counts: BTreeMap<String, u64>, names_max: usize) {
        let mut counters = self.counters.lock();
        for (name, by) in counts {
            let room = counters.len() < names_max;
            match counters.get_mut(&name) {
                Some(value) => *value = value.saturating_add(by),
                None if room => drop(counters.insert(name, by)),
                None => self.dropped_count(),
            }
        }
    }

    pub(crate) fn metrics(&self) -> PluginMetrics {
        let mut counters = self.counters.lock().clone();
        let dropped = self.counts_dropped.load(Relaxed);
        if dropped > 0 {
            counters.insert(DROPPED.to_owned(), dropped);
        }
        PluginMetrics {
            calls: self.calls.load(Relaxed),
            busy_nanos: self.busy_nanos.load(Relaxed),
            rows: self.rows.load(Relaxed),
            migrating: MigrationMetrics {
                calls: self.migrating.calls.load(Relaxed),
                busy_nanos: self.migrating.busy_nanos.load(Relaxed),
                rows: self.migrating.rows.load(Relaxed),
            },
            refused_rows: self.refused_rows.load(Relaxed),
            traps: self.traps.load(Relaxed),
            errors: self.errors.load(Relaxed),
            instances: self.instances.load(Relaxed),
            recycled: self.recycled.load(Relaxed),
            memory_bytes: self.memory_bytes.load(Relaxed),
            memory_bytes_max: self.memory_bytes_max.load(Relaxed),
            counters,
        }
    }
}

/// Measures how long something took: for metrics and for the log limit of a second. No row depends on it.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(
        clippy::disallowed_methods,
        reason = "what it measures is shown or bounds the log, and decides no row"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
