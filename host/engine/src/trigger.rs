//! When micro-batches start. Spark's `TriggerExecutor`.
//!
//! The decisions are pure; [`crate::Query::run`] carries them out.

use pelton_core::{ReadLimit, Trigger};

/// The time of the trigger after the one that fired at `fired_ms`: the next multiple of the interval.
/// A micro-batch that ends later than that is followed by the next at once, and what it missed is not made up.
/// Spark's `ProcessingTimeExecutor.nextBatchTime`.
pub fn next_trigger_ms(fired_ms: i64, interval_ms: i64) -> i64 {
    match interval_ms {
        ..=0 => fired_ms,
        _ => (fired_ms.div_euclid(interval_ms) + 1).saturating_mul(interval_ms),
    }
}

/// How much a micro-batch of this trigger takes.
pub(crate) fn read_limit(trigger: Trigger) -> ReadLimit {
    match trigger {
        Trigger::Once => ReadLimit::All,
        Trigger::AsFastAsPossible | Trigger::ProcessingTime(_) | Trigger::AvailableNow => {
            ReadLimit::Configured
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_lie_on_multiples_of_the_interval() {
        assert_eq!(next_trigger_ms(0, 100), 100);
        assert_eq!(next_trigger_ms(1, 100), 100);
        assert_eq!(next_trigger_ms(99, 100), 100);
        assert_eq!(next_trigger_ms(100, 100), 200);
        assert_eq!(next_trigger_ms(-1, 100), 0);
        assert_eq!(next_trigger_ms(i64::MAX, 100), i64::MAX);
        assert_eq!(next_trigger_ms(17, 0), 17);
    }

    #[test]
    fn a_slow_micro_batch_is_followed_by_one_not_by_a_burst() {
        // Fired at 0, took 250 ms: the trigger of 100 is past, so the next fires at 250, the one after at 300.
        let fired = 250.max(next_trigger_ms(0, 100));
        assert_eq!(fired, 250);
        assert_eq!(next_trigger_ms(fired, 100), 300);
    }

    #[test]
    fn only_once_ignores_the_limits() {
        assert_eq!(read_limit(Trigger::Once), ReadLimit::All);
        assert_eq!(read_limit(Trigger::AvailableNow), ReadLimit::Configured);
    }
}
