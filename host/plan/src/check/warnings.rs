//! What may run and yet does not do what it seems to: told before the start.

use crate::logical::LogicalPlan;
use crate::tree;
use crate::tree::joins::{JoinParts, JoinTimes, LEFT, RIGHT};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{JoinType, LogicalPlan as SqlPlan};

/// Sentences about queries that Spark accepts, but that can never give some of their rows.
pub fn warnings(plan: &LogicalPlan) -> Vec<String> {
    let mut warnings = Vec::new();
    let _ = plan.root.apply(|node| {
        if let SqlPlan::Join(join) = node {
            let streams = |side| tree::is_streaming(side, &|name| plan.is_source(name));
            if streams(&join.left) && streams(&join.right) {
                let times = JoinTimes::of(join, &JoinParts::of(join));
                warnings.extend(never_given(join.join_type, &times));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    warnings
}

/// Unmatched rows of an outer side come out when they leave the state; without an end they never do.
fn never_given(kind: JoinType, times: &JoinTimes) -> Vec<String> {
    let keeps: &[usize] = match kind {
        JoinType::Left => &[LEFT],
        JoinType::Right => &[RIGHT],
        JoinType::Full => &[LEFT, RIGHT],
        _ => &[],
    };
    let ends = |side: usize| {
        times.key.is_some() || (times.column(side).is_some() && times.bounds_ms[side].is_some())
    };
    let warning = |side: &usize| {
        let (this, other) = if *side == LEFT { ("left", "right") } else { ("right", "left") };
        format!(
            "the {} join never gives rows of its {this} side that match nothing, and keeps them all in its state: \
             give the {this} side a watermark and bound it by the {other} side's event time",
            super::joins::name(kind)
        )
    };
    keeps.iter().filter(|side| !ends(**side)).map(warning).collect()
}
