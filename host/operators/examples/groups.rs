//! Measures stateful functions without any I/O and without a sandbox: a native function counts and sums by user and sets
//! a timeout, over state in memory; rows a second of both halves.
//!
//! `cargo run --example groups -p pelton-operators [-- WORD]` prints a line for each shape (with the word in its name).

#![allow(clippy::print_stdout, reason = "it prints what it measured")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{Int64Type, Schema, SchemaRef, TimestampMicrosecondType};
use pelton_core::function::PluginMetrics;
use pelton_core::types::parse_columns;
use pelton_core::{
    BatchId, BatchInfo, CallScope, Dataflow, Encoding, Error, FunctionInfo, FunctionKind, GroupForm,
    GroupInput, GroupOutput, GroupReason, Load, Manifest, OutputMode, Plugin, PluginDigest, QueryId, Result,
    ScalarFunction, SinkFunction, StateAction, StateChanges, StateStore, StateVariable, StatefulFunction,
    StatefulSignature, TimeMode, TransformFunction, VariableKind,
};
use pelton_operators::QueryDataflow;
use pelton_plan::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs};
use pelton_state::MemoryStateStore;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

const ROWS: usize = 250_000;
const ROWS_PER_PART: usize = 4096;
const BATCHES: usize = 12;
const EVENTS_PER_SECOND: i64 = 10_000;

struct Shape {
    name: &'static str,
    users: i64,
    timeout_us: i64,
    form: GroupForm,
}

const SHAPES: [Shape; 5] = [
    Shape {
        name: "1 M users, timeout 10 min",
        users: 1_000_000,
        timeout_us: 600_000_000,
        form: GroupForm::FlatMapGroups,
    },
    Shape {
        name: "1 M users, timeout 30 s",
        users: 1_000_000,
        timeout_us: 30_000_000,
        form: GroupForm::FlatMapGroups,
    },
    Shape {
        name: "1 k users, timeout 10 min",
        users: 1000,
        timeout_us: 600_000_000,
        form: GroupForm::FlatMapGroups,
    },
    Shape { name: "1 M users, processor", users: 1_000_000, timeout_us: 0, form: GroupForm::Processor },
    Shape { name: "1 k users, processor", users: 1000, timeout_us: 0, form: GroupForm::Processor },
];

fn main() -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{ROWS} rows a micro-batch in parts of {ROWS_PER_PART}; state in memory; medians of {BATCHES}");
    let word = std::env::args().nth(1).unwrap_or_default();
    for shape in SHAPES.iter().filter(|shape| shape.name.contains(&word)) {
        measure(shape, threads)?;
    }
    Ok(())
}

fn schema(columns: &str) -> Result<SchemaRef> {
    let columns = parse_columns(columns, "UTC").map_err(|e| Error::invalid(e.to_string()))?;
    Ok(Arc::new(Schema::new(columns)))
}

fn measure(shape: &Shape, threads: usize) -> Result<()> {
    let schema = schema("k long, v long, ts timestamp")?;
    let flow = flow(shape, &schema)?;
    let mut store = MemoryStateStore::new();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut watermark_ms = Some(0);
    let mut groups = 0;
    for batch in 0..BATCHES {
        let info = BatchInfo {
            query_id: QueryId("q".into()),
            batch_id: BatchId(batch as u64),
            time_ms: 0,
            watermark_ms,
            late_watermark_ms: watermark_ms,
        };
        let parts = rows(&schema, batch, shape.users)?;
        let started = Instant::now();
        let mut made = Vec::new();
        for (at, rows) in parts.into_iter().enumerate() {
            made.push(flow.part(&info, 0, at as u64, vec![rows])?);
        }
        first.push(started.elapsed().as_secs_f64());
        let latest = made.iter().filter_map(|part| part.event_times[0]).max();
        let started = Instant::now();
        let mut gather = flow.clone().gather(Arc::new(info));
        made.into_iter().try_for_each(|part| gather.add(part))?;
        let gathered = gather.finish(&mut store, threads)?;
        futures::executor::block_on(store.commit(BatchId(batch as u64)))?;
        second.push(started.elapsed().as_secs_f64());
        groups = gathered.operators[0].rows_total;
        watermark_ms = latest.map(|ms| ms - 3000);
    }
    let (first, second) = (median(first), median(second));
    let million = |seconds: f64| ROWS as f64 / seconds / 1e6;
    println!(
        "{:<28} first half {:>6.2} M rows/s on one thread, second half {:>6.2} on {threads}, {groups} groups in state",
        shape.name,
        million(first),
        million(second)
    );
    Ok(())
}

