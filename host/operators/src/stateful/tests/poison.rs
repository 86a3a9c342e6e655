//! Groups on which a stateful function fails: found, and everything else is as if their rows had never come.

use super::group_functions::{Change, Native, Says, Seen, variable};
use super::groups::operator_with;
use super::{Ran, Running, batch, schema, sorted};
use crate::stateful::group::Groups;
use arrow::array::RecordBatch;
use pelton_core::{
    FailurePolicy, GroupForm, GroupReason, LossKind, PoisonBudget, StateVariable, TimeMode, VariableKind,
};
use serde_json::{Value, json};

const OUT: &str = "k string, event string, sum long";
const ALL: FailurePolicy = FailurePolicy::DeadLetter(PoisonBudget { rows_max: 1000, calls_max: 10_000 });

fn rows(rows: &[(String, i64)]) -> RecordBatch {
    let row = |(k, v): &(String, i64)| json!({"k": k, "v": v, "ts": "2026-01-01T00:00:00Z"});
    batch(&schema("k string, v long, ts timestamp"), &rows.iter().map(row).collect::<Vec<_>>())
}

/// Adds up, keeps what came last in a list, tells the sum again when its time has come. Fails on rows with 13, and when it
/// is called for the time of a group with `bad` in its name.
fn body(form: GroupForm) -> impl Fn(&Seen) -> Says + Send + Sync + 'static {
    move |seen| {
        let mut says = Says::default();
        let key = seen.key.clone().unwrap_or_default();
        let sum = seen.state[0].first().map_or(0, |old| old[0]);
        if seen.reason != GroupReason::Data {
            says.fails = key.contains("bad");
            says.rows.push(json!({"k": key, "event": "time", "sum": sum}));
            return says;
        }
        says.fails = seen.values.contains(&Some(13));
        let sum = sum + seen.values.iter().flatten().sum::<i64>();
        says.rows.push(json!({"k": key, "event": "data", "sum": sum}));
        says.refused =
            seen.values.iter().enumerate().filter(|(_, v)| **v == Some(7)).map(|(row, _)| row).collect();
        says.changes.push((0, Change::Put(vec![sum])));
        match form {
            GroupForm::Processor => {
                says.changes.extend(seen.values.iter().flatten().map(|v| (1, Change::Put(vec![*v, *v]))));
                says.changes.push((1, Change::Remove(vec![3])));
                says.timers.push(("again".to_owned(), Some(seen.now_ms + 10)));
            }
            _ => says.timeout_ms = Some(seen.now_ms + 10),
        }
        says
    }
}

fn operator(form: GroupForm, policy: FailurePolicy) -> Groups {
    let sum = variable("sum", VariableKind::Value, "", "sum");
    let variables: Vec<StateVariable> = match form {
        GroupForm::Processor => vec![sum, variable("seen", VariableKind::Map, "v", "n")],
        _ => vec![sum],
    };
    operator_with(Native::new(form, TimeMode::ProcessingTime, OUT, variables, body(form)), policy)
}

fn run(running: &mut Running, time_ms: i64, input: &[(String, i64)]) -> Ran {
    running.time_ms = time_ms;
    running.rows(None, &[rows(input)])
}

/// The state, all of it.
fn state(running: &mut Running) -> Vec<String> {
    let mut all = Vec::new();
    let Running { operator, store, .. } = running;
    for shard in pelton_core::StateStore::shards(store) {
        let show = operator.show(super::NODE, shard, &mut |part, rows| {
            for row in 0..rows.num_rows() {
                let json = pelton_plan::json::row_json(&rows, row, pelton_plan::json::Nulls::Written)?;
                all.push(format!("{part} {json}"));
            }
            Ok(std::ops::ControlFlow::Continue(()))
        });
        show.expect("shows");
    }
    all.sort();
    all
}

fn poison(ran: &Ran) -> Vec<String> {
    let letters = ran.letters.iter().filter(|letter| letter.kind == LossKind::Poison);
    let mut found: Vec<String> = letters
        .map(|letter| format!("{} {}", letter.reason, String::from_utf8_lossy(&letter.payload)))
        .collect();
    found.sort();
    found
}

