//! What a stateful query does, told as scripts: watermarks, late rows, micro-batches without data, state over
//! restarts, what is refused.

use crate::testing::Action::{
    AddData, AdvanceManualClock, DeleteCommit, ExpectFailure, FailSink, ProcessAllAvailable, Restart,
    SetLogic, StartStream, StopStream,
};
use crate::testing::{
    FileState, MemorySource, RecordingSink, SinkFault, StreamTest, WindowCounts, check_answer,
    check_new_answer, event_rows, event_schema, pass_through, rows_part, rows_text,
};
use crate::{Logic, Query, RunControl, Start};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pelton_core::{
    BatchId, BatchInfo, Dataflow, ErrorKind, Gather, Interval, ManualClock, MemoryFiles, OperatorInfo, Part,
    Result, Trigger, WatermarkInfo, WatermarkPolicy,
};
use std::sync::Arc;

/// Windows of 10 ms, a delay of 5 ms for each input.
fn counts(inputs: usize) -> Logic {
    Logic::new(Arc::new(WindowCounts::new(10, &vec![5; inputs])))
}

fn one_input() -> StreamTest {
    StreamTest::new([event_schema()], counts(1))
}

/// Each addition is a micro-batch of its own.
fn backlog() -> StreamTest {
    let mut test = one_input();
    test.sources[0] = MemorySource::new(event_schema()).additions_per_batch(1);
    test
}

fn add(events: &[(i64, i64)]) -> crate::testing::Action {
    AddData(0, event_rows(events.iter().copied()))
}

/// Of every micro-batch that ran: its number, whether it had no data, the watermark it ran with.
fn told(test: &StreamTest) -> Vec<(u64, bool, i64)> {
    let millis = |iso: &str| chrono::DateTime::parse_from_rfc3339(iso).unwrap().timestamp_millis();
    let line = |progress: &crate::Progress| {
        let watermark = progress.event_time.watermark.as_deref().map_or(-1, millis);
        (progress.batch_id.0, progress.no_data, watermark)
    };
    test.progress().iter().map(line).collect()
}

#[tokio::test]
async fn a_window_is_given_by_a_micro_batch_without_data_when_the_watermark_has_passed_its_end() {
    let mut test = one_input();
    let script = [
        StartStream,
        add(&[(1, 3), (2, 4), (1, 9)]),
        check_answer::<&str>([]),
        add(&[(1, 14)]),
        check_answer::<&str>([]),
        add(&[(1, 15)]),
        check_answer(["1, 10, 2", "2, 10, 1"]),
        ProcessAllAvailable,
    ];
    test.run(script).await.unwrap();
    let expected = [(0, false, 0), (1, true, 4), (2, false, 4), (3, true, 9), (4, false, 9), (5, true, 10)];
    assert_eq!(told(&test), expected);
}

#[tokio::test]
async fn late_rows_are_judged_by_the_watermark_before_and_windows_end_by_the_present_one() {
    let mut test = backlog();
    let script = [
        add(&[(1, 3)]),
        add(&[(1, 30)]),
        add(&[(2, 4)]),
        add(&[(2, 5), (2, 29)]),
        StartStream,
        check_answer(["1, 10, 1", "2, 10, 1"]),
    ];
    test.run(script).await.unwrap();
    assert_eq!(told(&test), [(0, false, 0), (1, false, 0), (2, false, 25), (3, false, 25)]);
    let late: Vec<u64> = test.progress().iter().map(|progress| progress.num_late_rows).collect();
    assert_eq!(late, [0, 0, 0, 1]);
    assert_eq!(test.query().unwrap().summary().rows_late, 1);
}

