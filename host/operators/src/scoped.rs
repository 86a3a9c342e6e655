//! Evaluates the expressions of stateful operators in the scope of their micro-batch, so that a rerun gives the same.

use crate::stateful::NodeScope;
use pelton_core::Result;
use pelton_plan::scope::{EvaluationScope, within};

/// Runs `body`, in which expressions are evaluated, for a part of the work of an operator. Calls of functions are
/// counted from 0 in each.
pub(crate) fn scoped<T>(
    scope: &NodeScope<'_>,
    partition: u64,
    body: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let evaluation =
        EvaluationScope { batch: scope.batch.clone(), operator: scope.name.into(), partition, call: 0 };
    within(evaluation, body).0.map_err(|e| e.context(format!("operator '{}'", scope.name)))
}
