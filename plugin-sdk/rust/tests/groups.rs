//! Functions over groups, driven by script as the host drives them.
#![allow(clippy::unwrap_used)]

use pelton::testing::groups;
use pelton::{
    Error, GroupState, ListState, MapState, Row, Rows, State, TimeMode, Timers, Timestamp, ValueState,
};
use std::time::Duration;

#[derive(Row)]
struct Payment<'a> {
    user: Option<&'a str>,
    shop: &'a str,
    amount: Option<i64>,
    at: Timestamp,
}

fn pay<'a>(user: &'a str, amount: i64, second: i64) -> Payment<'a> {
    Payment { user: Some(user), shop: "s", amount: Some(amount), at: Timestamp::from_millis(second * 1000) }
}

#[derive(Row)]
struct Amount {
    amount: i64,
    at: Timestamp,
}

#[derive(State, Clone, Debug, PartialEq)]
struct Totals {
    count: i64,
    sum: i64,
}

#[derive(Row, Debug, PartialEq)]
struct Total {
    user: String,
    count: i64,
    sum: i64,
    over: bool,
}

/// A count and a sum, until nothing has come for ten seconds.
#[pelton::map_groups(timeout = "event_time")]
fn totals(user: &str, rows: Rows<'_, Amount>, state: &mut GroupState<Totals>) -> Result<Total, Error> {
    let Totals { mut count, mut sum } = state.get_option().cloned().unwrap_or(Totals { count: 0, sum: 0 });
    if state.has_timed_out() {
        state.remove();
        return Ok(Total { user: user.to_owned(), count, sum, over: true });
    }
    let mut last = Timestamp(0);
    for row in rows {
        (count, sum, last) = (count + 1, sum + row.amount, last.max(row.at));
    }
    state.update(Totals { count, sum });
    state.set_timeout_timestamp(last + Duration::from_secs(10))?;
    Ok(Total { user: user.to_owned(), count, sum, over: false })
}

fn total(user: &str, count: i64, sum: i64, over: bool) -> Total {
    Total { user: user.to_owned(), count, sum, over }
}

#[test]
fn a_group_keeps_its_state_until_its_timeout() {
    let mut script = groups::<totals>(&["user"]);
    let batch = script.rows([pay("ann", 3, 1), pay("bob", 1, 2), pay("ann", 4, 3)]).unwrap();
    assert_eq!(batch.rows::<Total>().unwrap(), [total("ann", 2, 7, false), total("bob", 1, 1, false)]);
    assert_eq!(script.entries::<String, Totals>("state").unwrap().len(), 2);
    script.restart().watermark(Timestamp::from_millis(12_000));
    let batch = script.no_rows().unwrap();
    assert_eq!(batch.rows::<Total>().unwrap(), [], "a timeout at the watermark has not passed");
    script.watermark(Timestamp::from_millis(12_500));
    let batch = script.rows([pay("bob", 5, 20)]).unwrap();
    assert_eq!(batch.rows::<Total>().unwrap(), [total("bob", 2, 6, false)], "rows come before the timeout");
    script.watermark(Timestamp::from_millis(14_000));
    assert_eq!(script.no_rows().unwrap().rows::<Total>().unwrap(), [total("ann", 2, 7, true)]);
    assert_eq!(script.groups(), 1);
    let kept = script.entries::<String, Totals>("state").unwrap();
    assert_eq!(kept, [("bob".to_owned(), Totals { count: 2, sum: 6 })]);
}

#[test]
fn rows_with_nulls_are_refused_and_the_others_counted() {
    let mut script = groups::<totals>(&["user"]);
    let batch = script.rows([pay("ann", 3, 1), Payment { amount: None, ..pay("ann", 0, 1) }]).unwrap();
    assert_eq!(batch.rows::<Total>().unwrap(), [total("ann", 1, 3, false)]);
    assert_eq!(batch.rejected()[0].row, 1);
    assert_eq!(batch.rejected()[0].reason, "column 'amount' is null");
    let error = script.rows([Payment { user: None, ..pay("", 1, 1) }]).err().unwrap();
    assert!(error.message().contains("argument 1 is null"), "{error}");
}

#[test]
fn a_timeout_before_the_watermark_is_an_error() {
    let mut script = groups::<totals>(&["user"]);
    script.watermark(Timestamp::from_millis(60_000));
    let error = script.rows([pay("ann", 1, 1)]).err().unwrap();
    assert_eq!(
        error.message(),
        "Timeout timestamp (11000) cannot be earlier than the current watermark (60000)"
    );
}

#[derive(Row, Debug, PartialEq)]
struct Word {
    word: String,
}

