//! What a query does, told as scripts: order, rerun, plugins' bytes, triggers, losses, refusals.

use crate::testing::Action::{
    AddData, AdvanceManualClock, ExpectFailure, FailFiles, FailSink, ProcessAllAvailable, Restart, SetLogic,
    StartStream, StopStream,
};
use crate::testing::{
    MemorySource, RecordingSink, SinkFault, StreamTest, check_answer, check_new_answer, int_rows, int_schema,
    pass_through, rows_part, rows_text, stateless,
};
use crate::{Logic, PluginCode, Progress, Query, RunControl, RunEnd, Start, SystemClock};
use arrow::array::{Int64Array, RecordBatch};
use bytes::Bytes;
use pelton_core::files::Fault;
use pelton_core::sink::RowStream;
use pelton_core::{
    BatchId, BatchInfo, Dataflow, DeadLetter, Error, ErrorKind, FileManager, Interval, LossKind, ManualClock,
    MemoryFiles, OutputMode, Part, Sink, SinkContext, SinkReport, Trigger,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn numbers(batch: &RecordBatch) -> Vec<i64> {
    let column = batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
    column.values().to_vec()
}

fn passing() -> Logic {
    Logic::new(pass_through(int_schema()))
}

fn one_input() -> StreamTest {
    StreamTest::new([int_schema()], passing())
}

/// Steps with a plugin `p` whose bytes are `version` and which adds `by`.
fn adding(version: &'static str, by: i64) -> Logic {
    let dataflow = stateless(int_schema(), move |_, _, _, rows| {
        let add = |batch| int_rows(numbers(&batch).into_iter().map(|n| n + by));
        Ok(rows_part(rows.into_iter().flat_map(add).collect()))
    });
    let bytes = Bytes::from_static(version.as_bytes());
    let digest = pelton_checkpoint::plugins::digest(&bytes);
    Logic { dataflow, plugins: BTreeMap::from([("p".into(), PluginCode { digest, bytes })]) }
}

#[tokio::test]
async fn rows_go_through_and_a_restart_goes_on() {
    let mut test = one_input();
    let script = [
        StartStream,
        AddData(0, int_rows([1, 2])),
        check_answer([1, 2]),
        AddData(0, int_rows([3])),
        StopStream,
        AddData(0, int_rows([4])),
        StartStream,
        check_new_answer([3, 4]),
        Restart,
        check_answer([1, 2, 3, 4]),
    ];
    test.run(script).await.unwrap();
    assert_eq!(test.sink.opened(), [None, Some(BatchId(0)), Some(BatchId(1))]);
    assert_eq!(test.sources[0].acknowledged(), Some(3));
}

#[tokio::test]
async fn the_logs_say_what_ran() {
    let mut test = StreamTest::new([int_schema()], adding("v1", 0));
    test.run([StartStream, AdvanceManualClock(5), AddData(0, int_rows([1])), check_answer([1])])
        .await
        .unwrap();
    let offsets = test.files.read("offsets/0").await.unwrap().unwrap();
    let offsets = std::str::from_utf8(&offsets).unwrap();
    let digest = &adding("v1", 0).plugins["p"].digest;
    let start = format!(
        "v1\n{{\"batch_time_ms\":5,\"watermark_ms\":null,\"sources\":{{\"s0\":{{\"start\":null,\"end\":1}}}},\
         \"plugins\":{{\"p\":\"{digest}\"}},\"sink\":\"recording\",\"run_id\":\""
    );
    assert!(offsets.starts_with(&start), "{offsets}");
    let commit = test.files.read("commits/0").await.unwrap().unwrap();
    assert!(commit.starts_with(b"v1\n{\"next_watermark_ms\":null,\"sink\":{\"rows\":1,"), "{commit:?}");
    assert_eq!(test.files.read(&format!("plugins/{digest}.wasm")).await.unwrap().unwrap(), "v1");
}

#[tokio::test]
async fn a_micro_batch_whose_sink_failed_runs_again_with_the_same_input_and_time() {
    for fault in [SinkFault::Before, SinkFault::After] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let dataflow = stateless(int_schema(), move |info, _, _, rows| {
            log.lock().unwrap().push((info.batch_id, info.time_ms, numbers(&rows[0])));
            Ok(rows_part(rows))
        });
        let mut test = StreamTest::new([int_schema()], Logic::new(dataflow));
        let script = [
            StartStream,
            AddData(0, int_rows([1])),
            check_answer([1]),
            AdvanceManualClock(7),
            AddData(0, int_rows([2])),
            FailSink(fault),
            ExpectFailure(ErrorKind::Unavailable, "query 'test', micro-batch 1: injected fault"),
            AdvanceManualClock(7),
            AddData(0, int_rows([3])),
            StartStream,
            check_answer([1, 2, 3]),
        ];
        test.run(script).await.unwrap();
        let second = (BatchId(1), 7, vec![2]);
        let runs = seen.lock().unwrap().iter().filter(|run| **run == second).count();
        assert_eq!(runs, if fault == SinkFault::Before { 2 } else { 1 }, "{fault:?}");
        assert_eq!(seen.lock().unwrap().last(), Some(&(BatchId(2), 14, vec![3])));
        assert_eq!(test.sink.opened().last(), Some(&Some(BatchId(0))));
    }
}

