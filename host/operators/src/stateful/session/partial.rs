//! The first half of a session window: the rows of a part become sessions with partial states, sorted by shard.

use super::SessionWindows;
use crate::stateful::aggregate::calls::{evaluate, pick};
use crate::stateful::aggregate::partial::binary;
use crate::stateful::late::{LateRow, letters};
use crate::stateful::{NodeScope, Piece, Prepared};
use crate::watermark::{floor_ms, micros};
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::{Field, Int64Type, Schema};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::new_group_values;
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use pelton_core::{Error, Result, SHARDS, shard_of};
use pelton_plan::evaluation_error;
use std::sync::Arc;

/// Sessions of one part in one shard. Those of a key stand in the order of their starts.
pub(super) struct Partial {
    /// The keys as `[key group][keys]`, each once.
    pub(super) keys: BinaryArray,
    /// For each session its key, by position in `keys`.
    pub(super) key_of: Vec<u32>,
    pub(super) starts: Vec<i64>,
    pub(super) ends: Vec<i64>,
    /// The columns of the states.
    pub(super) states: Vec<ArrayRef>,
}

/// Combines the rows of a part.
pub(super) fn prepare(
    operator: &SessionWindows,
    scope: &NodeScope<'_>,
    late_us: Option<i64>,
    rows: &[RecordBatch],
) -> Result<Prepared> {
    let mut prepared = Prepared::default();
    let mut in_time = InTime::default();
    for rows in rows {
        in_time.add(operator, scope, late_us, rows, &mut prepared)?;
    }
    let Some((rows, starts, ends)) = in_time.in_order()? else { return Ok(prepared) };
    prepared.pieces = combine(operator, &rows, &starts, &ends)?;
    Ok(prepared)
}

/// The rows that make a session, and the session of each.
#[derive(Default)]
struct InTime {
    rows: Vec<RecordBatch>,
    starts: Vec<i64>,
    ends: Vec<i64>,
}

impl InTime {
    /// Takes rows but those without a time or a gap, and the late ones.
    fn add(
        &mut self,
        operator: &SessionWindows,
        scope: &NodeScope<'_>,
        late_us: Option<i64>,
        rows: &RecordBatch,
        prepared: &mut Prepared,
    ) -> Result<()> {
        let exprs = [operator.time.clone(), operator.gap_us.clone()];
        let columns = evaluate(&exprs, rows).map_err(|e| evaluation_error(&e))?;
        let times = micros(&columns[0])?;
        let Some(gaps) = columns[1].as_primitive_opt::<Int64Type>() else {
            return Err(Error::internal("a session gap that is no number"));
        };
        let mut late: Vec<LateRow> = Vec::new();
        let mut stay = Vec::with_capacity(rows.num_rows());
        for row in 0..rows.num_rows() {
            let (start, gap) = (times.value(row), gaps.value(row));
            let end = start.saturating_add(gap);
            let has_session = times.is_valid(row) && gaps.is_valid(row) && gap > 0;
            let is_late = has_session && late_us.is_some_and(|late_us| end <= late_us);
            if is_late {
                let late_by_ms = scope.late_ms.unwrap_or_default().saturating_sub(floor_ms(start));
                late.push(LateRow { row, late_by_ms });
            }
            let stays = has_session && !is_late;
            if stays {
                self.starts.push(start);
                self.ends.push(end);
            }
            stay.push(stays);
        }
        prepared.late_rows += late.len() as u64;
        if scope.keep_late_rows {
            prepared.dead_letters.extend(letters(scope.name, rows, &late)?);
        }
        let stay = BooleanArray::from(stay);
        match stay.true_count() {
            0 => {}
            all if all == rows.num_rows() => self.rows.push(rows.clone()),
            _ => self.rows.push(filter_record_batch(rows, &stay)?),
        }
        Ok(())
    }

    /// All the rows in the order of their times, then of the input.
    fn in_order(self) -> Result<Option<TimedRows>> {
        let rows = match self.rows.as_slice() {
            [] => return Ok(None),
            [rows] => rows.clone(),
            [first, ..] => concat_batches(&first.schema(), &self.rows)?,
        };
        if self.starts.is_sorted() {
            return Ok(Some((rows, self.starts, self.ends)));
        }
        let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
        order.sort_by_key(|row| self.starts[*row as usize]);
        let in_order = |times: &[i64]| order.iter().map(|row| times[*row as usize]).collect();
        let (starts, ends) = (in_order(&self.starts), in_order(&self.ends));
        let rows = take_record_batch(&rows, &UInt32Array::from(order))?;
        Ok(Some((rows, starts, ends)))
    }
}

