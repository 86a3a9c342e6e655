//! Flights as departures and arrivals: an example plugin over the flights that left New York in 2013.
//!
//! `pelton run` calls it through Wasm, its tests call its functions as they are. `flights-c` and `flights-wat`
//! beside it answer the same in other languages.

use pelton::{Emit, Row, Timestamp};

/// What `is_delayed` looks at.
#[derive(Row)]
pub struct Delay {
    /// Minutes behind schedule at departure; negative if early, null if the flight was cancelled.
    pub dep_delay: Option<f64>,
}

/// A flight that left more than 15 minutes late, which is what the airlines' statistics count as delayed.
#[pelton::filter]
pub fn is_delayed(flight: Delay) -> bool {
    flight.dep_delay.is_some_and(|minutes| minutes > 15.0)
}

/// Where a flight goes.
#[derive(Row)]
pub struct Connection<'a> {
    /// Two letters, as IATA gives them.
    pub carrier: &'a str,
    /// The carrier's number of the flight.
    pub flight: i64,
    /// The airport it leaves from.
    pub origin: &'a str,
    /// The airport it goes to.
    pub dest: &'a str,
}

/// A flight's name and route as shown on a board.
#[derive(Row, Debug, PartialEq)]
pub struct Board {
    /// Carrier in capitals and number: `UA1545`.
    pub flight: String,
    /// `EWR-IAH`
    pub route: String,
}

/// Names a flight and its route as a board does.
#[pelton::map]
pub fn board(to: Connection) -> Board {
    Board {
        flight: format!("{}{}", to.carrier.to_ascii_uppercase(), to.flight),
        route: format!("{}-{}", to.origin, to.dest),
    }
}

/// A flight as the statistics have it: one line, planned and real times together.
#[derive(Row, Clone)]
pub struct Flight<'a> {
    /// Two letters, as IATA gives them.
    pub carrier: &'a str,
    /// The carrier's number of the flight.
    pub flight: i64,
    /// The airport it leaves from.
    pub origin: &'a str,
    /// The airport it goes to.
    pub dest: &'a str,
    /// Local clock time as HHMM; null if the flight was cancelled.
    pub dep_time: Option<i32>,
    /// Minutes behind schedule.
    pub dep_delay: Option<f64>,
    /// Local clock time as HHMM; null if the flight never arrived.
    pub arr_time: Option<i32>,
    /// Minutes behind schedule; null if the flight landed elsewhere.
    pub arr_delay: Option<f64>,
    /// The hour of the planned departure.
    pub time_hour: Timestamp,
}

/// A departure or an arrival.
#[derive(Row, Debug, PartialEq)]
pub struct Event<'a> {
    /// As in [`Flight`].
    pub carrier: &'a str,
    /// As in [`Flight`].
    pub flight: i64,
    /// Where it happened.
    pub airport: &'a str,
    /// `departure` or `arrival`.
    pub event: &'static str,
    /// Minutes after local midnight.
    pub minute: i32,
    /// Minutes behind schedule.
    pub delay: Option<f64>,
    /// As in [`Flight`].
    pub time_hour: Timestamp,
}

/// Makes a departure and an arrival of each flight; a cancelled flight has neither. Refuses a flight with an
/// impossible clock time, and one that was diverted: where it landed, nobody wrote down.
#[pelton::flat_map]
pub fn events<'a>(flight: Flight<'a>, out: &mut Emit<Event<'a>>) -> Result<(), String> {
    let Flight { carrier, flight: number, time_hour, .. } = flight;
    if let Some(time) = flight.dep_time {
        let (airport, delay) = (flight.origin, flight.dep_delay);
        let minute = minute_of_day("dep_time", time)?;
        out.row(Event { carrier, flight: number, airport, event: "departure", minute, delay, time_hour });
    }
    if let Some(time) = flight.arr_time {
        let (airport, delay) = (flight.dest, flight.arr_delay);
        let minute = minute_of_day("arr_time", time)?;
        if delay.is_none() {
            return Err("arr_time without arr_delay: the flight was diverted".to_owned());
        }
        out.row(Event { carrier, flight: number, airport, event: "arrival", minute, delay, time_hour });
    }
    Ok(())
}

/// `517` is 05:17, 317 minutes after midnight; `2400` is the midnight that ends the day.
fn minute_of_day(column: &str, time: i32) -> Result<i32, String> {
    let (hour, minute) = (time.div_euclid(100), time.rem_euclid(100));
    if minute > 59 || !(0..=2400).contains(&time) {
        return Err(format!("{column} {time} is no time of day"));
    }
    Ok(60 * hour + minute)
}

pelton::plugin!(name: "flights", functions: [is_delayed, board, events]);

#[cfg(test)]
mod tests {
    use super::*;

    const FLIGHT: Flight<'static> = Flight {
        carrier: "UA",
        flight: 1545,
        origin: "EWR",
        dest: "IAH",
        dep_time: Some(517),
        dep_delay: Some(2.0),
        arr_time: Some(830),
        arr_delay: Some(11.0),
        time_hour: Timestamp(1_357_034_400_000_000),
    };

    /// A function is tested as a function …
    #[test]
    fn a_flight_departs_and_arrives() {
        let mut out = Emit::new();
        events(FLIGHT, &mut out).expect("nothing is wrong with it");
        let seen: Vec<_> = out.into_rows().iter().map(|e| (e.event, e.airport, e.minute)).collect();
        assert_eq!(seen, [("departure", "EWR", 317), ("arrival", "IAH", 510)]);
    }

    /// … or as the host calls it, batch in, batch out.
    #[test]
    fn refused_flights_leave_no_trace_in_the_output() {
        let late_night = Flight { dep_time: Some(2401), ..FLIGHT };
        let diverted = Flight { arr_delay: None, ..FLIGHT };
        let cancelled = Flight { dep_time: None, arr_time: None, ..FLIGHT };
        let answer = pelton::testing::function::<events>()
            .rows([late_night, diverted, cancelled, FLIGHT])
            .expect("the call succeeds");
        let refused: Vec<_> = answer.rejected().iter().map(|r| (r.row, r.reason.as_str())).collect();
        assert_eq!(
            refused,
            [
                (0, "dep_time 2401 is no time of day"),
                (1, "arr_time without arr_delay: the flight was diverted")
            ]
        );
        let minutes: Vec<Minute> = answer.rows().expect("the column is there");
        assert_eq!(minutes, [Minute { minute: 317 }, Minute { minute: 510 }]);
    }

    #[derive(Row, Debug, PartialEq)]
    struct Minute {
        minute: i32,
    }

    #[test]
    fn midnight_may_be_written_both_ways() {
        assert_eq!(minute_of_day("dep_time", 0), Ok(0));
        assert_eq!(minute_of_day("dep_time", 2400), Ok(1440));
        assert!(minute_of_day("dep_time", 1260).is_err());
        assert!(minute_of_day("dep_time", -5).is_err());
    }

    #[test]
    fn a_cancelled_flight_is_not_delayed() {
        assert!(!is_delayed(Delay { dep_delay: None }));
        assert!(!is_delayed(Delay { dep_delay: Some(15.0) }));
        assert!(is_delayed(Delay { dep_delay: Some(16.0) }));
    }
}
