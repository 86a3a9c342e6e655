//! GROUP BY to a stateful operator: keys, times, arguments and filters are computed in the lane, as columns; the
//! operator reads columns only.

use super::lane::{OpenLane, unique_schema};
use super::{At, Compiler, internal};
use crate::functions::window::{DURATION_MICROS, SESSION_WINDOW, WINDOW_TIME, WindowSpec};
use crate::stateful::{
    Aggregate, AggregateCall, COMPUTED, EventTimeKey, GroupKey, StatefulOperator, TimeWindow,
};
use crate::tree;
use crate::tree::event_time::{event_times, group_expressions, of_expression};
use crate::tree::windows::window_call;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Aggregate as SqlAggregate, Expr, ExprSchemable, LogicalPlan as SqlPlan, LogicalPlanBuilder, cast, col,
    lit,
};
use datafusion::physical_expr::aggregate::LoweredAggregateBuilder;
use datafusion::physical_expr::expressions::Column as PhysicalColumn;
use pelton_core::{Error, Result};
use std::sync::Arc;

/// The columns of an aggregation's input, by name, while they are collected.
#[derive(Default)]
struct Columns(Vec<Expr>);

impl Columns {
    /// Adds a column and gives its position.
    fn add(&mut self, expr: Expr) -> usize {
        let index = self.0.len();
        self.0.push(expr.unalias().alias(name(index)));
        index
    }
}

fn name(index: usize) -> String {
    format!("{COMPUTED}{index}")
}

fn column(index: usize) -> Arc<dyn datafusion::physical_expr::PhysicalExpr> {
    Arc::new(PhysicalColumn::new(&name(index), index))
}

