//! Functions that were opened for one schema, and their pools of instances. The dataflow calls them, from many
//! threads, once for every batch. An instance serves one opened function; whatever went wrong in it, it is not used
//! again.
//!
//! | part | does |
//! |---|---|
//! | `rows` | scalar and transform functions |
//! | `groups`, `signature`, `answer` | stateful functions: called, opened, and what they answer checked |
//! | `sink` | sink functions |

mod answer;
mod groups;
mod rows;
mod signature;
mod sink;

pub(crate) use groups::OpenedStateful;
pub(crate) use rows::{OpenedScalar, OpenedTransform};
pub(crate) use sink::OpenedSink;

use crate::code::{Fault, Pair, Running};
use crate::codec::Encoder;
use crate::contract::{Bytes, Clock, Rejection};
use crate::limits::clean_text;
use crate::plugin::Parts;
use crate::stats::Stopwatch;
use arrow::array::RecordBatch;
use parking_lot::Mutex;
use pelton_core::{CallScope, Error, FunctionKind, Rejected, Result};
use std::sync::Arc;

/// The instances of an opened function that wait for a call.
struct Pool<I> {
    plugin: Arc<Parts>,
    function: String,
    idle: Mutex<Vec<I>>,
}

impl<I> Pool<I> {
    /// With the instance that the function was opened on.
    fn new(plugin: &Arc<Parts>, function: &str, first: I) -> Self {
        let idle = if plugin.discard_after_every_call { Vec::new() } else { vec![first] };
        Self { plugin: plugin.clone(), function: function.to_owned(), idle: Mutex::new(idle) }
    }

    /// Lends an instance to a call with so many rows: one that waits, or `another`. If the call fails, it is not used
    /// again.
    fn call<R>(
        &self,
        when: When<'_>,
        rows: usize,
        another: impl FnOnce() -> Result<I, Fault>,
        run: impl FnOnce(&mut I) -> Result<R, Fault>,
    ) -> Result<R> {
        let since = Stopwatch::start();
        let answer = self.call_untimed(another, run).map_err(|fault| self.error(when, fault));
        let stats = &self.plugin.code.stats;
        stats.called(rows, since.elapsed());
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
        // Not in one line: the lock must not be held while a new instance starts.
        let idle = self.idle.lock().pop();
        let mut instance = match idle {
            Some(instance) => instance,
            None => another()?,
        };
        let answer = run(&mut instance)?;
        if !self.plugin.discard_after_every_call {
            let mut idle = self.idle.lock();
            if idle.len() < self.plugin.idle_instances {
                idle.push(instance);
            }
        }
        Ok(answer)
    }

    fn error(&self, when: When<'_>, fault: Fault) -> Error {
        error(&self.plugin.name, &self.function, when, fault)
    }

    /// The clock of a call, with the seed that tests may have set.
    fn clock(&self, scope: &CallScope<'_>) -> Clock {
        let own = Clock::of(scope);
        Clock { seed: self.plugin.seed.unwrap_or(own.seed), ..own }
    }
}

/// A new instance, and the functions of an interface on it.
fn started(plugin: &Parts, kind: FunctionKind) -> Result<(Running, Pair), Fault> {
    let pair = plugin.code.exports.pair(kind).ok_or_else(|| Fault::broken("is not exported"))?;
    Ok((plugin.code.instantiate()?, pair))
}

/// Encodes rows where the last call's were, and shares them.
fn encoded(encoder: &Encoder, batch: &RecordBatch, buffer: &mut Bytes) -> Result<Bytes, Fault> {
    if Arc::get_mut(buffer).is_none() {
        *buffer = Bytes::default();
    }
    if let Some(buffer) = Arc::get_mut(buffer) {
        encoder.encode(batch, buffer)?;
    }
    Ok(buffer.clone())
}

/// During what a function failed.
#[derive(Clone, Copy)]
enum When<'a> {
    Opened,
    Called(&'a CallScope<'a>),
    Migrated { variable: &'a str, from: u32 },
}

fn error(plugin: &str, function: &str, when: When<'_>, fault: Fault) -> Error {
    let Fault { unsuitable, reason, own } = fault;
    if let Some(own) = own {
        return own;
    }
    let named = format!("plugin '{plugin}', function '{function}'");
    let error = match when {
        When::Called(scope) => {
            let batch = scope.batch.batch_id;
            Error::plugin(format!("{named}, batch {batch}: {reason}; the instance was discarded"))
        }
        When::Opened if unsuitable => Error::invalid(format!("{named}: {reason}")),
        When::Opened => Error::plugin(format!("{named}, when it was opened: {reason}")),
        When::Migrated { variable, from } => Error::plugin(format!(
            "{named}, when it rewrote the entries of '{variable}' from version {from}: {reason}"
        )),
    };
    error.of_plugin(plugin)
}

/// Ascending, each once, and rows that there are.
fn rejected_rows(
    rejected: Vec<Rejection>,
    rows: usize,
    reason_bytes: usize,
) -> Result<Vec<Rejected>, String> {
    let mut next = 0_u64;
    rejected
        .into_iter()
        .map(|Rejection { row, reason }| {
            if u64::from(row) < next {
                return Err(format!("rejected rows must ascend, row {row} comes after row {}", next - 1));
            }
            if row as usize >= rows {
                return Err(format!("row {row} is rejected, there are {rows}"));
            }
            next = u64::from(row) + 1;
            let reason = match clean_text(&reason, reason_bytes) {
                reason if reason.is_empty() => "no reason given".to_owned(),
                reason => reason,
            };
            Ok(Rejected { row, reason })
        })
        .collect()
}