fn flow(shape: &Shape, schema: &SchemaRef) -> Result<Arc<dyn Dataflow>> {
    let text = "name: q\nsources: {s: {connector: rate, watermark: {column: ts, delay: 3 seconds}}}\n\
                output_mode: append\nsink: {connector: memory}\nsteps:\n- {plugin: p.count_sum, key: [k]}\n";
    let file = PipelineFile::read(text, "measured", &[])?;
    let sources = BTreeMap::from([("s".to_owned(), schema.clone())]);
    let plugin: Arc<dyn Plugin> = Arc::new(Native::new(shape)?);
    let plugins = BTreeMap::from([("p".to_owned(), plugin)]);
    let inputs = PlanInputs { sources, plugins, ..PlanInputs::default() };
    let plan = PhysicalPlan::build(&LogicalPlan::resolve(&file, &inputs)?)?;
    QueryDataflow::bind(&plan, std::slice::from_ref(schema))
}

/// Rows of one micro-batch, users uniform.
fn rows(schema: &SchemaRef, batch: usize, users: i64) -> Result<Vec<RecordBatch>> {
    let mut parts = Vec::new();
    let mut at = (batch * ROWS) as i64;
    let mut left = ROWS;
    let zone = match schema.field(2).data_type() {
        arrow::datatypes::DataType::Timestamp(_, zone) => zone.clone(),
        _ => None,
    };
    while left > 0 {
        let count = left.min(ROWS_PER_PART);
        let numbers: Vec<i64> = (at..at + count as i64).collect();
        let noise = |n: i64| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64) >> 33).rem_euclid(1 << 30);
        let ts = numbers.iter().map(|n| 1_767_225_600_000_000 + n * 1_000_000 / EVENTS_PER_SECOND);
        let ts = TimestampMicrosecondArray::from(ts.collect::<Vec<_>>()).with_timezone_opt(zone.clone());
        let k: Int64Array = numbers.iter().map(|n| noise(n + 7) % users).collect::<Vec<_>>().into();
        let v: Int64Array = numbers.iter().map(|n| noise(n + 13) % 1000).collect::<Vec<_>>().into();
        let columns: Vec<ArrayRef> = vec![Arc::new(k), Arc::new(v), Arc::new(ts)];
        parts.push(RecordBatch::try_new(schema.clone(), columns)?);
        at += count as i64;
        left -= count;
    }
    Ok(parts)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A plugin of one function.
struct Native {
    manifest: Manifest,
    digest: PluginDigest,
    function: Arc<CountSum>,
}

impl Native {
    fn new(shape: &Shape) -> Result<Self> {
        let info =
            FunctionInfo { name: "count_sum".into(), kind: FunctionKind::Stateful, doc: String::new() };
        let manifest = Manifest {
            name: "p".into(),
            version: "1".into(),
            encoding: Encoding::Arrow,
            functions: vec![info],
        };
        let function = Arc::new(CountSum::new(shape)?);
        Ok(Self { manifest, digest: PluginDigest("d".repeat(64)), function })
    }
}

