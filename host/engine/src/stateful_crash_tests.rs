//! Exactly once with state: as `crash_tests`, for a query whose answer depends on every row before. Without
//! micro-batches without data the micro-batches are the same however often the process dies, so the sink must be the
//! same to the row and the file; with them (after a restart none runs before new data, as in Spark) the rows must be.

use crate::testing::{
    FileState, MemorySource, RecordingSink, SinkFault, WindowCounts, event_rows, event_schema, rows_text,
};
use crate::{Logic, Query, RunControl, Start};
use bytes::Bytes;
use pelton_core::files::{Fault, FaultyFiles};
use pelton_core::{BatchId, Clock, FileManager, ManualClock, MemoryFiles, QueryId, Result, Trigger};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a run leaves: rows by micro-batch, dead letters by file.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    rows: BTreeMap<BatchId, Vec<String>>,
    dead_letters: BTreeMap<String, Bytes>,
}

/// Everything that outlives a process.
struct World {
    source: MemorySource,
    files: MemoryFiles,
    sink: RecordingSink,
    clock: Arc<ManualClock>,
    no_data_batches: bool,
}

impl World {
    /// Every addition is a micro-batch.
    fn new(additions: &[Vec<(i64, i64)>], no_data_batches: bool) -> Self {
        let world = Self {
            source: MemorySource::new(event_schema()).additions_per_batch(1),
            files: MemoryFiles::new(),
            sink: RecordingSink::new(),
            clock: Arc::new(ManualClock::new(1000)),
            no_data_batches,
        };
        additions.iter().for_each(|events| world.source.add(event_rows(events.iter().copied())));
        world
    }

    /// One process: starts, runs what is there, ends; well or not.
    async fn run(&self, files: Arc<dyn FileManager>) -> Result<()> {
        let start = Start {
            query_id: Some(QueryId("q".into())),
            min_batches_to_retain: 2,
            ..Start::new("q", files, Arc::clone(&self.clock) as Arc<dyn Clock>)
        };
        let recovered = start.recover().await?;
        let state = FileState::open(recovered.checkpoint().state_files(), recovered.state_commit()?).await?;
        let mut query = Query::builder(recovered)
            .input("events", Arc::new(self.source.reopen()))
            .logic(Logic::new(Arc::new(WindowCounts::new(10, &[15]).keep_late_rows())))
            .state(Box::new(state))
            .sink(Arc::new(self.sink.clone()))
            .no_data_batches(self.no_data_batches)
            .trigger(Trigger::AvailableNow)
            .parallelism(2)
            .build()
            .await?;
        query.run(&RunControl::default()).await.map(|_| ())
    }

    async fn run_with(&self, fault: Fault) -> Result<()> {
        self.run(Arc::new(FaultyFiles::new(Arc::new(self.files.clone()), Some(fault)))).await
    }

    async fn run_undisturbed(&self) {
        self.run(Arc::new(self.files.clone())).await.unwrap();
    }

    async fn outcome(&self) -> Outcome {
        let rows = self.sink.batches().into_iter();
        let rows = rows.map(|(id, rows)| (id, rows_text(&rows).unwrap())).collect();
        let mut dead_letters = BTreeMap::new();
        for file in self.files.list("dead-letters").await.unwrap() {
            let content = self.files.read(&file.path).await.unwrap().unwrap();
            dead_letters.insert(file.path, content);
        }
        Outcome { rows, dead_letters }
    }

    /// Adds a row far in the future, which ends all windows before, runs, and gives all rows in a fixed order.
    async fn all_rows(&self) -> Vec<String> {
        self.source.add(event_rows([(0, 1_000_000)]));
        // A fault of the sink may still be waiting for a write.
        let _ = self.run(Arc::new(self.files.clone())).await;
        self.run_undisturbed().await;
        let mut rows = rows_text(&self.sink.rows()).unwrap();
        rows.sort();
        rows
    }
}

/// With late rows, rows of windows that are reopened, and windows that end in every second micro-batch.
fn story() -> Vec<Vec<(i64, i64)>> {
    vec![
        vec![(1, 3), (2, 4), (1, 5)],
        vec![(1, 22), (130, 24)],
        vec![(1, 61), (2, 9)],
        vec![(2, 2), (2, 45), (3, 62)],
        vec![(2, 1), (77, 59)],
        vec![(1, 100), (5, 30)],
    ]
}

