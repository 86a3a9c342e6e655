//! Exactly once, whatever dies: every file operation fails in turn, before and after its effect, for one call or for
//! good; the query is started again until all is done; the sink and the dead letters must be those of a run that
//! nothing disturbed.

use crate::testing::{MemorySource, RecordingSink, SinkFault, int_rows, int_schema, rows_text, stateless};
use crate::{Logic, PluginCode, Query, RunControl, Start};
use arrow::array::{Int64Array, RecordBatch};
use bytes::Bytes;
use pelton_core::files::{Fault, FaultyFiles};
use pelton_core::{
    BatchId, Clock, Created, DeadLetter, ErrorKind, FileInfo, FileManager, FileWriter, LossKind, ManualClock,
    MemoryFiles, Part, QueryId, Result, Trigger,
};
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
}

impl World {
    fn new() -> Self {
        Self {
            source: MemorySource::new(int_schema()).additions_per_batch(2),
            files: MemoryFiles::new(),
            sink: RecordingSink::new(),
            clock: Arc::new(ManualClock::new(1000)),
        }
    }

    async fn query(&self, files: Arc<dyn FileManager>) -> Result<Query> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let start = Start {
            query_id: Some(QueryId("q".into())),
            min_batches_to_retain: 2,
            ..Start::new("q", files, clock)
        };
        Query::builder(start.recover().await?)
            .input("numbers", Arc::new(self.source.reopen()))
            .logic(logic())
            .sink(Arc::new(self.sink.clone()))
            .trigger(Trigger::AvailableNow)
            .parallelism(2)
            .build()
            .await
    }

    /// One process: starts, runs what is there, ends; well or not.
    async fn run(&self, files: Arc<dyn FileManager>) -> Result<()> {
        let mut query = self.query(files).await?;
        query.run(&RunControl::default()).await.map(|_| ())
    }

    async fn run_undisturbed(&self) {
        self.run(Arc::new(self.files.clone())).await.unwrap();
    }

    async fn outcome(&self) -> Outcome {
        let rows =
            self.sink.batches().into_iter().map(|(id, rows)| (id, rows_text(&rows).unwrap())).collect();
        let mut dead_letters = BTreeMap::new();
        for file in self.files.list("dead-letters").await.unwrap() {
            let content = self.files.read(&file.path).await.unwrap().unwrap();
            dead_letters.insert(file.path, content);
        }
        Outcome { rows, dead_letters }
    }
}

/// Gives every row with its micro-batch's number added, refuses multiples of 3.
fn logic() -> Logic {
    let refuse = |n: i64| DeadLetter {
        kind: LossKind::Refused,
        origin: "step 1".into(),
        position: None,
        reason: format!("{n} is a multiple of 3"),
        plugin: None,
        payload: Bytes::from(n.to_string()),
        message: None,
    };
    let dataflow = stateless(int_schema(), move |info, _, _, rows: Vec<RecordBatch>| {
        let values = |batch: &RecordBatch| {
            batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec()
        };
        let (refused, kept): (Vec<i64>, Vec<i64>) = rows.iter().flat_map(values).partition(|n| n % 3 == 0);
        let batch = info.batch_id.0 as i64 * 1000;
        Ok(Part {
            rows: int_rows(kept.into_iter().map(|n| n + batch)),
            dead_letters: refused.into_iter().map(refuse).collect(),
            ..Part::default()
        })
    });
    let bytes = Bytes::from_static(b"code");
    let digest = pelton_checkpoint::plugins::digest(&bytes);
    Logic { dataflow, plugins: BTreeMap::from([("p".into(), PluginCode { digest, bytes })]) }
}

fn fill(world: &World) {
    for n in 0..7 {
        world.source.add(int_rows([n * 2, n * 2 + 1]));
    }
}

#[tokio::test]
async fn every_file_operation_may_fail() {
    let undisturbed = World::new();
    fill(&undisturbed);
    let counting = FaultyFiles::new(Arc::new(undisturbed.files.clone()), None);
    undisturbed.run(Arc::new(counting.clone())).await.unwrap();
    let expected = undisturbed.outcome().await;
    assert_eq!(expected.rows.len(), 4);
    assert_eq!(expected.dead_letters.len(), 4);
    assert!(counting.operations() > 30, "{}", counting.operations());

    for at in 1..=counting.operations() {
        for (after_effect, crash) in [(false, false), (false, true), (true, false), (true, true)] {
            let fault = Fault { at, after_effect, crash };
            let world = World::new();
            fill(&world);
            let faulty = FaultyFiles::new(Arc::new(world.files.clone()), Some(fault));
            let disturbed = world.run(Arc::new(faulty)).await;
            world.run_undisturbed().await;
            assert_eq!(world.outcome().await, expected, "{fault:?}, whose run ended with {disturbed:?}");
        }
    }
}

