//! What may not run: a pure judgement over the resolved plan, before anything starts.
//!
//! Called by `pelton check` and by [`crate::PhysicalPlan::build`]. Spark's `UnsupportedOperationChecker` is the
//! measure: what it refuses is refused here, and so is what Spark refuses only when its first micro-batch is planned.
//! A refusal says which rule, which operator, and what to do instead.

mod groups;
mod joins;
mod warnings;

use crate::file::Span;
use crate::functions::SCOPED;
use crate::functions::window::SESSION_WINDOW;
use crate::logical::LogicalPlan;
use crate::tree::event_time::{event_times, group_expressions, of_expression};
use crate::tree::windows::{calls_in, window_call};
use crate::tree::{self, StreamOp, stream_node};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan as SqlPlan, Volatility};
use datafusion::logical_expr::{JoinConstraint, JoinType};
use pelton_core::{Error, OutputMode};
pub use warnings::warnings;

/// Who does not want it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusedBy {
    /// Spark refuses it too.
    Spark,
    /// Spark accepts it; Pelton does not run it.
    Pelton,
}

/// Which rule refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Complete mode without an aggregation.
    CompleteWithoutAggregation,
    /// Append mode with an aggregation whose groups are never over.
    AppendWithoutWatermark,
    /// Update mode with session windows.
    SessionWindow,
    /// DISTINCT inside of an aggregate function.
    DistinctAggregate,
    /// Stateful operators above an aggregation that gives a group more than once.
    Chain,
    /// Sorting a stream that is not an aggregate in complete mode.
    Sort,
    /// A window function over a stream.
    WindowFunction,
    /// LIMIT and OFFSET.
    Limit,
    /// A join of streams or of a stream with a table.
    Join,
    /// A stream within a subquery.
    Subquery,
    /// UNION with a table, INTERSECT, EXCEPT.
    SetOperation,
    /// Deduplication.
    Dedup,
    /// A stateful function of a plugin.
    GroupState,
    /// A watermark above a watermark.
    Watermark,
    /// A function whose value a rerun would not give again.
    Nondeterministic,
    /// Something else that does not work on streams.
    Other,
}

/// Something that may not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Which rule.
    pub rule: Rule,
    /// Who refuses.
    pub by: RefusedBy,
    /// The operator's name; the query's if it concerns the whole.
    pub operator: String,
    /// Where it stands in the file.
    pub span: Span,
    /// What is refused.
    pub message: String,
    /// What to do instead.
    pub instead: String,
}

impl Refusal {
    /// As an error that points into the file of the plan.
    pub fn error(&self, plan: &LogicalPlan) -> Error {
        plan.file.error(self.span, format!("{}: {}", self.operator, self.message)).hint(self.instead.clone())
    }
}

/// Everything in the plan that may not run: what concerns the whole first, then from the sources to the sink.
pub fn check(plan: &LogicalPlan) -> Vec<Refusal> {
    let mut checker = Checker { plan, refusals: Vec::new() };
    let aggregates = checker.aggregates(&plan.root);
    if plan.output_mode == OutputMode::Complete && aggregates == 0 {
        checker.refuse(
            None,
            Rule::CompleteWithoutAggregation,
            "output_mode complete is not possible without an aggregation",
            "use output_mode: append",
        );
    }
    checker.set_operations();
    checker.visit(&plan.root, None);
    checker.refusals
}

/// Collects refusals; each node is judged with the step that it was written in.
pub(crate) struct Checker<'a> {
    plan: &'a LogicalPlan,
    refusals: Vec<Refusal>,
}

/// A position among the plan's steps; `None` is the query itself.
type At = Option<usize>;

