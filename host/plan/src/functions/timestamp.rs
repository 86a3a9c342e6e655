//! Text to time the way Spark casts it, which JSON fields and `to_timestamp` share.

use chrono::{DateTime, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, TimeZone};
use chrono_tz::Tz;

/// Microseconds since the epoch, or `None` if it is not a timestamp. Takes what Spark's cast takes:
/// `2026`, `2026-1`, `2026-01-02`, then `T` or a space and `[h]h[:[m]m[:[s]s[.fraction]]]`, then a zone
/// (`Z`, `+01:00`, `Europe/Berlin`); without one it is the session's.
pub(crate) fn parse(text: &str, zone: Tz) -> Option<i64> {
    let text = text.trim();
    let (date, rest) = date(text)?;
    if rest.is_empty() {
        return in_zone(date.and_time(NaiveTime::MIN), zone).map(|at| at.timestamp_micros());
    }
    let rest = rest.strip_prefix(['T', ' '])?;
    let (time, rest) = time(rest)?;
    let local = NaiveDateTime::new(date, time);
    let rest = rest.trim_start();
    if rest.is_empty() {
        return in_zone(local, zone).map(|at| at.timestamp_micros());
    }
    if let Some(("", seconds)) = fixed_zone(rest) {
        return Some(
            local.checked_sub_signed(TimeDelta::seconds(i64::from(seconds)))?.and_utc().timestamp_micros(),
        );
    }
    in_zone(local, rest.parse().ok()?).map(|at| at.timestamp_micros())
}

/// A date, or `None` if it is not one. What follows a `T` or a space is not looked at, as in Spark.
pub(crate) fn parse_date(text: &str) -> Option<NaiveDate> {
    let (date, rest) = date(text.trim())?;
    (rest.is_empty() || rest.starts_with(['T', ' '])).then_some(date)
}

/// A wall-clock time in a zone: the earlier of two, and after a gap as much later as the gap is long.
pub(super) fn in_zone(local: NaiveDateTime, zone: Tz) -> Option<DateTime<Tz>> {
    match zone.from_local_datetime(&local) {
        LocalResult::Single(at) => Some(at),
        LocalResult::Ambiguous(earlier, _) => Some(earlier),
        LocalResult::None => {
            let before =
                zone.from_local_datetime(&local.checked_sub_signed(TimeDelta::hours(3))?).earliest()?;
            before.checked_add_signed(TimeDelta::hours(3))
        }
    }
}

/// `+01:00`, `-0830`, `+1`: its seconds, and what follows.
pub(super) fn offset(text: &str) -> Option<(i32, &str)> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, rest) = digits(&text[1..], 1, 2)?;
    let after_colon = rest.strip_prefix(':').unwrap_or(rest);
    let (minutes, rest) = digits(after_colon, 2, 2).unwrap_or((0, rest));
    (hours <= 18 && minutes < 60).then_some((sign * (hours * 3600 + minutes * 60), rest))
}

fn fixed_zone(text: &str) -> Option<(&str, i32)> {
    let bare = ["UTC", "GMT", "UT"].iter().find_map(|name| text.strip_prefix(name)).unwrap_or(text);
    match bare {
        "Z" | "" => Some(("", 0)),
        _ => offset(bare).map(|(seconds, rest)| (rest, seconds)),
    }
}

fn date(text: &str) -> Option<(NaiveDate, &str)> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (year, mut rest) = digits(unsigned, 4, 7)?;
    let (mut month, mut day) = (1, 1);
    if let Some(after) = rest.strip_prefix('-') {
        (month, rest) = digits(after, 1, 2)?;
        if let Some(after) = rest.strip_prefix('-') {
            (day, rest) = digits(after, 1, 2)?;
        }
    }
    let year = if negative { -year } else { year };
    Some((NaiveDate::from_ymd_opt(year, u32::try_from(month).ok()?, u32::try_from(day).ok()?)?, rest))
}

fn time(text: &str) -> Option<(NaiveTime, &str)> {
    let (hour, mut rest) = digits(text, 1, 2)?;
    let (mut minute, mut second, mut nanos) = (0, 0, 0);
    if let Some(after) = rest.strip_prefix(':') {
        (minute, rest) = digits(after, 1, 2)?;
        if let Some(after) = rest.strip_prefix(':') {
            (second, rest) = digits(after, 1, 2)?;
            if let Some(after) = rest.strip_prefix('.') {
                let length = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                // Microseconds are what there is; further digits are cut, as in Spark.
                let micros = format!("{:0<6}", &after[..length.min(6)]);
                nanos = micros.parse::<u32>().ok()? * 1000;
                rest = &after[length..];
            }
        }
    }
    let whole = |n: i32| u32::try_from(n).ok();
    Some((NaiveTime::from_hms_nano_opt(whole(hour)?, whole(minute)?, whole(second)?, nanos)?, rest))
}

fn digits(text: &str, least: usize, most: usize) -> Option<(i32, &str)> {
    let count = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    (count >= least).then(|| text[..count].parse().ok().map(|number| (number, &text[count..])))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_sparks_cast_reads() {
        let zone: Tz = "America/New_York".parse().expect("a zone");
        let check = |text: &str, wanted: Option<&str>| {
            let shown = parse(text, zone).and_then(DateTime::from_timestamp_micros).map(|at| at.to_rfc3339());
            assert_eq!(shown.as_deref(), wanted, "{text}");
        };
        check("2026-01-01T00:00:00Z", Some("2026-01-01T00:00:00+00:00"));
        check("2026-01-01 00:00:00", Some("2026-01-01T05:00:00+00:00"));
        check(" 2026-1-1 ", Some("2026-01-01T05:00:00+00:00"));
        check("2026-01-01T1:2:3.1234567+01:00", Some("2026-01-01T00:02:03.123456+00:00"));
        check("2026-01-01 00:00 Europe/Berlin", Some("2025-12-31T23:00:00+00:00"));
        check("2026-01-01 00:00 UTC", Some("2026-01-01T00:00:00+00:00"));
        check("2026", Some("2026-01-01T05:00:00+00:00"));
        check("2026-13-01", None);
        check("yesterday", None);
        check("", None);
        check("2026-03-08 02:30:00", Some("2026-03-08T07:30:00+00:00"));
    }
}
