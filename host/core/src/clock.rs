//! The only way to the time of day.

use async_trait::async_trait;
use std::sync::atomic::{AtomicI64, Ordering};

/// The query's clock. Everything that depends on the time of day gets it from here, through the engine.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
    /// Returns when [`Clock::now_ms`] has reached `at_ms` (at once if it has already).
    async fn sleep_until(&self, at_ms: i64);
}

/// A clock that stands still until a test moves it. Spark's `ManualClock`.
#[derive(Debug)]
pub struct ManualClock {
    now_ms: AtomicI64,
}

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        Self { now_ms: AtomicI64::new(now_ms) }
    }
    /// Moves the clock forward.
    pub fn advance(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }
    /// Waits cooperatively: it yields to the caller's runtime until somebody has moved the clock.
    async fn sleep_until(&self, at_ms: i64) {
        std::future::poll_fn(|cx| {
            if self.now_ms() >= at_ms {
                return std::task::Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        })
        .await;
    }
}
