//! What may not run, found before anything starts.
//!
//! [`check`] is a pure function of the resolved plan. Refusals of Spark's own (`UnsupportedOperationChecker`) are kept
//! apart from what this version cannot do yet, so that the oracle's support matrix can be held against them cell by
//! cell.

use crate::file::Span;
use crate::functions::SCOPED;
use crate::logical::{LogicalPlan, LogicalStep, Operation};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan as SqlPlan, Volatility};
use pelton_core::{Error, OutputMode};

/// Who refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedBy {
    /// Spark refuses it too.
    Spark,
    /// Spark accepts it; this version of Pelton does not run it yet.
    ThisVersion,
}

/// Which rule refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Complete mode without an aggregation.
    CompleteWithoutAggregation,
    /// Sorting a stream that is not an aggregate in complete mode.
    Sort,
    /// A window function over a stream.
    WindowFunction,
    /// GROUP BY and aggregate functions.
    Aggregation,
    /// DISTINCT.
    Distinct,
    /// LIMIT and OFFSET.
    Limit,
    /// A join of the stream, written as a join or as a subquery.
    Join,
    /// A function whose value a rerun would not give again.
    Nondeterministic,
    /// Something else in a SELECT that is not row by row.
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

/// Everything in the plan that may not run, the gravest first.
pub fn check(plan: &LogicalPlan) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let aggregates = plan.steps.iter().any(|step| nodes(step).contains(&Rule::Aggregation));
    if plan.output_mode == OutputMode::Complete && !aggregates {
        refusals.push(Refusal {
            rule: Rule::CompleteWithoutAggregation,
            by: RefusedBy::Spark,
            operator: plan.name.clone(),
            span: plan.steps.last().map(|step| step.span).unwrap_or_default(),
            message: "output_mode complete is not possible without an aggregation".into(),
            instead: "use output_mode: append".into(),
        });
    }
    for step in &plan.steps {
        let mut rules = nodes(step);
        rules.extend(nondeterministic(step).map(|_| Rule::Nondeterministic));
        refusals.extend(rules.into_iter().map(|rule| refusal(rule, step, plan.output_mode)));
    }
    refusals
}

fn refusal(rule: Rule, step: &LogicalStep, mode: OutputMode) -> Refusal {
    use RefusedBy::{Spark, ThisVersion};
    const SEVERAL: &str = "leave it out, or do it behind the sink";
    let (by, message, instead) = match rule {
        Rule::Sort if mode == OutputMode::Complete => {
            (ThisVersion, "sorting is not supported in this version", SEVERAL)
        }
        Rule::Sort => (
            Spark,
            "a stream cannot be sorted, unless it is aggregated in output_mode complete",
            "leave out ORDER BY",
        ),
        Rule::WindowFunction => (
            Spark,
            "window functions (OVER …) are not possible on a stream",
            "leave out OVER; time windows are an aggregation",
        ),
        Rule::Aggregation => (ThisVersion, "aggregation is not supported in this version", SEVERAL),
        Rule::Distinct => (ThisVersion, "DISTINCT is not supported in this version", SEVERAL),
        Rule::Limit if mode == OutputMode::Update => (
            Spark,
            "LIMIT is not possible in output_mode update",
            "use output_mode: append, or leave out LIMIT",
        ),
        Rule::Limit => (ThisVersion, "LIMIT is not supported in this version", SEVERAL),
        Rule::Join => (
            ThisVersion,
            "joins and subqueries are not supported in this version",
            "use a plugin step, or CASE for few values",
        ),
        Rule::Nondeterministic => {
            let name = nondeterministic(step).unwrap_or_default();
            let message = format!("{name}() gives other values when a micro-batch is rerun");
            let instead = "rand(), uuid() and now() depend on the micro-batch alone and are fine".to_owned();
            return Refusal {
                rule,
                by: ThisVersion,
                operator: step.name.clone(),
                span: step.span,
                message,
                instead,
            };
        }
        Rule::CompleteWithoutAggregation | Rule::Other => (
            ThisVersion,
            "this SELECT is not row by row, which is all that this version runs",
            "use filter and select",
        ),
    };
    Refusal {
        rule,
        by,
        operator: step.name.clone(),
        span: step.span,
        message: message.into(),
        instead: instead.into(),
    }
}

/// The rules that the nodes of a step's plan fall under, each once.
fn nodes(step: &LogicalStep) -> Vec<Rule> {
    let Operation::Sql { plan, .. } = &step.operation else { return Vec::new() };
    let mut rules = Vec::new();
    let mut note = |rule: Rule| {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    };
    let _ = plan.apply_with_subqueries(|node| {
        match node {
            SqlPlan::Sort(_) => note(Rule::Sort),
            SqlPlan::Window(_) => note(Rule::WindowFunction),
            SqlPlan::Aggregate(_) => note(Rule::Aggregation),
            SqlPlan::Distinct(_) => note(Rule::Distinct),
            SqlPlan::Limit(_) => note(Rule::Limit),
            SqlPlan::Join(_) | SqlPlan::Subquery(_) => note(Rule::Join),
            SqlPlan::Projection(_)
            | SqlPlan::Filter(_)
            | SqlPlan::TableScan(_)
            | SqlPlan::SubqueryAlias(_)
            | SqlPlan::Unnest(_)
            | SqlPlan::Union(_) => {}
            _ => note(Rule::Other),
        }
        Ok(TreeNodeRecursion::Continue)
    });
    rules
}

/// DataFusion's only function of the wall clock that Pelton does not replace; Spark has none such.
const TIME_OF_DAY: &str = "current_time";

/// The name of the first function that is not a matter of its arguments and the micro-batch.
fn nondeterministic(step: &LogicalStep) -> Option<String> {
    let Operation::Sql { plan, .. } = &step.operation else { return None };
    let mut found = None;
    let _ = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|e| {
                if let Expr::ScalarFunction(call) = e
                    && (call.func.signature().volatility == Volatility::Volatile
                        || call.func.name() == TIME_OF_DAY)
                    && !SCOPED.contains(&call.func.name())
                    && !call.func.name().contains('.')
                {
                    found.get_or_insert_with(|| call.func.name().to_owned());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    found
}
