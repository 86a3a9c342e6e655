//! The instances of an opened function: lent to calls, thrown away when one fails, replaced when they have served long
//! enough. Which instance serves a call shows in no answer: functions keep nothing between calls.

use super::{When, error};
use crate::code::{Fault, Running};
use crate::contract::Clock;
use crate::plugin::Parts;
use crate::stats::Stopwatch;
use parking_lot::Mutex;
use pelton_core::{CallScope, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a pool is of: an instance on which a function is open.
pub(super) trait Instance {
    /// What runs.
    fn running(&self) -> &Running;
}

/// The instances of an opened function that wait for a call.
pub(super) struct Pool<I> {
    pub(super) plugin: Arc<Parts>,
    pub(super) function: String,
    idle: Mutex<Vec<Served<I>>>,
    /// How many calls have failed: after each of them all instances are new.
    failures: AtomicU64,
}

/// An instance and what it has behind it.
struct Served<I> {
    instance: I,
    calls: u64,
    opened_bytes: u64,
    since: Stopwatch,
    /// Calls of the function that had failed when it was made.
    failures: u64,
}

impl<I: Instance> Pool<I> {
    /// With the instance that the function was opened on.
    pub(super) fn new(plugin: &Arc<Parts>, function: &str, first: I) -> Self {
        let pool = Self {
            plugin: plugin.clone(),
            function: function.to_owned(),
            idle: Mutex::default(),
            failures: AtomicU64::new(0),
        };
        pool.give_back(Served::new(first, 0));
        pool
    }

    /// Lends an instance to a call with so many rows: one that waits, or `another`. If the call fails, it is not used again, nor is any other
    /// that was there before.
    pub(super) fn call<R>(
        &self,
        when: When<'_>,
        rows: usize,
        another: impl FnOnce() -> Result<I, Fault>,
        run: impl FnOnce(&mut I) -> Result<R, Fault>,
    ) -> Result<R> {
        let since = Stopwatch::start();
        let is_migration = matches!(when, When::Migrated { .. });
        let answer = self.call_untimed(another, run).map_err(|fault| self.error(when, fault));
        let (stats, busy) = (&self.plugin.code.stats, since.elapsed());
        stats.called(rows, busy);
        if is_migration {
            stats.migrated(rows, busy);
        }
        if answer.is_err() {
            stats.failed();
        }
        answer
    }

    fn call_untimed<R>(
        &self,
        another: impl FnOnce() -> Result<I, Fault>,
        run: impl FnOnce(&mut I) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let mut served = match self.take() {
            Some(served) => served,
            None => {
                let failures = self.failures.load(Relaxed);
                Served::new(another()?, failures)
            }
        };
        served.calls += 1;
        let answer = run(&mut served.instance).inspect_err(|_| {
            self.failures.fetch_add(1, Relaxed);
            // Dropped outside of the lock.
            let old = std::mem::take(&mut *self.idle.lock());
            drop(old);
        })?;
        self.give_back(served);
        Ok(answer)
    }

    /// One that waits and has not grown too old.
    fn take(&self) -> Option<Served<I>> {
        loop {
            // Not in the condition: the lock must not be held while an instance goes.
            let served = self.idle.lock().pop()?;
            if !self.is_done(&served) {
                return Some(served);
            }
        }
    }

    fn give_back(&self, served: Served<I>) {
        if self.plugin.discard_after_every_call || self.is_done(&served) {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() < self.plugin.idle_instances {
            idle.push(served);
        }
    }

    /// Whether an instance has served long enough, or was there before another failed.
    fn is_done(&self, served: &Served<I>) -> bool {
        let limits = &self.plugin.code.limits;
        let recycle = &limits.recycle;
        let grown = served.instance.running().memory_bytes().saturating_sub(served.opened_bytes);
        let is_worn = served.calls >= recycle.calls
            || grown > recycle.growth_max(served.opened_bytes, limits.memory_bytes)
            || served.since.elapsed().as_millis() >= u128::from(recycle.age_ms);
        if is_worn {
            self.plugin.code.stats.recycled_instance();
        }
        is_worn || served.failures != self.failures.load(Relaxed)
    }

    pub(super) fn error(&self, when: When<'_>, fault: Fault) -> Error {
        error(&self.plugin.name, &self.function, when, fault)
    }

    /// The clock of a call, with the seed that tests may have set.
    pub(super) fn clock(&self, scope: &CallScope<'_>) -> Clock {
        let own = Clock::of(scope);
        Clock { seed: self.plugin.seed.unwrap_or(own.seed), ..own }
    }
}

impl<I: Instance> Served<I> {
    fn new(instance: I, failures: u64) -> Self {
        let opened_bytes = instance.running().memory_bytes();
        Self { instance, calls: 0, opened_bytes, since: Stopwatch::start(), failures }
    }
}
