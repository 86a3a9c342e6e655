//! What the host keeps beside one instance: its limits, its log, its counters, its clock and its randomness.
//! `code` makes one for every instance; `services` and `wasi` act on it when the guest calls. It never touches
//! guest memory.

use crate::contract::Clock;
use crate::http::Granted;
use crate::limits::{Limits, bytes_text};
use crate::log::{CallLog, PluginLog};
use crate::stats::Stats;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use wasmtime::ResourceLimiter;

/// The data of a Wasmtime store.
pub(crate) struct Guest {
    pub(crate) limiter: Limiter,
    pub(crate) log: CallLog,
    pub(crate) counts: BTreeMap<String, u64>,
    /// Name and bytes of the limit that holds for what the guest hands over in a call.
    pub(crate) transfer_limit: (&'static str, u64),
    /// What a sink function may send while it writes; none at any other time.
    pub(crate) http: Option<Granted>,
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
            http: None,
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

    /// How long a call may take.
    pub(crate) fn time_ms(&self) -> u64 {
        self.limits.time_ms
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
