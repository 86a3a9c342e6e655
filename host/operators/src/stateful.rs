//! The inside of a stateful operator: what the dataflow asks of it, and nothing of how it is asked.
//!
//! Work is in two halves. [`Operator::prepare`] looks at rows alone: it finds keys, late rows and partial results, and
//! splits everything by the shard of the state that it concerns. It runs many times at once. [`Operator::run`] then
//! brings together all that concerns one shard with that shard's state; shards run side by side, and their rows are
//! put together in the order of the shards, so that no thread count shows in the result.

pub(crate) mod aggregate;
pub(crate) mod dedup;
pub(crate) mod event_time;
pub(crate) mod group;
pub(crate) mod join;
pub(crate) mod keyed;
pub(crate) mod late;
pub(crate) mod layout;
pub(crate) mod limit;
pub(crate) mod session;
pub(crate) mod sort;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod time_index;

use arrow::array::RecordBatch;
use pelton_core::{BatchInfo, DeadLetter, Error, PoisonReport, Result, StateShard};
use pelton_plan::stateful::{StatefulNode, StatefulOperator};
use std::any::Any;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Where and when an operator works.
pub(crate) struct NodeScope<'a> {
    /// The micro-batch.
    pub(crate) batch: &'a Arc<BatchInfo>,
    /// The operator's stable name; its tables are called `name/…`.
    pub(crate) name: &'a str,
    /// The watermark that judges late rows, as this operator sees it. `None`: there is none.
    pub(crate) late_ms: Option<i64>,
    /// The watermark that says what is over, as this operator sees it.
    pub(crate) watermark_ms: Option<i64>,
    /// Late rows are to become dead letters.
    pub(crate) keep_late_rows: bool,
}

/// What only the operator that made it can read.
pub(crate) type Piece = Box<dyn Any + Send>;

/// What the pieces hold, in their order. Pieces of another operator are a fault of ours.
pub(crate) fn unpacked<T: 'static>(pieces: impl IntoIterator<Item = Piece>) -> Result<Vec<T>> {
    let unpack = |piece: Piece| match piece.downcast::<T>() {
        Ok(held) => Ok(*held),
        Err(_) => Err(Error::internal("a piece of another operator")),
    };
    pieces.into_iter().map(unpack).collect()
}

/// A piece for every shard that something is for.
pub(crate) fn packed<T: Send + 'static>(shards: impl IntoIterator<Item = Vec<T>>) -> Vec<(usize, Piece)> {
    let filled = shards.into_iter().enumerate().filter(|(_, held)| !held.is_empty());
    filled.map(|(shard, held)| (shard, Box::new(held) as Piece)).collect()
}

/// What [`Operator::prepare`] made of some rows of one port.
#[derive(Default)]
pub(crate) struct Prepared {
    /// The pieces with their shards, ascending, each shard at most once. An operator that works on the whole at once
    /// uses shard 0 alone.
    pub(crate) pieces: Vec<(usize, Piece)>,
    /// Rows given up as late.
    pub(crate) late_rows: u64,
    /// The late rows, if they are kept.
    pub(crate) dead_letters: Vec<DeadLetter>,
}

/// What [`Operator::run`] made of one shard.
#[derive(Default)]
pub(crate) struct ShardOutput {
    /// Rows that go on, in order.
    pub(crate) rows: Vec<RecordBatch>,
    /// Rows of state written.
    pub(crate) updated: u64,
    /// Rows of state removed.
    pub(crate) removed: u64,
    /// Rows that a function refused or failed on.
    pub(crate) dead_letters: Vec<DeadLetter>,
    /// What it took to find the groups that a function failed on.
    pub(crate) poison: Vec<PoisonReport>,
    /// Of an operator that watches the clock: the first processing time at which something may fall due.
    pub(crate) next_due_ms: Option<i64>,
}

/// A stateful operator.
pub(crate) trait Operator: Send + Sync {
    /// How many inputs it has.
    fn ports(&self) -> usize {
        1
    }
    /// The tables whose entries are the operator's rows of state.
    fn counted_tables(&self, name: &str) -> Vec<String>;
    /// The first half, over some rows of a port. Called in any order from any thread.
    fn prepare(&self, scope: &NodeScope<'_>, port: usize, rows: &[RecordBatch]) -> Result<Prepared>;
    /// The second half, for one shard: all its pieces, by port, in the order of the rows. Called for every shard in
    /// every micro-batch, also without pieces: something may expire.
    fn run(
        &self,
        scope: &NodeScope<'_>,
        shard: usize,
        pieces: Vec<Vec<Piece>>,
        state: &mut dyn StateShard,
    ) -> Result<ShardOutput>;
    /// Whether a micro-batch without data can change anything when the operator's watermark moves.
    fn watches_watermark(&self) -> bool;
    /// Whether something can fall due by the time of the micro-batch alone.
    fn watches_clock(&self) -> bool {
        false
    }
    /// How the entries of its state are laid out. It changes when they can no longer be read as they were written; what
    /// they hold is described by the plan.
    fn state_form(&self) -> String;
    /// What it waits for, for a person: `the watermark to pass the end of a window`.
    fn waits_for(&self) -> String;
    /// Its state in a shard as rows for a person, in the order of the keys. Changes nothing.
    fn show(&self, name: &str, state: &mut dyn StateShard, each: &mut Shown<'_>) -> Result<()>;
}

/// Takes rows of state, and which part of the operator they belong to: a side of a join; empty if there is but one. If it
/// breaks, no more of that part are read.
pub(crate) type Shown<'a> = dyn FnMut(&str, RecordBatch) -> Result<ControlFlow<()>> + 'a;

/// Makes the operator of a node.
pub(crate) fn operator(node: &StatefulNode) -> Result<Box<dyn Operator>> {
    match &node.operator {
        StatefulOperator::Aggregate(aggregate) => aggregate::operator(node, aggregate),
        StatefulOperator::Dedup(spec) => Ok(Box::new(dedup::Dedup::new(spec, node)?)),
        StatefulOperator::Join(spec) => Ok(Box::new(join::StreamJoin::new(spec, node)?)),
        StatefulOperator::Limit(spec) => Ok(Box::new(limit::Limit::new(spec, node)?)),
        StatefulOperator::Sort(spec) => Ok(Box::new(sort::Sort::new(spec, node)?)),
        StatefulOperator::Groups(spec) => Ok(Box::new(group::Groups::new(spec, node)?)),
    }
}