#[tokio::test]
async fn a_rerun_uses_the_plugin_of_the_first_run_and_the_next_the_new_one() {
    let mut test = StreamTest::new([int_schema()], adding("v1", 100));
    let script = [
        StartStream,
        AddData(0, int_rows([1])),
        FailSink(SinkFault::Before),
        ExpectFailure(ErrorKind::Unavailable, "injected"),
        SetLogic(adding("v2", 200)),
        AddData(0, int_rows([2])),
        StartStream,
        check_answer([101, 202]),
    ];
    test.run(script).await.unwrap();
}

#[tokio::test]
async fn a_rerun_with_other_bytes_is_refused() {
    let mut test = StreamTest::new([int_schema()], adding("v1", 100));
    let script = [
        StartStream,
        AddData(0, int_rows([1])),
        FailSink(SinkFault::Before),
        ExpectFailure(ErrorKind::Unavailable, "injected"),
    ];
    test.run(script).await.unwrap();
    let clock = Arc::new(ManualClock::new(0));
    let recovered = Start::new("test", Arc::clone(&test.files), clock).recover().await.unwrap();
    let wanted = recovered.rerun_plugins().unwrap()["p"].clone();
    assert_eq!(recovered.load_plugin(&wanted).await.unwrap(), "v1");
    let query = Query::builder(recovered)
        .input("s0", Arc::new(test.sources[0].reopen()))
        .logic(adding("v2", 200))
        .sink(Arc::new(test.sink.clone()));
    let refused = query.build().await.err().unwrap();
    assert!(refused.message().contains("other bytes of the plugin 'p'"), "{refused}");
}

#[tokio::test]
async fn processing_time_fires_at_once_and_then_on_multiples() {
    let mut test = one_input().trigger(Trigger::ProcessingTime(Interval::from_millis(100)));
    let script = [
        AddData(0, int_rows([1])),
        AdvanceManualClock(30),
        StartStream,
        check_answer([1]),
        AddData(0, int_rows([2])),
        AdvanceManualClock(69),
        check_new_answer::<i64>([]),
        AdvanceManualClock(1),
        check_new_answer([2]),
        AddData(0, int_rows([3])),
        AdvanceManualClock(1000),
        check_new_answer([3]),
    ];
    test.run(script).await.unwrap();
}

#[tokio::test]
async fn inputs_are_united_in_their_order_whatever_worker_is_quicker() {
    let slow_first = stateless(int_schema(), |_, input, partition, rows| {
        let delay_ms = if input == 0 { 12_u64.saturating_sub(partition) } else { 0 };
        std::thread::sleep(Duration::from_millis(delay_ms));
        Ok(rows_part(rows))
    });
    for parallelism in [1, 2, 8] {
        let logic = Logic::new(Arc::clone(&slow_first));
        let mut test = StreamTest::new([int_schema(), int_schema()], logic).parallelism(parallelism);
        for n in 0..8 {
            test.sources[0].add(int_rows([n]));
            test.sources[1].add(int_rows([100 + n]));
        }
        test.run([StartStream, check_answer((0..8).chain(100..108))]).await.unwrap();
        assert_eq!(test.sink.batches().len(), 1);
    }
}

