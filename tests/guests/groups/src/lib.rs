//! The functions over groups that the oracle's cases name, as real Spark ran them: `python` those of
//! applyInPandasWithState, `scala` those of map- and flatMapGroupsWithState, `processors` those of transformWithState.
//! Their parameters are the plugin's `config`, under the names of the cases' `params`; `timeout` is the cases' `timeout`
//! (Spark's names), for the functions that are tried under several.

#![allow(missing_docs, private_interfaces, reason = "the oracle says what each function is")]

pub mod processors;
pub mod python;
pub mod scala;
pub mod versions;

use pelton::{Row, Rows, State, TimeMode, Timestamp};
use std::time::Duration;

/// The cases' `params`.
#[derive(pelton::Config)]
pub struct Params {
    #[config(default)]
    gap_ms: i64,
    #[config(default)]
    rearm_ms: i64,
    #[config(default)]
    duration_ms: u64,
    #[config(default = 1_u64)]
    ttl_ms: u64,
    #[config(default = true)]
    emit_data: bool,
    #[config(default)]
    with_wm: bool,
    #[config(default)]
    with_proc: bool,
    timeout: Option<String>,
}

impl Params {
    /// The case's timeout, or what the function is made for.
    fn timeout_or(&self, own: TimeMode) -> TimeMode {
        match self.timeout.as_deref() {
            Some("NoTimeout") => TimeMode::None,
            Some("EventTimeTimeout") => TimeMode::EventTime,
            Some("ProcessingTimeTimeout") => TimeMode::ProcessingTime,
            _ => own,
        }
    }
    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// An input row.
#[derive(Row)]
pub struct Event {
    v: Option<i64>,
    ts: Option<Timestamp>,
}

/// A count and a sum.
#[derive(State, Clone, Copy, Default)]
pub struct Totals {
    cnt: i64,
    sm: i64,
}

/// What the rows of a call come to.
#[derive(Default)]
struct Seen {
    rows: i32,
    sum: i64,
    has_stop: bool,
    max_ms: Option<i64>,
}

impl Seen {
    fn of(rows: Rows<'_, Event>) -> Self {
        let mut seen = Self::default();
        for row in rows {
            seen.rows += 1;
            seen.sum += row.v.unwrap_or(0);
            seen.has_stop |= row.v == Some(-1);
            seen.max_ms = seen.max_ms.max(row.ts.map(Timestamp::millis));
        }
        seen
    }
    fn added_to(&self, totals: Totals) -> Totals {
        Totals { cnt: totals.cnt + i64::from(self.rows), sm: totals.sm + self.sum }
    }
    /// The largest event time of the call and so much more.
    fn max_plus(&self, ms: i64) -> Result<Timestamp, String> {
        let max = self.max_ms.ok_or("no row of the call has a time")?;
        Ok(Timestamp::from_millis(max + ms))
    }
}

pelton::plugin!(
    name: "groups",
    functions: [
        python::running_count_sum,
        python::rc_renamed,
        python::rc_state_double,
        python::count_until_stop,
        python::event_timeout_session,
        python::event_timeout_once,
        python::event_timeout_rearm,
        python::proc_timeout_session,
        python::timeout_without_state,
        python::wrong_duration_call,
        python::wrong_timestamp_call,
        python::get_missing_state,
        scala::scala_running_count_sum,
        scala::scala_count_until_stop,
        scala::scala_event_timeout_simple,
        scala::scala_remove_then_timeout,
        scala::scala_timeout_then_remove,
        scala::scala_set_timeout_always,
        scala::scala_get_missing,
        scala::scala_update_null,
        scala::scala_duration_under_event,
        scala::scala_timestamp_under_none,
        scala::scala_proc_timeout_simple,
        scala::flat::scala_running_count_sum_flat,
        scala::flat::scala_count_until_stop_flat,
        scala::flat::scala_event_timeout_simple_flat,
        scala::flat::scala_remove_then_timeout_flat,
        scala::flat::scala_timeout_then_remove_flat,
        scala::flat::scala_set_timeout_always_flat,
        scala::flat::scala_get_missing_flat,
        scala::flat::scala_update_null_flat,
        scala::flat::scala_duration_under_event_flat,
        scala::flat::scala_timestamp_under_none_flat,
        scala::flat::scala_proc_timeout_simple_flat,
        processors::tws_value_count,
        processors::tws_list_map,
        processors::tws_event_timer,
        processors::tws_proc_timer,
        processors::tws_ttl,
        versions::sum_v1,
        versions::sum_v2,
        versions::kinds_v1,
        versions::kinds_v2,
        versions::kinds_without_map,
    ]
);
