//! Lengths of time as Spark writes them, and what timeouts and timers are measured by.

use crate::types::did_you_mean;
use std::time::Duration;

/// What the timeouts or timers of a group function are measured by. Spark's `GroupStateTimeout` and `TimeMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeMode {
    /// There are none.
    #[default]
    None = 0,
    /// The time of the micro-batch.
    ProcessingTime = 1,
    /// The watermark.
    EventTime = 2,
}

/// A length of time: a [`Duration`], or a text as Spark writes it (`"10 minutes"`, `"1 hour 30 minutes"`).
pub trait TimeSpan {
    /// In microseconds.
    ///
    /// # Errors
    /// What is wrong with the text.
    fn micros(self) -> Result<i64, String>;
}

impl TimeSpan for Duration {
    fn micros(self) -> Result<i64, String> {
        i64::try_from(self.as_micros()).map_err(|_| format!("{self:?} is too long a duration"))
    }
}

impl TimeSpan for &str {
    fn micros(self) -> Result<i64, String> {
        parse(self)
    }
}

const UNITS: [(&str, i64); 8] = [
    ("microsecond", 1),
    ("millisecond", 1_000),
    ("second", 1_000_000),
    ("minute", 60_000_000),
    ("hour", 3_600_000_000),
    ("day", 86_400_000_000),
    ("week", 604_800_000_000),
    ("month", 31 * 86_400_000_000),
];

/// Numbers and units in turn; units may be plural or short (`ms`, `s`, `min`, `h`, `d`). A month counts 31 days.
fn parse(text: &str) -> Result<i64, String> {
    let wrong = |why: &str| format!("'{text}' is not a duration{why}");
    let lower = text.trim().to_ascii_lowercase();
    let mut rest = lower.strip_prefix("interval ").unwrap_or(&lower).trim_start();
    if rest.is_empty() {
        return Err(wrong("; write for example '10 minutes'"));
    }
    let mut micros = 0_i64;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || matches!(c, '-' | '+'));
        let (unit, after) = split(after.trim_start(), char::is_alphabetic);
        let number: i64 = number.parse().map_err(|_| wrong("; write for example '10 minutes'"))?;
        let scale = scale(unit).ok_or_else(|| {
            wrong(&format!(": no unit '{unit}'{}", did_you_mean(unit, UNITS.iter().map(|u| u.0))))
        })?;
        let part = number.checked_mul(scale).and_then(|part| micros.checked_add(part));
        micros = part.ok_or_else(|| wrong(": it is too long"))?;
        rest = after.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
    }
    Ok(micros)
}

fn split(text: &str, inside: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !inside(c)).unwrap_or(text.len()))
}

fn scale(unit: &str) -> Option<i64> {
    let long = match unit {
        "us" => "microsecond",
        "ms" => "millisecond",
        "s" | "sec" | "secs" => "second",
        "m" | "min" | "mins" => "minute",
        "h" | "hr" | "hrs" => "hour",
        "d" => "day",
        "w" => "week",
        other => other.strip_suffix('s').unwrap_or(other),
    };
    UNITS.iter().find(|(name, _)| *name == long).map(|(_, micros)| *micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sparks_intervals() {
        assert_eq!("10 minutes".micros(), Ok(600_000_000));
        assert_eq!("interval 1 hour 30 min".micros(), Ok(5_400_000_000));
        assert_eq!("500ms".micros(), Ok(500_000));
        assert_eq!(Duration::from_millis(2).micros(), Ok(2_000));
        assert!("10 minuets".micros().is_err_and(|e| e.ends_with("did you mean 'minute'?")));
        assert!("soon".micros().is_err());
    }
}
