//! The functions of mapGroupsWithState, and in `flat` the same ones of flatMapGroupsWithState.

use crate::{Event, Params, Seen, Totals};
use pelton::{Error, GroupState, Row, Rows, TimeMode, Timestamp};
use std::time::Duration;

#[derive(Row)]
pub struct Out<'a> {
    k: Option<&'a str>,
    event: &'static str,
    n_in: i32,
    cnt: i64,
    sm: i64,
    had_state: bool,
    wm_ms: Option<i64>,
}

/// What each function does with its group: the event, rows, totals, and what stands in `wm_ms` if not the watermark.
type Step = (&'static str, i32, Totals, Option<i64>);

fn step(
    function: &str,
    rows: Rows<'_, Event>,
    state: &mut GroupState<Totals>,
    gap_ms: i64,
) -> Result<Step, Error> {
    let timed_out = state.has_timed_out();
    let old = state.get_option().copied().unwrap_or_default();
    let seen = Seen::of(rows);
    let (rows, totals) = (seen.rows, seen.added_to(old));
    let own = seen.added_to(Totals::default());
    let due = |seen: &Seen| seen.max_plus(gap_ms).map_err(Error::Failed);
    match function {
        "running_count_sum" => state.update(totals),
        "count_until_stop" if seen.has_stop => {
            state.remove();
            return Ok(("stop", rows, totals, None));
        }
        "count_until_stop" => state.update(totals),
        "event_timeout_simple" | "proc_timeout_simple" if timed_out => {
            let totals = *state.get()?;
            state.remove();
            return Ok(("timeout", 0, totals, now(function, state)));
        }
        "event_timeout_simple" => {
            state.update(totals);
            state.set_timeout_timestamp(due(&seen)?)?;
        }
        "proc_timeout_simple" => {
            state.update(totals);
            state.set_timeout_duration(Duration::from_millis(gap_ms.unsigned_abs()))?;
            return Ok(("data", rows, totals, now(function, state)));
        }
        "remove_then_timeout" | "timeout_then_remove" if timed_out => {
            return Ok(("timeout", 0, Totals::default(), None));
        }
        "remove_then_timeout" => {
            state.update(own);
            state.remove();
            state.set_timeout_timestamp(due(&seen)?)?;
            return Ok(("data", rows, own, None));
        }
        "timeout_then_remove" => {
            state.update(own);
            state.set_timeout_timestamp(due(&seen)?)?;
            state.remove();
            return Ok(("data", rows, own, None));
        }
        "set_timeout_always" => {
            state.update(totals);
            if timed_out {
                return Ok(("timeout", rows, totals, None));
            }
            state.set_timeout_timestamp(due(&seen)?)?;
        }
        "get_missing" => return Ok(("data", 0, *state.get()?, None)),
        "update_null" => return Err(Error::Failed("'null' is not a valid state value".to_owned())),
        "duration_under_event" => {
            state.set_timeout_duration(Duration::from_millis(1000))?;
            return Ok(("data", 0, Totals::default(), None));
        }
        _ => {
            state.set_timeout_timestamp(Timestamp::from_millis(1 << 50))?;
            return Ok(("data", 0, Totals::default(), None));
        }
    }
    Ok(("data", rows, totals, None))
}

fn now(function: &str, state: &GroupState<Totals>) -> Option<i64> {
    (function == "proc_timeout_simple").then(|| state.current_processing_time().millis())
}

fn out<'a>(
    function: &str,
    k: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<Totals>,
    params: &Params,
) -> Result<Out<'a>, Error> {
    let had_state = state.exists();
    let watermark = params.with_wm.then(|| state.current_watermark().millis());
    let (event, n_in, Totals { cnt, sm }, now) = step(function, rows, state, params.gap_ms)?;
    Ok(Out { k, event, n_in, cnt, sm, had_state, wm_ms: now.or(watermark) })
}

/// Each function in both forms.
macro_rules! functions {
    ($($function:literal $name:ident $flat:ident $time_mode:ident;)+) => {
        $(
            #[doc = $function]
            #[pelton::map_groups(timeout = config.timeout_or(TimeMode::$time_mode))]
            pub fn $name<'a>(
                key: Option<&'a str>,
                rows: Rows<'_, Event>,
                state: &mut GroupState<Totals>,
                params: &Params,
            ) -> Result<Out<'a>, Error> {
                out($function, key, rows, state, params)
            }
        )+
        /// The same for any number of rows.
        pub mod flat {
            use super::*;
            $(
                #[doc = $function]
                #[pelton::flat_map_groups(timeout = config.timeout_or(TimeMode::$time_mode))]
                pub fn $flat<'a>(
                    key: Option<&'a str>,
                    rows: Rows<'_, Event>,
                    state: &mut GroupState<Totals>,
                    params: &Params,
                ) -> Result<Option<Out<'a>>, Error> {
                    out($function, key, rows, state, params).map(Some)
                }
            )+
        }
    };
}

functions! {
    "running_count_sum" scala_running_count_sum scala_running_count_sum_flat None;
    "count_until_stop" scala_count_until_stop scala_count_until_stop_flat None;
    "event_timeout_simple" scala_event_timeout_simple scala_event_timeout_simple_flat EventTime;
    "remove_then_timeout" scala_remove_then_timeout scala_remove_then_timeout_flat EventTime;
    "timeout_then_remove" scala_timeout_then_remove scala_timeout_then_remove_flat EventTime;
    "set_timeout_always" scala_set_timeout_always scala_set_timeout_always_flat EventTime;
    "get_missing" scala_get_missing scala_get_missing_flat None;
    "update_null" scala_update_null scala_update_null_flat None;
    "duration_under_event" scala_duration_under_event scala_duration_under_event_flat EventTime;
    "timestamp_under_none" scala_timestamp_under_none scala_timestamp_under_none_flat None;
    "proc_timeout_simple" scala_proc_timeout_simple scala_proc_timeout_simple_flat ProcessingTime;
}
