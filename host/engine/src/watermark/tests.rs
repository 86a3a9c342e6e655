//! How watermarks move, restart and follow their policy.

use super::*;
use pelton_core::PartitionStatus;
use proptest::prelude::*;

fn infos(delays: &[i64]) -> Vec<WatermarkInfo> {
    let info = |(index, delay_ms): (usize, &i64)| WatermarkInfo {
        name: format!("w{index}"),
        column: "ts".into(),
        delay_ms: *delay_ms,
        per_partition: None,
    };
    delays.iter().enumerate().map(info).collect()
}

fn fresh(delays: &[i64], policy: WatermarkPolicy) -> WatermarkTracker {
    WatermarkTracker::new(&infos(delays), policy, &Recorded::default())
}

/// What the commit log has of it.
fn recorded(tracker: &WatermarkTracker) -> Recorded {
    Recorded {
        marks: tracker.record(),
        partitions: tracker.record_partitions(),
        query_ms: tracker.current_ms(),
    }
}

/// As a restart would find it.
fn restarted(tracker: &WatermarkTracker, delays: &[i64]) -> WatermarkTracker {
    WatermarkTracker::new(&infos(delays), tracker.policy, &recorded(tracker))
}

/// A micro-batch without partitions.
fn saw(seen: &[Option<i64>]) -> LatestTimes {
    LatestTimes { all: seen.to_vec(), partitions: vec![BTreeMap::new(); seen.len()] }
}

#[test]
fn begins_in_1970_and_stays_behind_the_latest_event_by_its_delay() {
    let mut tracker = fresh(&[10], WatermarkPolicy::Min);
    assert_eq!(tracker.current_ms(), Some(0));
    tracker.advance(&saw(&[Some(5)]), 0);
    assert_eq!(tracker.current_ms(), Some(0), "never before 1970");
    tracker.advance(&saw(&[Some(100)]), 0);
    tracker.advance(&saw(&[Some(30)]), 0);
    tracker.advance(&saw(&[None]), 0);
    assert_eq!(tracker.current_ms(), Some(90));
}

#[test]
fn a_query_without_watermarks_has_none() {
    let mut tracker = fresh(&[], WatermarkPolicy::Max);
    tracker.advance(&saw(&[]), 0);
    assert_eq!(tracker.current_ms(), None);
    let kept = Recorded {
        marks: BTreeMap::from([("w0".into(), 7)]),
        partitions: BTreeMap::new(),
        query_ms: Some(7),
    };
    let removed = WatermarkTracker::new(&[], WatermarkPolicy::Min, &kept);
    assert_eq!((removed.current_ms(), removed.record()), (None, BTreeMap::new()));
}

#[test]
fn a_source_without_rows_holds_min_back_and_not_max() {
    for (policy, expected) in [(WatermarkPolicy::Min, 0), (WatermarkPolicy::Max, 90)] {
        let mut tracker = fresh(&[10, 10], policy);
        tracker.advance(&saw(&[Some(100), None]), 0);
        assert_eq!(tracker.current_ms(), Some(expected), "{policy}");
    }
}

#[test]
fn after_a_restart_each_source_goes_on_where_it_was() {
    let mut tracker = fresh(&[10, 10], WatermarkPolicy::Min);
    tracker.advance(&saw(&[Some(300), Some(100)]), 0);
    let mut again = restarted(&tracker, &[10, 10]);
    assert_eq!(again, tracker);
    again.advance(&saw(&[None, Some(200)]), 0);
    assert_eq!(again.current_ms(), Some(190), "the first source is remembered at 290");
}