/// Rows with their starts and ends.
type TimedRows = (RecordBatch, Vec<i64>, Vec<i64>);

/// Sessions as they are found in rows that are in the order of time.
#[derive(Default)]
struct Sessions {
    key_of: Vec<u32>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    /// The session of each row.
    of_rows: Vec<usize>,
}

impl Sessions {
    /// `keys` are those of the rows. Without `melt` every row is a session of its own.
    fn find(keys: &[usize], starts: &[i64], ends: &[i64], melt: bool) -> Self {
        let mut found = Self::default();
        let mut last_of_key: Vec<Option<usize>> = Vec::new();
        for ((key, start), end) in keys.iter().zip(starts).zip(ends) {
            if *key >= last_of_key.len() {
                last_of_key.resize(*key + 1, None);
            }
            let touching = last_of_key[*key].filter(|session| melt && *start <= found.ends[*session]);
            let session = touching.unwrap_or(found.starts.len());
            if touching.is_none() {
                found.key_of.push(*key as u32);
                found.starts.push(*start);
                found.ends.push(*end);
                last_of_key[*key] = Some(session);
            }
            found.ends[session] = found.ends[session].max(*end);
            found.of_rows.push(session);
        }
        found
    }
}

fn combine(
    operator: &SessionWindows,
    rows: &RecordBatch,
    starts: &[i64],
    ends: &[i64],
) -> Result<Vec<(usize, Piece)>> {
    let columns = evaluate(&operator.exprs, rows).map_err(|e| evaluation_error(&e))?;
    let fields = operator.types.iter().enumerate().map(|(at, t)| Field::new(at.to_string(), t.clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let values = new_group_values(schema, &GroupOrdering::None);
    let mut values = values.map_err(|e| evaluation_error(&e))?;
    let mut key_of_rows = Vec::with_capacity(rows.num_rows());
    values.intern(&columns, &mut key_of_rows).map_err(|e| evaluation_error(&e))?;
    let keys = values.emit(EmitTo::All).map_err(|e| evaluation_error(&e))?;
    let sessions = Sessions::find(&key_of_rows, starts, ends, !operator.calls.in_order());
    let mut accumulators = operator.calls.accumulators()?;
    accumulators.update(rows, &sessions.of_rows, sessions.starts.len())?;
    by_shard(operator, &keys, &sessions, &accumulators.states()?)
}

/// Sorts sessions by shard.
fn by_shard(
    operator: &SessionWindows,
    keys: &[ArrayRef],
    sessions: &Sessions,
    states: &[ArrayRef],
) -> Result<Vec<(usize, Piece)>> {
    let encoded = operator.codec.encode_keys(keys)?;
    let mut keys_in: Vec<Vec<u32>> = vec![Vec::new(); SHARDS];
    // Where each key is: its shard and its position there.
    let mut place = Vec::with_capacity(encoded.len());
    for key in 0..encoded.len() {
        let shard = shard_of(encoded.key_group(key));
        place.push((shard, keys_in[shard].len() as u32));
        keys_in[shard].push(key as u32);
    }
    let mut sessions_in: Vec<Vec<u32>> = vec![Vec::new(); SHARDS];
    for (session, key) in sessions.key_of.iter().enumerate() {
        sessions_in[place[*key as usize].0].push(session as u32);
    }
    let mut pieces = Vec::new();
    for (shard, (keys, picked)) in keys_in.into_iter().zip(sessions_in).enumerate() {
        if picked.is_empty() {
            continue;
        }
        let keys = binary(keys.len(), |at, bytes| {
            let key = keys[at] as usize;
            bytes.push(encoded.key_group(key));
            bytes.extend_from_slice(encoded.get(key));
        })?;
        let of = |values: &[i64]| picked.iter().map(|session| values[*session as usize]).collect();
        let key_of = picked.iter().map(|session| place[sessions.key_of[*session as usize] as usize].1);
        let partial = Partial {
            keys,
            key_of: key_of.collect(),
            starts: of(&sessions.starts),
            ends: of(&sessions.ends),
            states: pick(states, picked)?,
        };
        pieces.push((shard, Box::new(partial) as Piece));
    }
    Ok(pieces)
}
