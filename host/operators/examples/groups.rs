//! Measures stateful functions without any I/O and without a sandbox: a native function counts and sums by user and sets
//! a timeout, over state in memory; rows a second of both halves.
//!
//! `cargo run --example groups -p pelton-operators [-- WORD]` prints a line for each shape (with the word in its name).

#![allow(clippy::print_stdout, reason = "it prints what it measured")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

mod halves;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Int64Type, Schema, SchemaRef, TimestampMicrosecondType};
use halves::{Halves, schema};
use pelton_core::function::PluginMetrics;
use pelton_core::{
    CallScope, Dataflow, Encoding, Error, FunctionInfo, FunctionKind, GroupForm, GroupInput, GroupOutput,
    GroupReason, Load, Manifest, OutputMode, Plugin, PluginDigest, Result, ScalarFunction, SinkFunction,
    StateAction, StateChanges, StateVariable, StatefulFunction, StatefulSignature, TimeMode,
    TransformFunction, VariableKind,
};
use pelton_operators::QueryDataflow;
use pelton_plan::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs};
use std::collections::BTreeMap;
use std::sync::Arc;

const BATCHES: usize = 12;

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
    for shape in halves::chosen(&SHAPES, BATCHES, |shape: &Shape| shape.name) {
        let flow = flow(shape, &halves::rows_schema()?)?;
        let measured = Halves { batches: BATCHES, keys: shape.users, noise_us: 0, columns: vec![0, 1, 2] };
        measured.measure(shape.name, &flow)?;
    }
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