/// Fails on some rows, panics on others.
fn fragile() -> Arc<dyn Dataflow> {
    stateless(int_schema(), |_, _, partition, rows| match numbers(&rows[0])[0] {
        -1 => Err(Error::data(format!("bad part {partition}"))),
        -2 => panic!("out of luck"),
        _ => Ok(rows_part(rows)),
    })
}

#[tokio::test]
async fn the_first_error_in_the_order_of_the_blocks_wins_and_nothing_is_written() {
    let mut test = StreamTest::new([int_schema()], Logic::new(fragile()));
    let script = [
        AddData(0, int_rows([1])),
        AddData(0, int_rows([-1])),
        AddData(0, int_rows([-1])),
        StartStream,
        ExpectFailure(ErrorKind::Data, "query 'test', micro-batch 0: bad part 1"),
    ];
    test.run(script).await.unwrap();
    assert!(test.sink.rows().is_empty());
}

#[tokio::test]
async fn a_panic_of_a_worker_fails_the_micro_batch_alone() {
    let mut test = StreamTest::new([int_schema()], Logic::new(fragile()));
    let script = [
        AddData(0, int_rows([-2])),
        StartStream,
        ExpectFailure(ErrorKind::Internal, "a worker panicked: out of luck"),
        SetLogic(passing()),
        StartStream,
        check_answer([-2]),
    ];
    test.run(script).await.unwrap();
}

fn letter(reason: &str, kind: LossKind) -> DeadLetter {
    DeadLetter {
        kind,
        origin: "s0".into(),
        position: None,
        reason: reason.into(),
        plugin: None,
        payload: Bytes::from_static(b"{}"),
        message: None,
    }
}

/// Refuses odd numbers.
fn refusing() -> Logic {
    let dataflow = stateless(int_schema(), |_, _, _, rows| {
        let all: Vec<i64> = rows.iter().flat_map(numbers).collect();
        let refused = all.iter().filter(|n| *n % 2 == 1);
        let dead_letters = refused.map(|n| letter(&format!("{n} is odd"), LossKind::Refused)).collect();
        let rows = int_rows(all.into_iter().filter(|n| n % 2 == 0));
        Ok(Part { rows, dead_letters, ..Part::default() })
    });
    Logic::new(dataflow)
}

#[tokio::test]
async fn dead_letters_are_there_before_the_sink_has_the_rows_and_never_double() {
    let mut test = StreamTest::new([int_schema()], refusing());
    test.sources[0].add_with_losses(int_rows([1, 2]), vec![letter("no number", LossKind::Malformed)], 5);
    let script = [
        StartStream,
        FailSink(SinkFault::After),
        ExpectFailure(ErrorKind::Unavailable, "after the sink's write"),
        StartStream,
        check_answer([2]),
    ];
    test.run(script).await.unwrap();
    let text = test.files.read("dead-letters/0.jsonl").await.unwrap().unwrap();
    let reasons: Vec<_> = std::str::from_utf8(&text)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["reason"].clone())
        .collect();
    assert_eq!(reasons, ["no number", "1 is odd"]);
}

/// A query over a source of its own, without the harness: for triggers that end by themselves.
async fn query(trigger: Trigger, source: &MemorySource, files: &MemoryFiles, sink: &RecordingSink) -> Query {
    let start = Start::new("test", Arc::new(files.clone()), Arc::new(SystemClock));
    Query::builder(start.recover().await.unwrap())
        .input("s0", Arc::new(source.reopen().additions_per_batch(1)))
        .logic(refusing())
        .sink(Arc::new(sink.clone()))
        .trigger(trigger)
        .polling_delay(Duration::from_millis(1))
        .build()
        .await
        .unwrap()
}

