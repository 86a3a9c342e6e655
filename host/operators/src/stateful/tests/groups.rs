//! Stateful functions: Spark's cases with native functions, and what Spark has no cases for.

use super::group_functions::{Change, Native, Says, Seen, of_case, variable};
use super::{NODE, Ran, Running, batch, millis, node, schema, sorted};
use crate::stateful::group::Groups;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pelton_core::{
    GroupForm, GroupReason, Load, PluginDigest, Result, StateVariable, StatefulFunction, TimeMode,
    VariableKind,
};
use pelton_plan::FunctionRef;
use pelton_plan::stateful::{self as plan, EventTimeColumn, StatefulOperator};
use serde_json::{Value, json};
use std::sync::Arc;

const COLUMNS: &str = "k string, v long, ts timestamp";

fn input() -> SchemaRef {
    schema(COLUMNS)
}

pub(super) fn operator(function: Native) -> Groups {
    let signature = function.signature().clone();
    let function_ref =
        FunctionRef { plugin: "p".into(), function: "f".into(), digest: PluginDigest("d".repeat(64)) };
    let by_event_time = signature.time_mode == TimeMode::EventTime;
    let spec = plan::Groups {
        function: function_ref,
        stateful: Arc::new(function),
        keys: vec![0],
        reads: signature.reads.clone(),
        event_time: by_event_time.then_some(EventTimeColumn { column: 2 }),
        initial: None,
    };
    let input = input();
    let node = node(StatefulOperator::Groups(spec), &[&input], &signature.output);
    let StatefulOperator::Groups(spec) = &node.operator else { unreachable!("groups") };
    Groups::new(spec, &node).expect("an operator")
}

