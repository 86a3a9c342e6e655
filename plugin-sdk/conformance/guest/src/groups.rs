//! Functions over groups of rows: `../../cases/totals.json` and `../../cases/groups.json` say what they must answer.

use pelton::{Error, GroupState, ListState, MapState, Row, Rows, State, Timers, Timestamp, ValueState};
use std::time::Duration;

/// A carrier is over when the watermark has passed its last flight by so much.
const QUIET: Duration = Duration::from_secs(6 * 3600);

/// A flight.
#[derive(Row)]
pub struct Flight {
    dep_delay: Option<f64>,
    time_hour: Timestamp,
}

/// What is kept of a carrier.
#[derive(State, Clone, Copy, Default)]
pub struct Kept {
    flights: i64,
    minutes: f64,
    last: Timestamp,
}

/// What a carrier comes to.
#[derive(Row)]
pub struct Totals<'a> {
    carrier: Option<&'a str>,
    flights: i64,
    minutes: f64,
    is_over: bool,
}

/// Flights and minutes of delay of each carrier.
#[pelton::map_groups(timeout = "event_time")]
pub fn totals<'a>(
    carrier: Option<&'a str>,
    flights: Rows<'_, Flight>,
    state: &mut GroupState<Kept>,
) -> Result<Totals<'a>, Error> {
    let mut kept = state.get_option().copied().unwrap_or_default();
    for flight in flights {
        kept.flights += 1;
        kept.minutes += flight.dep_delay.unwrap_or_default();
        kept.last = kept.last.max(flight.time_hour);
    }
    let is_over = state.has_timed_out();
    if is_over {
        state.remove();
    } else {
        state.update(kept);
        state.set_timeout_timestamp(kept.last + QUIET)?;
    }
    Ok(Totals { carrier, flights: kept.flights, minutes: kept.minutes, is_over })
}

/// A visit.
#[derive(Row)]
pub struct Visit<'a> {
    page: &'a str,
    at: Timestamp,
}

/// What was counted before there was a time.
#[derive(State, Clone)]
pub struct PageV1 {
    visits: i64,
}

/// What is kept of a page.
#[derive(State, Clone)]
#[state(version = 2, from = PageV1)]
pub struct Page {
    visits: i64,
    last: Option<Timestamp>,
}

impl From<PageV1> for Page {
    fn from(old: PageV1) -> Self {
        Self { visits: old.visits, last: None }
    }
}

/// What a call saw.
#[derive(Row)]
pub struct Seen<'a> {
    user: &'a str,
    event: String,
    visits: i64,
    recent: String,
    pages: i64,
}

/// Visits of users: how many, the last pages, each page. A timer says goodbye, another forgets.
#[pelton::processor(time_mode = "processing_time")]
pub fn visits<'a>(
    user: &'a str,
    rows: Rows<'_, Visit<'_>>,
    count: &mut ValueState<i64>,
    #[state(load = last(2))] recent: &mut ListState<String>,
    #[state(load = keyed_by(page), ttl = "1 day")] pages: &mut MapState<String, Page>,
    timers: &mut Timers,
) -> Result<Option<Seen<'a>>, Error> {
    let fired = timers.fired().map(|timer| timer.name.clone());
    let event = fired.clone().unwrap_or_else(|| "visit".to_owned());
    for visit in rows {
        count.update(count.get().copied().unwrap_or(0) + 1);
        recent.append(visit.page.to_owned());
        let visits = pages.get(&visit.page.to_owned()).map_or(0, |page| page.visits);
        pages.update(visit.page.to_owned(), Page { visits: visits + 1, last: Some(visit.at) });
        if visit.page == "logout" {
            pages.remove("login".to_owned());
            timers.delete("goodbye");
        }
    }
    match fired.as_deref() {
        None => {
            timers.set_after("goodbye", "10 minutes")?;
            timers.set_after("forget", "1 day")?;
        }
        Some("forget") => {
            count.clear();
            recent.clear();
            pages.clear();
        }
        Some(_) => {}
    }
    Ok(Some(Seen {
        user,
        event,
        visits: count.get().copied().unwrap_or(0),
        recent: recent.iter().cloned().collect::<Vec<_>>().join(","),
        pages: pages.len() as i64,
    }))
}