impl Compiler<'_> {
    pub(super) fn aggregate(&mut self, node: &SqlAggregate, at: At) -> Result<Vec<OpenLane>> {
        let lanes = self.lanes(&node.input, at)?;
        let keys = group_expressions(&node.group_expr);
        let mut columns = Columns::default();
        let (mut group_keys, window) = self.keys(&keys, &node.input, &mut columns)?;
        let placed = |refused: Error| self.placed(refused, at);
        let sets = grouping_sets(&node.group_expr, &keys).map_err(placed)?;
        let set_column = sets.as_ref().map(|_| columns.add(lit(ScalarValue::Null)));
        group_keys.extend(set_column.map(|index| GroupKey::Expr(column(index))));
        let calls = node.aggr_expr.iter().map(|call| arguments(call, &mut columns));
        let calls = calls.collect::<Result<Vec<_>>>().map_err(placed)?;
        if self.keeps_late_rows() {
            // Dead letters show the whole row.
            let unique = unique_schema(node.input.schema());
            let all = tree::columns(&node.input).into_iter().zip(unique.fields());
            columns.0.extend(all.map(|(column, field)| column.alias(field.name())));
        }
        let mut lanes = self.computed(lanes, &columns.0, sets.as_deref(), set_column, &keys, node, at)?;
        let Some(first) = lanes.first() else { return Err(Error::internal("an aggregation without input")) };
        let input = first.plan.schema().clone();
        let functions = calls.iter().map(|call| bound(call, &input)).collect::<Result<Vec<_>>>()?;
        let is_session = matches!(window, Some(TimeWindow::Session { .. }));
        let (kind, word) =
            if is_session { ("session_window", "session") } else { ("aggregate", "aggregate") };
        let layout = self.state_of_groups(node, &functions, kind)?;
        let operator = StatefulOperator::Aggregate(Aggregate {
            keys: group_keys,
            aggregates: functions,
            window,
            event_time: event_time_key(&keys, &node.input),
            output_mode: self.logical.output_mode,
        });
        let port = unique_schema(&input);
        let schema = unique_schema(&node.schema);
        let ports = vec![(std::mem::take(&mut lanes), port)];
        let lanes = self.node(ports, operator, word, schema, &node.schema, 0, at)?;
        self.describe(layout);
        Ok(lanes)
    }

    /// The keys as columns, and the time window among them.
    fn keys(
        &self,
        keys: &[Expr],
        input: &SqlPlan,
        columns: &mut Columns,
    ) -> Result<(Vec<GroupKey>, Option<TimeWindow>)> {
        let mut window = None;
        let mut group_keys = Vec::with_capacity(keys.len());
        for key in keys {
            match window_call(key) {
                Some(call) => {
                    window = Some(self.window(call, input, columns)?);
                    group_keys.push(GroupKey::Window);
                }
                None => group_keys.push(GroupKey::Expr(column(columns.add(key.clone())))),
            }
        }
        Ok((group_keys, window))
    }

    fn window(&self, call: &ScalarFunction, input: &SqlPlan, columns: &mut Columns) -> Result<TimeWindow> {
        let function = |name: &str| {
            self.logical.session.scalar(name).ok_or_else(|| Error::internal(format!("no function {name}")))
        };
        let [time, rest @ ..] = call.args.as_slice() else {
            return Err(Error::internal("a window without a time"));
        };
        let time = match time.get_type(input.schema()).map_err(|e| internal(&e))? {
            // The window of an earlier aggregation counts as its last moment.
            DataType::Struct(_) => function(WINDOW_TIME)?.call(vec![time.clone()]),
            _ => time.clone(),
        };
        let time = column(columns.add(time));
        if call.func.name() == SESSION_WINDOW {
            let gap =
                rest.first().cloned().ok_or_else(|| Error::internal("a session window without a gap"))?;
            let gap_us = column(columns.add(function(DURATION_MICROS)?.call(vec![gap])));
            return Ok(TimeWindow::Session { time, gap_us });
        }
        let WindowSpec { size_us, slide_us, start_us } = WindowSpec::of(rest).map_err(|e| internal(&e))?;
        Ok(TimeWindow::Sliding { time, size_us, slide_us, start_us })
    }

    /// Puts the columns on top of the lanes; of ROLLUP and the like once for every set of keys.
    #[allow(clippy::too_many_arguments, reason = "what a projection over every set of keys needs")]
    fn computed(
        &self,
        lanes: Vec<OpenLane>,
        columns: &[Expr],
        sets: Option<&[Vec<bool>]>,
        set_column: Option<usize>,
        keys: &[Expr],
        node: &SqlAggregate,
        at: At,
    ) -> Result<Vec<OpenLane>> {
        let Some((sets, set_column)) = sets.zip(set_column) else {
            return lanes.into_iter().map(|lane| projected(lane, columns.to_vec(), at)).collect();
        };
        let id_type = node.schema.field(keys.len()).data_type().clone();
        let of_set = |set: &Vec<bool>| {
            let mut columns = columns.to_vec();
            // A key is one column, but a window is none that could be left out: see `grouping_sets`.
            let positions = key_columns(keys);
            for ((key, kept), position) in keys.iter().zip(set).zip(positions) {
                if !kept {
                    let data_type = key.get_type(node.input.schema()).map_err(|e| internal(&e))?;
                    let null = ScalarValue::try_from(&data_type).map_err(|e| internal(&e))?;
                    columns[position] = Expr::Literal(null, None).alias(name(position));
                }
            }
            let id = set.iter().fold(0_u64, |id, kept| (id << 1) | u64::from(!kept));
            columns[set_column] = cast(lit(id), id_type.clone()).alias(name(set_column));
            Ok(columns)
        };
        let sets = sets.iter().map(of_set).collect::<Result<Vec<_>>>()?;
        lanes.into_iter().map(|lane| expanded(lane, &sets, at)).collect()
    }
}

/// Where each key's first column stands: a tumbling window has one, a session two.
fn key_columns(keys: &[Expr]) -> Vec<usize> {
    let width = |key: &Expr| match window_call(key) {
        Some(call) if call.func.name() == SESSION_WINDOW => 2,
        _ => 1,
    };
    keys.iter().scan(0, |next, key| Some(std::mem::replace(next, *next + width(key)))).collect()
}

/// Every row once for each set of columns.
fn expanded(mut lane: OpenLane, sets: &[Vec<Expr>], at: At) -> Result<OpenLane> {
    let mut all: Option<LogicalPlanBuilder> = None;
    for columns in sets {
        let one =
            LogicalPlanBuilder::from(lane.plan.clone()).project(columns.clone()).map_err(|e| internal(&e))?;
        all = Some(match all {
            Some(all) => one.build().and_then(|one| all.union(one)).map_err(|e| internal(&e))?,
            None => one,
        });
    }
    let all = all.ok_or_else(|| Error::internal("no set of keys"))?;
    lane.grow(all.build().map_err(|e| internal(&e))?, at);
    Ok(lane)
}

fn projected(mut lane: OpenLane, columns: Vec<Expr>, at: At) -> Result<OpenLane> {
    let plan = LogicalPlanBuilder::from(lane.plan.clone()).project(columns);
    lane.grow(plan.and_then(LogicalPlanBuilder::build).map_err(|e| internal(&e))?, at);
    Ok(lane)
}