#[test]
fn a_new_source_or_a_longer_delay_stalls_the_querys_watermark_and_never_sets_it_back() {
    let mut tracker = fresh(&[10], WatermarkPolicy::Min);
    tracker.advance(&saw(&[Some(100)]), 0);
    let mut changed = restarted(&tracker, &[50, 10]);
    changed.advance(&saw(&[Some(120), Some(20)]), 0);
    assert_eq!(changed.current_ms(), Some(90));
    changed.advance(&saw(&[Some(160), Some(500)]), 0);
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
            let times = EventTimes::new(&infos(&delays));
            for part in events.chunks(3) {
                times.note(part);
                for (latest, event) in latest.iter_mut().zip(part) {
                    *latest = (*latest).max(*event);
                }
            }
            let before = tracker.current_ms();
            tracker.advance(&times.latest(), 0);
            undisturbed.advance(&times.latest(), 0);
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

const MINUTE: i64 = 60_000;

fn by_partition(idle_timeout_ms: Option<i64>) -> Vec<WatermarkInfo> {
    let per_partition = Some(PerPartition { sources: vec!["s".into()], idle_timeout_ms });
    vec![WatermarkInfo { per_partition, ..infos(&[10]).remove(0) }]
}

/// One source, a partition each letter: `A` reads something, `a` leaves something unread, `.` is caught up.
fn report(partitions: &str) -> Vec<SourcePartitions<'static>> {
    let status = |(index, what): (usize, char)| PartitionStatus {
        name: index.to_string(),
        has_data: what == 'A',
        caught_up: what == '.',
    };
    vec![SourcePartitions { source: "s", partitions: partitions.chars().enumerate().map(status).collect() }]
}

/// A micro-batch in which partitions deliver these latest times.
fn delivered(times: &[(usize, i64)]) -> LatestTimes {
    let all = times.iter().map(|(_, time)| *time).max();
    let partitions = times.iter().map(|(index, time)| (format!("s/{index}"), *time)).collect();
    LatestTimes { all: vec![all], partitions: vec![partitions] }
}

#[test]
fn the_slowest_partition_counts_and_a_silent_one_holds_it() {
    let mut tracker = WatermarkTracker::new(&by_partition(None), WatermarkPolicy::Min, &Recorded::default());
    tracker.plan(&report("A."), 0);
    tracker.advance(&delivered(&[(0, 100)]), 0);
    assert_eq!(tracker.current_ms(), Some(0), "partition 1 has delivered nothing");
    tracker.plan(&report("AA"), MINUTE);
    tracker.advance(&delivered(&[(0, 300), (1, 200)]), MINUTE);
    assert_eq!(tracker.current_ms(), Some(190));
    tracker.plan(&report("A."), 1000 * MINUTE);
    tracker.advance(&delivered(&[(0, 900)]), 1000 * MINUTE);
    assert_eq!(tracker.current_ms(), Some(190), "without a timeout none is ever idle");
    assert!(partitions::holds(&tracker.marks()[0].partitions, "s/1"));
    assert!(!partitions::holds(&tracker.marks()[0].partitions, "s/0"));
}

#[test]
fn an_idle_partition_is_left_out_until_it_has_something_to_read() {
    let infos = by_partition(Some(MINUTE));
    let mut tracker = WatermarkTracker::new(&infos, WatermarkPolicy::Min, &Recorded::default());
    tracker.plan(&report("AA"), 0);
    tracker.advance(&delivered(&[(0, 100), (1, 50)]), 0);
    tracker.plan(&report("A."), MINUTE - 1);
    tracker.advance(&delivered(&[(0, 300)]), MINUTE - 1);
    assert_eq!(tracker.current_ms(), Some(40), "not yet idle");
    tracker.plan(&report(".."), MINUTE);
    assert_eq!(tracker.current_ms(), Some(290), "time alone has passed");
    tracker.plan(&report("Aa"), 2 * MINUTE);
    tracker.advance(&delivered(&[(0, 900)]), 2 * MINUTE);
    assert_eq!(
        tracker.current_ms(),
        Some(290),
        "something of it is unread: it holds again, and nothing falls"
    );
    tracker.plan(&report("A."), 3 * MINUTE);
    assert_eq!(tracker.current_ms(), Some(890));
}

#[test]
fn an_unread_partition_is_never_idle() {
    let infos = by_partition(Some(0));
    let mut tracker = WatermarkTracker::new(&infos, WatermarkPolicy::Min, &Recorded::default());
    for minute in 0..100 {
        tracker.plan(&report("Aa"), minute * MINUTE);
        tracker.advance(&delivered(&[(0, minute)]), minute * MINUTE);
    }
    assert_eq!(tracker.current_ms(), Some(0));
}