#[test]
fn good_groups_go_on_and_guilty_ones_stay_as_they_were() {
    for form in [GroupForm::MapGroups, GroupForm::FlatMapGroups, GroupForm::Processor] {
        let (mut with, mut without) = (Running::new(operator(form, ALL)), Running::new(operator(form, ALL)));
        for turn in 0..8_i64 {
            let input: Vec<(String, i64)> =
                (0..600).map(|n| (format!("k{}", n * 7919 % 200), (n * 31 + turn) % 37)).collect();
            let is_guilty = |k: &String| input.iter().any(|(other, v)| other == k && *v == 13);
            let innocent: Vec<(String, i64)> = input.iter().filter(|(k, _)| !is_guilty(k)).cloned().collect();
            let time_ms = 1000 + turn * 3;
            let (ran, expected) = (run(&mut with, time_ms, &input), run(&mut without, time_ms, &innocent));
            assert!(
                innocent.len() < 590 && innocent.len() > 300,
                "some groups are guilty: {}",
                innocent.len()
            );
            assert_eq!(sorted(&ran.rows), sorted(&expected.rows), "{form:?}, turn {turn}");
            assert_eq!(state(&mut with), state(&mut without), "{form:?}, turn {turn}");
            assert_eq!(
                poison(&ran).len(),
                input.len() - innocent.len(),
                "each row of a guilty group, {form:?}"
            );
            let refused = |ran: &Ran| {
                let letters = ran.letters.iter().filter(|letter| letter.kind == LossKind::Refused);
                let mut found: Vec<_> = letters.map(|letter| letter.payload.clone()).collect();
                found.sort();
                found
            };
            assert_eq!(refused(&ran), refused(&expected), "{form:?}, turn {turn}");
        }
    }
}

#[test]
fn a_time_whose_call_fails_does_not_come_again() {
    for (form, what) in [
        (GroupForm::FlatMapGroups, "called for its timeout, which is cleared"),
        (GroupForm::Processor, "called for its timer 'again', which is gone"),
    ] {
        let mut running = Running::new(operator(form, ALL));
        let input = ["a", "bad", "c"].map(|k| (k.to_owned(), 5));
        run(&mut running, 0, &input);
        let due = run(&mut running, 20, &[]);
        let told =
            [json!({"k": "a", "event": "time", "sum": 5}), json!({"k": "c", "event": "time", "sum": 5})];
        assert_eq!(sorted(&due.rows), sorted(&told), "{form:?}");
        assert_eq!(poison(&due), [format!("p.f: {what}: it trapped {{\"k\":\"bad\"}}")]);
        let later = run(&mut running, 40, &[]);
        assert_eq!((later.rows, later.letters), (Vec::<Value>::new(), Vec::new()), "{form:?}");
        let more = run(&mut running, 50, &[("bad".to_owned(), 1)]);
        assert_eq!(
            more.rows,
            [json!({"k": "bad", "event": "data", "sum": 6})],
            "its state is there, {form:?}"
        );
    }
}

#[test]
fn a_guilty_group_with_a_due_timeout_is_called_for_it_as_if_its_rows_had_not_come() {
    let mut running = Running::new(operator(GroupForm::FlatMapGroups, ALL));
    run(&mut running, 0, &[("a".to_owned(), 5)]);
    let due = run(&mut running, 20, &[("a".to_owned(), 13)]);
    assert_eq!(due.rows, [json!({"k": "a", "event": "time", "sum": 5})]);
    assert_eq!(poison(&due).len(), 1);
}

#[test]
fn too_many_guilty_groups_fail_the_batch() {
    let policy = FailurePolicy::DeadLetter(PoisonBudget { rows_max: 2, calls_max: 1000 });
    let running = Running::new(operator(GroupForm::FlatMapGroups, policy));
    let input: Vec<(String, i64)> = (0..400).map(|n| (format!("k{n}"), 13)).collect();
    let failed = running.fails(&rows(&input));
    assert!(
        failed.message().contains(
            "operator 'node': plugin 'p', function 'f' fails on too many groups of the micro-batch: 3 are found \
             (rows_max: 2)"
        ),
        "{failed}"
    );
}

#[test]
fn without_a_policy_a_failure_fails_the_batch() {
    for (policy, says) in
        [(FailurePolicy::Fail, "it trapped"), (FailurePolicy::Retry(2), "after 2 retries: it trapped")]
    {
        let running = Running::new(operator(GroupForm::FlatMapGroups, policy));
        assert_eq!(running.fails(&rows(&[("a".to_owned(), 13)])).message(), says);
    }
}
