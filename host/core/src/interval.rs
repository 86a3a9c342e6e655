//! Durations as Spark writes them: `10 minutes`, `1 hour 30 minutes`, `interval 500 ms`.

use std::fmt;

/// A length of time in microseconds. A month counts 31 days, as in Spark's watermark delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Interval {
    micros: i64,
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

impl Interval {
    /// From microseconds.
    pub const fn from_micros(micros: i64) -> Self {
        Self { micros }
    }
    /// From milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self { micros: millis * 1000 }
    }
    /// In microseconds.
    pub const fn as_micros(self) -> i64 {
        self.micros
    }
    /// In milliseconds, cut.
    pub const fn as_millis(self) -> i64 {
        self.micros / 1000
    }

    /// Reads a sequence of number and unit. The unit may be plural or short (`ms`, `s`, `min`, `h`, `d`), a space
    /// between the two may be missing, numbers may have a sign and, for seconds, a fraction.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_ascii_lowercase();
        let mut rest = lower.strip_prefix("interval ").unwrap_or(&lower).trim_start();
        if rest.is_empty() {
            return Err(format!("'{text}' is not a duration; write for example '10 minutes'"));
        }
        let mut micros = 0_i64;
        while !rest.is_empty() {
            let (number, after) = split(rest, |c| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
            let (unit, after) = split(after.trim_start(), char::is_alphabetic);
            let part = part(number, unit).map_err(|why| format!("'{text}' is not a duration: {why}"))?;
            micros = micros.checked_add(part).ok_or_else(|| format!("'{text}' is too long a duration"))?;
            rest = after.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        }
        Ok(Self { micros })
    }
}

fn split(text: &str, inside: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !inside(c)).unwrap_or(text.len()))
}

fn part(number: &str, unit: &str) -> Result<i64, String> {
    let scale = scale(unit).ok_or_else(|| match (number, unit) {
        ("", _) => "a number is missing; write for example '10 minutes'".to_owned(),
        (_, "") => format!("a unit is missing after {number}; write for example '{number} seconds'"),
        _ => format!("there is no unit '{unit}'{}", crate::suggest::did_you_mean(unit, UNITS.map(|u| u.0))),
    })?;
    if let Ok(whole) = number.parse::<i64>() {
        return whole.checked_mul(scale).ok_or_else(|| "too long".to_owned());
    }
    match number.parse::<f64>() {
        Ok(fraction) if unit.starts_with('s') && fraction.abs() < 1e12 => {
            Ok((fraction * scale as f64).round() as i64)
        }
        Ok(_) => Err(format!("only seconds may have a fraction, not '{number} {unit}'")),
        Err(_) if number.is_empty() => Err(format!("a number is missing before '{unit}'")),
        Err(_) => Err(format!("'{number}' is not a number")),
    }
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

impl fmt::Display for Interval {
    /// The largest units that fit: `1 hour 30 minutes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.micros == 0 {
            return f.write_str("0 seconds");
        }
        let mut rest = self.micros.unsigned_abs();
        let sign = if self.micros < 0 { "-" } else { "" };
        let mut space = "";
        for (name, micros) in UNITS.iter().rev().filter(|(name, _)| *name != "month") {
            let count = rest / micros.unsigned_abs();
            rest %= micros.unsigned_abs();
            if count > 0 {
                write!(f, "{space}{sign}{count} {name}{}", if count == 1 { "" } else { "s" })?;
                space = " ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, shown: &str) {
        assert_eq!(Interval::parse(text).map_or_else(|e| e, |i| i.to_string()), shown, "{text}");
    }

    #[test]
    fn reads_sparks_intervals() {
        check("10 minutes", "10 minutes");
        check("1 hour 30 minutes", "1 hour 30 minutes");
        check("interval 500 ms", "500 milliseconds");
        check("1.5s", "1 second 500 milliseconds");
        check("1 month", "4 weeks 3 days");
        check("-5 seconds", "-5 seconds");
        check("0 seconds", "0 seconds");
    }

    #[test]
    fn says_what_is_wrong() {
        check("10", "'10' is not a duration: a unit is missing after 10; write for example '10 seconds'");
        check(
            "10 minuets",
            "'10 minuets' is not a duration: there is no unit 'minuets'; did you mean 'minute'?",
        );
        check("", "'' is not a duration; write for example '10 minutes'");
        check(
            "1.5 hours",
            "'1.5 hours' is not a duration: only seconds may have a fraction, not '1.5 hours'",
        );
        check("soon", "'soon' is not a duration: a number is missing; write for example '10 minutes'");
    }
}
