//! Where an expression is being evaluated: which micro-batch, operator, part and call.
//!
//! `operators` enters a scope around every evaluation, on the thread that evaluates; the functions of this crate whose
//! value is not a matter of their arguments alone (`now()`, `rand()`, a plugin's scalar functions) read it. So a
//! replay of the micro-batch gives the same values. There is no other source of time or randomness.

use datafusion::common::{DataFusionError, Result};
use pelton_core::{BatchInfo, CallScope};
use std::cell::RefCell;
use std::sync::Arc;

/// The scope of an evaluation.
#[derive(Debug, Clone)]
pub struct EvaluationScope {
    /// The micro-batch.
    pub batch: Arc<BatchInfo>,
    /// The operator's stable name.
    pub operator: Arc<str>,
    /// Which part of the micro-batch.
    pub partition: u64,
    /// The next call's number; counts on as functions are called.
    pub call: u64,
}

thread_local! {
    static CURRENT: RefCell<Option<EvaluationScope>> = const { RefCell::new(None) };
}

/// Runs `body` in the scope and gives its result with the number of the next call. Scopes nest.
pub fn within<T>(scope: EvaluationScope, body: impl FnOnce() -> T) -> (T, u64) {
    /// Restores the outer scope, also when `body` panics.
    struct Restore(Option<EvaluationScope>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let outer = self.0.take();
            CURRENT.with(|current| *current.borrow_mut() = outer);
        }
    }
    let before = scope.call;
    let outer = CURRENT.with(|current| current.borrow_mut().replace(scope));
    let _restore = Restore(outer);
    let result = body();
    let next = CURRENT.with(|current| current.borrow().as_ref().map_or(before, |scope| scope.call));
    (result, next)
}

/// Calls `body` with the current scope and counts the call. Outside of a micro-batch (while a plan is made)
/// it is an error, so that the planner leaves the expression as it is.
pub(crate) fn call<T>(what: &str, body: impl FnOnce(&CallScope<'_>) -> Result<T>) -> Result<T> {
    let scope = CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        let scope = current.as_mut()?;
        let now = scope.clone();
        scope.call += 1;
        Some(now)
    });
    let scope = scope
        .ok_or_else(|| DataFusionError::Execution(format!("{what} has a value only within a micro-batch")))?;
    let EvaluationScope { batch, operator, partition, call } = &scope;
    body(&CallScope { batch, operator, partition: *partition, call: *call })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::{BatchId, QueryId};

    #[test]
    fn calls_count_on_and_the_outer_scope_comes_back() {
        let batch = BatchInfo {
            query_id: QueryId("q".into()),
            batch_id: BatchId(3),
            time_ms: 5,
            watermark_ms: None,
            late_watermark_ms: None,
        };
        let scope = EvaluationScope { batch: Arc::new(batch), operator: "sql".into(), partition: 1, call: 4 };
        let seen = |what: &str| call(what, |scope| Ok((scope.call, scope.batch.batch_id.0)));
        assert!(seen("now()").is_err());
        let (calls, next) = within(scope, || [seen("a").expect("in scope"), seen("b").expect("in scope")]);
        assert_eq!((calls, next), ([(4, 3), (5, 3)], 6));
        assert!(seen("now()").is_err());
    }
}
