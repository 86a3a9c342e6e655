//! The time of day and the stopwatch: the only places of the house where a clock is read.
//!
//! [`SystemClock`] is given to the engine by the binary; everything that influences rows takes its time from there,
//! through the micro-batch. [`Stopwatch`] measures for progress and never influences a row.

use async_trait::async_trait;
use pelton_core::Clock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// How long a sleep may last before the clock is looked at again: it may have been set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(60);

#[async_trait]
impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the clock that all others are to use")]
    fn now_ms(&self) -> i64 {
        // A machine whose clock shows a time before 1970 runs its micro-batches in 1970.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }

    async fn sleep_until(&self, at_ms: i64) {
        loop {
            let left_ms = at_ms - self.now_ms();
            if left_ms <= 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(left_ms.unsigned_abs()).min(SLEEP_MAX)).await;
        }
    }
}

/// Measures how long something takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "measures for progress only")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// In nanoseconds; for sums in atomics.
    pub(crate) fn nanos(self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleeps_until_the_time_and_not_at_all_for_the_past() {
        let clock = SystemClock;
        let now = clock.now_ms();
        assert!(now > 1_700_000_000_000);
        clock.sleep_until(now - 1_000_000).await;
        clock.sleep_until(now + 20).await;
        assert!(clock.now_ms() >= now + 20);
    }
}
