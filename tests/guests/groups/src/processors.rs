//! The functions of transformWithState. Spark knows timers by their time: here they are named by it, in milliseconds.

use crate::{Event, Params};
use pelton::{Error, ListState, MapState, Row, Rows, Timer, Timers, Timestamp, ValueState};

#[derive(Row)]
pub struct Out<'a> {
    k: Option<&'a str>,
    event: &'static str,
    cnt: Option<i64>,
    extra: Option<String>,
}

fn out<'a>(k: Option<&'a str>, event: &'static str, cnt: i64, extra: Option<String>) -> Out<'a> {
    Out { k, event, cnt: Some(cnt), extra }
}

fn joined<T: std::fmt::Display>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

/// Counts until a -1 comes.
#[pelton::processor]
pub fn tws_value_count<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    cnt: &mut ValueState<i64>,
) -> Option<Out<'a>> {
    let (mut count, mut has_stop) = (cnt.get().copied().unwrap_or(0), false);
    for row in rows {
        count += 1;
        has_stop |= row.v == Some(-1);
    }
    if has_stop {
        cnt.clear();
    } else {
        cnt.update(count);
    }
    Some(out(key, if has_stop { "stop" } else { "data" }, count, None))
}

/// Keeps all values in a list and counts them in a map.
#[pelton::processor]
pub fn tws_list_map<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    l: &mut ListState<i64>,
    m: &mut MapState<i64, i64>,
) -> Option<Out<'a>> {
    for v in rows.filter_map(|row| row.v) {
        l.append(v);
        m.update(v, m.get(&v).copied().unwrap_or(0) + 1);
    }
    let counts = m.iter().map(|(v, n)| format!("{v}:{n}"));
    let extra = format!("list={};map={}", joined(l.iter()), joined(counts));
    Some(out(key, "data", m.len() as i64, Some(extra)))
}

/// A timer for each call, by event time.
#[pelton::processor(time_mode = "event_time")]
pub fn tws_event_timer<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    cnt: &mut ValueState<i64>,
    timers: &mut Timers,
    params: &Params,
) -> Result<Option<Out<'a>>, Error> {
    let watermark = timers.current_watermark().millis();
    if let Some(Timer { at, .. }) = timers.fired() {
        let extra = format!("exp={};wm={watermark}", at.millis());
        return Ok(Some(out(key, "timer", cnt.get().copied().unwrap_or(-1), Some(extra))));
    }
    let (mut count, mut max) = (cnt.get().copied().unwrap_or(0), None);
    for row in rows {
        count += 1;
        max = max.max(row.ts.map(Timestamp::millis));
    }
    cnt.update(count);
    let due = max.ok_or_else(|| Error::Failed("no row of the call has a time".to_owned()))? + params.gap_ms;
    timers.set(due.to_string(), Timestamp::from_millis(due))?;
    let pending = joined(timers.pending().map(|timer| timer.at.millis()));
    Ok(Some(out(key, "data", count, Some(format!("wm={watermark};timers={pending}")))))
}

/// One timer that every call puts off, by processing time.
#[pelton::processor(time_mode = "processing_time")]
pub fn tws_proc_timer<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    cnt: &mut ValueState<i64>,
    t: &mut ValueState<i64>,
    timers: &mut Timers,
    params: &Params,
) -> Result<Option<Out<'a>>, Error> {
    let now = timers.current_processing_time().millis();
    if let Some(Timer { at, .. }) = timers.fired() {
        let extra = format!("exp={};pt={now}", at.millis());
        let count = cnt.get().copied().unwrap_or(-1);
        cnt.clear();
        t.clear();
        return Ok(Some(out(key, "timer", count, Some(extra))));
    }
    let count = cnt.get().copied().unwrap_or(0) + rows.count() as i64;
    cnt.update(count);
    if let Some(before) = t.get() {
        timers.delete(&before.to_string());
    }
    let due = now + params.gap_ms;
    timers.set(due.to_string(), Timestamp::from_millis(due))?;
    t.update(due);
    Ok(Some(out(key, "data", count, Some(format!("pt={now}")))))
}

/// A count that is forgotten when nothing comes for a while.
#[pelton::processor(time_mode = "processing_time")]
pub fn tws_ttl<'a>(
    key: Option<&'a str>,
    rows: Rows<'_, Event>,
    #[state(ttl = config.ttl())] cnt: &mut ValueState<i64>,
    timers: &mut Timers,
    _params: &Params,
) -> Option<Out<'a>> {
    let count = cnt.get().copied().unwrap_or(0) + rows.count() as i64;
    cnt.update(count);
    let now = timers.current_processing_time().millis();
    Some(out(key, "data", count, Some(format!("pt={now}"))))
}
