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

/// What waits for the time of a micro-batch: timeouts and timers in processing time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockWatch {
    /// No operator does.
    Nothing,
    /// The first of them can fall due at this time; `None`: none is set.
    Until(Option<i64>),
}

/// Whether a micro-batch without data runs because of the time alone. With an interval every trigger runs one, as in
/// Spark; without, only when something can be due, so that a query at rest stays at rest. The triggers that end do not
/// wait for anything.
pub(crate) fn wants_batch_by_clock(trigger: Trigger, watch: ClockWatch, time_ms: i64) -> bool {
    let ClockWatch::Until(due_ms) = watch else { return false };
    match trigger {
        Trigger::ProcessingTime(interval) if interval.as_millis() > 0 => true,
        Trigger::ProcessingTime(_) | Trigger::AsFastAsPossible => {
            due_ms.is_some_and(|due_ms| due_ms <= time_ms)
        }
        Trigger::Once | Trigger::AvailableNow => false,
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
    use crate::testing::{MemorySource, RecordingSink, int_rows, int_schema, pass_through};
    use crate::{Logic, Query, RunControl, Start};
    use pelton_core::{Interval, ManualClock, MemoryFiles};
    use std::sync::{Arc, Mutex};

    /// One trigger fires each time the clock reaches it, however far it has been moved; what was missed is not made up.
    #[tokio::test]
    async fn a_running_query_fires_once_for_each_move_of_the_clock() {
        let (clock, source) = (Arc::new(ManualClock::new(0)), MemorySource::new(int_schema()));
        let times = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&times);
        let start = Start::new("test", Arc::new(MemoryFiles::new()), Arc::clone(&clock) as _);
        let mut query = Query::builder(start.recover().await.unwrap())
            .input("s0", Arc::new(source.reopen()))
            .logic(Logic::new(pass_through(int_schema())))
            .sink(Arc::new(RecordingSink::new()))
            .trigger(Trigger::ProcessingTime(Interval::from_millis(100)))
            .on_progress(move |progress| told.lock().unwrap().push(progress.timestamp[20..23].to_owned()))
            .build()
            .await
            .unwrap();
        let control = RunControl::default();
        let settle = async || {
            for _ in 0..300 {
                tokio::task::yield_now().await;
            }
        };
        let until_told = async |count: usize| {
            while times.lock().unwrap().len() < count {
                tokio::task::yield_now().await;
            }
        };
        source.add(int_rows([0]));
        let script = async {
            until_told(1).await;
            for (move_ms, batches) in [(250, 2), (49, 2), (1, 3), (100, 4)] {
                source.add(int_rows([1]));
                settle().await;
                clock.advance(move_ms);
                until_told(batches).await;
                settle().await;
            }
            control.stop.cancel();
        };
        let (summary, ()) = tokio::join!(query.run(&control), script);
        assert_eq!(summary.unwrap().batches, 4);
        assert_eq!(*times.lock().unwrap(), ["000", "250", "300", "400"]);
    }

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
    fn an_interval_fires_at_every_trigger_and_others_only_for_what_is_due() {
        let wants = |trigger, watch| wants_batch_by_clock(trigger, watch, 100);
        let every = Trigger::ProcessingTime(Interval::from_millis(10));
        assert!(!wants(every, ClockWatch::Nothing));
        assert!(wants(every, ClockWatch::Until(None)));
        assert!(!wants(Trigger::AsFastAsPossible, ClockWatch::Until(None)));
        assert!(!wants(Trigger::AsFastAsPossible, ClockWatch::Until(Some(101))));
        assert!(wants(Trigger::AsFastAsPossible, ClockWatch::Until(Some(100))));
        for ends in [Trigger::Once, Trigger::AvailableNow] {
            assert!(!wants(ends, ClockWatch::Until(Some(0))));
        }
    }

    #[test]
    fn only_once_ignores_the_limits() {
        assert_eq!(read_limit(Trigger::Once), ReadLimit::All);
        assert_eq!(read_limit(Trigger::AvailableNow), ReadLimit::Configured);
    }
}