#[tokio::test]
async fn every_file_operation_may_fail() {
    let undisturbed = World::new(&story(), false);
    let counting = FaultyFiles::new(Arc::new(undisturbed.files.clone()), None);
    undisturbed.run(Arc::new(counting.clone())).await.unwrap();
    let expected = undisturbed.outcome().await;
    assert_eq!(expected.rows.len(), 6);
    assert_eq!(expected.dead_letters.len(), 2);
    assert_eq!(expected.rows.values().flatten().count(), 4, "{expected:?}");
    let states = undisturbed.files.list("state").await.unwrap();
    assert_eq!(states.len(), 3, "as many as the logs remember: {states:?}");

    for at in 1..=counting.operations() {
        for (after_effect, crash) in [(false, false), (false, true), (true, false), (true, true)] {
            let fault = Fault { at, after_effect, crash };
            let world = World::new(&story(), false);
            let disturbed = world.run_with(fault).await;
            world.run_undisturbed().await;
            assert_eq!(world.outcome().await, expected, "{fault:?}, whose run ended with {disturbed:?}");
        }
    }
}

#[tokio::test]
async fn with_micro_batches_without_data_every_file_operation_may_fail_and_each_window_comes_once() {
    let story: Vec<_> = (0..5).map(|n| vec![(1, n * 12), (2, n * 12 + 7)]).collect();
    let undisturbed = World::new(&story, true);
    let counting = FaultyFiles::new(Arc::new(undisturbed.files.clone()), None);
    undisturbed.run(Arc::new(counting.clone())).await.unwrap();
    assert_eq!(undisturbed.sink.batches().len(), 6, "the last is one without data");
    let expected = undisturbed.all_rows().await;

    for at in 1..=counting.operations() {
        for (after_effect, crash) in [(false, false), (false, true), (true, false), (true, true)] {
            let fault = Fault { at, after_effect, crash };
            let world = World::new(&story, true);
            let disturbed = world.run_with(fault).await;
            world.run_undisturbed().await;
            assert_eq!(world.all_rows().await, expected, "{fault:?}, whose run ended with {disturbed:?}");
        }
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// Key, time (or, where late rows are not wanted, how much later than the one before).
    Add(i64, i64),
    /// A process that dies at an operation (or lives, if it has fewer).
    Process(Fault),
    FailSink(bool),
}

fn event() -> impl Strategy<Value = Event> {
    let fault = (1..70_u64, any::<bool>(), any::<bool>());
    prop_oneof![
        3 => (0..200_i64, 0..60_i64).prop_map(|(key, time)| Event::Add(key, time)),
        3 => fault.prop_map(|(at, after_effect, crash)| Event::Process(Fault { at, after_effect, crash })),
        1 => any::<bool>().prop_map(Event::FailSink),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any sequence of additions, deaths and failures of the sink gives what a run gives that nothing disturbs.
    #[test]
    fn any_story_gives_the_answer_of_the_undisturbed_run(
        story in proptest::collection::vec(event(), 1..25),
        no_data_batches in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let world = World::new(&[], no_data_batches);
            let (mut added, mut now) = (Vec::new(), 0);
            for event in story {
                match event {
                    Event::Add(key, time) => {
                        // Which rows are late depends on when micro-batches without data run, so then none is.
                        now = if no_data_batches { now + time } else { time * 3 };
                        world.source.add(event_rows([(key, now)]));
                        added.push(vec![(key, now)]);
                    }
                    Event::Process(fault) => {
                        let _ = world.run_with(fault).await;
                    }
                    Event::FailSink(after) => {
                        world.sink.fail_next(if after { SinkFault::After } else { SinkFault::Before });
                    }
                }
            }
            let _ = world.run(Arc::new(world.files.clone())).await;
            world.run_undisturbed().await;

            let undisturbed = World::new(&added, no_data_batches);
            undisturbed.run_undisturbed().await;
            if !no_data_batches {
                assert_eq!(world.outcome().await, undisturbed.outcome().await);
            }
            assert_eq!(world.all_rows().await, undisturbed.all_rows().await);
        });
    }
}