impl Plugin for Native {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }
    fn digest(&self) -> &PluginDigest {
        &self.digest
    }
    fn scalar(&self, _: &str, _: SchemaRef) -> Result<Arc<dyn ScalarFunction>> {
        Err(Error::invalid("there is none"))
    }
    fn transform(&self, _: &str, _: SchemaRef) -> Result<Arc<dyn TransformFunction>> {
        Err(Error::invalid("there is none"))
    }
    fn stateful(&self, _: &str, _: SchemaRef, _: SchemaRef) -> Result<Arc<dyn StatefulFunction>> {
        Ok(self.function.clone())
    }
    fn sink(&self, _: &str, _: SchemaRef, _: OutputMode) -> Result<Arc<dyn SinkFunction>> {
        Err(Error::invalid("there is none"))
    }
    fn metrics(&self) -> PluginMetrics {
        PluginMetrics::default()
    }
}

/// Counts and sums by user; gives the totals of each call.
struct CountSum {
    signature: StatefulSignature,
    timeout_us: i64,
}

impl CountSum {
    fn new(shape: &Shape) -> Result<Self> {
        let empty = Arc::new(Schema::empty());
        let state = schema("n long, total long")?;
        let variable = StateVariable {
            name: "state".into(),
            kind: VariableKind::Value,
            key: empty,
            value: state.clone(),
            entries: state,
            version: 1,
            ttl_ms: None,
            load: Load::Everything,
        };
        let time_mode = match shape.form {
            GroupForm::Processor => TimeMode::None,
            GroupForm::MapGroups | GroupForm::FlatMapGroups => TimeMode::EventTime,
        };
        let signature = StatefulSignature {
            form: shape.form,
            time_mode,
            output: schema("k long, n long, total long")?,
            reads: vec![1, 2],
            variables: vec![variable],
        };
        Ok(Self { signature, timeout_us: shape.timeout_us })
    }
}

impl StatefulFunction for CountSum {
    fn signature(&self) -> &StatefulSignature {
        &self.signature
    }

    fn process(&self, _: &CallScope<'_>, input: &GroupInput) -> Result<GroupOutput> {
        let keys = input.keys.column(0).clone();
        let values = input.rows.column(0).as_primitive::<Int64Type>().values();
        let times = input.rows.column(1).as_primitive::<TimestampMicrosecondType>().values();
        let entries = &input.state[0];
        let old = |column: usize| entries.rows.column(column).as_primitive::<Int64Type>().values();
        let (old_n, old_total) = (old(0), old(1));
        let groups = input.groups();
        let (mut n, mut total) = (Vec::with_capacity(groups), Vec::with_capacity(groups));
        let mut timeouts = Vec::with_capacity(groups);
        for group in 0..groups {
            let rows = input.offsets[group] as usize..input.offsets[group + 1] as usize;
            let entry = entries.offsets[group] as usize;
            let known = entries.offsets[group + 1] as usize > entry;
            let (n0, total0) = if known { (old_n[entry], old_total[entry]) } else { (0, 0) };
            n.push(n0 + rows.len() as i64);
            total.push(total0 + values[rows.clone()].iter().sum::<i64>());
            if self.timeout_us > 0 {
                let latest = times[rows].iter().max().copied().unwrap_or(0);
                timeouts.push((group as u32, latest + self.timeout_us));
            }
        }
        let timed_out = input.reason == GroupReason::Timeout;
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(n)), Arc::new(Int64Array::from(total))];
        let rows =
            RecordBatch::try_new(self.signature.output.clone(), [vec![keys], columns.clone()].concat())?;
        let put = RecordBatch::try_new(self.signature.variables[0].value.clone(), columns)?;
        let changes = StateChanges {
            groups: (0..groups as u32).collect(),
            actions: vec![if timed_out { StateAction::Clear } else { StateAction::Put }; groups],
            put: if timed_out { put.slice(0, 0) } else { put },
            remove: RecordBatch::new_empty(Arc::new(Schema::empty())),
        };
        let timeouts = if timed_out { Vec::new() } else { timeouts };
        Ok(GroupOutput { rows, rejected: Vec::new(), changes: vec![changes], timeouts, timers: Vec::new() })
    }

    fn migrate(&self, _: usize, _: u32, entries: &RecordBatch) -> Result<RecordBatch> {
        Ok(entries.clone())
    }
}
