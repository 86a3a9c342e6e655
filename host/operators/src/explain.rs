//! A plan as a person reads it: from the source down to the sink.

use crate::stateful::operator;
use datafusion::physical_plan::displayable;
use pelton_core::types::type_name;
use pelton_core::{FailurePolicy, PerPartition, VariableLayout};
use pelton_plan::stateful::{Lane, Origin, StatefulNode, StatefulOperator, Target, TimeWindow};
use pelton_plan::{FunctionRef, PhysicalPlan, PhysicalStep};
use std::fmt::Write;

/// A readable tree of the plan: what is read, the operators by name, the result's schema, the sink, when it runs.
pub fn explain(plan: &PhysicalPlan) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "query {}", plan.name);
    for input in &plan.inputs {
        let _ = writeln!(out, "├─ source {} ({})", input.name, input.connector);
        let (read, all) = (input.required_columns.len(), input.schema.fields().len());
        let _ = writeln!(out, "│    reads {read} of {all} columns: {}", input.required_columns.join(", "));
    }
    for (index, node) in plan.nodes.iter().enumerate() {
        let into = |lane: &Lane| matches!(lane.target, Target::Port { node, .. } if node == index);
        plan.lanes.iter().filter(|lane| into(lane)).for_each(|lane| lane_lines(&mut out, plan, lane));
        node_lines(&mut out, plan, node);
    }
    let to_sink = plan.lanes.iter().filter(|lane| lane.target == Target::Sink);
    to_sink.for_each(|lane| lane_lines(&mut out, plan, lane));
    let _ = writeln!(out, "├─ result");
    for field in plan.schema.fields() {
        let nullable = if field.is_nullable() { "" } else { " NOT NULL" };
        let _ = writeln!(out, "│    {}: {}{nullable}", field.name(), type_name(field.data_type()));
    }
    let _ = writeln!(out, "├─ sink {}", plan.sink);
    let _ = writeln!(out, "├─ output mode: {}", plan.output_mode);
    let _ = writeln!(out, "├─ trigger: {}", plan.trigger);
    let _ = writeln!(out, "├─ time zone: {}", plan.time_zone);
    let kept = plan.nodes.iter().map(|node| (node, tables(node))).filter(|(_, tables)| !tables.is_empty());
    let kept: Vec<String> =
        kept.map(|(node, tables)| format!("{} ({})", node.name, tables.join(", "))).collect();
    let kept = if kept.is_empty() { "none".to_owned() } else { kept.join("; ") };
    let _ = writeln!(out, "└─ state: {kept}");
    out
}

/// What a stateful operator waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorWait {
    /// Its stable name.
    pub name: String,
    /// What it is: `aggregate`, `dedup`, `join` ….
    pub kind: &'static str,
    /// For a person: `the watermark to pass the end of a window`.
    pub waits_for: String,
    /// How far from the query's watermark its own is; none if no watermark reaches it.
    pub watermark_offset_ms: Option<i64>,
}

/// What the stateful operators of a plan wait for, upstream first.
pub fn waits(plan: &PhysicalPlan) -> Vec<OperatorWait> {
    let has_watermark = !plan.watermarks.is_empty();
    let wait = |node: &StatefulNode| OperatorWait {
        name: node.name.clone(),
        kind: node.operator.kind(),
        waits_for: operator(node).map(|operator| operator.waits_for()).unwrap_or_default(),
        watermark_offset_ms: node.watermark_offset_ms.filter(|_| has_watermark),
    };
    plan.nodes.iter().map(wait).collect()
}

/// Where a lane leads, if that is not plain, and its steps.
fn lane_lines(out: &mut String, plan: &PhysicalPlan, lane: &Lane) {
    if !plan.nodes.is_empty() {
        let from = match lane.origin {
            Origin::Source(input) => plan.inputs.get(input).map_or("?", |input| input.name.as_str()),
            Origin::Node(node) => plan.nodes.get(node).map_or("?", |node| node.name.as_str()),
        };
        let to = match lane.target {
            Target::Sink => "the sink".to_owned(),
            Target::Port { node, port } => {
                let side = match plan.nodes.get(node) {
                    Some(node) if node.inputs.len() > 1 => ["left", "right"].get(port).copied(),
                    _ => None,
                };
                let name = plan.nodes.get(node).map_or("?", |node| node.name.as_str());
                side.map_or_else(|| name.to_owned(), |side| format!("{name}, {side}"))
            }
        };
        let _ = writeln!(out, "├─ from {from} to {to}");
    }
    lane.steps.iter().for_each(|step| step_lines(out, plan, step));
}

/// A stateful operator: what it does, and when something comes out of it.
fn node_lines(out: &mut String, plan: &PhysicalPlan, node: &StatefulNode) {
    let _ = writeln!(out, "├─ {}", node.name);
    let _ = writeln!(out, "│    {}", what(node));
    let late = match node.watermark_offset_ms {
        None => "no watermark reaches it".to_owned(),
        Some(_) if plan.watermarks.is_empty() => "no watermark reaches it".to_owned(),
        Some(0) => "by the query's watermark".to_owned(),
        Some(offset_ms) => format!("by the query's watermark {} ms", offset_ms),
    };
    let _ = writeln!(out, "│    event time: {late}");
    if node.keep_late_rows {
        let _ = writeln!(out, "│    late rows go to the dead letters");
    }
    if let StatefulOperator::Groups(groups) = &node.operator {
        explain_failures(out, &groups.function);
    }
    if let Ok(operator) = operator(node) {
        let _ = writeln!(out, "│    waits for {}", operator.waits_for());
    }
}

