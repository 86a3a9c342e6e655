//! Stateful functions in native code: the harness, and those that real Spark's cases call, under their names there.

use super::{batch, schema};
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Int64Type, Schema, SchemaRef, TimestampMicrosecondType};
use pelton_core::{
    CallScope, Error, GroupForm, GroupInput, GroupOutput, GroupReason, Load, Rejected, Result, StateAction,
    StateChanges, StateVariable, StatefulFunction, StatefulSignature, TimeMode, TimerChange, VariableKind,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a function sees of one group.
pub(crate) struct Seen {
    pub(crate) key: Option<String>,
    pub(crate) reason: GroupReason,
    /// Of the column `v`.
    pub(crate) values: Vec<Option<i64>>,
    /// Of the column `ts`, in milliseconds.
    pub(crate) latest_ms: Option<i64>,
    /// By variable: entries, each of key's and value's fields.
    pub(crate) state: Vec<Vec<Vec<i64>>>,
    /// The timer that fires, in milliseconds.
    pub(crate) fired_ms: Option<i64>,
    pub(crate) pending_ms: Vec<i64>,
    pub(crate) watermark_ms: Option<i64>,
    pub(crate) now_ms: i64,
    /// How many groups are in the same call.
    pub(crate) together: usize,
}

/// A change of a variable.
pub(crate) enum Change {
    Put(Vec<i64>),
    Remove(Vec<i64>),
    Clear,
}

/// What it says.
#[derive(Default)]
pub(crate) struct Says {
    pub(crate) rows: Vec<Value>,
    /// (variable, change).
    pub(crate) changes: Vec<(usize, Change)>,
    pub(crate) timeout_ms: Option<i64>,
    pub(crate) timers: Vec<(String, Option<i64>)>,
    /// Rows of the group that it refuses.
    pub(crate) refused: Vec<usize>,
}

type Body = Box<dyn Fn(&Seen) -> Says + Send + Sync>;
/// Of a variable: groups, actions, rows to put, keys to remove.
type Made = (Vec<u32>, Vec<StateAction>, Vec<Vec<i64>>, Vec<Vec<i64>>);
type Migrate = Box<dyn Fn(u32, &RecordBatch) -> Result<RecordBatch> + Send + Sync>;

/// A function whose variables hold longs.
pub(crate) struct Native {
    signature: StatefulSignature,
    body: Body,
    migrate: Option<Migrate>,
}

/// A variable with fields of longs.
pub(crate) fn variable(name: &str, kind: VariableKind, key: &str, value: &str) -> StateVariable {
    let longs = |names: &str| {
        let names = names.split_whitespace();
        schema(&names.map(|name| format!("{name} long")).collect::<Vec<_>>().join(", "))
    };
    let empty = || Arc::new(Schema::empty());
    let key = if key.is_empty() { empty() } else { longs(key) };
    let value = longs(value);
    let entries = key.fields().iter().chain(value.fields()).cloned().collect::<Vec<_>>();
    StateVariable {
        name: name.to_owned(),
        kind,
        key,
        entries: Arc::new(Schema::new(entries)),
        value,
        version: 1,
        ttl_ms: None,
        load: Load::Everything,
    }
}

impl Native {
    /// A function over rows of `k string, v long, ts timestamp`.
    pub(crate) fn new(
        form: GroupForm,
        time_mode: TimeMode,
        output: &str,
        variables: Vec<StateVariable>,
        body: impl Fn(&Seen) -> Says + Send + Sync + 'static,
    ) -> Self {
        let output = schema(output);
        let signature = StatefulSignature { form, time_mode, output, reads: vec![1, 2], variables };
        Self { signature, body: Box::new(body), migrate: None }
    }

    /// Of an input with other columns: where `v` and `ts` are.
    pub(crate) fn reading(mut self, reads: [usize; 2]) -> Self {
        self.signature.reads = reads.to_vec();
        self
    }

    pub(crate) fn with_form(mut self, form: GroupForm) -> Self {
        self.signature.form = form;
        self
    }

    pub(crate) fn migrating(
        mut self,
        migrate: impl Fn(u32, &RecordBatch) -> Result<RecordBatch> + Send + Sync + 'static,
    ) -> Self {
        self.migrate = Some(Box::new(migrate));
        self
    }

    fn seen(&self, scope: &CallScope<'_>, input: &GroupInput, group: usize) -> Seen {
        let rows = input.offsets[group] as usize..input.offsets[group + 1] as usize;
        let values = input.rows.column(0).as_primitive::<Int64Type>();
        let times = input.rows.column(1).as_primitive::<TimestampMicrosecondType>();
        let keys = input.keys.column(0).as_string::<i32>();
        let entries = |entries: &pelton_core::StateEntries| {
            let own = entries.offsets[group] as usize..entries.offsets[group + 1] as usize;
            let columns = entries.rows.columns();
            let entry =
                |row: usize| columns.iter().map(|c| c.as_primitive::<Int64Type>().value(row)).collect();
            own.map(entry).collect::<Vec<Vec<i64>>>()
        };
        let own = |timer: &&pelton_core::Timer| timer.group as usize == group;
        Seen {
            key: keys.is_valid(group).then(|| keys.value(group).to_owned()),
            reason: input.reason,
            values: rows.clone().map(|row| values.is_valid(row).then(|| values.value(row))).collect(),
            latest_ms: rows.filter(|row| times.is_valid(*row)).map(|row| times.value(row) / 1000).max(),
            state: input.state.iter().map(entries).collect(),
            fired_ms: input.fired.iter().find(own).map(|timer| timer.at / 1000),
            pending_ms: input.pending.iter().filter(own).map(|timer| timer.at / 1000).collect(),
            watermark_ms: scope.batch.watermark_ms,
            now_ms: scope.batch.time_ms,
            together: input.groups(),
        }
    }
}

fn longs(schema: &SchemaRef, rows: &[Vec<i64>]) -> RecordBatch {
    let column = |at: usize| Arc::new(rows.iter().map(|row| row[at]).collect::<Int64Array>()) as ArrayRef;
    let columns = (0..schema.fields().len()).map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).expect("rows")
}

