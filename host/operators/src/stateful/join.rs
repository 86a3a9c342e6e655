//! Joins two streams: every row meets the rows of the other side that came before it, and waits for those to come.
//!
//! Spark's symmetric hash join. In a micro-batch the left rows meet the buffered right rows, then the right rows meet
//! the buffered and the new left rows; then what is not over yet is buffered, and what is over is forgotten, after it
//! has been given with NULLs if it is of an outer side and matched nothing. Driven by the dataflow.
//!
//! `side` finds keys and times of incoming rows, `buffer` is the layout of the state, `meet` brings rows together.

mod buffer;
mod meet;
mod side;

use super::{NodeScope, Operator, Piece, Prepared, ShardOutput, Shown, packed, unpacked};
use crate::pairs::{PairCondition, types};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use buffer::Buffer;
use pelton_core::{Error, Result, SHARDS, StateShard};
use pelton_plan::stateful::{self as plan, JoinExpiry, JoinKind, StatefulNode};
use pelton_state::RowCodec;
use side::{Chunk, Side};
use std::sync::Arc;

/// What the inputs are called.
const SIDES: [&str; 2] = ["left", "right"];

/// See the module.
pub(crate) struct StreamJoin {
    kind: JoinKind,
    sides: [Side; 2],
    buffers: [Buffer; 2],
    condition: Option<PairCondition>,
    schema: SchemaRef,
    has_watermark: bool,
}

impl StreamJoin {
    /// The operator of a node.
    pub(crate) fn new(spec: &plan::StreamJoin, node: &StatefulNode) -> Result<Self> {
        let in_node = |e: Error| e.context(format!("operator '{}'", node.name));
        let [left, right] = &node.inputs[..] else {
            return Err(in_node(Error::internal("a join needs two inputs")));
        };
        if spec.kind == JoinKind::LeftAnti || spec.keys.is_empty() {
            return Err(in_node(Error::internal("no join of two streams is anti or without an equality")));
        }
        let key_types = types(spec.keys.iter().map(|key| &key.left), left)?;
        if types(spec.keys.iter().map(|key| &key.right), right)? != key_types {
            return Err(in_node(Error::internal("the keys of a join have different types")));
        }
        let keys = RowCodec::new(key_types).map_err(in_node)?;
        let condition = spec.condition.as_ref().map(|condition| PairCondition::new(condition, left, right));
        let buffer = |name, side: usize, schema: &SchemaRef| {
            Buffer::new(&node.name, name, spec.sides[side].expiry, schema).map_err(in_node)
        };
        Ok(Self {
            kind: spec.kind,
            sides: [Side::new(spec, 0, left, keys.clone()), Side::new(spec, 1, right, keys)],
            buffers: [buffer(SIDES[0], 0, left)?, buffer(SIDES[1], 1, right)?],
            condition: condition.transpose()?,
            schema: node.schema.clone(),
            has_watermark: node.watermark_offset_ms.is_some(),
        })
    }
}

impl Operator for StreamJoin {
    fn ports(&self) -> usize {
        2
    }

    fn counted_tables(&self, _name: &str) -> Vec<String> {
        self.buffers.iter().map(|buffer| buffer.table().to_owned()).collect()
    }

    fn prepare(&self, scope: &NodeScope<'_>, port: usize, rows: &[RecordBatch]) -> Result<Prepared> {
        let (Some(side), Some(buffer)) = (self.sides.get(port), self.buffers.get(port)) else {
            return Err(Error::internal(format!("a join has no input {port}")));
        };
        let mut prepared = Prepared::default();
        let mut shards: [Vec<Chunk>; SHARDS] = Default::default();
        for rows in rows {
            let source = Arc::new(side.source(scope, rows, buffer, &mut prepared)?);
            for (shard, rows) in source.split().into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
                shards[shard].push(Chunk { source: source.clone(), rows });
            }
        }
        prepared.pieces = packed(shards);
        Ok(prepared)
    }

    fn run(
        &self,
        scope: &NodeScope<'_>,
        shard: usize,
        pieces: Vec<Vec<Piece>>,
        state: &mut dyn StateShard,
    ) -> Result<ShardOutput> {
        let mut inputs: [Vec<Chunk>; 2] = Default::default();
        for (input, parts) in inputs.iter_mut().zip(pieces) {
            unpacked::<Vec<Chunk>>(parts)?.into_iter().for_each(|part| input.extend(part));
        }
        meet::run(self, scope, shard, &inputs, state)
    }

    fn watches_watermark(&self) -> bool {
        self.has_watermark && self.buffers.iter().any(|buffer| buffer.expiry() != JoinExpiry::Never)
    }

    fn state_form(&self) -> String {
        let form = |expiry| match expiry {
            JoinExpiry::Never => "rows by key".to_owned(),
            JoinExpiry::Key(key) => format!("rows by time, which is key {}", key + 1),
            JoinExpiry::Value { .. } => "rows by key, and their times".to_owned(),
        };
        let [left, right] = self.buffers.each_ref().map(|buffer| form(buffer.expiry()));
        format!("left {left}; right {right}")
    }

    fn waits_for(&self) -> String {
        let waits = self.buffers.iter().zip(SIDES).filter_map(|(buffer, side)| match buffer.expiry() {
            JoinExpiry::Never => None,
            JoinExpiry::Key(_) => {
                Some(format!("the watermark to pass the time by which {side} rows are joined"))
            }
            JoinExpiry::Value { offset_ms, .. } => {
                Some(format!("the watermark to pass the time of {side} rows by {} ms", -offset_ms))
            }
        });
        let waits: Vec<_> = waits.collect();
        match waits.is_empty() {
            true => "nothing; no buffered row is ever forgotten".to_owned(),
            false => waits.join(", and "),
        }
    }

    /// The buffered rows of both sides, and whether they have matched.
    fn show(&self, _name: &str, state: &mut dyn StateShard, each: &mut Shown<'_>) -> Result<()> {
        for (side, buffer) in SIDES.into_iter().zip(&self.buffers) {
            buffer.show(state, &mut |rows| each(side, rows))?;
        }
        Ok(())
    }
}