fn case(name: &str) -> Option<Value> {
    let path = format!("{}/../../tests/oracle/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).ok()?;
    serde_json::from_str(&text).ok()
}

/// Replays a case, whatever the way in which its rows come. `spark_keeps`: at these micro-batches Spark counts a row of
/// state more.
fn replay(name: &str, spark_keeps: &[u64]) {
    let case = case(name).unwrap_or_else(|| panic!("no case {name}"));
    let plan = &case["query"]["plan"];
    let time_mode = match plan["timeout"].as_str().or(plan["time_mode"].as_str()) {
        Some("EventTimeTimeout" | "EventTime") => TimeMode::EventTime,
        Some("ProcessingTimeTimeout" | "ProcessingTime") => TimeMode::ProcessingTime,
        _ => TimeMode::None,
    };
    let function = of_case(plan["function"].as_str().expect("a function"), time_mode, &plan["params"]);
    let mut running = Running::new(operator(function));
    let mut now_ms = case["clock"]["start_ms"].as_i64().unwrap_or(0);
    let mut rows: Vec<RecordBatch> = Vec::new();
    for step in case["batches"].as_array().expect("steps") {
        let lists = step["add_backlog"]["s"].as_array().cloned();
        let lists = lists.or_else(|| step["add"]["s"].as_array().map(|rows| vec![Value::from(rows.clone())]));
        for list in lists.unwrap_or_default() {
            rows.push(batch(&input(), list.as_array().expect("rows")));
        }
        now_ms += step["advance_ms"].as_i64().unwrap_or(0);
        for expected in step["expect"].as_array().expect("micro-batches") {
            let parts = if expected["no_data"] == true { Vec::new() } else { vec![vec![rows.remove(0)]] };
            running.time_ms = now_ms;
            let ran = running.run(expected["watermark"].as_str().map(millis), &[parts]);
            let at = format!("{name} micro-batch {}", expected["batch_id"]);
            assert_eq!(sorted(&ran.rows), sorted(expected["rows"].as_array().expect("rows")), "{at}");
            assert_eq!(Some(ran.late_rows), expected["dropped_by_watermark"].as_u64(), "{at}");
            let more = u64::from(expected["batch_id"].as_u64().is_some_and(|id| spark_keeps.contains(&id)));
            assert_eq!(Some(ran.state_rows + more), expected["state_rows"].as_u64(), "{at}");
        }
    }
}

#[test]
fn timeouts_are_as_in_spark() {
    for name in [
        "append_mode_running_count",
        "no_timeout_running_count_sum",
        "event_timeout_data_and_timeout_same_batch",
        "event_timeout_late_rows",
        "event_timeout_not_renewed",
        "event_timeout_rearm_in_timeout",
        "proc_timeout_data_when_due",
        "proc_timeout_exact_boundary",
        "proc_timeout_session",
    ] {
        replay(&format!("07_group_state/{name}"), &[]);
    }
    // A group that has neither state nor timeout is forgotten; Spark keeps an empty row of it.
    replay("07_group_state/event_timeout_without_state", &[3]);
}

#[test]
fn processors_are_as_in_spark() {
    for name in ["event_timer_backlog", "list_and_map_state", "proc_timers"] {
        replay(&format!("07b_transform_with_state/{name}"), &[]);
    }
}

fn rows(keys: impl IntoIterator<Item = (&'static str, i64)>) -> RecordBatch {
    let row = |(k, v): (&str, i64)| json!({"k": k, "v": v, "ts": "2026-01-01T00:00:00Z"});
    batch(&input(), &keys.into_iter().map(row).collect::<Vec<_>>())
}

fn ran(running: &mut Running, now_ms: i64, keys: &[(&'static str, i64)]) -> Ran {
    running.time_ms = now_ms;
    running.rows(None, &[rows(keys.iter().copied())])
}

fn shown(seen: &Seen, with: impl ToString) -> Value {
    let event = match seen.reason {
        GroupReason::Data => "data",
        GroupReason::Timeout => "timeout",
        GroupReason::Timer => "timer",
    };
    json!({"k": seen.key, "event": event, "cnt": seen.now_ms, "extra": with.to_string()})
}

fn processor(
    time_mode: TimeMode,
    variables: Vec<StateVariable>,
    body: impl Fn(&Seen) -> Says + Send + Sync + 'static,
) -> Running {
    let out = "k string, event string, cnt long, extra string";
    Running::new(operator(Native::new(GroupForm::Processor, time_mode, out, variables, body)))
}

fn extras(ran: &Ran) -> Vec<String> {
    ran.rows
        .iter()
        .map(|row| format!("{}:{}", row["k"].as_str().unwrap_or("?"), row["extra"].as_str().unwrap_or("?")))
        .collect()
}

/// Whatever was written outlives its last write by the time to live, to the millisecond, and is then gone.
#[test]
fn entries_live_as_long_as_they_are_told_to() {
    for kind in [VariableKind::Value, VariableKind::List, VariableKind::Map] {
        let key = if kind == VariableKind::Map { "v" } else { "" };
        let mut state = variable("x", kind, key, "c");
        state.ttl_ms = Some(10);
        let mut running = processor(TimeMode::None, vec![state], move |seen| {
            let entries: Vec<i64> = seen.state[0].iter().filter_map(|entry| entry.last().copied()).collect();
            let mut says = Says { rows: vec![shown(seen, format!("{entries:?}"))], ..Says::default() };
            for v in seen.values.iter().flatten().filter(|v| **v > 0) {
                let entry = if kind == VariableKind::Map { vec![*v, *v] } else { vec![*v] };
                says.changes.push((0, Change::Put(entry)));
            }
            says
        });
        let mut at = |ms, v| extras(&ran(&mut running, ms, &[("a", v)])).remove(0);
        assert_eq!(at(0, 1), "a:[]", "{kind}");
        assert_eq!(at(9, 2), "a:[1]", "{kind}");
        let left = if kind == VariableKind::Value { "a:[2]" } else { "a:[1, 2]" };
        assert_eq!(at(9, 0), left, "{kind}");
        assert_eq!(at(10, 0), "a:[2]", "{kind}");
        assert_eq!(at(18, 0), "a:[2]", "{kind}");
        assert_eq!(at(19, 0), "a:[]", "{kind}");
        let gone = ran(&mut running, 20, &[]);
        assert_eq!(gone.state_rows, 0, "{kind}");
        let empty = |table: &str| pelton_core::StateStore::len(&running.store, &format!("{NODE}/{table}"));
        assert_eq!((empty("expiry/x"), empty("state/x/items")), (0, 0), "{kind}");
    }
}

/// Only what was asked for is read.
#[test]
fn a_call_is_given_the_entries_that_it_asks_for() {
    let with = |kind, load: Load| {
        let key = if kind == VariableKind::Map { "v" } else { "" };
        let variable = StateVariable { load, ..variable("x", kind, key, "c") };
        let mut running = processor(TimeMode::None, vec![variable], move |seen| {
            let entries = format!("{:?}", seen.state[0]);
            let mut says = Says { rows: vec![shown(seen, entries)], ..Says::default() };
            for v in seen.values.iter().flatten() {
                let put = if kind == VariableKind::Map { vec![*v, *v * 10] } else { vec![*v] };
                says.changes.push((0, Change::Put(put)));
            }
            says
        });
        ran(&mut running, 0, &[("a", 1), ("a", 2), ("a", 3), ("b", 2)]);
        extras(&ran(&mut running, 0, &[("a", 3), ("b", 4), ("a", 1), ("b", 2), ("a", 9), ("a", 3)]))
    };
    let by_key = |mut found: Vec<String>| {
        found.sort();
        found
    };
    assert_eq!(by_key(with(VariableKind::List, Load::Nothing)), ["a:[]", "b:[]"]);
    assert_eq!(by_key(with(VariableKind::List, Load::Last(2))), ["a:[[2], [3]]", "b:[[2]]"]);
    assert_eq!(by_key(with(VariableKind::List, Load::Everything)), ["a:[[1], [2], [3]]", "b:[[2]]"]);
    assert_eq!(by_key(with(VariableKind::Map, Load::Nothing)), ["a:[]", "b:[]"]);
    assert_eq!(
        by_key(with(VariableKind::Map, Load::KeyedBy(vec![0]))),
        ["a:[[1, 10], [3, 30]]", "b:[[2, 20]]"]
    );
    assert_eq!(
        by_key(with(VariableKind::Map, Load::Everything)),
        ["a:[[1, 10], [2, 20], [3, 30]]", "b:[[2, 20]]"]
    );
}

/// Groups with much state come in smaller calls, and each once.
#[test]
fn a_call_is_given_no_more_state_than_it_has_room_for() {
    const ENTRIES: i64 = 1500;
    let keys: Vec<String> = (0..48).map(|n| format!("k{n}")).collect();
    for (kind, load) in [
        (VariableKind::List, Load::Everything),
        (VariableKind::Map, Load::Everything),
        (VariableKind::Map, Load::KeyedBy(vec![0])),
    ] {
        let key = if kind == VariableKind::Map { "v" } else { "" };
        let state = StateVariable { load: load.clone(), ..variable("x", kind, key, "c") };
        let mut running = processor(TimeMode::None, vec![state], move |seen| {
            let row = shown(seen, format!("{} of {}", seen.state[0].len(), seen.together));
            let mut says = Says { rows: vec![row], ..Says::default() };
            if seen.values.contains(&Some(-1)) {
                let put = |n: i64| if kind == VariableKind::Map { vec![n, n] } else { vec![n] };
                says.changes.extend((0..ENTRIES).map(|n| (0, Change::Put(put(n)))));
            }
            says
        });
        let rows = |values: &[i64]| {
            let row = |(k, v): (&String, &i64)| json!({"k": k, "v": v, "ts": "2026-01-01T00:00:00Z"});
            let rows = keys.iter().flat_map(|k| values.iter().map(move |v| (k, v)));
            batch(&input(), &rows.map(row).collect::<Vec<_>>())
        };
        let together = |ran: Ran, entries: i64| {
            assert_eq!(ran.rows.len(), keys.len(), "{kind}");
            let of = |row: &Value| {
                let extra = row["extra"].as_str().and_then(|extra| extra.split_once(" of "));
                let (found, together) = extra.expect("both");
                assert_eq!(found, entries.to_string(), "{kind}");
                together.parse::<usize>().expect("a number")
            };
            ran.rows.iter().map(of).max()
        };
        assert!(together(running.rows(None, &[rows(&[-1])]), 0) > Some(2), "{kind}");
        let all: Vec<i64> = (0..ENTRIES).collect();
        let found = running.rows(None, &[rows(if key.is_empty() { &[0] } else { &all })]);
        assert!(together(found, ENTRIES) <= Some(2), "{kind}");
    }
}

/// Entries are removed one by one or all together, in the order in which the function says so.
#[test]
fn changes_are_made_in_their_order() {
    for kind in [VariableKind::List, VariableKind::Map] {
        let key = if kind == VariableKind::Map { "v" } else { "" };
        let put = move |v: i64| Change::Put(if kind == VariableKind::Map { vec![v, v] } else { vec![v] });
        let mut running = processor(TimeMode::None, vec![variable("x", kind, key, "c")], move |seen| {
            let entries: Vec<i64> = seen.state[0].iter().filter_map(|entry| entry.last().copied()).collect();
            let mut says = Says { rows: vec![shown(seen, format!("{entries:?}"))], ..Says::default() };
            let changes = match seen.values.first().copied().flatten() {
                Some(1) => vec![put(1), put(2), Change::Clear, put(3), put(4)],
                Some(2) if kind == VariableKind::Map => vec![Change::Remove(vec![3]), put(5)],
                Some(2) => vec![put(5)],
                Some(3) => vec![put(6), Change::Clear],
                _ => Vec::new(),
            };
            says.changes.extend(changes.into_iter().map(|change| (0, change)));
            says
        });
        let mut at = |v| extras(&ran(&mut running, 0, &[("a", v)])).remove(0);
        at(1);
        assert_eq!(at(2), "a:[3, 4]", "{kind}");
        let left = if kind == VariableKind::Map { "a:[4, 5]" } else { "a:[3, 4, 5]" };
        assert_eq!(at(3), left, "{kind}");
        assert_eq!(at(0), "a:[]", "{kind}");
        assert_eq!(ran(&mut running, 0, &[]).state_rows, 0, "{kind}");
    }
}

/// Several due timers of a key are calls of their own, in order; each sees what the one before has left.
#[test]
fn timers_fire_one_after_the_other() {
    let count = variable("n", VariableKind::Value, "", "c");
    let mut running = processor(TimeMode::ProcessingTime, vec![count], |seen| {
        let n = seen.state[0].first().map_or(0, |old| old[0]) + 1;
        let mut says = Says {
            rows: vec![shown(seen, format!("{:?} n={n} {:?}", seen.fired_ms, seen.pending_ms))],
            ..Says::default()
        };
        says.changes.push((0, Change::Put(vec![n])));
        match seen.fired_ms {
            None => says.timers.extend([
                ("x".to_owned(), Some(3)),
                ("y".into(), Some(2)),
                ("z".into(), Some(4)),
                ("far".into(), Some(90)),
            ]),
            // The timer at 3 is deleted before it fires; one that is due at once waits for the next micro-batch.
            Some(2) => says.timers.extend([("x".to_owned(), None), ("again".into(), Some(1))]),
            Some(_) => {}
        }
        says
    });
    assert_eq!(extras(&ran(&mut running, 0, &[("a", 0)])), ["a:None n=1 []"]);
    assert_eq!(extras(&ran(&mut running, 1, &[])), Vec::<String>::new());
    assert_eq!(extras(&ran(&mut running, 4, &[])), ["a:Some(2) n=2 [3, 4, 90]", "a:Some(4) n=3 [1, 90]"]);
    assert_eq!(extras(&ran(&mut running, 4, &[])), ["a:Some(1) n=4 [90]"]);
    let data = ran(&mut running, 90, &[("a", 0)]);
    assert_eq!(extras(&data)[0], "a:None n=5 [90]");
    assert_eq!(extras(&data).len(), 4, "{:?}", extras(&data));
}

fn versioned(version: u32, value: &str) -> StateVariable {
    StateVariable { version, ..variable("x", VariableKind::Value, "", value) }
}

fn summing(form: GroupForm, variable: StateVariable) -> Native {
    let out = "k string, event string, cnt long, extra string";
    Native::new(form, TimeMode::None, out, vec![variable], |seen| {
        let mut says = Says { rows: vec![shown(seen, format!("{:?}", seen.state[0]))], ..Says::default() };
        says.changes.extend(seen.values.iter().flatten().map(|v| (0, Change::Put(vec![*v]))));
        says
    })
}

/// Values of older schemas are made to fit when they are read.
#[test]
fn older_values_are_migrated() {
    for form in [GroupForm::FlatMapGroups, GroupForm::Processor] {
        let mut running = Running::new(operator(summing(form, versioned(1, "c"))));
        ran(&mut running, 0, &[("a", 1), ("b", 2)]);
        // Other names: as they are.
        running.operator = Box::new(operator(summing(form, versioned(1, "renamed"))));
        assert_eq!(extras(&ran(&mut running, 0, &[("a", 3)])), ["a:[[1]]"]);
        // A new version: the function rewrites both what the first and what the second had written.
        let migrate = |from: u32, entries: &RecordBatch| -> Result<RecordBatch> {
            assert_eq!(from, 1);
            let old = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(entries.column(0));
            let new = arrow::compute::kernels::numeric::mul(old, &arrow::array::Int64Array::new_scalar(100))?;
            let schema = schema("c long");
            Ok(RecordBatch::try_new(schema, vec![new])?)
        };
        let function = summing(form, versioned(2, "c")).migrating(migrate);
        running.operator = Box::new(operator(function));
        let mut found = extras(&ran(&mut running, 0, &[("a", 4), ("b", 5)]));
        found.sort();
        assert_eq!(found, ["a:[[300]]", "b:[[200]]"]);
        let mut found = extras(&ran(&mut running, 0, &[("a", 4), ("b", 5)]));
        found.sort();
        assert_eq!(found, ["a:[[4]]", "b:[[5]]"]);
    }
}

/// What may be null in the store cannot be read as what may not.
#[test]
fn a_field_that_may_be_null_stays_so() {
    let with_null = |is_nullable: bool| {
        let field = arrow::datatypes::Field::new("c", arrow::datatypes::DataType::Int64, is_nullable);
        let value: SchemaRef = Arc::new(arrow::datatypes::Schema::new(vec![field]));
        StateVariable { entries: value.clone(), value, ..versioned(1, "c") }
    };
    for form in [GroupForm::FlatMapGroups, GroupForm::Processor] {
        let mut running = Running::new(operator(summing(form, with_null(false))));
        ran(&mut running, 0, &[("a", 1)]);
        running.operator = Box::new(operator(summing(form, with_null(true))));
        assert_eq!(extras(&ran(&mut running, 0, &[("a", 3)])), ["a:[[1]]"]);
        running.operator = Box::new(operator(summing(form, with_null(false))));
        let refused = running.try_run(None, &[vec![vec![rows([("a", 3)])]]]).err().expect("is refused");
        assert!(refused.message().contains("`c: long` that may be null, and now it may not"), "{refused}");
    }
}

/// A function that refuses rows gives them to the dead letters, with their place in the input.
#[test]
fn refused_rows_become_dead_letters() {
    let out = "k string, event string, cnt long, extra string";
    let function = Native::new(GroupForm::MapGroups, TimeMode::None, out, Vec::new(), |seen| {
        let negative = seen.values.iter().enumerate().filter(|(_, v)| v.is_some_and(|v| v < 0));
        Says {
            rows: vec![shown(seen, "")],
            refused: negative.map(|(row, _)| row).collect(),
            ..Says::default()
        }
    });
    let mut running = Running::new(operator(function));
    let ran = ran(&mut running, 0, &[("a", 1), ("b", -2), ("a", -3), ("c", 4)]);
    let mut letters: Vec<String> =
        ran.letters.iter().map(|letter| String::from_utf8_lossy(&letter.payload).into_owned()).collect();
    letters.sort();
    assert_eq!(ran.rows.len(), 3);
    assert_eq!(letters.len(), 2);
    assert!(
        letters[0].contains(r#""k":"a","v":-3"#) && letters[1].contains(r#""k":"b","v":-2"#),
        "{letters:?}"
    );
}

/// Neither the number of parts nor how they are cut shows in what comes out, or in its order.
#[test]
fn the_order_of_the_output_depends_on_keys_alone() {
    let all: Vec<Value> = (0..5000)
        .map(|n| json!({"k": format!("k{}", n * 7919 % 613), "v": n, "ts": "2026-01-01T00:00:00Z"}))
        .collect();
    let run = |size: usize| {
        let mut running = Running::new(operator(of_case("running_count_sum", TimeMode::None, &json!({}))));
        let parts = all.chunks(size).map(|rows| vec![batch(&input(), rows)]).collect();
        let ran = running.run(None, &[parts]);
        (ran.rows, ran.state_rows)
    };
    let (rows, state_rows) = run(5000);
    assert_eq!((rows.len(), state_rows), (613, 613));
    assert_eq!(run(1000), (rows.clone(), state_rows));
    assert_eq!(run(37), (rows, state_rows));
}
