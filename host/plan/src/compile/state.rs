//! What the state of each stateful operator consists of and what it means, as a checkpoint remembers it.
//!
//! Called where the operators are made. How entries are laid out is the operators' own business: they add it.

use super::meaning::{names, type_of};
use super::{Compiler, internal};
use crate::stateful::{AggregateCall, Dedup, DedupExpiry, JoinKind};
use crate::tree::StreamNode;
use crate::tree::event_time::group_expressions;
use crate::tree::joins::{JoinParts, LEFT, RIGHT};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Aggregate as SqlAggregate, Expr, Join, LogicalPlan as SqlPlan};
use pelton_core::{DEFINITION_WORDS, Result, StateColumn, StateFact, StateLayout};

impl Compiler<'_> {
    /// Gives the operator that was made last what its state is.
    pub(super) fn describe(&mut self, state: StateLayout) {
        if let Some(node) = self.nodes.last_mut() {
            let name = node.name.clone();
            node.layout = Some(StateLayout { name, words: DEFINITION_WORDS, ..state });
        }
    }

    /// A group: its keys, and what the functions remember of it.
    pub(super) fn state_of_groups(
        &self,
        node: &SqlAggregate,
        calls: &[AggregateCall],
        kind: &str,
    ) -> Result<StateLayout> {
        let input = self.meanings(&node.input);
        let group_keys = group_expressions(&node.group_expr);
        let (mut keys, mut definition) = (Vec::new(), Vec::new());
        for (index, key) in group_keys.iter().enumerate() {
            let field = node.schema.field(index);
            keys.push(StateColumn::new(field.name(), field.data_type()));
            definition.push(StateFact::new(format!("key {}", index + 1), input.of(key)));
        }
        if let [Expr::GroupingSet(_)] = node.group_expr.as_slice() {
            let field = node.schema.field(group_keys.len());
            keys.push(StateColumn::new(field.name(), field.data_type()));
            let sets = node.group_expr.iter().map(|sets| input.of(sets)).collect::<Vec<_>>();
            definition.push(StateFact::new("the grouping sets", sets.join(", ")));
        }
        let mut values = Vec::new();
        for (index, (call, bound)) in node.aggr_expr.iter().zip(calls).enumerate() {
            let text = input.of(call);
            let fields = bound.function.state_fields().map_err(|e| internal(&e))?;
            let numbered = fields.len() > 1;
            values.extend(fields.iter().enumerate().map(|(part, field)| {
                let name = if numbered { format!("{text}, part {}", part + 1) } else { text.clone() };
                StateColumn::new(name, field.data_type())
            }));
            definition.push(StateFact::new(format!("aggregate {}", index + 1), text));
        }
        Ok(StateLayout { kind: kind.to_owned(), keys, values, definition, ..StateLayout::default() })
    }

    /// The keys that were seen.
    pub(super) fn state_of_dedup(&self, node: &StreamNode, dedup: &Dedup) -> StateLayout {
        let (input, schema) = (self.meanings(&node.input), node.input.schema());
        let key = |column: &usize| {
            let field = schema.field(*column);
            StateColumn::new(field.name(), field.data_type())
        };
        let definition = dedup.keys.iter().enumerate();
        let definition = definition
            .map(|(index, column)| StateFact::new(format!("key {}", index + 1), input.column(*column)));
        let mut layout = StateLayout {
            kind: "dedup".to_owned(),
            keys: dedup.keys.iter().map(key).collect(),
            definition: definition.collect(),
            ..StateLayout::default()
        };
        if let DedupExpiry::Within { delay_ms } = dedup.expiry {
            layout.kind = "dedup_within_watermark".to_owned();
            let expires = StateColumn::new("expires", &DataType::Int64);
            layout.values.push(expires);
            layout.settings.push(StateFact::new("the watermark's delay", format!("{delay_ms} ms")));
        }
        layout
    }

    /// The rows of both sides, by the keys that they are joined by.
    pub(super) fn state_of_join(
        &self,
        join: &Join,
        parts: &JoinParts,
        kind: JoinKind,
    ) -> Result<StateLayout> {
        let sides = [self.meanings(&join.left), self.meanings(&join.right)];
        let plans: [&SqlPlan; 2] = [&join.left, &join.right];
        let (mut keys, mut definition) = (Vec::new(), Vec::new());
        for (index, (left, right, null_safe)) in parts.keys.iter().enumerate() {
            let data_type = type_of(left, plans[LEFT].schema()).map_err(|e| internal(&e))?;
            let (left, right) = (sides[LEFT].of(left), sides[RIGHT].of(right));
            let equals = if *null_safe { "<=>" } else { "=" };
            keys.push(StateColumn::new(&left, &data_type));
            definition.push(StateFact::new(format!("key {}", index + 1), format!("{left} {equals} {right}")));
        }
        let mut values = Vec::new();
        for (side, which) in ["left", "right"].into_iter().enumerate() {
            let columns = plans[side].schema().fields().iter().zip(names(plans[side]));
            values.extend(
                columns.map(|(field, name)| StateColumn::new(format!("{which} {name}"), field.data_type())),
            );
            let columns = sides[side].columns().iter().enumerate();
            definition.extend(columns.map(|(index, text)| {
                StateFact::new(format!("column {} of the {which} rows", index + 1), text.to_string())
            }));
        }
        let pairs = join.left.schema().join(join.right.schema()).map_err(|e| internal(&e))?;
        let both = self.conditions(&parts.both, &pairs, &sides.map(|side| side.columns().to_vec()).concat());
        definition.extend(both.map(|text| StateFact::new("the condition", text)));
        // Every kind but semi keeps the same of its rows; a left semi join forgets those that have matched.
        let semi = if kind == JoinKind::LeftSemi { "the left ones that match nothing yet" } else { "all" };
        definition.push(StateFact::new("the rows that are kept", semi));
        let mut settings = vec![StateFact::new("the join", kind_text(kind))];
        for (side, which) in ["left", "right"].into_iter().enumerate() {
            let own = self.meanings(plans[side]);
            let text = self.conditions(&parts.one_sided[side], plans[side].schema(), own.columns());
            settings.extend(text.map(|text| StateFact::new(format!("the condition on {which} rows"), text)));
        }
        Ok(StateLayout {
            kind: "join".to_owned(),
            keys,
            values,
            definition,
            settings,
            ..StateLayout::default()
        })
    }

    fn conditions(&self, conditions: &[Expr], schema: &DFSchema, columns: &[Expr]) -> Option<String> {
        let meanings = super::meaning::Meanings::new(schema, columns.to_vec());
        let texts: Vec<String> = conditions.iter().map(|condition| meanings.of(condition)).collect();
        (!texts.is_empty()).then(|| texts.join(" AND "))
    }
}

/// How many rows have been given.
pub(super) fn state_of_limit(count: u64) -> StateLayout {
    StateLayout {
        kind: "limit".to_owned(),
        values: vec![StateColumn::new("rows", &DataType::Int64)],
        settings: vec![StateFact::new("the limit", format!("{count} rows"))],
        ..StateLayout::default()
    }
}

fn kind_text(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "inner",
        JoinKind::LeftOuter => "left outer",
        JoinKind::RightOuter => "right outer",
        JoinKind::FullOuter => "full outer",
        JoinKind::LeftSemi => "left semi",
        JoinKind::LeftAnti => "left anti",
    }
}
