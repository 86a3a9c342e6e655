//! Watermarks by partition, told as scripts: what holds them, what is idle, what a crash and a restart remember.

use crate::testing::Action::{
    AddToPartition, AdvanceManualClock, DeleteCommit, ProcessAllAvailable, Restart, StartStream,
};
use crate::testing::{
    Action, MemorySource, StreamTest, WindowCounts, check_new_answer, event_rows, event_schema,
};
use crate::{Logic, live};
use pelton_core::WatermarkPolicy;
use std::sync::Arc;

/// Windows of 10 ms, a delay of 5 ms, two partitions.
fn test(idle_timeout_ms: Option<i64>) -> StreamTest {
    let counts = WindowCounts::new(10, &[5]).per_partition(&["s0"], idle_timeout_ms);
    let mut test = StreamTest::new([event_schema()], Logic::new(Arc::new(counts)));
    test.sources[0] = MemorySource::new(event_schema()).partitions(&["a", "b"]);
    test
}

fn add(partition: &'static str, events: &[(i64, i64)]) -> Action {
    AddToPartition(0, partition, event_rows(events.iter().copied()))
}

/// What the last micro-batch told of the partitions: name, caught up, idle, holds.
fn told(test: &StreamTest) -> Vec<(String, bool, bool, bool)> {
    let last = test.progress().pop().unwrap();
    let partitions = last.event_time.watermarks.into_iter().flat_map(|watermark| watermark.partitions);
    partitions.map(|told| (told.name, told.caught_up, told.idle, told.holds)).collect()
}

#[tokio::test]
async fn a_silent_partition_holds_the_watermark_and_loses_nothing() {
    let mut test = test(None);
    let script = [
        StartStream,
        add("a", &[(1, 3), (1, 40)]),
        check_new_answer::<&str>([]),
        AdvanceManualClock(3_600_000),
        add("a", &[(1, 60)]),
        check_new_answer::<&str>([]),
        add("b", &[(1, 4), (1, 35)]),
        check_new_answer(["1, 10, 2"]),
    ];
    test.run(script).await.unwrap();
    let expected = [("s0/a".to_owned(), true, false, false), ("s0/b".to_owned(), true, false, true)];
    assert_eq!(told(&test), expected);
    assert!(test.progress().iter().all(|progress| progress.num_late_rows == 0));
}

#[tokio::test]
async fn an_idle_one_is_left_out_by_the_time_of_micro_batches_and_counts_again_when_it_is_back() {
    let mut test = test(Some(1000));
    let script = [
        StartStream,
        add("a", &[(1, 3), (1, 40)]),
        add("b", &[(1, 8)]),
        check_new_answer::<&str>([]),
        AdvanceManualClock(999),
        add("a", &[(1, 41)]),
        check_new_answer::<&str>([]),
        // Time alone passes: a micro-batch without data gives the window.
        AdvanceManualClock(1),
        check_new_answer(["1, 10, 2"]),
        // The watermark, 36, does not fall: one of the rows is late; it waits for `b` again.
        add("b", &[(1, 9), (1, 38)]),
        add("a", &[(1, 90)]),
        check_new_answer::<&str>([]),
        AdvanceManualClock(1000),
        add("a", &[(1, 91)]),
        check_new_answer(["1, 40, 1", "1, 50, 2"]),
    ];
    test.run(script).await.unwrap();
    let late: u64 = test.progress().iter().map(|progress| progress.num_late_rows).sum();
    assert_eq!(late, 1);
    assert_eq!(told(&test)[1], ("s0/b".to_owned(), true, true, false));
}

#[tokio::test]
async fn a_micro_batch_that_runs_again_has_the_idle_partitions_that_it_was_planned_with() {
    let story = || {
        [
            StartStream,
            add("a", &[(1, 3), (1, 40)]),
            add("b", &[(1, 8)]),
            ProcessAllAvailable,
            AdvanceManualClock(1000),
            add("a", &[(1, 50)]),
            ProcessAllAvailable,
        ]
    };
    let mut undisturbed = test(Some(1000));
    undisturbed.run(story()).await.unwrap();
    let mut crashed = test(Some(1000));
    crashed.run(story()).await.unwrap();
    let last = crashed.progress().last().unwrap().batch_id.0;
    // In the meantime the partition has something again: that is the next micro-batch's.
    let again = [DeleteCommit(last), add("b", &[(1, 60)]), Restart, ProcessAllAvailable];
    crashed.run(again).await.unwrap();
    let rerun = crashed.progress().into_iter().find(|progress| progress.is_rerun).unwrap();
    assert_eq!(rerun.event_time, undisturbed.progress().last().unwrap().event_time);
}

#[tokio::test]
async fn a_restart_remembers_each_partition() {
    let mut test = test(None);
    let script = [
        StartStream,
        add("a", &[(1, 3), (1, 40)]),
        add("b", &[(1, 100)]),
        check_new_answer(["1, 10, 1"]),
        Restart,
        add("a", &[(2, 70)]),
        check_new_answer(["1, 50, 1"]),
    ];
    test.run(script).await.unwrap();
    let watermarks = test.progress().pop().unwrap().event_time.watermarks;
    assert_eq!(watermarks[0].watermark, "1970-01-01T00:00:00.065Z");
}

#[tokio::test]
async fn a_checkpoint_says_what_holds_the_watermark_and_since_when() {
    let mut test = test(None);
    let state = || live::read(test.files.clone(), "test");
    assert!(state().await.unwrap().last_committed.is_none());
    let script = [
        StartStream,
        add("a", &[(1, 3), (1, 40)]),
        add("b", &[(1, 100)]),
        ProcessAllAvailable,
        add("b", &[(1, 120)]),
        ProcessAllAvailable,
        add("b", &[(1, 140)]),
        ProcessAllAvailable,
    ];
    let files = test.files.clone();
    test.run(script).await.unwrap();
    let last = test.progress().last().unwrap().batch_id;
    // The query runs, and nobody is locked out.
    let live = live::read(files, "test").await.unwrap();
    assert_eq!((live.last_committed, live.planned), (Some(last), None));
    assert_eq!(live.policy, Some(WatermarkPolicy::Min));
    let query = live.watermark.unwrap();
    assert_eq!((query.at_ms, query.since.unwrap().0), (35, 0));
    let holder = &live.holders[0];
    assert_eq!((holder.watermark.as_str(), holder.partitions.as_slice()), ("w0", &["s0/a".to_owned()][..]));
    assert_eq!(holder.since.0, 0);
}
