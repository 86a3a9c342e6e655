//! The functions of applyInPandasWithState: any number of rows a group.

use crate::{Event, Params, Seen, Totals};
use pelton::{Error, GroupState, Row, Rows, State, TimeMode, Timestamp};
use std::time::Duration;

#[derive(Row)]
pub struct Out<'a> {
    k: Option<&'a str>,
    event: &'static str,
    n_in: i32,
    cnt: Option<i64>,
    sm: Option<i64>,
    had_state: bool,
    wm_ms: Option<i64>,
    proc_ms: Option<i64>,
}

/// Totals, and the last event time in milliseconds.
#[derive(State, Clone, Copy)]
pub struct Session {
    cnt: i64,
    sm: i64,
    last: i64,
}

fn out<'a, S: State>(
    k: Option<&'a str>,
    (event, n_in): (&'static str, i32),
    totals: Totals,
    had_state: bool,
    state: &GroupState<S>,
    params: &Params,
) -> Out<'a> {
    Out {
        k,
        event,
        n_in,
        cnt: Some(totals.cnt),
        sm: Some(totals.sm),
        had_state,
        wm_ms: params.with_wm.then(|| state.current_watermark().millis()),
        proc_ms: params.with_proc.then(|| state.current_processing_time().millis()),
    }
}

/// Counts and sums for ever.
#[pelton::flat_map_groups(timeout = config.timeout_or(TimeMode::None))]
pub fn running_count_sum<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<Totals>,
    params: &Params,
) -> Option<Out<'a>> {
    let had = state.exists();
    let seen = Seen::of(rows);
    let totals = seen.added_to(state.get_option().copied().unwrap_or_default());
    state.update(totals);
    Some(out(key, ("data", seen.rows), totals, had, state, params))
}

/// Totals under other names.
#[derive(State, Clone, Copy, Default)]
pub struct Renamed {
    number: i64,
    total: i64,
}

/// As `running_count_sum`, with a state whose fields have other names.
#[pelton::flat_map_groups]
pub fn rc_renamed<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<Renamed>,
    params: &Params,
) -> Option<Out<'a>> {
    let had = state.exists();
    let seen = Seen::of(rows);
    let old = state.get_option().copied().unwrap_or_default();
    let totals = seen.added_to(Totals { cnt: old.number, sm: old.total });
    state.update(Renamed { number: totals.cnt, total: totals.sm });
    Some(out(key, ("data", seen.rows), totals, had, state, params))
}

/// Totals with a sum of another type.
#[derive(State, Clone, Copy, Default)]
pub struct Retyped {
    cnt: i64,
    sm: f64,
}

/// As `running_count_sum`, with a sum that is a double.
#[pelton::flat_map_groups]
pub fn rc_state_double<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<Retyped>,
    params: &Params,
) -> Option<Out<'a>> {
    let had = state.exists();
    let seen = Seen::of(rows);
    let old = state.get_option().copied().unwrap_or_default();
    let totals = seen.added_to(Totals { cnt: old.cnt, sm: old.sm as i64 });
    state.update(Retyped { cnt: totals.cnt, sm: totals.sm as f64 });
    Some(out(key, ("data", seen.rows), totals, had, state, params))
}

/// Counts and sums until a -1 comes.
#[pelton::flat_map_groups]
pub fn count_until_stop<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<Totals>,
    params: &Params,
) -> Option<Out<'a>> {
    let had = state.exists();
    let seen = Seen::of(rows);
    let totals = seen.added_to(state.get_option().copied().unwrap_or_default());
    if seen.has_stop {
        state.remove();
    } else {
        state.update(totals);
    }
    let event = if seen.has_stop { "stop" } else { "data" };
    Some(out(key, (event, seen.rows), totals, had, state, params))
}

/// A session that ends when the watermark has passed its last row by the gap.
#[pelton::flat_map_groups(timeout = config.timeout_or(TimeMode::EventTime))]
pub fn event_timeout_session<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<Session>,
    params: &Params,
) -> Result<Option<Out<'a>>, Error> {
    let had = state.exists();
    if state.has_timed_out() {
        let Session { cnt, sm, .. } = *state.get()?;
        state.remove();
        return Ok(Some(out(key, ("timeout", 0), Totals { cnt, sm }, had, state, params)));
    }
    let Session { cnt, sm, last } =
        state.get_option().copied().unwrap_or(Session { cnt: 0, sm: 0, last: -1 << 62 });
    let seen = Seen::of(rows);
    let totals = seen.added_to(Totals { cnt, sm });
    let last = last.max(seen.max_ms.unwrap_or(last));
    state.update(Session { cnt: totals.cnt, sm: totals.sm, last });
    state.set_timeout_timestamp(Timestamp::from_millis(last + params.gap_ms))?;
    Ok(params.emit_data.then(|| out(key, ("data", seen.rows), totals, had, state, params)))
}

