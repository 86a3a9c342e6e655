//! Rules for stateful functions of plugins. Spark's, as its Scala interface has them.

use super::{At, Checker, Rule};
use crate::logical::{GroupState, Operation};
use crate::tree::event_time::event_times;
use crate::tree::{StreamOp, stream_node};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan as SqlPlan;
use pelton_core::{GroupForm, OutputMode, TimeMode};

/// The way out where there are several functions: one change alone leads to the next refusal.
const ALL_APPEND: &str = "set output_mode: append for the query and in the step of each of these functions, or write a query for each";

impl Checker<'_> {
    /// A stateful function: what its rows are and what goes to the sink must go together; timeouts need their time.
    pub(super) fn group_state(&mut self, node: &SqlPlan, step: usize, at: At) {
        let Some((form, time_mode, mode)) = self.group_at(step).map(|group| {
            let signature = group.stateful.signature();
            (signature.form, signature.time_mode, group.output_mode)
        }) else {
            return;
        };
        match form {
            GroupForm::MapGroups => self.map_groups(at),
            GroupForm::FlatMapGroups => self.flat_map_groups(mode, at),
            GroupForm::Processor => {}
        }
        self.stateful_over_updates(node, at);
        self.several_groups(at);
        let Some(input) = stream_node(node).map(|own| &own.input) else { return };
        let times = event_times(input).iter().flatten().count();
        if time_mode != TimeMode::EventTime {
            return;
        }
        // A processor without a watermark is none of Spark's errors: its timers are never due.
        if times == 0 && form != GroupForm::Processor {
            self.refuse(
                at,
                Rule::GroupState,
                "timeouts by event time need a watermark, and none of the function's input columns carries one",
                "give the source a watermark, for example watermark: {column: ts, delay: 10 minutes}",
            );
        }
        self.several_times(times, at);
    }

    fn group_at(&self, step: usize) -> Option<&GroupState> {
        match &self.plan.steps.get(step)?.operation {
            Operation::GroupState(group) => Some(group),
            _ => None,
        }
    }

    fn map_groups(&mut self, at: At) {
        let mode = self.plan.output_mode;
        if mode != OutputMode::Update && (mode == OutputMode::Append || self.aggregates(&self.plan.root) > 0)
        {
            self.refuse(
                at,
                Rule::GroupState,
                format!(
                    "a function that maps each group to one row gives a group again and again, which output_mode {mode} \
                     cannot say"
                ),
                match self.groups().len() {
                    0 | 1 => "use output_mode: update, or a function of the form flat-map-groups",
                    _ => {
                        "write a query for each of the functions, or make it one of the form flat-map-groups with \
                         output_mode: append"
                    }
                },
            );
        }
    }

    fn flat_map_groups(&mut self, own: OutputMode, at: At) {
        let mode = self.plan.output_mode;
        if self.aggregates(&self.plan.root) > 0 {
            if own == OutputMode::Update {
                self.refuse(
                    at,
                    Rule::GroupState,
                    "a function whose rows take the place of earlier ones (output_mode: update) and an aggregation are \
                     not possible in one query",
                    "set output_mode: append in the step, if its rows are final",
                );
            }
        } else if own != mode && mode != OutputMode::Complete {
            self.refuse(
                at,
                Rule::GroupState,
                format!(
                    "the function gives its rows in output_mode {own}, but the query has output_mode {mode}"
                ),
                match self.groups().len() {
                    0 | 1 => {
                        format!("use output_mode: {own} for the query, or output_mode: {mode} in the step")
                    }
                    _ => ALL_APPEND.to_owned(),
                },
            );
        }
    }

    /// Several functions over groups see each other's rows once only if all rows are final.
    fn several_groups(&mut self, at: At) {
        let groups = self.groups();
        let all_append = self.plan.output_mode == OutputMode::Append
            && groups.iter().all(|group| group.output_mode == OutputMode::Append);
        if groups.len() > 1 && !all_append {
            self.refuse(
                at,
                Rule::GroupState,
                "several functions over groups are possible in one query only if all of them, and the query, are in \
                 output_mode append",
                ALL_APPEND,
            );
        }
    }

    /// The functions over groups that have an output mode: processors have none.
    fn groups(&self) -> Vec<&GroupState> {
        let mut groups = Vec::new();
        let _ = self.plan.root.apply(|node| {
            if let Some(StreamOp::GroupState(step)) = stream_node(node).map(|own| &own.op)
                && let Some(group) = self.group_at(*step)
                && group.stateful.signature().form != GroupForm::Processor
            {
                groups.push(group);
            }
            Ok(TreeNodeRecursion::Continue)
        });
        groups
    }
}
