//! How far the query's watermarks are: a pure account of event times, moved once a micro-batch.
//! Spark's `WatermarkTracker`.
//!
//! `rows` notes event times in [`EventTimes`] while rows pass; `micro_batch` takes them over into the
//! [`WatermarkTracker`] when the sink has the rows. Nothing here reads a clock or judges a row.

use pelton_core::{WatermarkInfo, WatermarkPolicy};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The watermark of a query that has seen nothing, and the lowest there is: 1970, as in Spark. Rows before it are late
/// from the first micro-batch on.
const BEGINNING_MS: i64 = 0;

/// The latest event time that each watermark has seen in a micro-batch; noted from many threads.
#[derive(Debug, Default)]
pub(crate) struct EventTimes(Mutex<Vec<Option<i64>>>);

impl EventTimes {
    pub(crate) fn new(watermarks: usize) -> Self {
        Self(Mutex::new(vec![None; watermarks]))
    }

    /// Takes note of what a part of the micro-batch has seen. The order of the parts does not matter.
    pub(crate) fn note(&self, seen: &[Option<i64>]) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (latest, seen) in latest.iter_mut().zip(seen) {
            *latest = (*latest).max(*seen);
        }
    }

    pub(crate) fn latest(&self) -> Vec<Option<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One watermark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) name: String,
    delay_ms: i64,
    /// Where it is.
    pub(crate) at_ms: i64,
}

/// All watermarks of a query, and the one that follows from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatermarkTracker {
    policy: WatermarkPolicy,
    marks: Vec<Mark>,
    query_ms: i64,
}

impl WatermarkTracker {
    /// Goes on from what the checkpoint says: `recorded` has each watermark by name (one that is new begins in 1970),
    /// `query_ms` the query's own, which never goes back whatever the plan has become.
    pub(crate) fn new(
        infos: &[WatermarkInfo],
        policy: WatermarkPolicy,
        recorded: &BTreeMap<String, i64>,
        query_ms: Option<i64>,
    ) -> Self {
        let mark = |info: &WatermarkInfo| Mark {
            name: info.name.clone(),
            delay_ms: info.delay_ms,
            at_ms: recorded.get(&info.name).copied().unwrap_or(BEGINNING_MS),
        };
        let query_ms = query_ms.unwrap_or(BEGINNING_MS).max(BEGINNING_MS);
        Self { policy, marks: infos.iter().map(mark).collect(), query_ms }
    }

    pub(crate) fn policy(&self) -> WatermarkPolicy {
        self.policy
    }

    pub(crate) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// The query's watermark; `None` if it has none.
    pub(crate) fn current_ms(&self) -> Option<i64> {
        (!self.marks.is_empty()).then_some(self.query_ms)
    }

    /// What the commit log records: each watermark by name.
    pub(crate) fn record(&self) -> BTreeMap<String, i64> {
        self.marks.iter().map(|mark| (mark.name.clone(), mark.at_ms)).collect()
    }