impl StatefulFunction for Native {
    fn signature(&self) -> &StatefulSignature {
        &self.signature
    }

    fn process(&self, scope: &CallScope<'_>, input: &GroupInput) -> Result<GroupOutput> {
        let variables = &self.signature.variables;
        let (mut rows, mut rejected, mut timeouts, mut timers) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut made: Vec<Made> = variables.iter().map(|_| Made::default()).collect();
        for group in 0..input.groups() {
            let says = (self.body)(&self.seen(scope, input, group));
            let at = group as u32;
            rows.extend(says.rows);
            let first = input.offsets[group];
            let refuse = |row: usize| Rejected { row: first + row as u32, reason: "refused".into() };
            rejected.extend(says.refused.into_iter().map(refuse));
            for (variable, change) in says.changes {
                let (groups, actions, put, remove) = &mut made[variable];
                groups.push(at);
                actions.push(match change {
                    Change::Put(row) => {
                        put.push(row);
                        StateAction::Put
                    }
                    Change::Remove(row) => {
                        remove.push(row);
                        StateAction::Remove
                    }
                    Change::Clear => StateAction::Clear,
                });
            }
            timeouts.extend(says.timeout_ms.map(|ms| (at, ms * 1000)));
            let timer = |(name, ms): (String, Option<i64>)| TimerChange {
                group: at,
                name,
                at: ms.map(|ms| ms * 1000),
            };
            timers.extend(says.timers.into_iter().map(timer));
        }
        let changes =
            variables.iter().zip(made).map(|(variable, (groups, actions, put, remove))| StateChanges {
                groups,
                actions,
                put: longs(&variable.entries, &put),
                remove: longs(&variable.key, &remove),
            });
        let rows = batch(&self.signature.output, &rows);
        Ok(GroupOutput { rows, rejected, changes: changes.collect(), timeouts, timers })
    }

    fn migrate(&self, _: usize, from: u32, entries: &RecordBatch) -> Result<RecordBatch> {
        match &self.migrate {
            Some(migrate) => migrate(from, entries),
            None => Err(Error::plugin("there is no migration")),
        }
    }
}

const OUT: &str =
    "k string, event string, n_in int, cnt long, sm long, had_state boolean, wm_ms long, proc_ms long";
const TIMER_OUT: &str = "k string, event string, cnt long, extra string";

