//! Timeouts and timers against a model without an index: any micro-batches, at any times.

use super::group_functions::{Change, Native, Says, variable};
use super::groups::operator;
use super::{Running, batch, schema};
use pelton_core::{GroupForm, GroupReason, StateStore, TimeMode, VariableKind};
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const OUT: &str = "k string, event string, cnt long, extra string";

/// A call: the key, why, and the count after it.
type Call = (String, String, i64);

fn calls(running: &mut Running, now_ms: i64, rows: &[(u8, i64)]) -> Vec<Call> {
    let rows: Vec<_> = rows.iter().map(|(k, v)| json!({"k": k.to_string(), "v": v, "ts": null})).collect();
    running.time_ms = now_ms;
    let ran = running.rows(None, &[batch(&schema("k string, v long, ts timestamp"), &rows)]);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut calls: Vec<Call> = ran
        .rows
        .iter()
        .map(|row| (text(&row["k"]), text(&row["event"]), row["cnt"].as_i64().unwrap_or(-1)))
        .collect();
    calls.sort();
    calls
}

/// Rows count up; the last value says how long the timeout is, 0 for none. A timeout doubles the count, sets another one
/// while it is odd, and else forgets the group.
fn timing_out() -> Native {
    let state = variable("n", VariableKind::Value, "", "n");
    Native::new(GroupForm::FlatMapGroups, TimeMode::ProcessingTime, OUT, vec![state], |seen| {
        let old = seen.state[0].first().map_or(0, |old| old[0]);
        let timed_out = seen.reason == GroupReason::Timeout;
        let count = if timed_out { old * 2 } else { old + seen.values.len() as i64 };
        let event = if timed_out { "timeout" } else { "data" };
        let mut says = Says::default();
        says.rows.push(json!({"k": seen.key, "event": event, "cnt": count, "extra": ""}));
        let delay = if timed_out { old % 2 * 3 } else { seen.values.last().copied().flatten().unwrap_or(0) };
        says.timeout_ms = (delay > 0).then_some(seen.now_ms + delay);
        let keeps = !timed_out || delay > 0;
        says.changes.push((0, if keeps { Change::Put(vec![count]) } else { Change::Clear }));
        says
    })
}

/// The same without any index.
#[derive(Default)]
struct Model(BTreeMap<u8, (i64, Option<i64>)>);

impl Model {
    fn calls(&mut self, now: i64, rows: &[(u8, i64)]) -> Vec<Call> {
        let mut calls = Vec::new();
        let keys: BTreeSet<u8> = rows.iter().map(|(k, _)| *k).collect();
        for key in &keys {
            let own: Vec<i64> = rows.iter().filter(|(k, _)| k == key).map(|(_, v)| *v).collect();
            let entry = self.0.entry(*key).or_default();
            entry.0 += own.len() as i64;
            entry.1 = own.last().filter(|delay| **delay > 0).map(|delay| now + delay);
            calls.push((key.to_string(), "data".to_owned(), entry.0));
        }
        let due = |timeout: &Option<i64>| timeout.is_some_and(|timeout| timeout < now);
        let due: Vec<u8> = self.0.iter().filter(|(_, (_, timeout))| due(timeout)).map(|(k, _)| *k).collect();
        for key in due {
            let (old, _) = self.0[&key];
            calls.push((key.to_string(), "timeout".to_owned(), old * 2));
            match old % 2 {
                0 => drop(self.0.remove(&key)),
                _ => drop(self.0.insert(key, (old * 2, Some(now + 3)))),
            }
        }
        calls.sort();
        calls
    }
}

/// Every call sets a timer by the last value's name, or deletes it (an even value); a fired one only counts.
fn with_timers() -> Native {
    let state = variable("n", VariableKind::Value, "", "n");
    Native::new(GroupForm::Processor, TimeMode::ProcessingTime, OUT, vec![state], |seen| {
        let count = seen.state[0].first().map_or(0, |old| old[0]) + 1;
        let mut says = Says::default();
        let event = seen.fired_ms.map_or_else(|| "data".to_owned(), |at| at.to_string());
        says.rows.push(json!({"k": seen.key, "event": event, "cnt": count, "extra": ""}));
        says.changes.push((0, Change::Put(vec![count])));
        if let Some(v) = seen.values.last().copied().flatten() {
            says.timers.push(((v / 2).to_string(), (v % 2 == 1).then_some(seen.now_ms + v)));
        }
        says
    })
}

#[derive(Default)]
struct TimerModel(BTreeMap<u8, (i64, BTreeMap<String, i64>)>);

impl TimerModel {
    fn calls(&mut self, now: i64, rows: &[(u8, i64)]) -> Vec<Call> {
        let mut calls = Vec::new();
        let last: BTreeMap<u8, i64> = rows.iter().copied().collect();
        for (key, v) in last {
            let (count, timers) = self.0.entry(key).or_default();
            *count += 1;
            match v % 2 {
                1 => drop(timers.insert((v / 2).to_string(), now + v)),
                _ => drop(timers.remove(&(v / 2).to_string())),
            }
            calls.push((key.to_string(), "data".to_owned(), *count));
        }
        for (key, (count, timers)) in &mut self.0 {
            let mut due: Vec<(i64, String)> =
                timers.iter().filter(|(_, at)| **at <= now).map(|(name, at)| (*at, name.clone())).collect();
            due.sort();
            for (at, name) in due {
                timers.remove(&name);
                *count += 1;
                calls.push((key.to_string(), at.to_string(), *count));
            }
        }
        calls.sort();
        calls
    }
}

fn batches() -> impl Strategy<Value = Vec<(i64, Vec<(u8, i64)>)>> {
    let rows = proptest::collection::vec((0u8..12, 0i64..9), 0..10);
    proptest::collection::vec((0i64..6, rows), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn timeouts_fire_as_if_all_groups_were_looked_at(batches in batches()) {
        let (mut running, mut model) = (Running::new(operator(timing_out())), Model::default());
        let mut now = 1000;
        for (moved, rows) in batches {
            now += moved;
            prop_assert_eq!(calls(&mut running, now, &rows), model.calls(now, &rows));
            let timeouts = running.store.len("node/timeouts");
            prop_assert_eq!(running.store.len("node/groups"), model.0.len() as u64);
            prop_assert!(timeouts <= model.0.len() as u64, "{timeouts} entries of the index for {} groups", model.0.len());
        }
    }

    #[test]
    fn timers_fire_as_if_all_keys_were_looked_at(batches in batches()) {
        let (mut running, mut model) = (Running::new(operator(with_timers())), TimerModel::default());
        let mut now = 1000;
        for (moved, rows) in batches {
            now += moved;
            prop_assert_eq!(calls(&mut running, now, &rows), model.calls(now, &rows));
            let waiting = model.0.values().filter(|(_, timers)| !timers.is_empty()).count() as u64;
            prop_assert_eq!(running.store.len("node/timers"), waiting);
        }
    }
}
