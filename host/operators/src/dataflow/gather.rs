//! Core's `Gather`: brings the parts of a micro-batch together and runs the stateful operators, upstream first.
//!
//! Shards of an operator run side by side; what they give is put together in the order of the shards, and rows that go
//! on to a further operator are prepared for it on the same thread. So no number of threads shows in the result.

use super::{Exchange, Flowed, QueryDataflow, merge_times};
use crate::stateful::Piece;
use arrow::array::RecordBatch;
use pelton_core::failure::add_reports;
use pelton_core::{
    BatchInfo, DeadLetter, Error, Gather, Gathered, OperatorReport, Part, PoisonReport, Result, SHARDS,
    StateShard, StateStore,
};
use pelton_plan::stateful::{Origin, Target};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

/// The call scopes behind an operator: partitions that no source has.
const BEHIND_OPERATORS: u64 = 1 << 63;

/// The second stage of one micro-batch.
pub(super) struct QueryGather {
    flow: Arc<QueryDataflow>,
    batch: Arc<BatchInfo>,
    /// By lane.
    inboxes: Vec<Inbox>,
    dead_letters: Vec<DeadLetter>,
    poison: Vec<PoisonReport>,
    event_times: Vec<Option<i64>>,
}

/// What has arrived at the end of a lane, in order.
#[derive(Default)]
struct Inbox {
    rows: Vec<RecordBatch>,
    pieces: Vec<(usize, Piece)>,
    late_rows: u64,
}

/// What one shard of an operator is to work on.
struct Job<'a> {
    shard: usize,
    pieces: Vec<Vec<Piece>>,
    state: &'a mut dyn StateShard,
}

/// What it made of it.
struct Done {
    updated: u64,
    removed: u64,
    dead_letters: Vec<DeadLetter>,
    poison: Vec<PoisonReport>,
    next_due_ms: Option<i64>,
    flows: Vec<Flowed>,
}

impl QueryGather {
    pub(super) fn new(flow: Arc<QueryDataflow>, batch: Arc<BatchInfo>) -> Self {
        let inboxes = flow.lanes.iter().map(|_| Inbox::default()).collect();
        let event_times = vec![None; flow.watermarks.len()];
        Self { flow, batch, inboxes, dead_letters: Vec::new(), poison: Vec::new(), event_times }
    }

    fn take(&mut self, flowed: Flowed) {
        let inbox = &mut self.inboxes[flowed.lane];
        inbox.rows.extend(flowed.rows);
        inbox.pieces.extend(flowed.pieces);
        inbox.late_rows += flowed.late_rows;
        self.dead_letters.extend(flowed.dead_letters);
        add_reports(&mut self.poison, flowed.poison);
    }

    /// The pieces for a node by shard and port, and how many rows were late for it.
    fn pieces_of(&mut self, node: usize) -> (Vec<Vec<Vec<Piece>>>, u64) {
        let ports = self.flow.nodes[node].operator.ports();
        let mut pieces: Vec<Vec<Vec<Piece>>> =
            (0..SHARDS).map(|_| (0..ports).map(|_| Vec::new()).collect()).collect();
        let mut late_rows = 0;
        for (lane, inbox) in self.flow.lanes.iter().zip(&mut self.inboxes) {
            let Target::Port { node: target, port } = lane.target else { continue };
            if target != node {
                continue;
            }
            late_rows += inbox.late_rows;
            for (shard, piece) in inbox.pieces.drain(..) {
                pieces[shard][port].push(piece);
            }
        }
        (pieces, late_rows)
    }

    fn run_node(
        &mut self,
        node: usize,
        state: &mut dyn StateStore,
        threads: usize,
    ) -> Result<OperatorReport> {
        let (pieces, late_rows) = self.pieces_of(node);
        let shards = state.shards();
        if shards.len() != SHARDS {
            return Err(Error::internal(format!("a state store with {} shards", shards.len())));
        }
        let jobs = pieces.into_iter().zip(shards).enumerate();
        let jobs = jobs.map(|(shard, (pieces, state))| Job { shard, pieces, state }).collect();
        let mut report = OperatorReport { late_rows, ..OperatorReport::default() };
        for done in side_by_side(jobs, threads, |job| run_shard(&self.flow, &self.batch, node, job))? {
            report.rows_updated += done.updated;
            report.rows_removed += done.removed;
            report.next_due_ms = report.next_due_ms.into_iter().chain(done.next_due_ms).min();
            self.dead_letters.extend(done.dead_letters);
            add_reports(&mut self.poison, done.poison);
            for flowed in done.flows {
                merge_times(&mut self.event_times, &flowed.event_times);
                self.take(flowed);
            }
        }
        report.rows_total = self.flow.nodes[node].tables.iter().map(|table| state.len(table)).sum();
        Ok(report)
    }
}