    /// A micro-batch is at its end, and these are the latest event times that it saw, in the watermarks' order.
    pub(crate) fn advance(&mut self, seen: &[Option<i64>]) {
        for (mark, seen) in self.marks.iter_mut().zip(seen) {
            if let Some(seen) = seen {
                mark.at_ms = mark.at_ms.max(seen.saturating_sub(mark.delay_ms));
            }
        }
        let all = self.marks.iter().map(|mark| mark.at_ms);
        let chosen = match self.policy {
            WatermarkPolicy::Min => all.min(),
            WatermarkPolicy::Max => all.max(),
        };
        self.query_ms = self.query_ms.max(chosen.unwrap_or(BEGINNING_MS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn infos(delays: &[i64]) -> Vec<WatermarkInfo> {
        let info = |(index, delay_ms): (usize, &i64)| WatermarkInfo {
            name: format!("w{index}"),
            column: "ts".into(),
            delay_ms: *delay_ms,
        };
        delays.iter().enumerate().map(info).collect()
    }

    fn fresh(delays: &[i64], policy: WatermarkPolicy) -> WatermarkTracker {
        WatermarkTracker::new(&infos(delays), policy, &BTreeMap::new(), None)
    }

    /// As a restart would find it.
    fn restarted(tracker: &WatermarkTracker, delays: &[i64]) -> WatermarkTracker {
        WatermarkTracker::new(&infos(delays), tracker.policy, &tracker.record(), tracker.current_ms())
    }

    #[test]
    fn begins_in_1970_and_stays_behind_the_latest_event_by_its_delay() {
        let mut tracker = fresh(&[10], WatermarkPolicy::Min);
        assert_eq!(tracker.current_ms(), Some(0));
        tracker.advance(&[Some(5)]);
        assert_eq!(tracker.current_ms(), Some(0), "never before 1970");
        tracker.advance(&[Some(100)]);
        tracker.advance(&[Some(30)]);
        tracker.advance(&[None]);
        assert_eq!(tracker.current_ms(), Some(90));
    }

    #[test]
    fn a_query_without_watermarks_has_none() {
        let mut tracker = fresh(&[], WatermarkPolicy::Max);
        tracker.advance(&[]);
        assert_eq!(tracker.current_ms(), None);
        let removed =
            WatermarkTracker::new(&[], WatermarkPolicy::Min, &BTreeMap::from([("w0".into(), 7)]), Some(7));
        assert_eq!((removed.current_ms(), removed.record()), (None, BTreeMap::new()));
    }

    #[test]
    fn a_source_without_rows_holds_min_back_and_not_max() {
        for (policy, expected) in [(WatermarkPolicy::Min, 0), (WatermarkPolicy::Max, 90)] {
            let mut tracker = fresh(&[10, 10], policy);
            tracker.advance(&[Some(100), None]);
            assert_eq!(tracker.current_ms(), Some(expected), "{policy}");
        }
    }

    #[test]
    fn after_a_restart_each_source_goes_on_where_it_was() {
        let mut tracker = fresh(&[10, 10], WatermarkPolicy::Min);
        tracker.advance(&[Some(300), Some(100)]);
        let mut again = restarted(&tracker, &[10, 10]);
        assert_eq!(again, tracker);
        again.advance(&[None, Some(200)]);
        assert_eq!(again.current_ms(), Some(190), "the first source is remembered at 290");
    }

    #[test]
    fn a_new_source_or_a_longer_delay_stalls_the_querys_watermark_and_never_sets_it_back() {
        let mut tracker = fresh(&[10], WatermarkPolicy::Min);
        tracker.advance(&[Some(100)]);
        let mut changed = restarted(&tracker, &[50, 10]);
        changed.advance(&[Some(120), Some(20)]);
        assert_eq!(changed.current_ms(), Some(90));
        changed.advance(&[Some(160), Some(500)]);
        assert_eq!(changed.current_ms(), Some(110));
    }

    proptest! {
        /// Whatever comes, and wherever the query is started again: the watermark never falls, is never ahead of the
        /// latest event less the delay, and does not depend on restarts or on how a micro-batch's rows were divided.
        #[test]
        fn never_falls_and_follows_the_policy(
            delays in prop::collection::vec(0..100_i64, 1..4),
            batches in prop::collection::vec((prop::collection::vec(prop::option::of(-500..5000_i64), 9), any::<bool>()), 0..30),
            max in any::<bool>(),
        ) {
            let policy = if max { WatermarkPolicy::Max } else { WatermarkPolicy::Min };
            let (mut tracker, mut latest) = (fresh(&delays, policy), vec![None::<i64>; delays.len()]);
            let mut undisturbed = tracker.clone();
            for (events, restart) in batches {
                let times = EventTimes::new(delays.len());
                for part in events.chunks(3) {
                    times.note(part);
                    for (latest, event) in latest.iter_mut().zip(part) {
                        *latest = (*latest).max(*event);
                    }
                }
                let before = tracker.current_ms();
                tracker.advance(&times.latest());
                undisturbed.advance(&times.latest());
                if restart {
                    tracker = restarted(&tracker, &delays);
                }
                prop_assert_eq!(&tracker, &undisturbed);
                prop_assert!(tracker.current_ms() >= before);
                let each = latest.iter().zip(&delays).map(|(latest, delay)| latest.map_or(0, |at| at - delay).max(0));
                let expected = if max { each.max() } else { each.min() };
                prop_assert_eq!(tracker.current_ms(), expected);
            }
        }
    }
}
