//! Stateful functions of plugins: what of the rows they need, and the operator that calls them.

use super::lane::{OpenLane, unique_schema};
use super::{At, Compiler, internal};
use crate::logical::{GroupState, Operation};
use crate::stateful::{EventTimeColumn, Groups, StatefulOperator};
use crate::tree::event_time::event_times;
use crate::tree::{self, StreamNode};
use datafusion::arrow::datatypes::Schema;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{LogicalPlan as SqlPlan, LogicalPlanBuilder};
use pelton_core::{Error, Result, StateColumn, StateFact, StateLayout, TimeMode, VariableLayout};
use std::sync::Arc;

impl Compiler<'_> {
    pub(super) fn group_state(
        &mut self,
        lanes: Vec<OpenLane>,
        node: &StreamNode,
        step: usize,
        at: At,
    ) -> Result<Vec<OpenLane>> {
        let logical = self.logical;
        let Some(Operation::GroupState(group)) = logical.steps.get(step).map(|step| &step.operation) else {
            return Err(Error::internal("a step that calls no stateful function"));
        };
        let signature = group.stateful.signature();
        let times = event_times(&node.input);
        let time =
            times.iter().position(Option::is_some).filter(|_| signature.time_mode == TimeMode::EventTime);
        let needed = needed(&group.keys, &signature.reads, time);
        let lanes = lanes.into_iter().map(|lane| narrowed(lane, &needed)).collect::<Result<Vec<_>>>()?;
        let place = |column: &usize| needed.iter().position(|needed| needed == column);
        let places = |columns: &[usize]| columns.iter().map(place).collect::<Option<Vec<_>>>();
        let (Some(keys), Some(reads)) = (places(&group.keys), places(&signature.reads)) else {
            return Err(Error::internal("a stateful function reads columns that are not there"));
        };
        let initial = group.initial.as_ref().map(|initial| self.static_relation(&initial.rows).map(Arc::new));
        let operator = StatefulOperator::Groups(Groups {
            function: group.function.clone(),
            stateful: group.stateful.clone(),
            keys,
            reads,
            event_time: time.as_ref().and_then(place).map(|column| EventTimeColumn { column }),
            initial: initial.transpose()?,
        });
        let layout = self.state_of_function(node, group, operator.kind());
        let input = input_schema(&node.input, &needed);
        let schema = Arc::new(Schema::new(node.schema.fields().clone()));
        let lanes = self.node(vec![(lanes, input)], operator, "groups", schema, &node.schema, 0, at)?;
        self.describe(layout);
        Ok(lanes)
    }

    /// The groups and what the function keeps of each.
    fn state_of_function(&self, node: &StreamNode, group: &GroupState, kind: &str) -> StateLayout {
        let (input, schema) = (self.meanings(&node.input), node.input.schema());
        let signature = group.stateful.signature();
        let key = |column: &usize| {
            let field = schema.field(*column);
            StateColumn::new(field.name(), field.data_type())
        };
        let keys = group.keys.iter().enumerate();
        let definition =
            keys.map(|(index, column)| StateFact::new(format!("key {}", index + 1), input.column(*column)));
        let time = match signature.time_mode {
            TimeMode::None => "none",
            TimeMode::ProcessingTime => "processing time",
            TimeMode::EventTime => "event time",
        };
        let timeout = StateColumn { name: "timeout".to_owned(), data_type: time.to_owned() };
        let mut settings = vec![StateFact::new("the function", group.function.to_string())];
        // What the function makes of a column is its own business: another one is told, not refused.
        settings.extend(signature.reads.iter().map(|column| {
            let name = schema.field(*column).name();
            StateFact::new(format!("the column '{name}' that it reads"), input.column(*column))
        }));
        settings.extend(group.config.iter().cloned());
        for variable in &signature.variables {
            let ttl = variable.ttl_ms.map(|ttl_ms| format!("{ttl_ms} ms"));
            settings
                .extend(ttl.map(|ttl| StateFact::new(format!("the time to live of {}", variable.name), ttl)));
        }
        StateLayout {
            kind: kind.to_owned(),
            keys: group.keys.iter().map(key).collect(),
            values: vec![timeout],
            variables: signature.variables.iter().map(VariableLayout::of).collect(),
            definition: definition.collect(),
            settings,
            ..StateLayout::default()
        }
    }
}

/// The columns that an operator needs, ascending.
fn needed(keys: &[usize], reads: &[usize], time: Option<usize>) -> Vec<usize> {
    let mut needed: Vec<usize> = keys.iter().chain(reads).copied().chain(time).collect();
    needed.sort_unstable();
    needed.dedup();
    needed
}

/// Lets go of the columns that are not needed.
fn narrowed(mut lane: OpenLane, needed: &[usize]) -> Result<OpenLane> {
    let columns = tree::columns(&lane.plan);
    if needed.len() < columns.len() {
        let kept = needed.iter().filter_map(|column| columns.get(*column).cloned());
        let plan = LogicalPlanBuilder::from(lane.plan.clone()).project(kept.collect::<Vec<_>>());
        lane.grow(plan.and_then(LogicalPlanBuilder::build).map_err(|e| internal(&e))?, None);
    }
    Ok(lane)
}

fn input_schema(input: &SqlPlan, needed: &[usize]) -> datafusion::arrow::datatypes::SchemaRef {
    let all: &DFSchema = input.schema();
    let unique = unique_schema(all);
    Arc::new(Schema::new(needed.iter().map(|column| unique.fields()[*column].clone()).collect::<Vec<_>>()))
}