/// A function of the cases, with their parameters.
pub(crate) fn of_case(function: &str, time_mode: TimeMode, params: &Value) -> Native {
    let gap_ms = params["gap_ms"].as_i64().or(params["duration_ms"].as_i64()).unwrap_or(0);
    let (with_wm, with_proc) = (params["with_wm"] == true, params["with_proc"] == true);
    let rearm_ms = params["rearm_ms"].as_i64().unwrap_or(0);
    if function.starts_with("tws") {
        return processor(function, time_mode, gap_ms);
    }
    let name = function.to_owned();
    let value = if name == "event_timeout_session" { "cnt sm last" } else { "cnt sm" };
    let state = variable("state", VariableKind::Value, "", value);
    Native::new(GroupForm::FlatMapGroups, time_mode, OUT, vec![state], move |seen| {
        let old = seen.state[0].first();
        let (mut cnt, mut sm) = old.map_or((0, 0), |old| (old[0], old[1]));
        let timed_out = seen.reason == GroupReason::Timeout;
        cnt += seen.values.len() as i64;
        sm += seen.values.iter().flatten().sum::<i64>();
        let latest = seen.latest_ms.unwrap_or(0);
        let mut says = Says::default();
        let mut kept = Some(vec![cnt, sm]);
        match name.as_str() {
            "event_timeout_session" if timed_out => kept = None,
            "event_timeout_session" => {
                let last = latest.max(old.map_or(i64::MIN, |old| old[2]));
                kept = Some(vec![cnt, sm, last]);
                says.timeout_ms = Some(last + gap_ms);
            }
            "event_timeout_rearm" if timed_out => {
                cnt += 1000;
                kept = (cnt < 2000).then(|| vec![cnt, sm]);
                says.timeout_ms = kept.as_ref().and(seen.watermark_ms).map(|wm| wm + rearm_ms);
            }
            "event_timeout_once" if timed_out => {
                kept = Some(vec![
                    {
                        cnt += 1000;
                        cnt
                    },
                    sm,
                ])
            }
            "event_timeout_once" => says.timeout_ms = old.is_none().then_some(latest + gap_ms),
            "timeout_without_state" => {
                (kept, says.timeout_ms) = (None, (!timed_out).then_some(latest + gap_ms));
            }
            "event_timeout_rearm" => says.timeout_ms = Some(latest + gap_ms),
            "proc_timeout_session" if timed_out => kept = None,
            "proc_timeout_session" => says.timeout_ms = Some(seen.now_ms + gap_ms),
            _ => {}
        }
        says.rows.push(json!({
            "k": seen.key, "event": if timed_out { "timeout" } else { "data" }, "n_in": seen.values.len(),
            "cnt": cnt, "sm": sm, "had_state": old.is_some(),
            "wm_ms": seen.watermark_ms.filter(|_| with_wm),
            "proc_ms": Some(seen.now_ms).filter(|_| with_proc),
        }));
        let change = kept.map_or(Change::Clear, Change::Put);
        if old.is_some() || !matches!(change, Change::Clear) {
            says.changes.push((0, change));
        }
        says
    })
}

fn processor(function: &str, time_mode: TimeMode, gap_ms: i64) -> Native {
    let name = function.to_owned();
    let value = |name: &str| variable(name, VariableKind::Value, "", "c");
    let variables = match function {
        "tws_list_map" => {
            vec![variable("l", VariableKind::List, "", "v"), variable("m", VariableKind::Map, "v", "n")]
        }
        "tws_proc_timer" => vec![value("cnt"), value("t")],
        _ => vec![value("cnt")],
    };
    Native::new(GroupForm::Processor, time_mode, TIMER_OUT, variables, move |seen| {
        let mut says = Says::default();
        if name == "tws_list_map" {
            list_and_map(seen, &mut says);
            return says;
        }
        let cnt = seen.state[0].first().map_or(0, |old| old[0]) + seen.values.len() as i64;
        let at = |ms: i64| (ms.to_string(), Some(ms));
        if let Some(fired) = seen.fired_ms {
            let extra = match name.as_str() {
                "tws_event_timer" => format!("exp={fired};wm={}", seen.watermark_ms.unwrap_or(0)),
                _ => format!("exp={fired};pt={}", seen.now_ms),
            };
            says.rows.push(json!({"k": seen.key, "event": "timer", "cnt": cnt, "extra": extra}));
            if name == "tws_proc_timer" {
                says.changes = vec![(0, Change::Clear), (1, Change::Clear)];
            }
            return says;
        }
        says.changes.push((0, Change::Put(vec![cnt])));
        let extra = if name == "tws_event_timer" {
            let timer = seen.latest_ms.unwrap_or(0) + gap_ms;
            says.timers.push(at(timer));
            let mut all: Vec<i64> = seen.pending_ms.iter().copied().chain([timer]).collect();
            all.sort_unstable();
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("wm={};timers={}", seen.watermark_ms.unwrap_or(0), all.join(","))
        } else {
            if let Some(old) = seen.state.get(1).and_then(|state| state.first()) {
                says.timers.push((old[0].to_string(), None));
            }
            says.timers.push(at(seen.now_ms + gap_ms));
            says.changes.push((1, Change::Put(vec![seen.now_ms + gap_ms])));
            format!("pt={}", seen.now_ms)
        };
        says.rows.push(json!({"k": seen.key, "event": "data", "cnt": cnt, "extra": extra}));
        says
    })
}

fn list_and_map(seen: &Seen, says: &mut Says) {
    let mut list: Vec<i64> = seen.state[0].iter().map(|entry| entry[0]).collect();
    let mut map: std::collections::BTreeMap<i64, i64> =
        seen.state[1].iter().map(|entry| (entry[0], entry[1])).collect();
    for v in seen.values.iter().flatten() {
        list.push(*v);
        let count = map.entry(*v).or_default();
        *count += 1;
        says.changes.extend([(0, Change::Put(vec![*v])), (1, Change::Put(vec![*v, *count]))]);
    }
    let list: Vec<String> = list.iter().map(ToString::to_string).collect();
    let shown: Vec<String> = map.iter().map(|(v, n)| format!("{v}:{n}")).collect();
    let extra = format!("list={};map={}", list.join(","), shown.join(","));
    says.rows.push(json!({"k": seen.key, "event": "data", "cnt": map.len(), "extra": extra}));
}