/// A tree on a storage without locks, as object stores are.
#[derive(Debug)]
struct Lockless(MemoryFiles);

#[async_trait::async_trait]
impl FileManager for Lockless {
    fn url(&self) -> String {
        self.0.url()
    }
    async fn read(&self, path: &str) -> Result<Option<Bytes>> {
        self.0.read(path).await
    }
    async fn create(&self, path: &str, content: Bytes) -> Result<Created> {
        self.0.create(path, content).await
    }
    async fn replace(&self, path: &str, content: Bytes) -> Result<()> {
        self.0.replace(path, content).await
    }
    async fn writer(&self, path: &str) -> Result<Box<dyn FileWriter>> {
        self.0.writer(path).await
    }
    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to).await
    }
    async fn list(&self, dir: &str) -> Result<Vec<FileInfo>> {
        self.0.list(dir).await
    }
    async fn delete(&self, path: &str) -> Result<()> {
        self.0.delete(path).await
    }
    async fn lock(&self, _path: &str) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }
    fn subtree(&self, dir: &str) -> Arc<dyn FileManager> {
        self.0.subtree(dir)
    }
}

#[tokio::test]
async fn without_locks_the_slower_of_two_runs_is_fenced_and_the_quicker_goes_on() {
    let world = World::new();
    fill(&world);
    let lockless = || Arc::new(Lockless(world.files.clone()));
    let mut first = world.query(lockless()).await.unwrap();
    let mut second = world.query(lockless()).await.unwrap();
    first.run_once().await.unwrap();
    first.run_once().await.unwrap();
    let fenced = second.run_once().await.unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Fenced);
    assert!(fenced.message().contains("offsets/0 was written by another run"), "{fenced}");
    first.run(&RunControl::default()).await.unwrap();

    let undisturbed = World::new();
    fill(&undisturbed);
    undisturbed.run_undisturbed().await;
    assert_eq!(world.outcome().await, undisturbed.outcome().await);
}

#[derive(Debug, Clone)]
enum Event {
    Add(i64),
    /// A process that dies at an operation (or lives, if it has fewer).
    Process(Fault),
    FailSink(bool),
}

fn event() -> impl Strategy<Value = Event> {
    let fault = (1..60_u64, any::<bool>(), any::<bool>());
    prop_oneof![
        2 => (0..50_i64).prop_map(Event::Add),
        3 => fault.prop_map(|(at, after_effect, crash)| Event::Process(Fault { at, after_effect, crash })),
        1 => any::<bool>().prop_map(Event::FailSink),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// How rows are cut into micro-batches depends on when they came; that each comes once, in order, does not.
    #[test]
    fn any_story_of_additions_and_deaths_gives_each_row_once(story in proptest::collection::vec(event(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            let world = World::new();
            let mut added = Vec::new();
            for event in story {
                match event {
                    Event::Add(n) => {
                        world.source.add(int_rows([n]));
                        added.push(n);
                    }
                    Event::Process(fault) => {
                        let faulty = FaultyFiles::new(Arc::new(world.files.clone()), Some(fault));
                        let _ = world.run(Arc::new(faulty)).await;
                    }
                    Event::FailSink(after) => {
                        world.sink.fail_next(if after { SinkFault::After } else { SinkFault::Before });
                    }
                }
            }
            let _ = world.run(Arc::new(world.files.clone())).await;
            world.run_undisturbed().await;

            let outcome = world.outcome().await;
            let got: Vec<i64> = outcome.rows.values().flatten().map(|row| row.parse::<i64>().unwrap() % 1000).collect();
            let refused: usize =
                outcome.dead_letters.values().map(|file| file.iter().filter(|byte| **byte == b'\n').count()).sum();
            let (odd_ones, kept): (Vec<i64>, Vec<i64>) = added.iter().partition(|n| *n % 3 == 0);
            assert_eq!(got, kept);
            assert_eq!(refused, odd_ones.len());
        });
    }
}
