//! The state of an operator as rows for a person. Called by `pelton state show`; changes nothing.

use crate::stateful::operator;
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result, StateLayout, StateStore};
use pelton_plan::{PhysicalPlan, expression_name};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Gives the state of the plan's operator of this name to `each`, some rows at a time, in the order of its keys within a
/// shard, shard by shard. The first argument of `each` is the part of the operator that the rows belong to: `left` and
/// `right` of a join; empty for operators of one part. If it breaks, the rest of that part in that shard is not read, and no
/// further shard once it has broken for all parts. Columns that are expressions have the names that people write.
///
/// The state must have been written by this plan: see [`state_layouts`].
pub fn show_state(
    plan: &PhysicalPlan,
    name: &str,
    state: &mut dyn StateStore,
    each: &mut dyn FnMut(&str, RecordBatch) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let Some(node) = plan.nodes.iter().find(|node| node.name == name) else {
        let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        let near = match names.is_empty() {
            true => "; it has none".to_owned(),
            false => did_you_mean(name, names.iter().copied()),
        };
        return Err(Error::invalid(format!("the query has no stateful operator '{name}'{near}"))
            .hint("`pelton state ls` lists them"));
    };
    let operator = operator(node)?;
    let (mut seen, mut over) = (BTreeSet::new(), BTreeSet::new());
    for shard in state.shards() {
        let mut each = |part: &str, rows: RecordBatch| {
            let flow = each(part, named(&rows)?)?;
            seen.insert(part.to_owned());
            if flow.is_break() {
                over.insert(part.to_owned());
            }
            Ok(flow)
        };
        operator.show(name, shard, &mut each).map_err(|e| e.context(format!("operator '{name}'")))?;
        // A join has two parts, and a shard may have rows of one alone.
        let parts = if seen.contains("") { 1 } else { 2 };
        if over.len() == parts {
            break;
        }
    }
    Ok(())
}

fn named(rows: &RecordBatch) -> Result<RecordBatch> {
    let schema = rows.schema();
    let fields = schema.fields().iter();
    let fields = fields.map(|field| Field::clone(field).with_name(expression_name(field.name())));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new_with_options(
        schema,
        rows.columns().to_vec(),
        &arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.num_rows())),
    )?)
}

/// What the state of each of the plan's operators consists of, in the plan's order; those that keep none are left out.
pub fn state_layouts(plan: &PhysicalPlan) -> Result<Vec<StateLayout>> {
    let mut layouts = Vec::new();
    for node in &plan.nodes {
        if let Some(layout) = &node.layout {
            layouts.push(StateLayout { form: operator(node)?.state_form(), ..layout.clone() });
        }
    }
    Ok(layouts)
}