/// What a state says to wrong use.
#[pelton::flat_map_groups(timeout = "processing_time")]
fn wrong(_: Option<&str>, rows: Rows<'_, Amount>, state: &mut GroupState<i64>) -> Vec<Word> {
    let what = rows.map(|row| row.amount).next().unwrap_or(-1);
    let outcome = match what {
        0 => state.get().map(drop),
        1 => state.set_timeout_timestamp(Timestamp(1)),
        2 => state.set_timeout_duration("0 seconds"),
        3 => state.set_timeout_duration("soon"),
        4 => {
            state.update(7);
            state.remove();
            state.get().map(drop)
        }
        _ => state.set_timeout_duration("1 second"),
    };
    let word = outcome.err().map_or_else(|| format!("fine {}", state.has_timed_out()), |e| e.to_string());
    vec![Word { word }]
}

#[test]
fn wrong_use_of_a_state_is_told() {
    let said = |amount| {
        let batch = groups::<wrong>(&["user"]).rows([pay("ann", amount, 1)]).unwrap();
        batch.rows::<Word>().unwrap().remove(0).word
    };
    assert_eq!(said(0), "State is either not defined or has already been removed");
    assert_eq!(said(1), "Cannot set timeout timestamp without enabling event time timeout");
    assert_eq!(said(2), "Timeout duration must be positive");
    assert_eq!(said(3), "'soon' is not a duration; write for example '10 minutes'");
    assert_eq!(said(4), "State is either not defined or has already been removed");
    assert_eq!(said(5), "fine false");
}

#[test]
fn a_timeout_by_processing_time_fires_without_a_state() {
    let mut script = groups::<wrong>(&["user"]);
    script.rows([pay("ann", 5, 1)]).unwrap();
    assert_eq!(script.groups(), 1);
    assert!(script.advance("1 second").no_rows().unwrap().rows::<Word>().unwrap().is_empty());
    let batch = script.advance("1 ms").no_rows().unwrap();
    assert_eq!(batch.rows::<Word>().unwrap(), [Word { word: "fine true".to_owned() }]);
}

#[derive(State, Debug, PartialEq)]
struct CountOnly {
    count: i64,
}

/// The version before.
#[pelton::map_groups]
fn older(user: &str, rows: Rows<'_, Amount>, state: &mut GroupState<CountOnly>) -> Total {
    let count = state.get_option().map_or(0, |s| s.count) + rows.count() as i64;
    state.update(CountOnly { count });
    Total { user: user.to_owned(), count, sum: 0, over: false }
}

#[derive(State)]
#[state(version = 2, from = CountOnly)]
struct CountAndSum {
    count: i64,
    #[state(name = "total")]
    sum: i64,
}

impl From<CountOnly> for CountAndSum {
    fn from(old: CountOnly) -> Self {
        Self { count: old.count, sum: 100 }
    }
}

#[derive(State)]
#[state(version = 3, from = CountAndSum)]
struct Newest {
    count: i64,
    total: i64,
}

impl From<CountAndSum> for Newest {
    fn from(old: CountAndSum) -> Self {
        Self { count: old.count, total: old.sum + 1000 }
    }
}

/// The newest version.
#[pelton::map_groups]
fn newer(user: &str, rows: Rows<'_, Amount>, state: &mut GroupState<Newest>) -> Total {
    let (count, sum) = state.get_option().map_or((0, 0), |s| (s.count, s.total));
    let (count, sum) = rows.fold((count, sum), |(count, sum), row| (count + 1, sum + row.amount));
    state.update(Newest { count, total: sum });
    Total { user: user.to_owned(), count, sum, over: false }
}

#[test]
fn state_is_rewritten_through_all_versions() {
    let mut script = groups::<older>(&["user"]);
    script.rows([pay("ann", 3, 1)]).unwrap();
    let batch = script.restart_with::<newer>().rows([pay("ann", 5, 1)]).unwrap();
    assert_eq!(batch.rows::<Total>().unwrap(), [total("ann", 2, 1105, false)]);
    let error = script.restart_with::<older>().rows([pay("ann", 5, 1)]).err().unwrap();
    assert!(error.message().contains("no way from version 3 of the state to version 1"), "{error}");
}

#[derive(pelton::Config)]
struct Settings {
    #[config(default = 60_000_u64)]
    ttl_ms: u64,
    #[config(default)]
    by_event: bool,
}

impl Settings {
    fn mode(&self) -> TimeMode {
        if self.by_event { TimeMode::EventTime } else { TimeMode::ProcessingTime }
    }
}

#[derive(Row)]
struct Purchase<'a> {
    amount: i64,
    shop: &'a str,
}

