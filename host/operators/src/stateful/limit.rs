//! LIMIT: the first rows, of the whole query or of each result.
//!
//! Driven by the dataflow. In append mode the table `count` holds how many rows have gone on; as in Spark the count
//! stays when the query comes back with another limit.

use super::{NodeScope, Operator, Piece, Prepared, ShardOutput, Shown, unpacked};
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use bytes::Bytes;
use pelton_core::{Error, Result, StateOp, StateShard};
use pelton_plan::stateful::{self as plan, StatefulNode};
use std::sync::Arc;

const KEY: &[u8] = b"rows";

/// See the module. Works on the whole, in shard 0.
pub(crate) struct Limit {
    count: u64,
    over_all_batches: bool,
    table: String,
}

impl Limit {
    /// The operator of a node.
    pub(crate) fn new(spec: &plan::Limit, node: &StatefulNode) -> Result<Self> {
        let table = format!("{}/count", node.name);
        Ok(Self { count: spec.count, over_all_batches: spec.over_all_batches, table })
    }

    fn given_so_far(&self, state: &dyn StateShard) -> Result<u64> {
        if !self.over_all_batches {
            return Ok(0);
        }
        let Some(Some(value)) = state.get_many(&self.table, &[KEY])?.pop() else {
            return Ok(0);
        };
        let bytes = <[u8; 8]>::try_from(&value[..]);
        bytes.map(u64::from_be_bytes).map_err(|_| {
            Error::data(format!(
                "the count in the state table '{}' is damaged: it is not 8 bytes",
                self.table
            ))
            .hint("restore the checkpoint from a copy, or start with a new one")
        })
    }
}

/// The first rows of the batches.
fn first(rows: impl IntoIterator<Item = RecordBatch>, count: u64) -> Vec<RecordBatch> {
    let mut left = usize::try_from(count).unwrap_or(usize::MAX);
    let mut out = Vec::new();
    for rows in rows {
        let taken = rows.num_rows().min(left);
        if taken > 0 {
            out.push(rows.slice(0, taken));
        }
        left -= taken;
        if left == 0 {
            break;
        }
    }
    out
}

impl Operator for Limit {
    fn counted_tables(&self, _name: &str) -> Vec<String> {
        if self.over_all_batches { vec![self.table.clone()] } else { Vec::new() }
    }

    fn prepare(&self, _scope: &NodeScope<'_>, _port: usize, rows: &[RecordBatch]) -> Result<Prepared> {
        let rows = first(rows.iter().cloned(), self.count);
        let pieces = if rows.is_empty() { Vec::new() } else { vec![(0, Box::new(rows) as Piece)] };
        Ok(Prepared { pieces, ..Prepared::default() })
    }

    fn run(
        &self,
        _scope: &NodeScope<'_>,
        _shard: usize,
        pieces: Vec<Vec<Piece>>,
        state: &mut dyn StateShard,
    ) -> Result<ShardOutput> {
        let rows: Vec<RecordBatch> = unpacked::<Vec<RecordBatch>>(pieces.into_iter().flatten())?.concat();
        if rows.is_empty() {
            return Ok(ShardOutput::default());
        }
        let before = self.given_so_far(state)?;
        let rows = first(rows, self.count.saturating_sub(before));
        let given: u64 = rows.iter().map(|rows| rows.num_rows() as u64).sum();
        let writes = self.over_all_batches && given > 0;
        if writes {
            let value = Bytes::copy_from_slice(&(before + given).to_be_bytes());
            state.apply(&self.table, vec![StateOp::Put(Bytes::from_static(KEY), value)])?;
        }
        Ok(ShardOutput { rows, updated: u64::from(writes), ..ShardOutput::default() })
    }

    fn watches_watermark(&self) -> bool {
        false
    }

    fn state_form(&self) -> String {
        "a count".to_owned()
    }

    fn waits_for(&self) -> String {
        match self.over_all_batches {
            true => format!("nothing; gives the first {} rows of the whole query", self.count),
            false => format!("nothing; gives the first {} rows of each result", self.count),
        }
    }

    /// How many rows have gone on.
    fn show(&self, _name: &str, state: &mut dyn StateShard, each: &mut Shown<'_>) -> Result<()> {
        if state.len(&self.table) == 0 {
            return Ok(());
        }
        let given = i64::try_from(self.given_so_far(state)?).unwrap_or(i64::MAX);
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![given]));
        each("", RecordBatch::try_from_iter([("rows", rows)])?).map(|_| ())
    }
}