/// More sets than anyone means; a row is multiplied by their number.
const SETS_MAX: usize = 1024;

/// For ROLLUP, CUBE and GROUPING SETS: for each set which of the keys are in it.
fn grouping_sets(exprs: &[Expr], keys: &[Expr]) -> Result<Option<Vec<Vec<bool>>>> {
    use datafusion::logical_expr::GroupingSet;
    let [Expr::GroupingSet(sets)] = exprs else { return Ok(None) };
    let sets: Vec<Vec<Expr>> = match sets {
        GroupingSet::Rollup(keys) => (0..=keys.len()).rev().map(|n| keys[..n].to_vec()).collect(),
        GroupingSet::Cube(keys) if keys.len() <= 10 => (0..1_usize << keys.len())
            .map(|bits| {
                keys.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 0).map(|(_, k)| k.clone()).collect()
            })
            .collect(),
        GroupingSet::Cube(_) => return Err(Error::invalid("CUBE of more than 10 keys makes too many sets")),
        GroupingSet::GroupingSets(sets) => sets.clone(),
    };
    let sets: Vec<Vec<bool>> =
        sets.into_iter().map(|set| keys.iter().map(|key| set.contains(key)).collect()).collect();
    if sets.len() > SETS_MAX {
        return Err(Error::invalid(format!("{} grouping sets are too many", sets.len())));
    }
    let windows: Vec<usize> = (0..keys.len()).filter(|key| window_call(&keys[*key]).is_some()).collect();
    for (index, set) in sets.iter().enumerate() {
        if sets[..index].contains(set) {
            return Err(Error::invalid("the same set of keys occurs twice in GROUP BY")
                .hint("leave one out; a key beside ROLLUP must not be inside it, too"));
        }
        if windows.iter().any(|window| !set[*window]) {
            return Err(Error::invalid("a time window must be in every set of keys")
                .hint("write it beside ROLLUP or CUBE: GROUP BY window(ts, '1 hour'), ROLLUP(a, b)"));
        }
    }
    Ok(Some(sets))
}

/// What says when a group is over.
fn event_time_key(keys: &[Expr], input: &SqlPlan) -> Option<EventTimeKey> {
    let times = event_times(input);
    let index = keys.iter().position(|key| of_expression(key, input.schema(), &times).is_some())?;
    Some(match window_call(&keys[index]) {
        Some(_) => EventTimeKey::Window,
        None => EventTimeKey::Key(index),
    })
}

/// An aggregate function whose arguments are columns.
struct Call {
    function: Expr,
}

/// Makes columns of what the function reads; constants stay, for many functions insist on them.
fn arguments(expr: &Expr, columns: &mut Columns) -> Result<Call> {
    let call = match expr {
        Expr::Alias(alias) => return arguments(&alias.expr, columns),
        Expr::AggregateFunction(call) => call,
        other => return Err(Error::internal(format!("`{other}` is no aggregate function"))),
    };
    if !call.params.order_by.is_empty() {
        return Err(Error::invalid(format!(
            "{}(… ORDER BY …) is not possible on a stream",
            call.func.name()
        ))
        .hint("leave out ORDER BY, or sort the array afterwards with array_sort()"));
    }
    let mut params = call.params.clone();
    for argument in &mut params.args {
        *argument = match constant(argument) {
            Some(constant) => constant,
            None => col(name(columns.add(argument.clone()))),
        };
    }
    if let Some(filter) = &mut params.filter {
        **filter = col(name(columns.add(filter.as_ref().clone())));
    }
    Ok(Call { function: Expr::AggregateFunction(AggregateFunction { func: call.func.clone(), params }) })
}

/// A constant, with the cast that its function's signature asks for carried out.
fn constant(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Literal(..) => Some(expr.clone()),
        Expr::Alias(alias) => constant(&alias.expr),
        Expr::Cast(cast) => match constant(&cast.expr)? {
            Expr::Literal(value, _) => Some(Expr::Literal(value.cast_to(cast.field.data_type()).ok()?, None)),
            _ => None,
        },
        _ => None,
    }
}

fn bound(call: &Call, input: &DFSchema) -> Result<AggregateCall> {
    let (properties, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let lowered =
        LoweredAggregateBuilder::new(&call.function, input, input.as_arrow(), &properties, &context);
    let lowered = lowered.build().map_err(|e| internal(&e))?;
    Ok(AggregateCall { function: lowered.aggregate, filter: lowered.filter })
}
