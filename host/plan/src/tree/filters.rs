//! Moves conditions down, as Spark's optimizer does, because it shows: a condition below the watermark keeps rows from
//! advancing it, and one below a stateful operator keeps them out of its state.
//!
//! Only conditions whose value is a matter of the row move, in their order; one that names the event time stays above
//! its watermark. Within stateless stretches nothing is gained, so plans without event time and state are left alone.

use super::joins::{JoinParts, LEFT, RIGHT};
use super::nodes::{StreamNode, StreamOp, stream_node};
use super::{conjuncts, event_time};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::expr_rewriter::replace_col;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Filter, Join, JoinType, LogicalPlan as SqlPlan, LogicalPlanBuilder, Operator,
    Projection, Union, Unnest,
};
use std::collections::HashMap;
use std::sync::Arc;

/// The plan with its conditions as low as they may go.
pub(crate) fn push_down(plan: SqlPlan) -> Result<SqlPlan> {
    push(plan, Vec::new())
}

/// The plan with further conditions on its result.
fn push(plan: SqlPlan, mut above: Vec<Expr>) -> Result<SqlPlan> {
    match plan {
        SqlPlan::Filter(filter) => {
            let mut all = conjuncts(&filter.predicate);
            all.append(&mut above);
            push(Arc::unwrap_or_clone(filter.input), all)
        }
        SqlPlan::Projection(node) => through_projection(node, above),
        SqlPlan::SubqueryAlias(node) => {
            let inner = super::columns(&node.input);
            let outer = node.schema.columns();
            let map: HashMap<Column, Expr> = outer.into_iter().zip(inner).collect();
            let below = above.into_iter().map(|c| substitute(c, &map)).collect::<Result<Vec<_>>>()?;
            let input = push(Arc::unwrap_or_clone(node.input), below)?;
            LogicalPlanBuilder::from(input).alias(node.alias)?.build()
        }
        SqlPlan::Extension(_) => through_stream_node(plan, above),
        SqlPlan::Aggregate(node) => through_aggregate(node, above),
        SqlPlan::Join(node) => through_join(node, above),
        SqlPlan::Union(node) => through_union(node, above),
        SqlPlan::Distinct(Distinct::All(input)) => {
            let (down, stay) = split(above, |_| true);
            let input = push(Arc::unwrap_or_clone(input), down)?;
            filtered(SqlPlan::Distinct(Distinct::All(Arc::new(input))), stay)
        }
        SqlPlan::Unnest(node) => through_unnest(node, above),
        SqlPlan::Sort(mut node) => {
            let (down, stay) = split(above, |_| true);
            node.input = Arc::new(push(Arc::unwrap_or_clone(node.input), down)?);
            filtered(SqlPlan::Sort(node), stay)
        }
        other => {
            let inputs: Vec<SqlPlan> = other
                .inputs()
                .into_iter()
                .map(|input| push(input.clone(), Vec::new()))
                .collect::<Result<_>>()?;
            let same = match inputs.is_empty() {
                true => other,
                false => other.with_new_exprs(other.expressions(), inputs)?,
            };
            filtered(same, above)
        }
    }
}

/// Conditions that may go down, and the others. What comes behind a condition whose value is no matter of the row alone
/// stays behind it.
fn split(conditions: Vec<Expr>, may: impl Fn(&Expr) -> bool) -> (Vec<Expr>, Vec<Expr>) {
    let (mut down, mut stay) = (Vec::new(), Vec::new());
    let mut barred = false;
    for condition in conditions {
        barred |= condition.is_volatile();
        if !barred && may(&condition) { down.push(condition) } else { stay.push(condition) }
    }
    (down, stay)
}

fn filtered(plan: SqlPlan, conditions: Vec<Expr>) -> Result<SqlPlan> {
    match conjunction(conditions) {
        Some(predicate) => Ok(SqlPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?)),
        None => Ok(plan),
    }
}

