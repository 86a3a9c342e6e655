//! A stateful query that is changed and started on its old checkpoint: what its state consists of is remembered with
//! the commit that the state counts by.

use crate::testing::Action::{
    AddData, DeleteCommit, ExpectFailure, FailSink, ProcessAllAvailable, Restart, SetLogic, StartStream,
    StopStream,
};
use crate::testing::{
    SinkFault, StreamTest, WindowCounts, check_answer, event_rows, event_schema, pass_through,
};
use crate::{Logic, ResetState};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use pelton_checkpoint::CommitLog;
use pelton_core::{BatchId, ErrorKind};
use std::sync::Arc;

fn windows_of(window_ms: i64) -> Logic {
    Logic::new(Arc::new(WindowCounts::new(window_ms, &[5])))
}

fn add(events: &[(i64, i64)]) -> crate::testing::Action {
    AddData(0, event_rows(events.iter().copied()))
}

fn test() -> StreamTest {
    StreamTest::new([event_schema()], windows_of(10))
}

const REFUSED: &str = "window was 10 ms and is 20 ms";

#[tokio::test]
async fn another_meaning_of_the_state_is_refused_until_it_is_undone() {
    let mut test = test();
    let script = [
        StartStream,
        add(&[(1, 3)]),
        ProcessAllAvailable,
        StopStream,
        SetLogic(windows_of(20)),
        ExpectFailure(ErrorKind::Invalid, REFUSED),
        // A refusal changes nothing: the old query goes on.
        SetLogic(windows_of(10)),
        StartStream,
        add(&[(1, 4), (1, 30)]),
        check_answer(["1, 10, 2"]),
    ];
    test.run(script).await.unwrap();
}

#[tokio::test]
async fn what_is_accepted_once_is_the_new_meaning() {
    let mut test = test();
    let script = [StartStream, add(&[(1, 3)]), ProcessAllAvailable, StopStream, SetLogic(windows_of(20))];
    test.run(script).await.unwrap();
    test.accept_changed_state(&["counts"]);
    test.run([StartStream, add(&[(1, 4)]), ProcessAllAvailable, StopStream]).await.unwrap();
    test.accept_changed_state(&[]);
    let back = "window was 20 ms and is 10 ms";
    let script = [Restart, StopStream, SetLogic(windows_of(10)), ExpectFailure(ErrorKind::Invalid, back)];
    test.run(script).await.unwrap();
}

#[tokio::test]
async fn the_committed_state_decides_and_not_what_a_start_has_written() {
    let mut test = test();
    // The changed query starts and dies before a micro-batch of it is committed.
    let script = [StartStream, add(&[(1, 3)]), ProcessAllAvailable, StopStream, SetLogic(windows_of(20))];
    test.run(script).await.unwrap();
    test.accept_changed_state(&["counts"]);
    let died = ExpectFailure(ErrorKind::Unavailable, "");
    test.run([FailSink(SinkFault::Before), StartStream, add(&[(1, 4)]), died]).await.unwrap();
    test.accept_changed_state(&[]);
    // So the state is still that of the query before.
    test.run([ExpectFailure(ErrorKind::Invalid, REFUSED), SetLogic(windows_of(10)), StartStream])
        .await
        .unwrap();
    test.run([add(&[(1, 30)]), check_answer(["1, 10, 2"])]).await.unwrap();
}

#[tokio::test]
async fn a_first_micro_batch_that_was_never_committed_binds_nobody() {
    let mut test = test();
    let died = ExpectFailure(ErrorKind::Unavailable, "");
    let script = [
        FailSink(SinkFault::Before),
        StartStream,
        add(&[(1, 3)]),
        died,
        SetLogic(windows_of(20)),
        StartStream,
        add(&[(1, 14), (1, 40)]),
        check_answer(["1, 20, 2"]),
    ];
    test.run(script).await.unwrap();
}

#[tokio::test]
async fn a_lost_commit_gives_the_word_to_the_one_before() {
    let mut test = test();
    let script = [
        StartStream,
        add(&[(1, 3)]),
        ProcessAllAvailable,
        add(&[(1, 4)]),
        ProcessAllAvailable,
        StopStream,
        DeleteCommit(1),
        SetLogic(windows_of(20)),
        ExpectFailure(ErrorKind::Invalid, REFUSED),
    ];
    test.run(script).await.unwrap();
}

#[tokio::test]
async fn an_operator_whose_state_is_there_may_not_vanish() {
    let mut test = test();
    let script = [
        StartStream,
        add(&[(1, 3)]),
        ProcessAllAvailable,
        StopStream,
        SetLogic(Logic::new(pass_through(event_schema()))),
        ExpectFailure(
            ErrorKind::Invalid,
            "the state of the operator 'counts' (aggregate), which the pipeline no longer has",
        ),
    ];
    test.run(script).await.unwrap();
}