impl Checker<'_> {
    fn refuse(&mut self, at: At, rule: Rule, message: impl Into<String>, instead: impl Into<String>) {
        let (operator, span) = self.place(at);
        let (by, message, instead) = (RefusedBy::Spark, message.into(), instead.into());
        let refusal = Refusal { rule, by, operator, span, message, instead };
        if !self.refusals.contains(&refusal) {
            self.refusals.push(refusal);
        }
    }

    fn refuse_ourselves(
        &mut self,
        at: At,
        rule: Rule,
        message: impl Into<String>,
        instead: impl Into<String>,
    ) {
        self.refuse(at, rule, message, instead);
        if let Some(last) = self.refusals.last_mut() {
            last.by = RefusedBy::Pelton;
        }
    }

    fn place(&self, at: At) -> (String, Span) {
        let last = self.plan.steps.last().map(|step| step.span).unwrap_or_default();
        let step = at.and_then(|index| self.plan.steps.get(index));
        step.map_or_else(|| (self.plan.name.clone(), last), |step| (step.name.clone(), step.span))
    }

    fn streams(&self, node: &SqlPlan) -> bool {
        tree::is_streaming(node, &|name| self.plan.is_source(name))
    }

    /// A step's SQL that reads no stream is of no concern, but then the query would have no source.
    fn set_operations(&mut self) {
        for (index, step) in self.plan.steps.iter().enumerate() {
            if let Some(operation) = step.set_operation {
                self.refuse(
                    Some(index),
                    Rule::SetOperation,
                    format!("{operation} is not possible on a stream"),
                    "join with LEFT SEMI or LEFT ANTI instead",
                );
            }
        }
    }

    /// Aggregations of streams in a subtree, SELECT DISTINCT among them.
    fn aggregates(&self, node: &SqlPlan) -> usize {
        let mut count = 0;
        let _ = node.apply(|node| {
            let counts = matches!(node, SqlPlan::Aggregate(_) | SqlPlan::Distinct(Distinct::All(_)));
            count += usize::from(counts && self.streams(node));
            Ok(TreeNodeRecursion::Continue)
        });
        count
    }

    fn visit(&mut self, node: &SqlPlan, at: At) {
        let at = match stream_node(node).map(|n| &n.op) {
            Some(StreamOp::Step(step)) => Some(*step),
            _ => at,
        };
        for input in node.inputs() {
            self.visit(input, at);
        }
        self.subqueries(node, at);
        self.nondeterministic(node, at);
        if let SqlPlan::Join(join) = node
            && join.join_constraint == JoinConstraint::Using
            && matches!(join.join_type, JoinType::Right | JoinType::Full)
        {
            self.refuse_ourselves(
                at,
                Rule::Join,
                "USING and NATURAL are not possible in a RIGHT or FULL OUTER join: the column would be the left side's",
                "write ON l.k = r.k, and select coalesce(l.k, r.k)",
            );
        }
        if !self.streams(node)
            && let Some(name) = function_where(node, |name| SCOPED.contains(&name))
        {
            self.refuse_ourselves(
                at,
                Rule::Nondeterministic,
                format!("{name}() has another value in each micro-batch, but a static table is read once"),
                "use it in a step over the stream",
            );
        }
        if self.streams(node) {
            self.node(node, at);
        }
    }

    fn node(&mut self, node: &SqlPlan, at: At) {
        let mode = self.plan.output_mode;
        match node {
            SqlPlan::Aggregate(aggregate) => {
                self.aggregate(node, &group_expressions(&aggregate.group_expr), &aggregate.input, at);
                self.aggregate_functions(&aggregate.aggr_expr, at);
            }
            SqlPlan::Distinct(Distinct::All(input)) => {
                self.aggregate(node, &tree::columns(input), input, at);
            }
            SqlPlan::Distinct(Distinct::On(on)) => {
                if on.sort_expr.as_ref().is_some_and(|by| !by.is_empty()) {
                    self.refuse(
                        at,
                        Rule::Sort,
                        "DISTINCT ON keeps the first row that comes; it cannot sort",
                        "leave out ORDER BY",
                    );
                }
                self.stateful_over_updates(node, at);
            }
            SqlPlan::Sort(_) if mode != OutputMode::Complete || self.aggregates(node) == 0 => self.refuse(
                at,
                Rule::Sort,
                "a stream cannot be sorted, unless it is aggregated in output_mode complete",
                "leave out ORDER BY, or use output_mode: complete with an aggregation",
            ),
            SqlPlan::Limit(limit) => self.limit(limit, at),
            SqlPlan::Window(_) => self.refuse(
                at,
                Rule::WindowFunction,
                "window functions (OVER …) are not possible on a stream",
                "leave out OVER; time windows are GROUP BY window(ts, '10 minutes')",
            ),
            SqlPlan::Join(join) => {
                self.join(join, at);
                if self.streams(&join.left) && self.streams(&join.right) {
                    self.stateful_over_updates(node, at);
                }
            }
            SqlPlan::Union(union) if union.inputs.iter().any(|input| !self.streams(input)) => self.refuse(
                at,
                Rule::SetOperation,
                "a stream and a static table cannot be united",
                "join with the table, or make it a source",
            ),
            SqlPlan::Extension(_) => self.stream_node(node, at),
            SqlPlan::Projection(_)
            | SqlPlan::Filter(_)
            | SqlPlan::TableScan(_)
            | SqlPlan::SubqueryAlias(_)
            | SqlPlan::Unnest(_)
            | SqlPlan::Union(_)
            | SqlPlan::Sort(_) => {}
            _ => self.refuse(
                at,
                Rule::Other,
                "this is not possible on a stream",
                "use filter, select and GROUP BY",
            ),
        }
    }

    fn stream_node(&mut self, node: &SqlPlan, at: At) {
        let Some(own) = stream_node(node) else { return };
        match &own.op {
            StreamOp::Dedup { within_watermark, .. } => {
                if *within_watermark && event_times(&own.input).iter().all(Option::is_none) {
                    self.refuse(
                        at,
                        Rule::Dedup,
                        "deduplication within the watermark needs a watermark",
                        "give the source a watermark, or leave out within_watermark",
                    );
                }
                self.several_times(event_times(&own.input).iter().flatten().count(), at);
                self.stateful_over_updates(node, at);
            }
            StreamOp::Watermark { .. } if has_watermark(&own.input) => self.refuse(
                at,
                Rule::Watermark,
                "the rows have a watermark already; it cannot be defined again",
                "keep one of the two",
            ),
            StreamOp::Watermark { index, .. }
                if self.plan.watermarks.get(*index).is_some_and(|info| info.per_partition.is_some())
                    && self.is_stateful(&own.input) =>
            {
                self.refuse_ourselves(
                    at,
                    Rule::Watermark,
                    "behind a stateful step nobody knows from which partition a row comes, so this watermark cannot be \
                     kept by partition",
                    "declare it before that step, or leave out per_partition",
                );
            }
            StreamOp::GroupState(step) => self.group_state(node, *step, at),
            _ => {}
        }
    }

    fn aggregate(&mut self, node: &SqlPlan, keys: &[Expr], input: &SqlPlan, at: At) {
        let mode = self.plan.output_mode;
        let times = event_times(input);
        let has_time = keys.iter().any(|key| of_expression(key, input.schema(), &times).is_some());
        let session = keys.iter().filter_map(window_call).any(|call| call.func.name() == SESSION_WINDOW);
        if mode == OutputMode::Append && !has_time {
            let instead = match self.plan.watermarks.is_empty() {
                true => {
                    "give a source a watermark, for example watermark: {column: ts, delay: 10 minutes}, and group by a \
                     window of its column; or use output_mode: update"
                }
                false => {
                    "group by window(…) over, or by, the column of a watermark itself: a column computed from it is none; \
                     or use output_mode: update"
                }
            };
            self.refuse(
                at,
                Rule::AppendWithoutWatermark,
                "output_mode append is not possible here: without an event time with a watermark among the keys no \
                 group is ever final",
                instead,
            );
        }
        self.several_times(
            keys.iter().filter(|key| of_expression(key, input.schema(), &times).is_some()).count(),
            at,
        );
        if session && mode == OutputMode::Update {
            self.refuse(
                at,
                Rule::SessionWindow,
                "session windows are not possible in output_mode update",
                "use output_mode: append or complete",
            );
        }
        if session && keys.len() == 1 {
            self.refuse(
                at,
                Rule::SessionWindow,
                "session_window() needs another key beside it",
                "group by the column that makes the sessions, for example the user",
            );
        }
        if calls_in(keys).len() > 1 {
            self.refuse(
                at,
                Rule::Other,
                "two different time windows in one GROUP BY would multiply the rows",
                "use one, or aggregate twice",
            );
        }
        self.stateful_over_updates(node, at);
    }

    /// Which of them would say when a row is late? Spark asks the same.
    fn several_times(&mut self, count: usize, at: At) {
        if count > 1 {
            self.refuse(
                at,
                Rule::Watermark,
                "several columns carry an event time here, and it is not said which counts",
                "select one of them in the step before; of a window and its time keep one",
            );
        }
    }

    fn aggregate_functions(&mut self, exprs: &[Expr], at: At) {
        for expr in exprs {
            let _ = expr.apply(|e| {
                if let Expr::AggregateFunction(call) = e
                    && call.params.distinct
                {
                    let name = call.func.name();
                    self.refuse(
                        at,
                        Rule::DistinctAggregate,
                        format!("{name}(DISTINCT …) is not possible on a stream"),
                        "use approx_count_distinct(…), or deduplicate in a step before",
                    );
                }
                Ok(TreeNodeRecursion::Continue)
            });
        }
    }

    /// A stateful operator above an aggregation sees each group once in append mode only.
    fn stateful_over_updates(&mut self, node: &SqlPlan, at: At) {
        let below: usize = node.inputs().into_iter().map(|input| self.aggregates(input)).sum();
        if below > 0 && self.plan.output_mode != OutputMode::Append {
            self.refuse(
                at,
                Rule::Chain,
                "a stateful operator above an aggregation would see each group again whenever it changes",
                "use output_mode: append, in which a group is given once, when it is final",
            );
        }
    }

    /// Whether rows pass a stateful operator on their way here.
    fn is_stateful(&self, node: &SqlPlan) -> bool {
        let found = node.exists(|node| {
            Ok(match node {
                SqlPlan::Aggregate(_) | SqlPlan::Distinct(_) | SqlPlan::Limit(_) | SqlPlan::Sort(_) => true,
                SqlPlan::Join(join) => self.streams(&join.left) && self.streams(&join.right),
                node => stream_node(node).is_some_and(|own| matches!(own.op, StreamOp::Dedup { .. })),
            })
        });
        found.unwrap_or(false)
    }

    fn limit(&mut self, limit: &datafusion::logical_expr::Limit, at: At) {
        if limit.skip.is_some() {
            self.refuse(at, Rule::Limit, "OFFSET is not possible on a stream", "leave it out");
        }
        if self.plan.output_mode == OutputMode::Update {
            self.refuse(
                at,
                Rule::Limit,
                "LIMIT is not possible in output_mode update",
                "use output_mode: append, or leave out LIMIT",
            );
        }
        if limit.fetch.is_some() && crate::compile::limit_count(limit).is_none() {
            self.refuse(at, Rule::Limit, "LIMIT takes a number", "write for example LIMIT 10");
        }
    }

    fn subqueries(&mut self, node: &SqlPlan, at: At) {
        let mut streaming = false;
        let _ = node.apply_expressions(|expr| {
            expr.apply(|e| {
                let inner = match e {
                    Expr::ScalarSubquery(subquery) => Some(subquery),
                    Expr::Exists(exists) => Some(&exists.subquery),
                    Expr::InSubquery(subquery) => Some(&subquery.subquery),
                    _ => None,
                };
                streaming |= inner.is_some_and(|subquery| self.streams(&subquery.subquery));
                Ok(TreeNodeRecursion::Continue)
            })
        });
        if streaming {
            self.refuse(
                at,
                Rule::Subquery,
                "a stream cannot be read in a subquery of an expression",
                "join with it instead",
            );
        }
    }

    fn nondeterministic(&mut self, node: &SqlPlan, at: At) {
        if let Some(name) = nondeterministic(node) {
            self.refuse_ourselves(
                at,
                Rule::Nondeterministic,
                format!("{name}() gives other values when a micro-batch is rerun"),
                "rand(), uuid() and now() depend on the micro-batch alone and are fine",
            );
        }
    }
}

