//! The first half of a GROUP BY: the rows of a part become one partial state a group, sorted by shard.

use super::calls::{Accumulators, Calls, pick};
use super::keys::Keys;
use crate::stateful::{NodeScope, Prepared};
use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use datafusion::logical_expr::EmitTo;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use pelton_core::{Error, Result, SHARDS, shard_of};
use pelton_plan::evaluation_error;

/// Partial states of groups.
pub(super) struct Partial {
    /// The keys, with panes for windows where windows overlap. Perhaps some of them several times.
    pub(super) keys: BinaryArray,
    /// The columns of the states.
    pub(super) states: Vec<ArrayRef>,
}

/// Combines the rows of a part.
pub(super) fn prepare(
    keys: &Keys,
    calls: &Calls,
    scope: &NodeScope<'_>,
    late_us: Option<i64>,
    rows: &[RecordBatch],
) -> Result<Prepared> {
    let mut prepared = Prepared::default();
    let mut grouping = Grouping::new(keys)?;
    let mut accumulators = calls.accumulators()?;
    for rows in rows {
        let keyed = keys.of(scope, rows, late_us)?;
        prepared.late_rows += keyed.late_rows;
        prepared.dead_letters.extend(keyed.dead_letters);
        if keyed.rows.num_rows() > 0 {
            grouping.add(&keyed.rows, &keyed.columns, &mut accumulators)?;
        }
    }
    if grouping.groups > 0 {
        let (columns, groups) = grouping.finish()?;
        prepared.pieces = by_shard(keys, &columns, groups, &accumulators.states()?)?;
    }
    Ok(prepared)
}

/// Finds the groups of rows.
struct Grouping {
    /// None if all rows are one group.
    values: Option<Box<dyn GroupValues>>,
    groups: usize,
    /// The groups of the rows of a batch.
    of_rows: Vec<usize>,
}

impl Grouping {
    fn new(keys: &Keys) -> Result<Self> {
        let schema = keys.grouping_schema();
        let values = match schema.fields().is_empty() {
            true => None,
            false => Some(new_group_values(schema, &GroupOrdering::None).map_err(|e| evaluation_error(&e))?),
        };
        Ok(Self { values, groups: 0, of_rows: Vec::new() })
    }

    fn add(&mut self, rows: &RecordBatch, columns: &[ArrayRef], into: &mut Accumulators<'_>) -> Result<()> {
        match &mut self.values {
            Some(values) => {
                values.intern(columns, &mut self.of_rows).map_err(|e| evaluation_error(&e))?;
                self.groups = values.len();
            }
            None => {
                self.of_rows.clear();
                self.of_rows.resize(rows.num_rows(), 0);
                self.groups = 1;
            }
        }
        into.update(rows, &self.of_rows, self.groups)
    }

    /// The groups, as columns.
    fn finish(self) -> Result<(Vec<ArrayRef>, usize)> {
        let columns = match self.values {
            Some(mut values) => values.emit(EmitTo::All).map_err(|e| evaluation_error(&e))?,
            None => Vec::new(),
        };
        Ok((columns, self.groups))
    }
}

/// Sorts groups by shard.
fn by_shard(
    keys: &Keys,
    columns: &[ArrayRef],
    groups: usize,
    states: &[ArrayRef],
) -> Result<Vec<(usize, crate::stateful::Piece)>> {
    let encoded = keys.encode(columns)?;
    let mut in_shard: Vec<Vec<u32>> = vec![Vec::new(); SHARDS];
    for group in 0..groups {
        let position = u32::try_from(group).map_err(|_| Error::internal("too many groups in a part"))?;
        in_shard[shard_of(encoded.key_group(group))].push(position);
    }
    let mut pieces = Vec::new();
    for (shard, groups) in in_shard.into_iter().enumerate() {
        if groups.is_empty() {
            continue;
        }
        let keys = binary(groups.len(), |at, bytes| encoded.write(groups[at] as usize, bytes))?;
        let partial = Partial { keys, states: pick(states, groups)? };
        pieces.push((shard, Box::new(partial) as crate::stateful::Piece));
    }
    Ok(pieces)
}

/// A column of so many byte strings, each written by `write`.
pub(in crate::stateful) fn binary(
    rows: usize,
    mut write: impl FnMut(usize, &mut Vec<u8>),
) -> Result<BinaryArray> {
    let mut bytes = Vec::with_capacity(rows * 32);
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0_i32);
    for row in 0..rows {
        write(row, &mut bytes);
        let end = i32::try_from(bytes.len()).map_err(|_| Error::data("the keys of a part exceed 2 GiB"))?;
        offsets.push(end);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(BinaryArray::try_new(offsets, Buffer::from_vec(bytes), None)?)
}