/// A timeout that is set once, when the state is made.
#[pelton::flat_map_groups(timeout = config.timeout_or(TimeMode::EventTime))]
pub fn event_timeout_once<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<Totals>,
    params: &Params,
) -> Result<Option<Out<'a>>, Error> {
    let had = state.exists();
    let old = state.get_option().copied().unwrap_or_default();
    if state.has_timed_out() {
        let totals = Totals { cnt: old.cnt + 1000, ..old };
        state.update(totals);
        return Ok(Some(out(key, ("timeout", 0), totals, had, state, params)));
    }
    let seen = Seen::of(rows);
    let totals = seen.added_to(old);
    state.update(totals);
    if !had {
        state.set_timeout_timestamp(seen.max_plus(params.gap_ms).map_err(Error::Failed)?)?;
    }
    Ok(Some(out(key, ("data", seen.rows), totals, had, state, params)))
}

/// A timeout that is set again when it fires, once.
#[pelton::flat_map_groups(timeout = config.timeout_or(TimeMode::EventTime))]
pub fn event_timeout_rearm<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<Totals>,
    params: &Params,
) -> Result<Option<Out<'a>>, Error> {
    let had = state.exists();
    let old = state.get_option().copied().unwrap_or_default();
    if state.has_timed_out() {
        let totals = Totals { cnt: old.cnt + 1000, ..old };
        if totals.cnt >= 2000 {
            state.remove();
        } else {
            state.update(totals);
            let again = state.current_watermark() + Duration::from_millis(params.rearm_ms.unsigned_abs());
            state.set_timeout_timestamp(again)?;
        }
        return Ok(Some(out(key, ("timeout", 0), totals, had, state, params)));
    }
    let seen = Seen::of(rows);
    let totals = seen.added_to(old);
    state.update(totals);
    state.set_timeout_timestamp(seen.max_plus(params.gap_ms).map_err(Error::Failed)?)?;
    Ok(Some(out(key, ("data", seen.rows), totals, had, state, params)))
}

/// A session by the time of the micro-batches.
#[pelton::flat_map_groups(timeout = config.timeout_or(TimeMode::ProcessingTime))]
pub fn proc_timeout_session<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<Totals>,
    params: &Params,
) -> Result<Option<Out<'a>>, Error> {
    let had = state.exists();
    if state.has_timed_out() {
        let totals = *state.get()?;
        state.remove();
        return Ok(Some(out(key, ("timeout", 0), totals, had, state, params)));
    }
    let seen = Seen::of(rows);
    let totals = seen.added_to(state.get_option().copied().unwrap_or_default());
    state.update(totals);
    state.set_timeout_duration(Duration::from_millis(params.duration_ms))?;
    Ok(Some(out(key, ("data", seen.rows), totals, had, state, params)))
}

/// A timeout of a group that keeps nothing.
#[pelton::flat_map_groups(timeout = config.timeout_or(TimeMode::EventTime))]
pub fn timeout_without_state<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<i64>,
    params: &Params,
) -> Result<Option<Out<'a>>, Error> {
    let had = state.exists();
    if state.has_timed_out() {
        return Ok(Some(out(key, ("timeout", 0), Totals::default(), had, state, params)));
    }
    let seen = Seen::of(rows);
    state.set_timeout_timestamp(seen.max_plus(params.gap_ms).map_err(Error::Failed)?)?;
    Ok(Some(out(key, ("data", seen.rows), seen.added_to(Totals::default()), had, state, params)))
}

/// Sets a duration, whatever the timeout.
#[pelton::flat_map_groups(timeout = config.timeout_or(TimeMode::EventTime))]
pub fn wrong_duration_call<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<i64>,
    params: &Params,
) -> Result<Option<Out<'a>>, Error> {
    let seen = Seen::of(rows);
    state.update(i64::from(seen.rows));
    state.set_timeout_duration(Duration::from_millis(1000))?;
    Ok(Some(out(key, ("data", seen.rows), seen.added_to(Totals::default()), false, state, params)))
}

/// Sets a timestamp, whatever the timeout.
#[pelton::flat_map_groups(timeout = config.timeout_or(TimeMode::None))]
pub fn wrong_timestamp_call<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<i64>,
    params: &Params,
) -> Result<Option<Out<'a>>, Error> {
    let seen = Seen::of(rows);
    state.update(i64::from(seen.rows));
    state.set_timeout_timestamp(Timestamp::from_millis(1 << 50))?;
    Ok(Some(out(key, ("data", seen.rows), seen.added_to(Totals::default()), false, state, params)))
}

/// Asks for a state that is not there.
#[pelton::flat_map_groups]
pub fn get_missing_state<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    state: &mut GroupState<i64>,
    params: &Params,
) -> Result<Option<Out<'a>>, Error> {
    let seen = Seen::of(rows);
    let _ = state.get()?;
    Ok(Some(out(key, ("data", seen.rows), Totals::default(), false, state, params)))
}