fn has_watermark(node: &SqlPlan) -> bool {
    let found = node
        .exists(|node| Ok(stream_node(node).is_some_and(|own| matches!(own.op, StreamOp::Watermark { .. }))));
    found.unwrap_or(false)
}

/// DataFusion's only function of the wall clock that Pelton does not replace; Spark has none such.
const TIME_OF_DAY: &str = "current_time";

/// The name of the first function that is not a matter of its arguments and the micro-batch.
fn nondeterministic(node: &SqlPlan) -> Option<String> {
    let mut found = None;
    each_call(node, |call| {
        let varies =
            call.func.signature().volatility == Volatility::Volatile || call.func.name() == TIME_OF_DAY;
        if varies && !SCOPED.contains(&call.func.name()) && !call.func.name().contains('.') {
            found.get_or_insert_with(|| call.func.name().to_owned());
        }
    });
    found
}

/// The name of the first function that is one of these.
fn function_where(node: &SqlPlan, wanted: impl Fn(&str) -> bool) -> Option<String> {
    let mut found = None;
    each_call(node, |call| {
        if wanted(call.func.name()) {
            found.get_or_insert_with(|| call.func.name().to_owned());
        }
    });
    found
}

fn each_call(node: &SqlPlan, mut look: impl FnMut(&ScalarFunction)) {
    let _ = node.apply_expressions(|expr| {
        expr.apply(|e| {
            if let Expr::ScalarFunction(call) = e {
                look(call);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    });
}