fn substitute(condition: Expr, map: &HashMap<Column, Expr>) -> Result<Expr> {
    let replaced = condition.transform_up(|expr| match &expr {
        Expr::Column(column) => match map.get(column) {
            Some(meaning) => Ok(Transformed::yes(meaning.clone().unalias())),
            None => Ok(Transformed::no(expr)),
        },
        _ => Ok(Transformed::no(expr)),
    })?;
    Ok(replaced.data)
}

fn through_projection(node: Projection, above: Vec<Expr>) -> Result<SqlPlan> {
    let map: HashMap<Column, Expr> =
        node.schema.columns().into_iter().zip(node.expr.iter().cloned()).collect();
    let fixed = node.expr.iter().all(|expr| !expr.is_volatile());
    let (down, stay) = split(above, |_| fixed);
    let down = down.into_iter().map(|c| substitute(c, &map)).collect::<Result<Vec<_>>>()?;
    let input = push(Arc::unwrap_or_clone(node.input), down)?;
    filtered(SqlPlan::Projection(Projection::try_new(node.expr, Arc::new(input))?), stay)
}

fn through_stream_node(plan: SqlPlan, above: Vec<Expr>) -> Result<SqlPlan> {
    let Some(node) = stream_node(&plan) else { return filtered(plan, above) };
    let (down, stay) = match &node.op {
        StreamOp::Step(_) => split(above, |_| true),
        StreamOp::Watermark { column, .. } => {
            let (qualifier, field) = node.schema.qualified_field(*column);
            let time = Column::from((qualifier, field));
            split(above, |condition| !condition.column_refs().contains(&time))
        }
        StreamOp::Dedup { .. }
        | StreamOp::PluginFilter(_)
        | StreamOp::PluginTransform(_)
        | StreamOp::GroupState(_) => (Vec::new(), above),
    };
    let input = push(node.input.clone(), down)?;
    let schema = node.schema.clone();
    filtered(StreamNode { op: node.op.clone(), input, schema }.plan(), stay)
}

/// Conditions on keys, except on windows: those have a value only above.
fn through_aggregate(node: Aggregate, above: Vec<Expr>) -> Result<SqlPlan> {
    let keys = match node.group_expr.as_slice() {
        [Expr::GroupingSet(_)] => Vec::new(),
        keys => keys.to_vec(),
    };
    let map: HashMap<Column, Expr> = node.schema.columns().into_iter().zip(keys).collect();
    let is_key =
        |column: &&Column| map.get(*column).is_some_and(|key| super::windows::window_call(key).is_none());
    let (down, stay) = split(above, |condition| {
        let refs = condition.column_refs();
        !refs.is_empty() && refs.iter().all(is_key)
    });
    let down = down.into_iter().map(|c| substitute(c, &map)).collect::<Result<Vec<_>>>()?;
    let input = push(Arc::unwrap_or_clone(node.input), down)?;
    let schema = node.schema.clone();
    let aggregate = Aggregate::try_new_with_schema(Arc::new(input), node.group_expr, node.aggr_expr, schema)?;
    filtered(SqlPlan::Aggregate(aggregate), stay)
}