impl Gather for QueryGather {
    fn add(&mut self, part: Part) -> Result<()> {
        let Some(exchange) = part.exchange else { return Ok(()) };
        let Ok(exchange) = exchange.downcast::<Exchange>() else {
            return Err(Error::internal("a part of another dataflow"));
        };
        // The event times of lanes from the sources are in their parts.
        exchange.0.into_iter().for_each(|flowed| self.take(flowed));
        Ok(())
    }

    fn finish(mut self: Box<Self>, state: &mut dyn StateStore, threads: usize) -> Result<Gathered> {
        let nodes = 0..self.flow.nodes.len();
        let operators = nodes.map(|node| self.run_node(node, state, threads)).collect::<Result<Vec<_>>>()?;
        let to_sink =
            self.flow.lanes.iter().zip(self.inboxes).filter(|(lane, _)| lane.target == Target::Sink);
        Ok(Gathered {
            rows: to_sink.flat_map(|(_, inbox)| inbox.rows).collect(),
            dead_letters: self.dead_letters,
            poison: self.poison,
            event_times: self.event_times,
            operators,
        })
    }
}

/// Runs a shard of an operator, and takes its rows along the lanes out of it.
fn run_shard(flow: &QueryDataflow, batch: &Arc<BatchInfo>, node: usize, job: Job<'_>) -> Result<Done> {
    let Job { shard, pieces, state } = job;
    let partition = BEHIND_OPERATORS | ((node as u64) << 32) | shard as u64;
    let output = flow.nodes[node]
        .within(batch, partition, 0, |operator, scope| operator.run(scope, shard, pieces, state))?;
    let mut done = Done {
        updated: output.updated,
        removed: output.removed,
        dead_letters: output.dead_letters,
        poison: output.poison,
        next_due_ms: output.next_due_ms,
        flows: Vec::new(),
    };
    if output.rows.is_empty() {
        return Ok(done);
    }
    for (lane, runner) in flow.lanes.iter().enumerate() {
        if runner.origin == Origin::Node(node) {
            done.flows.push(flow.flow(batch, lane, partition, output.rows.clone())?);
        }
    }
    Ok(done)
}

/// Does the jobs on up to `threads` threads, the calling one among them. Results in the order of the jobs; the first
/// error in that order wins.
fn side_by_side<J: Send, T: Send>(
    jobs: Vec<J>,
    threads: usize,
    work: impl Fn(J) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let results: Mutex<Vec<Option<Result<T>>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let helpers = threads.clamp(1, jobs.len().max(1)) - 1;
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let worker = || {
        while let Some((at, job)) = { lock(&queue).next() } {
            let result =
                catch_unwind(AssertUnwindSafe(|| work(job))).unwrap_or_else(|panic| Err(panicked(&*panic)));
            lock(&results)[at] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(worker);
        }
        worker();
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let missing = || Err(Error::internal("a shard was not worked on"));
    results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Error::internal(format!("a stateful operator panicked: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_jobs_and_the_first_error_wins() {
        for threads in [0, 1, 3, 50] {
            let doubled = side_by_side((0..20).collect(), threads, |n: u32| Ok(n * 2)).expect("runs");
            assert_eq!(doubled, (0..20).map(|n| n * 2).collect::<Vec<_>>());
            let failed = side_by_side((0..20).collect(), threads, |n: u32| match n {
                7 | 12 => Err(Error::data(n.to_string())),
                n => Ok(n),
            });
            assert_eq!(failed.expect_err("fails").message(), "7");
        }
    }

    #[test]
    fn a_panic_in_one_shard_is_an_internal_error() {
        let work = |n: u32| if n == 3 { panic!("three") } else { Ok(n) };
        let error = side_by_side((0..8).collect(), 2, work).expect_err("fails");
        assert_eq!(error.kind(), pelton_core::ErrorKind::Internal);
        assert!(error.message().contains("three"));
    }
}