/// All kinds of variables.
#[pelton::processor(time_mode = config.mode())]
fn purchases(
    user: &str,
    rows: Rows<'_, Purchase<'_>>,
    count: &mut ValueState<i64>,
    #[state(load = last(2))] recent: &mut ListState<i64>,
    #[state(load = keyed_by(shop), ttl = Duration::from_millis(config.ttl_ms))] shops: &mut MapState<
        String,
        i64,
    >,
    timers: &mut Timers,
    _settings: &Settings,
) -> Result<Vec<Word>, Error> {
    let word = |word: String| Ok(vec![Word { word: format!("{user}: {word}") }]);
    if let Some(timer) = timers.fired().cloned() {
        let pending = timers.pending().count();
        return word(format!("timer {} at {}, {pending} pending", timer.name, timer.at.millis()));
    }
    for row in rows {
        count.update(count.get().copied().unwrap_or(0) + 1);
        recent.append(row.amount);
        shops.update(row.shop.to_owned(), shops.get(&row.shop.to_owned()).copied().unwrap_or(0) + 1);
        match row.amount {
            -1 => timers.delete("soon"),
            -2 => recent.clear(),
            -3 => shops.remove(row.shop.to_owned()),
            _ => timers.set_after("soon", "5 seconds")?,
        }
        timers.set("late", Timestamp::from_millis(9_000))?;
    }
    let recent: Vec<_> = recent.iter().collect();
    let shops: Vec<_> = shops.iter().collect();
    word(format!("{:?} {recent:?} {shops:?}", count.get()))
}

fn words(batch: Result<pelton::testing::Batch, Error>) -> Vec<String> {
    batch.unwrap().rows::<Word>().unwrap().into_iter().map(|word| word.word).collect()
}

fn buy(amount: i64, shop: &'static str) -> Payment<'static> {
    Payment { shop, ..pay("ann", amount, 0) }
}

#[test]
fn a_processor_sees_what_it_asked_for() {
    let mut script = groups::<purchases>(&["user"]);
    assert_eq!(
        words(script.rows([buy(1, "x"), buy(2, "y"), buy(3, "y")])),
        [r#"ann: Some(3) [1, 2, 3] [("x", 1), ("y", 2)]"#]
    );
    // The last two of the list; of the map only the shop that the rows name.
    assert_eq!(words(script.rows([buy(4, "y")])), [r#"ann: Some(4) [2, 3, 4] [("y", 3)]"#]);
    assert_eq!(words(script.rows([buy(-3, "x"), buy(-2, "z")])), [r#"ann: Some(6) [] [("z", 1)]"#]);
    assert_eq!(script.entries::<String, i64>("recent").unwrap(), []);
    let shops = script.entries::<String, i64>("shops").unwrap();
    assert_eq!(shops, [("ann".to_owned(), 3), ("ann".to_owned(), 1)], "x was removed");
    let shops = words(script.advance("1 minute").rows([buy(-1, "y")]));
    assert_eq!(shops[0], r#"ann: Some(7) [-1] [("y", 1)]"#, "what was not written for a minute is gone");
}

#[test]
fn timers_fire_by_name_after_the_rows() {
    let mut script = groups::<purchases>(&["user"]);
    script.rows([buy(1, "x")]).unwrap();
    assert!(words(script.advance("4 seconds").no_rows()).is_empty());
    let fired = words(script.advance("1 second").no_rows());
    assert_eq!(fired, ["ann: timer soon at 5000, 1 pending"], "at its time, not only after it");
    let fired = words(script.advance("10 seconds").rows([buy(-1, "x")]));
    assert_eq!(fired.len(), 2);
    assert_eq!(fired[1], "ann: timer late at 9000, 0 pending");
}

#[test]
fn the_time_mode_may_come_from_the_configuration() {
    let mut script = groups::<purchases>(&["user"]).config(r#"{"by_event": true}"#);
    script.rows([buy(1, "x")]).unwrap();
    assert!(words(script.advance("1 hour").no_rows()).is_empty());
    script.watermark(Timestamp::from_millis(5_000));
    assert_eq!(words(script.no_rows()), ["ann: timer soon at 5000, 1 pending"]);
}

/// Several key columns.
#[pelton::flat_map_groups]
fn by_both(key: (&str, Option<&str>), rows: Rows<'_, Amount>) -> Option<Word> {
    let (shop, user) = key;
    Some(Word { word: format!("{shop} {user:?} {}", rows.map(|row| row.amount).sum::<i64>()) })
}

#[test]
fn a_key_may_have_several_columns_and_nulls() {
    let mut script = groups::<by_both>(&["shop", "user"]);
    let rows = [buy(1, "x"), Payment { user: None, ..buy(2, "x") }, buy(4, "x")];
    assert_eq!(words(script.rows(rows)), [r#"x Some("ann") 5"#, "x None 2"]);
    assert_eq!(script.groups(), 0, "nothing is kept");
}
