//! A running total for each key, with alerts. See the README beside it.

use pelton::{Config, Decimal, Error, GroupState, Row, Rows, State, TimeMode, TimeSpan, Timestamp};
use std::time::Duration;

/// Money, and whatever else has two digits after the point.
pub type Amount = Decimal<18, 2>;

/// The plugin's configuration.
#[derive(Config)]
pub struct Settings {
    limit: Option<f64>,
    #[config(default)]
    alerts_only: bool,
    reset_after: Option<String>,
}

impl Settings {
    fn time_mode(&self) -> TimeMode {
        match self.reset_after {
            Some(_) => TimeMode::EventTime,
            None => TimeMode::None,
        }
    }
    fn reset_after(&self) -> Result<Option<Duration>, Error> {
        let Some(text) = &self.reset_after else { return Ok(None) };
        let micros =
            text.as_str().micros().map_err(|why| Error::Unsuitable(format!("'reset_after': {why}")))?;
        match u64::try_from(micros) {
            Ok(micros) if micros > 0 => Ok(Some(Duration::from_micros(micros))),
            _ => Err(Error::Unsuitable("'reset_after' must be longer than nothing".to_owned())),
        }
    }
    /// The limit in hundredths.
    fn limit(&self) -> Option<i128> {
        self.limit.map(|limit| (limit * 100.0).round() as i128)
    }
}

/// Something that adds to the total of a key.
#[derive(Row)]
pub struct Payment {
    /// How much; less than nothing takes away.
    pub amount: Amount,
    /// When.
    pub ts: Timestamp,
}

/// What is known of a key.
#[derive(State, Clone, Copy)]
pub struct Total {
    total: Amount,
    payments: i64,
    since: Timestamp,
}

/// A total as it stands.
#[derive(Row, Debug, PartialEq)]
pub struct Standing<'a> {
    /// Whose it is.
    pub key: &'a str,
    /// All amounts since `since`.
    pub total: Amount,
    /// How many they are.
    pub payments: i64,
    /// The time of the first of them.
    pub since: Timestamp,
    /// Whether the total is above the limit.
    pub over_limit: bool,
}

/// What each key comes to so far; with a limit, whether it is above it.
#[pelton::flat_map_groups(timeout = config.time_mode())]
pub fn running_total<'a>(
    key: &'a str,
    payments: Rows<'_, Payment>,
    state: &mut GroupState<Total>,
    settings: &Settings,
) -> Result<Option<Standing<'a>>, Error> {
    if state.has_timed_out() {
        state.remove();
        return Ok(None);
    }
    let span = settings.reset_after()?;
    let before = state.get_option().copied();
    let mut now = before;
    for payment in payments {
        // A key with rows is not called for its timeout: what is over begins anew here, whatever the micro-batches.
        now = now.filter(|total| span.is_none_or(|span| payment.ts < total.since + span));
        let total = now.get_or_insert(Total { total: Decimal(0), payments: 0, since: payment.ts });
        total.total = Decimal(total.total.0.saturating_add(payment.amount.0));
        total.payments += 1;
        total.since = total.since.min(payment.ts);
    }
    let Some(now) = now else { return Ok(None) };
    state.update(now);
    if let Some(span) = span {
        // A row may be so late that its total is over already; it is then over with the next watermark.
        state.set_timeout_timestamp((now.since + span).max(state.current_watermark()))?;
    }
    let is_over = |total: &Total| settings.limit().is_some_and(|limit| total.total.0 > limit);
    let goes_on = before.filter(|before| before.since >= now.since);
    let passed = is_over(&now) && !goes_on.as_ref().is_some_and(is_over);
    let Total { total, payments, since } = now;
    let standing = Standing { key, total, payments, since, over_limit: is_over(&now) };
    Ok((passed || !settings.alerts_only).then_some(standing))
}

pelton::plugin!(name: "running-total", functions: [running_total]);

#[cfg(test)]
mod tests {
    use super::*;
    use pelton::testing;

    #[derive(Row)]
    struct Paid {
        key: &'static str,
        amount: Amount,
        ts: Timestamp,
    }

    fn paid(key: &'static str, amount: i128, minute: i64) -> Paid {
        Paid { key, amount: Decimal(amount), ts: at(minute) }
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_millis(minute * 60_000)
    }

    fn totals(batch: &testing::Batch) -> Result<Vec<(i128, i64, bool)>, Error> {
        let rows = batch.rows::<Standing<'_>>()?;
        Ok(rows.iter().map(|row| (row.total.0, row.payments, row.over_limit)).collect())
    }

    #[test]
    fn totals_grow_over_micro_batches_and_restarts() -> Result<(), Error> {
        let mut script = testing::groups::<running_total>(&["key"]).config(r#"{"limit": 10}"#);
        let batch = script.rows([paid("ann", 400, 1), paid("ann", 600, 2)])?;
        assert_eq!(totals(&batch)?, [(1000, 2, false)]);
        let batch = script.restart().rows([paid("ann", 1, 3)])?;
        assert_eq!(totals(&batch)?, [(1001, 3, true)]);
        Ok(())
    }

    #[test]
    fn an_alert_comes_when_the_limit_is_passed_and_not_again() -> Result<(), Error> {
        let mut script =
            testing::groups::<running_total>(&["key"]).config(r#"{"limit": 10, "alerts_only": true}"#);
        assert_eq!(totals(&script.rows([paid("ann", 900, 1)])?)?, []);
        assert_eq!(totals(&script.rows([paid("ann", 200, 2)])?)?, [(1100, 2, true)]);
        assert_eq!(totals(&script.rows([paid("ann", 200, 3)])?)?, []);
        assert_eq!(totals(&script.rows([paid("ann", -500, 4)])?)?, []);
        assert_eq!(
            totals(&script.rows([paid("ann", 600, 5)])?)?,
            [(1400, 5, true)],
            "it was below in between"
        );
        Ok(())
    }

    #[test]
    fn a_total_begins_anew_when_the_watermark_has_passed_its_time() -> Result<(), Error> {
        let mut script = testing::groups::<running_total>(&["key"]).config(r#"{"reset_after": "1 hour"}"#);
        script.rows([paid("ann", 500, 0)])?;
        script.rows([paid("ann", 500, 30)])?;
        assert_eq!(totals(&script.watermark(at(61)).no_rows()?)?, []);
        assert_eq!(script.groups(), 0);
        assert_eq!(totals(&script.rows([paid("ann", 1, 62)])?)?, [(1, 1, false)]);
        Ok(())
    }

    #[test]
    fn a_key_that_is_always_busy_begins_anew_all_the_same() -> Result<(), Error> {
        let mut script =
            testing::groups::<running_total>(&["key"]).config(r#"{"reset_after": "1 hour", "limit": 5}"#);
        assert_eq!(totals(&script.rows([paid("ann", 400, 0), paid("ann", 200, 59)])?)?, [(600, 2, true)]);
        script.watermark(at(59));
        assert_eq!(totals(&script.rows([paid("ann", 300, 60)])?)?, [(300, 1, false)]);
        assert_eq!(totals(&script.rows([paid("ann", 300, 61), paid("ann", 100, 120)])?)?, [(100, 1, false)]);
        Ok(())
    }
}
