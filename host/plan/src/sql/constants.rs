//! Constant expressions that fail, found when a step is planned and not with its first row: `CAST('x' AS INT)`.
//!
//! As Spark's constant folding: what stands in a branch of a condition may never be evaluated, so it may fail. Called for
//! every planned step; it changes nothing.

use super::session::Session;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_expr::create_physical_expr;
use std::sync::Arc;

/// A constant that fails.
pub(super) struct FailedConstant {
    /// Why.
    pub(super) error: DataFusionError,
    /// The first literal that it is made of.
    pub(super) literal: Option<String>,
}

/// Functions that evaluate their first argument, and the others only if they need them.
const CONDITIONAL: [&str; 5] = ["coalesce", "if", "ifnull", "nvl", "nvl2"];

/// The first constant of a plan that fails.
pub(super) fn failing(plan: &LogicalPlan, session: &Session) -> Result<Option<FailedConstant>> {
    let mut constants = Constants::new(session)?;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            constants.look_at(expr, true);
            Ok(if constants.failed.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(constants.failed)
}

struct Constants {
    props: ExecutionProps,
    schema: DFSchema,
    /// One row without columns.
    row: RecordBatch,
    failed: Option<FailedConstant>,
}

impl Constants {
    fn new(session: &Session) -> Result<Self> {
        let mut props = ExecutionProps::new();
        props.config_options = Some(Arc::clone(session.state().config_options()));
        let one_row = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &one_row)?;
        Ok(Self { props, schema: DFSchema::empty(), row, failed: None })
    }

    /// Whether the expression is a constant. `surely` says that it is evaluated for every row: only then must it not fail.
    fn look_at(&mut self, expr: &Expr, surely: bool) -> bool {
        let constant = match expr {
            Expr::Literal(..) => return true,
            Expr::Case(case) => {
                self.look_at_case(case, surely);
                return false;
            }
            Expr::ScalarFunction(call) if CONDITIONAL.contains(&call.func.name()) => {
                for (index, argument) in call.args.iter().enumerate() {
                    self.look_at(argument, surely && index == 0);
                }
                return false;
            }
            Expr::Lambda(_) | Expr::HigherOrderFunction(_) => return false,
            other => self.children_are_constant(other, surely),
        };
        if !constant || self.failed.is_some() || !is_pure(expr) {
            return false;
        }
        // A cast DataFusion evaluates in any case.
        if surely || matches!(expr, Expr::Cast(_)) {
            self.evaluate(expr);
        }
        true
    }

    fn look_at_case(&mut self, case: &Case, surely: bool) {
        if let Some(operand) = &case.expr {
            self.look_at(operand, surely);
        }
        for (index, (when, then)) in case.when_then_expr.iter().enumerate() {
            self.look_at(when, surely && index == 0);
            self.look_at(then, false);
        }
        if let Some(otherwise) = &case.else_expr {
            self.look_at(otherwise, false);
        }
    }

    fn children_are_constant(&mut self, expr: &Expr, surely: bool) -> bool {
        let mut all = true;
        // Looking at them never fails.
        let _ = expr.apply_children(|child| {
            all &= self.look_at(child, surely);
            Ok(TreeNodeRecursion::Continue)
        });
        all
    }

    fn evaluate(&mut self, expr: &Expr) {
        let planning = PhysicalPlanningContext::default();
        let value = create_physical_expr(expr, &self.schema, &self.props, &planning)
            .and_then(crate::physical::strict_expr)
            .and_then(|expr| expr.evaluate(&self.row));
        // Some functions must be replaced by others first, and say so in this way: nothing is wrong with the constant.
        let told = value.err().filter(|error| {
            use DataFusionError::{Internal, NotImplemented, Plan};
            let root = error.find_root();
            !matches!(root, Internal(_) | NotImplemented(_) | Plan(_))
                && !root.to_string().contains("should have been simplified")
        });
        if let Some(error) = told {
            self.failed = Some(FailedConstant { error, literal: first_literal(expr) });
        }
    }
}

/// Whether it gives the same whenever it is evaluated, if what it is made of does.
fn is_pure(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, .. }) => {
            func.signature().volatility == Volatility::Immutable
        }
        Expr::Cast(_)
        | Expr::TryCast(_)
        | Expr::BinaryExpr(_)
        | Expr::Negative(_)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::Between(_)
        | Expr::InList(_)
        | Expr::Like(_) => true,
        _ => false,
    }
}

/// The text of the first literal.
fn first_literal(expr: &Expr) -> Option<String> {
    let mut found = None;
    let _ = expr.apply(|e| {
        let Expr::Literal(value, _) = e else { return Ok(TreeNodeRecursion::Continue) };
        found = Some(value.try_as_str().flatten().map_or_else(|| value.to_string(), str::to_owned));
        Ok(TreeNodeRecursion::Stop)
    });
    found
}
