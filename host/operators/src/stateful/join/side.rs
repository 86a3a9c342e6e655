//! One input of a join: what is to be known of its rows before they meet others.

use super::buffer::Buffer;
use crate::pairs::{is_true, values};
use crate::scoped::scoped;
use crate::stateful::event_time::{EventTimes, without_late_rows};
use crate::stateful::keyed::Keys;
use crate::stateful::layout::NO_TIME;
use crate::stateful::{NodeScope, Prepared};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use pelton_core::{Error, Result, SHARDS, shard_of};
use pelton_plan::stateful::{EventTimeColumn, JoinExpiry, JoinKind, StreamJoin};
use pelton_state::{EncodedRows, RowCodec};
use std::sync::Arc;

/// An input of a join.
pub(super) struct Side {
    port: u64,
    keys: Vec<Arc<dyn PhysicalExpr>>,
    null_safe: Vec<bool>,
    codec: RowCodec,
    condition: Option<Arc<dyn PhysicalExpr>>,
    event_time: Option<EventTimeColumn>,
    /// The key that is the time of the other side's buffer.
    time_of_other: Option<usize>,
    /// Its rows that match nothing are given with NULLs.
    pub(super) is_outer: bool,
    pub(super) schema: SchemaRef,
}

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It meets others.
    Meets,
    /// It matches nothing because of a NULL, but it is of an outer side and waits until it is over, as in Spark.
    Waits,
    /// It matches nothing because of what ON says of its side alone: it is given at once, or dropped.
    Alone,
    /// It matches nothing because of a NULL, and nobody misses it.
    Dropped,
}

/// Rows that came in together and are not late.
pub(super) struct Source {
    pub(super) rows: RecordBatch,
    pub(super) keys: Keys,
    /// The rows as they are buffered.
    pub(super) values: EncodedRows,
    /// By when the rows are over, in microseconds; none if never.
    pub(super) times: Vec<i64>,
    /// What the rows' times are in the other side's buffer; none if it is not by time.
    pub(super) times_of_other: Vec<i64>,
    pub(super) roles: Vec<Role>,
}

/// Rows of a source that concern one shard, ascending.
pub(super) struct Chunk {
    pub(super) source: Arc<Source>,
    pub(super) rows: Vec<u32>,
}

impl Side {
    pub(super) fn new(spec: &StreamJoin, side: usize, schema: &SchemaRef, codec: RowCodec) -> Self {
        let outer: &[JoinKind] = match side {
            0 => &[JoinKind::LeftOuter, JoinKind::FullOuter],
            _ => &[JoinKind::RightOuter, JoinKind::FullOuter],
        };
        let time_of_other = match spec.sides[1 - side].expiry {
            JoinExpiry::Key(key) => Some(key),
            _ => None,
        };
        let key = |key: &pelton_plan::stateful::JoinKey| match side {
            0 => key.left.clone(),
            _ => key.right.clone(),
        };
        Self {
            port: side as u64,
            keys: spec.keys.iter().map(key).collect(),
            null_safe: spec.keys.iter().map(|key| key.null_safe).collect(),
            codec,
            condition: spec.sides[side].condition.clone(),
            event_time: spec.sides[side].event_time,
            time_of_other,
            is_outer: outer.contains(&spec.kind),
            schema: schema.clone(),
        }
    }

    /// What is to be known of some rows.
    pub(super) fn source(
        &self,
        scope: &NodeScope<'_>,
        rows: &RecordBatch,
        buffer: &Buffer,
        prepared: &mut Prepared,
    ) -> Result<Source> {
        let rows = without_late_rows(scope, rows, self.event_time, prepared)?;
        let (rows, passes, keys) = scoped(scope, self.port, || {
            let (rows, passes) = self.passing(rows)?;
            let keys = values(&self.keys, &rows)?;
            Ok((rows, passes, keys))
        })?;
        let times = match buffer.expiry() {
            JoinExpiry::Never => Vec::new(),
            JoinExpiry::Key(key) => times_of_key(&keys, key)?,
            JoinExpiry::Value { column, .. } => times(rows.column(column.column))?,
        };
        let times_of_other = match self.time_of_other {
            Some(key) => times_of_key(&keys, key)?,
            None => Vec::new(),
        };
        let roles = self.roles(rows.num_rows(), passes.as_ref(), &keys);
        Ok(Source {
            keys: Keys::encode(&self.codec, &keys)?,
            values: buffer.encode(&rows)?,
            rows,
            times,
            times_of_other,
            roles,
        })
    }

    /// Applies what ON says of this side alone. Of an outer side, rows that fail stay: they are marked.
    fn passing(&self, rows: RecordBatch) -> Result<(RecordBatch, Option<BooleanArray>)> {
        let Some(condition) = &self.condition else {
            return Ok((rows, None));
        };
        let passes = is_true(condition, &rows)?;
        match self.is_outer {
            true => Ok((rows, Some(passes))),
            false => Ok((filter_record_batch(&rows, &passes)?, None)),
        }
    }

    fn roles(&self, rows: usize, passes: Option<&BooleanArray>, keys: &[ArrayRef]) -> Vec<Role> {
        let matching = keys.iter().zip(&self.null_safe).filter(|(_, null_safe)| !**null_safe);
        let nulls = matching.fold(None, |nulls: Option<NullBuffer>, (key, _)| {
            NullBuffer::union(nulls.as_ref(), key.logical_nulls().as_ref())
        });
        let unmatchable = if self.is_outer { Role::Waits } else { Role::Dropped };
        let role = |row| {
            if passes.is_some_and(|passes| !passes.value(row)) {
                Role::Alone
            } else if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                unmatchable
            } else {
                Role::Meets
            }
        };
        (0..rows).map(role).collect()
    }
}

impl Source {
    /// The rows of each shard.
    pub(super) fn split(&self) -> [Vec<u32>; SHARDS] {
        let mut shards: [Vec<u32>; SHARDS] = Default::default();
        for (row, _) in self.roles.iter().enumerate().filter(|(_, role)| **role != Role::Dropped) {
            shards[shard_of(self.keys.key_group(row))].push(row as u32);
        }
        shards
    }
}

fn times_of_key(keys: &[ArrayRef], key: usize) -> Result<Vec<i64>> {
    times(keys.get(key).ok_or_else(|| Error::internal("a join by a time that is not among its keys"))?)
}

fn times(column: &ArrayRef) -> Result<Vec<i64>> {
    let times = EventTimes::of(column)?;
    Ok((0..column.len()).map(|row| times.get(row).unwrap_or(NO_TIME)).collect())
}
