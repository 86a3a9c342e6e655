//! Sessions of activity, by event time. See the README beside it.

use pelton::{Config, Error, GroupState, Row, Rows, State, TimeSpan, Timestamp};
use std::time::Duration;

/// The plugin's configuration.
#[derive(Config)]
pub struct Settings {
    #[config(default = "30 minutes")]
    gap: String,
}

impl Settings {
    fn gap(&self) -> Result<Duration, Error> {
        let micros = self.gap.as_str().micros().map_err(|why| Error::Unsuitable(format!("'gap': {why}")))?;
        match u64::try_from(micros) {
            Ok(micros) if micros > 0 => Ok(Duration::from_micros(micros)),
            _ => Err(Error::Unsuitable("'gap' must be longer than nothing".to_owned())),
        }
    }
}

/// An event of a key.
#[derive(Row)]
pub struct Event {
    /// When it happened.
    pub ts: Timestamp,
}

/// A session that may still grow.
#[derive(Row, Clone, Copy, PartialEq, Debug)]
pub struct Open {
    start: Timestamp,
    last: Timestamp,
    events: i64,
}

/// The sessions of a key that may still grow, by their start.
#[derive(State, Clone, Default)]
pub struct Sessions {
    open: Vec<Open>,
}

/// A session that is over.
#[derive(Row, Debug, PartialEq)]
pub struct Session<'a> {
    /// Whose it is.
    pub key: &'a str,
    /// Its first event.
    pub start: Timestamp,
    /// Its last event.
    pub end: Timestamp,
    /// How many there were.
    pub events: i64,
}

/// Sessions of each key: they end when nothing came for the configured gap.
#[pelton::flat_map_groups(timeout = "event_time")]
pub fn sessionize<'a>(
    key: &'a str,
    events: Rows<'_, Event>,
    sessions: &mut GroupState<Sessions>,
    settings: &Settings,
) -> Result<Vec<Session<'a>>, Error> {
    let gap = settings.gap()?;
    let mut open = sessions.get_option().map_or_else(Vec::new, |sessions| sessions.open.clone());
    for event in events {
        join(&mut open, event.ts, gap);
    }
    let watermark = sessions.current_watermark();
    let (over, open): (Vec<Open>, Vec<Open>) =
        open.into_iter().partition(|session| session.last + gap <= watermark);
    match open.iter().map(|session| session.last + gap).min() {
        // A timeout is due when the watermark has passed it; a session is over when the watermark has reached its end.
        Some(end) => {
            sessions.set_timeout_timestamp(end - Duration::from_micros(1))?;
            sessions.update(Sessions { open });
        }
        None => sessions.remove(),
    }
    let session = |Open { start, last, events }| Session { key, start, end: last, events };
    Ok(over.into_iter().map(session).collect())
}

/// Adds an event; the sessions that it touches become one.
fn join(open: &mut Vec<Open>, ts: Timestamp, gap: Duration) {
    let touches = |session: &Open| session.start <= ts + gap && ts <= session.last + gap;
    let mut joined = Open { start: ts, last: ts, events: 1 };
    open.retain(|session| {
        if touches(session) {
            joined.start = joined.start.min(session.start);
            joined.last = joined.last.max(session.last);
            joined.events += session.events;
        }
        !touches(session)
    });
    let place = open.partition_point(|session| session.start < joined.start);
    open.insert(place, joined);
}

pelton::plugin!(name: "sessionize", functions: [sessionize]);

#[cfg(test)]
mod tests {
    use super::*;
    use pelton::testing;

    #[derive(Row)]
    struct Visit {
        key: &'static str,
        ts: Timestamp,
    }

    fn visits(minutes: &[i64]) -> Vec<Visit> {
        minutes.iter().map(|minute| Visit { key: "ann", ts: at(*minute) }).collect()
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_millis(minute * 60_000)
    }

    fn session(start: i64, end: i64, events: i64) -> Session<'static> {
        Session { key: "ann", start: at(start), end: at(end), events }
    }

    #[test]
    fn a_session_ends_when_the_watermark_has_reached_the_end_of_its_gap() -> Result<(), Error> {
        let mut script = testing::groups::<sessionize>(&["key"]).config(r#"{"gap": "10 minutes"}"#);
        assert!(script.rows(visits(&[100, 108, 104]))?.rows::<Session<'_>>()?.is_empty());
        let batch = script.restart().watermark(at(117)).no_rows()?;
        assert!(batch.rows::<Session<'_>>()?.is_empty());
        let batch = script.watermark(at(118)).no_rows()?;
        assert_eq!(batch.rows::<Session<'_>>()?, [session(100, 108, 3)]);
        assert_eq!(script.groups(), 0, "nothing is kept of a key without open sessions");
        Ok(())
    }

    #[test]
    fn an_event_out_of_order_joins_the_sessions_that_it_touches() -> Result<(), Error> {
        let mut script = testing::groups::<sessionize>(&["key"]).config(r#"{"gap": "10 minutes"}"#);
        script.rows(visits(&[100, 120]))?;
        script.rows(visits(&[110]))?;
        script.rows(visits(&[200]))?;
        let batch = script.watermark(at(150)).no_rows()?;
        assert_eq!(batch.rows::<Session<'_>>()?, [session(100, 120, 3)]);
        let batch = script.watermark(at(300)).no_rows()?;
        assert_eq!(batch.rows::<Session<'_>>()?, [session(200, 200, 1)]);
        Ok(())
    }

    #[test]
    fn a_gap_that_is_none_is_refused() {
        let mut script = testing::groups::<sessionize>(&["key"]).config(r#"{"gap": "soon"}"#);
        assert!(script.rows(visits(&[1])).is_err_and(|why| why.to_string().contains("'gap'")));
    }
}