/// What a stateful operator does, in one line.
fn what(node: &StatefulNode) -> String {
    let names = |range: std::ops::Range<usize>| {
        let fields = node.schema.fields();
        let names: Vec<&str> =
            fields.iter().take(range.end).skip(range.start).map(|f| f.name().as_str()).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    };
    let kind = node.operator.kind();
    match &node.operator {
        StatefulOperator::Aggregate(aggregate) => {
            let keys = aggregate.keys.len();
            let window = match &aggregate.window {
                Some(TimeWindow::Sliding { size_us, slide_us, start_us, .. }) => format!(
                    "; windows of {} ms, one every {} ms, offset {} ms",
                    size_us / 1000,
                    slide_us / 1000,
                    start_us / 1000
                ),
                _ => String::new(),
            };
            format!("{kind} by {}: {}{window}", names(0..keys), names(keys..usize::MAX))
        }
        StatefulOperator::Dedup(dedup) => {
            let fields = node.inputs.first();
            let name =
                |at: &usize| fields.and_then(|f| f.fields().get(*at)).map_or("?", |f| f.name().as_str());
            let keys: Vec<&str> = dedup.keys.iter().map(name).collect();
            format!("{kind} by {}", if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") })
        }
        StatefulOperator::Join(join) => format!("{kind}, {:?}", join.kind),
        StatefulOperator::Limit(limit) => {
            let span = if limit.over_all_batches { "of the whole query" } else { "of each micro-batch" };
            format!("{kind}: the first {} rows {span}", limit.count)
        }
        StatefulOperator::Groups(groups) => {
            let fields = node.inputs.first();
            let name =
                |at: &usize| fields.and_then(|f| f.fields().get(*at)).map_or("?", |f| f.name().as_str());
            let list = |columns: &[usize]| columns.iter().map(name).collect::<Vec<_>>().join(", ");
            let variables = groups.stateful.signature().variables.iter();
            let variables: Vec<String> = variables.map(|v| VariableLayout::of(v).to_string()).collect();
            format!(
                "{kind} by {}: plugin function {}, which reads {} and keeps {}",
                list(&groups.keys),
                groups.function,
                if groups.reads.is_empty() { "no column".to_owned() } else { list(&groups.reads) },
                if variables.is_empty() { "nothing".to_owned() } else { variables.join(", ") }
            )
        }
        StatefulOperator::Sort(sort) => {
            let by: Vec<String> = sort.by.iter().map(ToString::to_string).collect();
            format!("{kind} by {}", by.join(", "))
        }
    }
}

fn partitions(kept: &PerPartition) -> String {
    let idle = match kept.idle_timeout_ms {
        None => "none is ever idle".to_owned(),
        Some(ms) => format!("idle after {ms} ms without anything to read"),
    };
    format!("of the slowest partition of {}; {idle}", kept.sources.join(", "))
}

/// The tables of state that an operator counts its rows by.
fn tables(node: &StatefulNode) -> Vec<String> {
    operator(node).map(|operator| operator.counted_tables(&node.name)).unwrap_or_default()
}

fn step_lines(out: &mut String, plan: &PhysicalPlan, step: &PhysicalStep) {
    match step {
        PhysicalStep::Native(run) => {
            for (operator, text) in run.operators.iter().zip(&run.texts) {
                let _ = writeln!(out, "├─ {operator}");
                let _ = writeln!(out, "│    {text}");
            }
            let how = if run.simple.is_some() { "evaluated directly" } else { "run by DataFusion" };
            let _ = writeln!(out, "│    as one plan, {how}:");
            for line in displayable(run.plan.as_ref()).indent(false).to_string().lines() {
                let _ = writeln!(out, "│      {line}");
            }
        }
        PhysicalStep::Watermark(step) => {
            if let Some(info) = plan.watermarks.get(step.index) {
                let _ = writeln!(out, "├─ {}", info.name);
                let _ =
                    writeln!(out, "│    watermark: {} ms behind the latest {}", info.delay_ms, info.column);
                if let Some(kept) = &info.per_partition {
                    let _ = writeln!(out, "│    {}", partitions(kept));
                }
            }
        }
        PhysicalStep::StaticJoin(join) => {
            let _ = writeln!(out, "├─ {}", join.operator);
            let _ = writeln!(out, "│    joins with the static table {}, {:?}", join.table.name, join.kind);
        }
        PhysicalStep::PluginFilter(filter) => {
            let _ = writeln!(out, "├─ {}", filter.operator);
            let _ = writeln!(
                out,
                "│    keeps rows for which {}() is true; refused rows go to the dead letters",
                filter.function
            );
            explain_failures(out, &filter.function);
        }
        PhysicalStep::PluginTransform(transform) => {
            let _ = writeln!(out, "├─ {}", transform.operator);
            let fields = transform.schema.fields().iter();
            let columns = fields.map(|f| format!("{}: {}", f.name(), type_name(f.data_type())));
            let _ = writeln!(out, "│    plugin function {}", transform.function);
            let _ = writeln!(out, "│    gives {}", columns.collect::<Vec<_>>().join(", "));
            explain_failures(out, &transform.function);
        }
    }
}

/// What follows when a call fails, if it is not what always follows.
fn explain_failures(out: &mut String, function: &FunctionRef) {
    if function.on_failure != FailurePolicy::Fail {
        let _ = writeln!(out, "│    on_plugin_failure: {}", function.on_failure);
    }
}
