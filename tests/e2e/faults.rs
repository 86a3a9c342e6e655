//! Every operation on the files of a checkpoint fails in turn, before or after it took effect, once or for good, while a
//! query runs that keeps state in native operators and in user code and waits for timeouts: the real operators, state
//! store and plugin. However it is disturbed, the sink has the rows of the undisturbed run.

use anyhow::{Context, Result, ensure};
use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use pelton_core::files::{Fault, FaultyFiles};
use pelton_core::{Clock, FileManager, ManualClock, MemoryFiles, Plugin, QueryId, Trigger};
use pelton_engine::testing::{MemorySource, RecordingSink, rows_text};
use pelton_engine::{Logic, PluginCode, Query, RunControl, Start};
use pelton_operators::QueryDataflow;
use pelton_plan::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs};
use pelton_state::CheckpointedStateStore;
use pelton_tests::plugin;
use pelton_wasm::{HostOptions, PluginHost, PluginSettings};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first of each visit counts, visits make sessions. The source is a stand-in: rows come from the test.
const PIPELINE: &str = "\
name: faults
plugins: {sessionize: {path: sessionize.wasm, config: {gap: 10 seconds}}}
sources:
  visits:
    connector: file
    path: nowhere/*.json
    format: json
    schema: {key: string, ts: timestamp}
    watermark: {column: ts, delay: 5 seconds}
steps:
  - dedup: [key, ts]
  - plugin: sessionize.sessionize
    key: [key]
output_mode: append
sink: {connector: memory}
";

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![Field::new("key", DataType::Utf8, true), Field::new("ts", time, true)]))
}

fn visits(visits: &[(&str, i64)]) -> Result<RecordBatch> {
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(visits.iter().map(|(key, _)| *key)));
    let times = TimestampMicrosecondArray::from_iter_values(visits.iter().map(|(_, s)| s * 1_000_000));
    Ok(RecordBatch::try_new(schema(), vec![keys, Arc::new(times.with_timezone("UTC"))])?)
}

/// Micro-batches with repeated visits, sessions that grow, close and begin again.
const STORY: [&[(&str, i64)]; 6] = [
    &[("ann", 100), ("bob", 101), ("ann", 100)],
    &[("ann", 107), ("bob", 101)],
    &[("cem", 130), ("ann", 106)],
    &[("bob", 131), ("cem", 139), ("cem", 139)],
    &[("dia", 160)],
    &[("ann", 200), ("dia", 190)],
];

/// Everything that outlives a process, and the steps.
struct World {
    source: MemorySource,
    files: MemoryFiles,
    sink: RecordingSink,
    clock: Arc<ManualClock>,
    logic: Logic,
}

impl World {
    fn new(logic: &Logic) -> Result<Self> {
        let source = MemorySource::new(schema()).additions_per_batch(1);
        for batch in STORY {
            source.add(vec![visits(batch)?]);
        }
        Ok(Self {
            source,
            files: MemoryFiles::new(),
            sink: RecordingSink::new(),
            clock: Arc::new(ManualClock::new(1000)),
            logic: logic.clone(),
        })
    }

    /// One process: starts, runs what is there, ends; well or not.
    async fn run(&self, files: Arc<dyn FileManager>) -> pelton_core::Result<()> {
        let start = Start {
            query_id: Some(QueryId("q".into())),
            min_batches_to_retain: 2,
            ..Start::new("faults", files, Arc::clone(&self.clock) as Arc<dyn Clock>)
        };
        let recovered = start.recover().await?;
        let files = recovered.checkpoint().state_files();
        let state = CheckpointedStateStore::open(files, recovered.state_commit()?).await?;
        let mut query = Query::builder(recovered)
            .input("visits", Arc::new(self.source.reopen()))
            .logic(self.logic.clone())
            .state(Box::new(state))
            .sink(Arc::new(self.sink.clone()))
            // After a restart none runs before new data, as in Spark: without them the micro-batches are the same.
            .no_data_batches(false)
            .trigger(Trigger::AvailableNow)
            .parallelism(2)
            .build()
            .await?;
        query.run(&RunControl::default()).await.map(|_| ())
    }

    fn rows(&self) -> Result<Vec<(u64, Vec<String>)>> {
        let batches = self.sink.batches().into_iter();
        batches.map(|(id, rows)| Ok((id.0, rows_text(&rows).map_err(anyhow::Error::msg)?))).collect()
    }
}

fn logic() -> Result<Logic> {
    let bytes = bytes_of("sessionize.wasm")?;
    let file = PipelineFile::read(PIPELINE, "faults.yaml", &[])?;
    let options = file.plugins.get("sessionize").context("no plugin")?.options();
    let settings = PluginSettings { config: options.config.into(), ..PluginSettings::default() };
    let plugin: Arc<dyn Plugin> =
        PluginHost::new(HostOptions::default())?.load("sessionize", &bytes, settings)?;
    let code = PluginCode { digest: plugin.digest().clone(), bytes: bytes.into() };
    let inputs = PlanInputs {
        sources: BTreeMap::from([("visits".to_owned(), schema())]),
        tables: BTreeMap::new(),
        plugins: BTreeMap::from([("sessionize".to_owned(), plugin)]),
    };
    let plan = PhysicalPlan::build(&LogicalPlan::resolve(&file, &inputs)?)?;
    let dataflow = QueryDataflow::bind(&plan, &[schema()])?;
    Ok(Logic { dataflow, plugins: BTreeMap::from([("sessionize".to_owned(), code)]) })
}

fn bytes_of(name: &str) -> Result<Vec<u8>> {
    let path = plugin(name)?;
    std::fs::read(&path).with_context(|| path.display().to_string())
}

#[test]
fn every_file_operation_may_fail_under_operators_and_user_code_that_keep_state() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let logic = logic()?;
    let undisturbed = World::new(&logic)?;
    let counting = FaultyFiles::new(Arc::new(undisturbed.files.clone()), None);
    runtime.block_on(undisturbed.run(Arc::new(counting.clone())))?;
    let expected = undisturbed.rows()?;
    let rows: usize = expected.iter().map(|(_, rows)| rows.len()).sum();
    ensure!(expected.len() == STORY.len() && rows >= 4, "the story says little: {expected:?}");
    for at in 1..=counting.operations() {
        for (after_effect, crash) in [(false, false), (false, true), (true, false), (true, true)] {
            let fault = Fault { at, after_effect, crash };
            let world = World::new(&logic)?;
            let faulty = FaultyFiles::new(Arc::new(world.files.clone()), Some(fault));
            let disturbed = runtime.block_on(world.run(Arc::new(faulty)));
            runtime.block_on(world.run(Arc::new(world.files.clone())))?;
            let found = world.rows()?;
            ensure!(
                found == expected,
                "{fault:?}, whose run ended with {disturbed:?}: {found:?} instead of {expected:?}"
            );
        }
    }
    Ok(())
}