#[test]
fn the_latest_of_all_counts_when_all_are_idle_whichever_was_first() {
    for first in ["A.", ".A"] {
        let infos = by_partition(Some(MINUTE));
        let mut tracker = WatermarkTracker::new(&infos, WatermarkPolicy::Min, &Recorded::default());
        tracker.plan(&report("AA"), 0);
        tracker.advance(&delivered(&[(0, 100), (1, 50)]), 0);
        tracker.plan(&report(first), MINUTE);
        tracker.advance(&delivered(&[]), MINUTE);
        tracker.plan(&report(".."), 2 * MINUTE);
        assert_eq!(tracker.current_ms(), Some(90), "{first}");
    }
}

#[test]
fn an_idle_source_does_not_hold_the_others() {
    let mut infos = infos(&[10, 10]);
    infos[0].per_partition = Some(PerPartition { sources: vec!["s".into()], idle_timeout_ms: Some(MINUTE) });
    let mut tracker = WatermarkTracker::new(&infos, WatermarkPolicy::Min, &Recorded::default());
    tracker.plan(&report("A"), 0);
    let times = |first: &[(&str, i64)], second| LatestTimes {
        all: vec![None, Some(second)],
        partitions: vec![first.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect(), BTreeMap::new()],
    };
    tracker.advance(&times(&[("s/0", 100)], 500), 0);
    assert_eq!(tracker.current_ms(), Some(90));
    assert!(tracker.waits_for(&tracker.marks()[0]) && !tracker.waits_for(&tracker.marks()[1]));
    tracker.plan(&report("."), MINUTE);
    assert_eq!(tracker.current_ms(), Some(490));
}

proptest! {
    /// Whatever the partitions do: the watermark never falls, follows the slowest that is not idle, never passes one
    /// that has something unread and that it had not passed before, and a restart anywhere changes nothing.
    #[test]
    fn partitions_never_let_it_fall_or_pass_unread_rows(
        turns in prop::collection::vec(
            (prop::collection::vec(prop::sample::select(vec!['A', 'a', '.']), 3),
             prop::collection::vec(0..5000_i64, 3), 0..2 * MINUTE, any::<bool>()), 0..30),
        timeout in prop::option::of(0..3 * MINUTE),
    ) {
        let infos = by_partition(timeout);
        let mut tracker = WatermarkTracker::new(&infos, WatermarkPolicy::Min, &Recorded::default());
        let (mut now, mut latest) = (0, [None::<i64>; 3]);
        for (what, times, passed, restart) in turns {
            now += passed;
            let text: String = what.iter().collect();
            let before = tracker.current_ms();
            tracker.plan(&report(&text), now);
            prop_assert!(tracker.current_ms() >= before);
            let planned = tracker.clone();
            let seen: Vec<(usize, i64)> = (0..3).filter(|at| what[*at] == 'A').map(|at| (at, times[at])).collect();
            tracker.advance(&delivered(&seen), now);
            for (at, time) in seen.clone() {
                latest[at] = latest[at].max(Some(time));
            }
            prop_assert!(tracker.current_ms() >= planned.current_ms());
            for at in (0..3).filter(|at| what[*at] != '.') {
                let bound = latest[at].map_or(0, |latest| (latest - 10).max(0));
                prop_assert!(tracker.current_ms() <= before.max(Some(bound)));
            }
            // The micro-batch runs again from what both logs have, or the query goes on from the commit log.
            let rerun = Recorded { marks: BTreeMap::new(), ..recorded(&planned) };
            let mut rerun = WatermarkTracker::new(&infos, WatermarkPolicy::Min, &rerun);
            rerun.advance(&delivered(&seen), now);
            prop_assert_eq!(rerun.current_ms(), tracker.current_ms());
            if restart {
                let again = WatermarkTracker::new(&infos, WatermarkPolicy::Min, &recorded(&tracker));
                prop_assert_eq!(&again, &tracker);
                tracker = again;
            }
        }
    }
}