#[tokio::test]
async fn once_takes_all_in_one_and_available_now_keeps_the_limits() {
    let source = MemorySource::new(int_schema());
    for n in [2, 4, 6] {
        source.add(int_rows([n]));
    }
    for (trigger, batches) in [(Trigger::Once, 1), (Trigger::AvailableNow, 3)] {
        let (files, sink) = (MemoryFiles::new(), RecordingSink::new());
        let mut query = query(trigger, &source, &files, &sink).await;
        let summary = query.run(&RunControl::default()).await.unwrap();
        assert_eq!((summary.end, summary.batches), (RunEnd::Finished, batches), "{trigger}");
        assert_eq!((summary.rows_in, summary.rows_out), (3, 3), "{trigger}");
        assert_eq!(rows_text(&sink.rows()).unwrap(), ["2", "4", "6"], "{trigger}");
    }
}

#[tokio::test]
async fn a_stop_commits_the_micro_batch_and_an_abort_leaves_it_to_the_next_start() {
    let source = MemorySource::new(int_schema());
    source.add(int_rows([2]));
    let (files, sink) = (MemoryFiles::new(), RecordingSink::new());
    let control = RunControl::default();
    let mut running = query(Trigger::AsFastAsPossible, &source, &files, &sink).await;
    let stop = async {
        while sink.rows().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        control.stop.cancel();
    };
    let (summary, ()) = tokio::join!(running.run(&control), stop);
    assert_eq!(summary.unwrap().end, RunEnd::Stopped);
    assert!(files.read("commits/0").await.unwrap().is_some());
    drop(running);

    source.add(int_rows([4]));
    let control = RunControl::default();
    control.abort.cancel();
    let mut aborted = query(Trigger::AsFastAsPossible, &source, &files, &sink).await;
    assert_eq!(aborted.run(&control).await.unwrap().end, RunEnd::Aborted);
    assert!(files.read("commits/1").await.unwrap().is_none());
}

#[tokio::test]
async fn progress_counts_rows_losses_and_time() {
    let source = MemorySource::new(int_schema());
    source.add_with_losses(int_rows([1, 2, 3]), vec![letter("no", LossKind::Malformed)], 5);
    let told = Arc::new(Mutex::new(Vec::<Progress>::new()));
    let listener = Arc::clone(&told);
    let clock = Arc::new(ManualClock::new(1_796_019_589_456));
    let start = Start::new("busy", Arc::new(MemoryFiles::new()), clock);
    let mut query = Query::builder(start.recover().await.unwrap())
        .input("s0", Arc::new(source))
        .logic(refusing())
        .sink(Arc::new(RecordingSink::new()))
        .on_progress(move |progress| listener.lock().unwrap().push(progress.clone()))
        .build()
        .await
        .unwrap();
    query.run_once().await.unwrap();
    let told = told.lock().unwrap();
    let json = serde_json::to_value(&told[0]).unwrap();
    assert_eq!(json["timestamp"], "2026-11-30T06:19:49.456Z");
    assert_eq!(json["num_input_rows"], 3);
    assert_eq!(json["num_refused_rows"], 2);
    assert_eq!(json["num_dead_letters"], 3);
    assert_eq!(json["sources"][0]["num_malformed_rows"], 6);
    assert_eq!(json["sources"][0]["end_offset"], 1);
    assert_eq!(json["sink"]["num_output_rows"], 1);
    assert!(json["duration_ms"]["trigger_execution"].as_f64().unwrap() > 0.0);
    assert_eq!(query.summary().rows_refused, 2);
    assert_eq!(query.summary().rows_malformed, 6);
}

