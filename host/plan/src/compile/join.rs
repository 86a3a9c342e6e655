//! Joins: of two streams to a stateful operator, of a stream and a table to a step of the lane.

use super::lane::{OpenLane, unique_schema};
use super::{At, Compiler, internal};
use crate::physical::PhysicalStep;
use crate::stateful::{
    EventTimeColumn, JoinExpiry, JoinKey, JoinKind, JoinSide, StatefulOperator, StaticJoin, StreamJoin,
};
use crate::tree::joins::{JoinParts, JoinTimes, LEFT, RIGHT};
use datafusion::common::DFSchema;
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, Join, JoinType};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use pelton_core::{Error, Result};
use std::sync::Arc;

type Bound = Arc<dyn PhysicalExpr>;

impl Compiler<'_> {
    pub(super) fn join(&mut self, join: &Join, at: At) -> Result<Vec<OpenLane>> {
        match (self.is_streaming(&join.left), self.is_streaming(&join.right)) {
            (true, true) => self.streams_join(join, at),
            (stream_is_left, _) => self.static_join(join, stream_is_left, at),
        }
    }

    fn streams_join(&mut self, join: &Join, at: At) -> Result<Vec<OpenLane>> {
        let parts = JoinParts::of(join);
        let times = JoinTimes::of(join, &parts);
        let schemas = [join.left.schema(), join.right.schema()];
        let side = |side: usize| -> Result<JoinSide> {
            let event_time = times.column(side).map(|column| EventTimeColumn { column });
            let expiry = match (times.key, event_time, times.bounds_ms[side]) {
                (Some(key), ..) => JoinExpiry::Key(key),
                (None, Some(column), Some(offset_ms)) => JoinExpiry::Value { column, offset_ms },
                _ => JoinExpiry::Never,
            };
            let condition = condition(&parts.one_sided[side], schemas[side])?;
            Ok(JoinSide { condition, event_time, expiry })
        };
        let kind = kind(join.join_type)?;
        let layout = self.state_of_join(join, &parts, kind)?;
        let operator = StatefulOperator::Join(StreamJoin {
            kind,
            keys: keys(&parts, join)?,
            condition: condition(&parts.both, &joined(join)?)?,
            sides: [side(LEFT)?, side(RIGHT)?],
        });
        let ports = vec![
            (self.lanes(&join.left, at)?, unique_schema(schemas[LEFT])),
            (self.lanes(&join.right, at)?, unique_schema(schemas[RIGHT])),
        ];
        let schema = unique_schema(&join.schema);
        let lanes = self.node(ports, operator, "join", schema, &join.schema, times.output_offset_ms(), at)?;
        self.describe(layout);
        Ok(lanes)
    }

    fn static_join(&mut self, join: &Join, stream_is_left: bool, at: At) -> Result<Vec<OpenLane>> {
        let parts = JoinParts::of(join);
        let (stream, table) =
            if stream_is_left { (&join.left, &join.right) } else { (&join.right, &join.left) };
        let table = Arc::new(self.static_relation(table)?);
        let all = [&parts.one_sided[LEFT][..], &parts.one_sided[RIGHT], &parts.both].concat();
        let pairs = joined(join)?;
        let operator = self.node_name("join", at);
        let mut lanes = self.lanes(stream, at)?;
        for lane in &mut lanes {
            lane.close(self)?;
            let schema = unique_schema(&join.schema);
            lane.steps.push(PhysicalStep::StaticJoin(StaticJoin {
                operator: operator.clone(),
                kind: kind(join.join_type)?,
                stream_is_left,
                keys: keys(&parts, join)?,
                condition: condition(&all, &pairs)?,
                null_aware: join.null_aware,
                table: table.clone(),
                schema: schema.clone(),
            }));
            lane.reopen(&schema, &join.schema)?;
        }
        Ok(lanes)
    }
}

/// Left columns then right columns, whatever the join gives of them.
fn joined(join: &Join) -> Result<DFSchema> {
    join.left.schema().join(join.right.schema()).map_err(|e| internal(&e))
}

fn kind(join_type: JoinType) -> Result<JoinKind> {
    Ok(match join_type {
        JoinType::Inner => JoinKind::Inner,
        JoinType::Left => JoinKind::LeftOuter,
        JoinType::Right => JoinKind::RightOuter,
        JoinType::Full => JoinKind::FullOuter,
        JoinType::LeftSemi => JoinKind::LeftSemi,
        JoinType::LeftAnti => JoinKind::LeftAnti,
        other => return Err(Error::invalid(format!("a {other} join is not possible on a stream"))),
    })
}

fn keys(parts: &JoinParts, join: &Join) -> Result<Vec<JoinKey>> {
    let key = |(left, right, null_safe): &(Expr, Expr, bool)| {
        Ok(JoinKey {
            left: bound(left, join.left.schema())?,
            right: bound(right, join.right.schema())?,
            null_safe: *null_safe,
        })
    };
    parts.keys.iter().map(key).collect()
}

fn condition(conditions: &[Expr], schema: &DFSchema) -> Result<Option<Bound>> {
    conjunction(conditions.to_vec()).map(|all| bound(&all, schema)).transpose()
}

fn bound(expr: &Expr, schema: &DFSchema) -> Result<Bound> {
    let bound =
        create_physical_expr(expr, schema, &ExecutionProps::new(), &PhysicalPlanningContext::default());
    bound.and_then(crate::physical::strict_expr).map_err(|e| internal(&e))
}
