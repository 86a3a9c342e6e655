//! A plan as a person reads it: from the source down to the sink.

use datafusion::physical_plan::displayable;
use pelton_core::types::type_name;
use pelton_plan::{PhysicalPlan, PhysicalStep};
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
    for step in &plan.lanes[0].steps {
        step_lines(&mut out, step);
    }
    let _ = writeln!(out, "├─ result");
    for field in plan.schema.fields() {
        let nullable = if field.is_nullable() { "" } else { " NOT NULL" };
        let _ = writeln!(out, "│    {}: {}{nullable}", field.name(), type_name(field.data_type()));
    }
    let _ = writeln!(out, "├─ sink {}", plan.sink);
    let _ = writeln!(out, "├─ output mode: {}", plan.output_mode);
    let _ = writeln!(out, "├─ trigger: {}", plan.trigger);
    let _ = writeln!(out, "├─ time zone: {}", plan.time_zone);
    let _ = writeln!(out, "└─ state: none");
    out
}

fn step_lines(out: &mut String, step: &PhysicalStep) {
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
        PhysicalStep::Watermark(_) | PhysicalStep::StaticJoin(_) => {}
        PhysicalStep::PluginFilter(filter) => {
            let _ = writeln!(out, "├─ {}", filter.operator);
            let _ = writeln!(
                out,
                "│    keeps rows for which {}() is true; refused rows go to the dead letters",
                filter.function
            );
        }
        PhysicalStep::PluginTransform(transform) => {
            let _ = writeln!(out, "├─ {}", transform.operator);
            let fields = transform.schema.fields().iter();
            let columns = fields.map(|f| format!("{}: {}", f.name(), type_name(f.data_type())));
            let _ = writeln!(out, "│    plugin function {}", transform.function);
            let _ = writeln!(out, "│    gives {}", columns.collect::<Vec<_>>().join(", "));
        }
    }
}