#[tokio::test]
async fn late_rows_that_are_kept_become_dead_letters() {
    let logic = Logic::new(Arc::new(WindowCounts::new(10, &[5]).keep_late_rows()));
    let mut test = StreamTest::new([event_schema()], logic);
    let script =
        [StartStream, add(&[(1, 30)]), ProcessAllAvailable, add(&[(7, 3)]), check_answer::<&str>([])];
    test.run(script).await.unwrap();
    let letters = test.files.read("dead-letters/2.jsonl").await.unwrap().unwrap();
    let letters = std::str::from_utf8(&letters).unwrap();
    assert!(
        letters.contains(r#""kind":"late","origin":"counts","reason":"22 ms behind the watermark""#),
        "{letters}"
    );
    let last = test.progress().pop().unwrap();
    assert_eq!((last.num_late_rows, last.num_dead_letters, last.num_refused_rows), (1, 1, 0));
}

#[tokio::test]
async fn progress_tells_of_state_watermarks_and_late_rows() {
    let mut test = one_input();
    test.run([StartStream, add(&[(1, 3), (2, 30)]), ProcessAllAvailable]).await.unwrap();
    let json: Vec<_> =
        test.progress().iter().map(|progress| serde_json::to_value(progress).unwrap()).collect();
    let mark = |latest: &str| serde_json::json!([{"name": "w0", "max": latest, "watermark": "1970-01-01T00:00:00.025Z", "holds": true}]);
    assert_eq!(json[0]["event_time"]["watermarks"], mark("1970-01-01T00:00:00.030Z"));
    assert_eq!(json[0]["event_time"]["watermark"], "1970-01-01T00:00:00.000Z");
    assert_eq!(json[0]["no_data"], false);
    assert_eq!(json[1]["no_data"], true);
    assert_eq!(json[1]["num_input_rows"], 0);
    let operator = serde_json::json!([{
        "operator_name": "counts", "kind": "aggregate", "num_rows_total": 1, "num_rows_updated": 0,
        "num_rows_removed": 1, "num_rows_dropped_by_watermark": 0, "state_bytes": 0, "memory_used_bytes": 0,
    }]);
    assert_eq!(json[1]["state_operators"], operator);
    assert!(json[0]["duration_ms"]["state_commit"].as_f64().unwrap() > 0.0);
    assert!(json[0]["duration_ms"]["stateful"].is_number());
}

#[tokio::test]
async fn the_logs_say_which_watermarks_and_which_state() {
    let mut test = one_input();
    test.run([StartStream, add(&[(1, 30)]), ProcessAllAvailable]).await.unwrap();
    let text = async |path: &str| {
        let content = test.files.read(path).await.unwrap().unwrap();
        String::from_utf8(content.to_vec()).unwrap()
    };
    let commit = text("commits/0").await;
    let start = r#"{"next_watermark_ms":25,"watermarks":{"w0":25},"state":{"file":"0.json"},"layout":""#;
    assert!(commit.lines().nth(1).unwrap().starts_with(start), "{commit}");
    let layouts = test.files.list("layouts").await.unwrap();
    assert_eq!(layouts.len(), 1);
    assert!(commit.contains(layouts[0].path.trim_start_matches("layouts/")), "{commit}");
    let layout = text(&layouts[0].path).await;
    assert!(layout.starts_with("v1\n[{\"name\":\"counts\",\"kind\":\"aggregate\","), "{layout}");
    let offsets = text("offsets/1").await;
    let start = r#"{"batch_time_ms":0,"watermark_ms":25,"late_watermark_ms":0,"watermark_policy":"min","#;
    assert!(offsets.lines().nth(1).unwrap().starts_with(start), "{offsets}");
    assert!(offsets.contains(r#""sources":{"s0":{"start":1,"end":1}}"#), "{offsets}");
}

#[tokio::test]
async fn after_a_restart_none_runs_without_data_before_the_first_with_data() {
    let mut test = one_input();
    test.set_no_data_batches(false);
    test.run([StartStream, add(&[(1, 3), (1, 30)]), check_answer::<&str>([]), StopStream]).await.unwrap();
    test.set_no_data_batches(true);
    let script = [
        StartStream,
        check_answer::<&str>([]),
        add(&[(2, 31)]),
        check_answer(["1, 10, 1"]),
        Restart,
        check_answer(["1, 10, 1"]),
    ];
    test.run(script).await.unwrap();
    assert_eq!(told(&test), [(0, false, 0), (1, false, 25), (2, true, 26)]);
}

#[tokio::test]
async fn one_without_data_that_was_planned_runs_again_first_with_the_same_watermarks() {
    for fault in [SinkFault::Before, SinkFault::After] {
        let mut test = one_input();
        test.sink.fail_batch(BatchId(1), fault);
        let script = [
            StartStream,
            add(&[(1, 3), (1, 30)]),
            ExpectFailure(ErrorKind::Unavailable, "micro-batch 1: injected fault"),
            add(&[(9, 2), (4, 33)]),
            StartStream,
            check_answer(["1, 10, 1"]),
        ];
        test.run(script).await.unwrap();
        assert_eq!(told(&test), [(0, false, 0), (1, true, 25), (2, false, 25), (3, true, 28)], "{fault:?}");
        assert_eq!(test.progress()[2].num_late_rows, 1, "{fault:?}: late by the watermark of micro-batch 1");
        assert!(test.progress()[1].is_rerun);
    }
}

#[tokio::test]
async fn a_rerun_begins_with_the_state_of_the_micro_batch_before() {
    let mut test = one_input();
    let script = [
        StartStream,
        add(&[(1, 1)]),
        ProcessAllAvailable,
        add(&[(1, 2)]),
        ProcessAllAvailable,
        StopStream,
        DeleteCommit(1),
        StartStream,
        add(&[(1, 3)]),
        FailSink(SinkFault::After),
        ProcessAllAvailable,
    ];
    let failed = test.run(script).await.unwrap_err();
    assert!(failed.contains("micro-batch 2: injected fault after"), "{failed}");
    let script = [Restart, add(&[(8, 40)]), check_answer(["1, 10, 3"])];
    test.run(script).await.unwrap();
    let reruns: Vec<u64> = test
        .progress()
        .iter()
        .filter(|progress| progress.is_rerun)
        .map(|progress| progress.batch_id.0)
        .collect();
    assert_eq!(reruns, [1, 2]);
    assert!(
        test.progress().iter().filter(|progress| progress.is_rerun).all(|rerun| rerun.sink.already_committed)
    );
}

#[tokio::test]
async fn state_that_no_record_names_is_not_guessed() {
    let mut test = one_input();
    let script = [
        StartStream,
        add(&[(1, 1)]),
        ProcessAllAvailable,
        add(&[(1, 2)]),
        ProcessAllAvailable,
        StopStream,
        DeleteCommit(0),
        DeleteCommit(1),
        ExpectFailure(ErrorKind::Data, "has lost its record of it"),
    ];
    test.run(script).await.unwrap();
}

#[tokio::test]
async fn a_hole_in_the_commit_log_further_back_is_ignored() {
    let mut test = one_input();
    let script = [
        StartStream,
        add(&[(1, 1)]),
        ProcessAllAvailable,
        add(&[(1, 2)]),
        ProcessAllAvailable,
        StopStream,
        DeleteCommit(0),
        StartStream,
        add(&[(1, 40)]),
        check_answer(["1, 10, 2"]),
    ];
    test.run(script).await.unwrap();
}

#[tokio::test]
async fn the_slowest_source_holds_min_back_and_the_quickest_leads_max() {
    for (policy, answer) in [(WatermarkPolicy::Min, &[][..]), (WatermarkPolicy::Max, &["1, 10, 1"])] {
        let mut test = StreamTest::new([event_schema(), event_schema()], counts(2));
        test.set_watermark_policy(policy);
        let script = [
            StartStream,
            add(&[(1, 3), (1, 30)]),
            check_answer(answer.iter().copied()),
            AddData(1, event_rows([(2, 21)])),
            check_answer(["1, 10, 1"]),
        ];
        test.run(script).await.unwrap();
    }
}

#[tokio::test]
async fn the_policy_is_the_checkpoints_and_each_sources_watermark_is_remembered() {
    let mut test = StreamTest::new([event_schema(), event_schema()], counts(2));
    let script =
        [StartStream, add(&[(1, 90)]), AddData(1, event_rows([(2, 30)])), ProcessAllAvailable, StopStream];
    test.run(script).await.unwrap();
    test.set_watermark_policy(WatermarkPolicy::Max);
    test.run([StartStream, AddData(1, event_rows([(2, 60)])), ProcessAllAvailable]).await.unwrap();
    // The first source is remembered at 85, so the second moves the query's watermark at once.
    assert_eq!(told(&test), [(0, false, 0), (1, true, 25), (2, false, 25), (3, true, 55)]);
}

#[tokio::test]
async fn a_watermark_that_is_taken_away_is_gone_and_a_new_one_begins_in_1970() {
    let mut test = one_input();
    let without = Logic::new(Arc::new(WindowCounts::new(10, &[])));
    let script = [
        StartStream,
        add(&[(1, 30)]),
        ProcessAllAvailable,
        SetLogic(without),
        Restart,
        add(&[(1, 3)]),
        ProcessAllAvailable,
        SetLogic(counts(1)),
        Restart,
        add(&[(1, 4)]),
        check_answer::<&str>([]),
        add(&[(1, 31)]),
        check_answer(["1, 10, 2"]),
    ];
    test.run(script).await.unwrap();
    assert_eq!(
        told(&test),
        [(0, false, 0), (1, true, 25), (2, false, -1), (3, false, 0), (4, false, 0), (5, true, 26)]
    );
}

#[tokio::test]
async fn operators_that_come_or_go_are_refused() {
    let stateless = || Logic::new(pass_through(event_schema()));
    for (before, after, message) in [
        (stateless(), counts(1), "the operator 'counts' keeps state, but"),
        (counts(1), stateless(), "the operator 'counts' (aggregate), which the pipeline no longer has"),
    ] {
        let mut test = StreamTest::new([event_schema()], before);
        let script = [
            StartStream,
            add(&[(1, 1)]),
            ProcessAllAvailable,
            StopStream,
            SetLogic(after),
            ExpectFailure(ErrorKind::Invalid, message),
        ];
        test.run(script).await.unwrap();
    }
}

#[tokio::test]
async fn processing_time_runs_the_one_without_data_at_its_next_trigger() {
    let mut test = one_input().trigger(Trigger::ProcessingTime(Interval::from_millis(100)));
    let script = [
        StartStream,
        add(&[(1, 3), (1, 30)]),
        AdvanceManualClock(100),
        check_new_answer::<&str>([]),
        AdvanceManualClock(99),
        check_new_answer::<&str>([]),
        AdvanceManualClock(1),
        check_new_answer(["1, 10, 1"]),
        AdvanceManualClock(500),
    ];
    test.run(script).await.unwrap();
    let times: Vec<String> = test.progress().into_iter().map(|progress| progress.timestamp).collect();
    assert_eq!(times, ["1970-01-01T00:00:00.100Z", "1970-01-01T00:00:00.200Z"]);
    assert_eq!(told(&test), [(0, false, 0), (1, true, 25)]);
}

/// A query of its own, without the harness: for triggers that end by themselves.
async fn query(trigger: Trigger, source: &MemorySource, files: &MemoryFiles, sink: &RecordingSink) -> Query {
    let start = Start::new("test", Arc::new(files.clone()), Arc::new(ManualClock::new(0)));
    let recovered = start.recover().await.unwrap();
    let state = FileState::open(recovered.checkpoint().state_files(), recovered.state_commit().unwrap());
    let state = state.await.unwrap();
    Query::builder(recovered)
        .input("s0", Arc::new(source.reopen().additions_per_batch(1)))
        .logic(counts(1))
        .state(Box::new(state))
        .sink(Arc::new(sink.clone()))
        .trigger(trigger)
        .build()
        .await
        .unwrap()
}

#[tokio::test]
async fn once_runs_one_and_available_now_ends_with_those_without_data() {
    for (trigger, batches, rows) in [(Trigger::Once, 1, &[][..]), (Trigger::AvailableNow, 4, &["1, 10, 2"])] {
        let source = MemorySource::new(event_schema());
        for events in [[(1, 3), (1, 4)], [(1, 13), (1, 14)], [(1, 15), (1, 15)]] {
            source.add(event_rows(events));
        }
        let (files, sink) = (MemoryFiles::new(), RecordingSink::new());
        let mut query = query(trigger, &source, &files, &sink).await;
        let summary = query.run(&RunControl::default()).await.unwrap();
        assert_eq!(summary.batches, batches, "{trigger}");
        assert_eq!(rows_text(&sink.rows()).unwrap(), rows, "{trigger}");
    }
}

#[tokio::test]
async fn a_stateful_query_without_a_store_is_a_fault_of_ours() {
    let start = Start::new("test", Arc::new(MemoryFiles::new()), Arc::new(ManualClock::new(0)));
    let builder = Query::builder(start.recover().await.unwrap())
        .input("s0", Arc::new(MemorySource::new(event_schema())))
        .logic(counts(1))
        .sink(Arc::new(RecordingSink::new()));
    let refused = builder.build().await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Internal);
    assert!(refused.message().contains("1 stateful operators and no state store"), "{refused}");
}

/// Passes rows on and takes note of their times.
struct Watched(WindowCounts);

impl Dataflow for Watched {
    fn schema(&self) -> SchemaRef {
        event_schema()
    }
    fn watermarks(&self) -> &[WatermarkInfo] {
        self.0.watermarks()
    }
    fn operators(&self) -> &[OperatorInfo] {
        &[]
    }
    fn part(&self, info: &BatchInfo, input: usize, partition: u64, rows: Vec<RecordBatch>) -> Result<Part> {
        let event_times = self.0.part(info, input, partition, rows.clone())?.event_times;
        Ok(Part { event_times, ..rows_part(rows) })
    }
    fn gather(self: Arc<Self>, batch: Arc<BatchInfo>) -> Box<dyn Gather> {
        Arc::new(self.0.clone()).gather(batch)
    }
    fn wants_batch_without_data(&self, _: Option<i64>, _: Option<i64>) -> bool {
        false
    }
}

#[tokio::test]
async fn a_sink_that_has_the_rows_already_does_not_hold_the_watermark_back() {
    let logic = Logic::new(Arc::new(Watched(WindowCounts::new(10, &[5]))));
    let mut test = StreamTest::new([event_schema()], logic);
    let script = [
        StartStream,
        add(&[(1, 30)]),
        FailSink(SinkFault::After),
        ExpectFailure(ErrorKind::Unavailable, "after the sink's write"),
        StartStream,
        add(&[(1, 31)]),
        check_answer(["1, 30", "1, 31"]),
    ];
    test.run(script).await.unwrap();
    assert_eq!(told(&test), [(0, false, 0), (1, false, 25)]);
    assert_eq!(test.progress()[0].num_input_rows, 1);
}
