//! Functions that were opened for one schema, and their pools of instances. The dataflow calls them, from many
//! threads, once for every batch. An instance serves one opened function; whatever went wrong in it, it is not used
//! again.
//!
//! | part | does |
//! |---|---|
//! | `pool` | instances, lent to calls |
//! | `rows` | scalar and transform functions |
//! | `groups`, `signature`, `answer` | stateful functions: called, opened, and what they answer checked |
//! | `sink` | sink functions |

mod answer;
mod groups;
mod pool;
mod rows;
mod signature;
mod sink;

pub(crate) use groups::OpenedStateful;
pub(crate) use rows::{OpenedScalar, OpenedTransform};
pub(crate) use sink::OpenedSink;

use crate::code::{Fault, Pair, Running};
use crate::codec::Encoder;
use crate::contract::{Bytes, Rejection};
use crate::limits::clean_text;
use crate::plugin::Parts;
use arrow::array::RecordBatch;
use pelton_core::{CallFailure, CallScope, Error, FunctionKind, Rejected};
use pool::{Instance as Pooled, Pool};
use std::sync::Arc;

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
                .caused_by(CallFailure { reason })
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