/// A checkpoint of an earlier version: its commits do not say what the state consists of.
#[tokio::test]
async fn a_checkpoint_that_says_nothing_of_its_state_is_taken_and_says_it_from_then_on() {
    let mut test = test();
    test.run([StartStream, add(&[(1, 3)]), ProcessAllAvailable, StopStream]).await.unwrap();
    let commits = CommitLog::new(Arc::clone(&test.files));
    let mut commit = commits.expect(BatchId(0)).await.unwrap();
    assert!(commit.layout.take().is_some());
    test.run([DeleteCommit(0)]).await.unwrap();
    commits.append(BatchId(0), &commit).await.unwrap();
    test.run([StartStream, add(&[(1, 4)]), ProcessAllAvailable, StopStream]).await.unwrap();
    assert!(commits.expect(BatchId(1)).await.unwrap().layout.is_some());
    test.run([SetLogic(windows_of(20)), ExpectFailure(ErrorKind::Invalid, REFUSED)]).await.unwrap();
}

fn reset(operators: &[&str]) -> ResetState {
    ResetState::Operators(operators.iter().map(|&name| name.to_owned()).collect())
}

#[tokio::test]
async fn a_reset_operator_begins_with_nothing_and_goes_on_from_the_offsets() {
    for reset in [reset(&["counts"]), ResetState::Everything] {
        let mut test = test();
        let script = [StartStream, add(&[(1, 3)]), ProcessAllAvailable, StopStream, SetLogic(windows_of(20))];
        test.run(script).await.unwrap();
        test.reset_state(reset);
        test.run([StartStream, add(&[(1, 14)]), ProcessAllAvailable, StopStream]).await.unwrap();
        // From here on it is the state of the changed query.
        test.reset_state(ResetState::Nothing);
        test.run([StartStream, add(&[(1, 5), (1, 60)]), check_answer(["1, 20, 2"])]).await.unwrap();
    }
}

#[tokio::test]
async fn a_reset_does_not_wait_for_rows() {
    let mut test = test();
    let script = [StartStream, add(&[(1, 3)]), ProcessAllAvailable, StopStream, SetLogic(windows_of(20))];
    test.run(script).await.unwrap();
    test.reset_state(ResetState::Everything);
    test.run([StartStream, ProcessAllAvailable, StopStream]).await.unwrap();
    // It has happened: the changed query goes on with what it has kept itself.
    test.reset_state(ResetState::Nothing);
    test.run([StartStream, add(&[(1, 5), (1, 60)]), check_answer(["1, 20, 1"])]).await.unwrap();
}

#[tokio::test]
async fn state_that_is_set_aside_stays_and_does_not_come_back_by_itself() {
    let mut test = test();
    let without = Logic::new(pass_through(event_schema()));
    let script = [StartStream, add(&[(1, 3)]), ProcessAllAvailable, StopStream, SetLogic(without)];
    test.run(script).await.unwrap();
    test.reset_state(reset(&["counts"]));
    test.run([StartStream, add(&[(1, 4)]), ProcessAllAvailable, StopStream]).await.unwrap();
    test.reset_state(ResetState::Nothing);
    test.run([StartStream, add(&[(1, 5)]), ProcessAllAvailable, StopStream]).await.unwrap();
    let commits = CommitLog::new(Arc::clone(&test.files));
    assert!(commits.expect(BatchId(2)).await.unwrap().state.is_some(), "the state is still named");
    let back = "is back in the pipeline, but its state was set aside";
    test.run([SetLogic(windows_of(10)), ExpectFailure(ErrorKind::Invalid, back)]).await.unwrap();
    test.reset_state(reset(&["counts"]));
    test.run([StartStream, add(&[(1, 6), (1, 60)]), ProcessAllAvailable]).await.unwrap();
    let last = test.sink.rows().into_iter().rfind(|rows| rows.num_rows() > 0).unwrap();
    let counts = last.column(2).as_primitive::<Int64Type>();
    assert_eq!(counts.values()[..], [1], "what came before the reset is not counted");
}

#[tokio::test]
async fn a_reset_names_operators_that_are_there_and_waits_for_a_rerun() {
    let mut test = test();
    test.run([StartStream, add(&[(1, 3)]), ProcessAllAvailable, StopStream]).await.unwrap();
    test.reset_state(reset(&["count"]));
    let unknown = "no operator 'count' keeps state; did you mean 'counts'?";
    test.run([ExpectFailure(ErrorKind::Invalid, unknown)]).await.unwrap();
    test.reset_state(ResetState::Nothing);
    let died = ExpectFailure(ErrorKind::Unavailable, "");
    test.run([FailSink(SinkFault::Before), StartStream, add(&[(1, 4)]), died]).await.unwrap();
    test.reset_state(ResetState::Everything);
    let unfinished = "micro-batch 1 must first be finished with the state it was begun with";
    test.run([ExpectFailure(ErrorKind::Invalid, unfinished)]).await.unwrap();
}

#[tokio::test]
async fn a_reset_whose_first_micro_batch_runs_again_is_made_again() {
    for again in [ResetState::Nothing, ResetState::Everything] {
        let mut test = test();
        test.run([StartStream, add(&[(1, 3)]), ProcessAllAvailable, StopStream]).await.unwrap();
        test.reset_state(ResetState::Everything);
        let died = ExpectFailure(ErrorKind::Unavailable, "");
        test.run([FailSink(SinkFault::After), StartStream, add(&[(1, 4)]), died]).await.unwrap();
        // Whoever starts it again may know of it or not.
        test.reset_state(again);
        test.run([StartStream, ProcessAllAvailable, StopStream]).await.unwrap();
        test.reset_state(ResetState::Nothing);
        test.run([StartStream, add(&[(1, 30)]), check_answer(["1, 10, 1"])]).await.unwrap();
    }
}