#[tokio::test]
async fn a_second_run_and_other_sources_are_refused() {
    let mut test = one_input();
    test.run([StartStream, AddData(0, int_rows([1])), ProcessAllAvailable]).await.unwrap();
    let start = || Start::new("test", Arc::clone(&test.files), Arc::new(SystemClock));
    assert_eq!(start().recover().await.err().unwrap().kind(), ErrorKind::Fenced);
    test.run([StopStream]).await.unwrap();

    let start = Start::new("test", Arc::clone(&test.files), Arc::new(SystemClock));
    let renamed = Query::builder(start.recover().await.unwrap())
        .input("s0x", Arc::new(MemorySource::new(int_schema())))
        .logic(passing())
        .sink(Arc::new(RecordingSink::new()));
    let refused = renamed.build().await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.message().contains("no such source (is 's0x' its new name?)"), "{refused}");
}

#[tokio::test]
async fn a_checkpoint_that_cannot_be_written_ends_the_run_and_the_next_goes_on() {
    let mut test = one_input();
    let dies = FailFiles(Fault { at: 8, after_effect: false, crash: true });
    let script = [
        AddData(0, int_rows([1])),
        dies,
        StartStream,
        ExpectFailure(ErrorKind::Unavailable, "injected fault before operation"),
        StartStream,
        check_answer([1]),
    ];
    test.run(script).await.unwrap();
}

#[tokio::test]
async fn a_query_that_has_failed_does_not_go_on() {
    let source = MemorySource::new(int_schema());
    source.add(int_rows([2]));
    let (files, sink) = (MemoryFiles::new(), RecordingSink::new());
    sink.fail_next(SinkFault::Before);
    let mut query = query(Trigger::AsFastAsPossible, &source, &files, &sink).await;
    query.run_once().await.unwrap_err();
    let refused = query.run_once().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Internal);
    assert!(sink.rows().is_empty());
}

/// Answers before it has read its rows.
struct Hasty;

#[async_trait::async_trait]
impl Sink for Hasty {
    fn description(&self) -> String {
        "hasty".into()
    }
    fn output_modes(&self) -> &[OutputMode] {
        &[OutputMode::Update]
    }
    async fn open(&self, _: SinkContext) -> pelton_core::Result<()> {
        Ok(())
    }
    async fn write(&self, _: &BatchInfo, rows: RowStream) -> pelton_core::Result<SinkReport> {
        drop(rows);
        Ok(SinkReport::default())
    }
}

#[tokio::test]
async fn a_sink_that_leaves_rows_unread_and_one_that_cannot_take_the_mode_are_refused() {
    for (mode, message) in [
        (OutputMode::Append, "the sink `hasty` cannot take output mode append"),
        (OutputMode::Update, "the sink `hasty` took a micro-batch without reading it to its end"),
    ] {
        let source = MemorySource::new(int_schema());
        source.add(int_rows([1]));
        let files = Arc::new(MemoryFiles::new());
        let start = Start::new("test", files.clone(), Arc::new(SystemClock));
        let builder = Query::builder(start.recover().await.unwrap())
            .input("s0", Arc::new(source))
            .logic(passing())
            .output_mode(mode)
            .sink(Arc::new(Hasty));
        let failed = match builder.build().await {
            Ok(mut query) => query.run_once().await.unwrap_err(),
            Err(refused) => refused,
        };
        assert!(failed.message().contains(message), "{failed}");
        assert!(files.read("commits/0").await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_micro_batch_that_another_kind_of_sink_may_have_is_finished_there_first() {
    let mut test = one_input();
    let script = [
        StartStream,
        AddData(0, int_rows([1])),
        FailSink(SinkFault::After),
        ExpectFailure(ErrorKind::Unavailable, "injected"),
    ];
    test.run(script).await.unwrap();
    let start = Start::new("test", Arc::clone(&test.files), Arc::new(SystemClock));
    let other = Query::builder(start.recover().await.unwrap())
        .input("s0", Arc::new(test.sources[0].reopen()))
        .logic(passing())
        .output_mode(OutputMode::Update)
        .sink(Arc::new(Hasty));
    let refused = other.build().await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.message().contains("must first be finished with a recording sink"), "{refused}");
    assert!(refused.hint_text().unwrap().contains("--trigger once"), "{refused}");
    test.run([StartStream, check_answer([1])]).await.unwrap();
}