fn through_join(node: Join, above: Vec<Expr>) -> Result<SqlPlan> {
    use JoinType::{Full, Inner, Left, LeftAnti, LeftSemi, Right};
    let (left_schema, right_schema) = (node.left.schema().clone(), node.right.schema().clone());
    let within = |condition: &Expr, schema: &datafusion::common::DFSchemaRef| {
        let refs = condition.column_refs();
        !refs.is_empty() && refs.iter().all(|column| schema.has_column(column))
    };
    let mut sides = [Vec::new(), Vec::new()];
    // Conditions above the join.
    let preserves = |side: usize| match node.join_type {
        Inner => true,
        Left | LeftSemi | LeftAnti => side == LEFT,
        Right => side == RIGHT,
        _ => false,
    };
    let (down, stay) = split(above, |condition| {
        (preserves(LEFT) && within(condition, &left_schema))
            || (preserves(RIGHT) && within(condition, &right_schema))
    });
    for condition in down {
        let side = if within(&condition, &left_schema) { LEFT } else { RIGHT };
        sides[side].push(condition);
    }
    // Conditions of ON: those of a side whose unmatched rows are not kept.
    let parts = JoinParts::of(&node);
    let drops = |side: usize| match node.join_type {
        Inner | LeftSemi => true,
        Left | LeftAnti => side == RIGHT,
        Right => side == LEFT,
        _ => false,
    };
    let mut kept = parts.both.clone();
    for side in [LEFT, RIGHT] {
        let target = if drops(side) { &mut sides[side] } else { &mut kept };
        target.extend(parts.one_sided[side].iter().cloned());
        if drops(side) && node.join_type != Full && !node.null_aware {
            sides[side].extend(not_null(&parts, side));
        }
    }
    let [left, right] = sides;
    let left = push(Arc::unwrap_or_clone(node.left), left)?;
    let right = push(Arc::unwrap_or_clone(node.right), right)?;
    let on = parts.keys.into_iter().map(|(left, right, null_safe)| {
        let op = if null_safe { Operator::IsNotDistinctFrom } else { Operator::Eq };
        Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
    });
    let join = Join {
        left: Arc::new(left),
        right: Arc::new(right),
        filter: conjunction(on.chain(kept)),
        on: Vec::new(),
        ..node
    };
    filtered(SqlPlan::Join(join), stay)
}

/// `IS NOT NULL` for every column of the side that an equality reads: NULL matches nothing. (Spark infers the same.)
fn not_null(parts: &JoinParts, side: usize) -> Vec<Expr> {
    let mut found: Vec<Expr> = Vec::new();
    for (left, right, _) in parts.keys.iter().filter(|(_, _, null_safe)| !null_safe) {
        let key = if side == LEFT { left } else { right };
        if let Expr::Column(_) = key {
            let condition = key.clone().is_not_null();
            if !found.contains(&condition) {
                found.push(condition);
            }
        }
    }
    found
}

/// Conditions on columns that are not unnested.
fn through_unnest(mut node: Unnest, above: Vec<Expr>) -> Result<SqlPlan> {
    let inner = node.input.schema().columns();
    let lists: Vec<usize> = node.list_type_columns.iter().map(|(index, _)| *index).collect();
    let kept = node
        .schema
        .columns()
        .into_iter()
        .zip(&node.dependency_indices)
        .filter(|(_, index)| !lists.contains(index) && !node.struct_type_columns.contains(index));
    let map: HashMap<Column, Expr> =
        kept.filter_map(|(outer, index)| Some((outer, Expr::Column(inner.get(*index)?.clone())))).collect();
    let (down, stay) =
        split(above, |condition| condition.column_refs().iter().all(|column| map.contains_key(*column)));
    let down = down.into_iter().map(|c| substitute(c, &map)).collect::<Result<Vec<_>>>()?;
    node.input = Arc::new(push(Arc::unwrap_or_clone(node.input), down)?);
    filtered(SqlPlan::Unnest(node), stay)
}

fn through_union(node: Union, above: Vec<Expr>) -> Result<SqlPlan> {
    let outer = node.schema.columns();
    let (down, stay) = split(above, |_| true);
    let inputs = node.inputs.iter().map(|input| {
        let inner = input.schema().columns();
        let map: HashMap<&Column, &Column> = outer.iter().zip(&inner).collect();
        let down = down.iter().map(|c| replace_col(c.clone(), &map)).collect::<Result<Vec<_>>>()?;
        push(input.as_ref().clone(), down).map(Arc::new)
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    filtered(SqlPlan::Union(Union { inputs, schema: node.schema }), stay)
}

/// Whether moving conditions can show: there is event time or state in the plan.
pub(crate) fn shows(plan: &SqlPlan) -> bool {
    let mut shows = false;
    let _ = plan.apply(|node| {
        shows |= match node {
            SqlPlan::Aggregate(_) | SqlPlan::Join(_) | SqlPlan::Distinct(_) => true,
            SqlPlan::Extension(_) => stream_node(node)
                .is_some_and(|n| matches!(n.op, StreamOp::Watermark { .. } | StreamOp::Dedup { .. })),
            _ => event_time::event_times(node).iter().any(Option::is_some),
        };
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    });
    shows
}
