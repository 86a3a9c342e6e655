//! Dates and timestamps from text, as Spark's CAST reads them (its readers' default too), and time zones.
//! Called by the decoders' columns, by patterns and for the values of `key=value` directories.

use chrono::{DateTime, LocalResult, NaiveDateTime, Offset, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;
use pelton_core::{Error, Result};

const DAY_MICROS: i64 = 86_400_000_000;
/// Years that fit a timestamp in microseconds.
const YEAR_MAX: i64 = 290_000;

/// A time zone: what turns a local time into an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zone {
    /// A fixed distance from UTC in seconds.
    Fixed(i64),
    /// A region with its history.
    Named(Tz),
}

impl Zone {
    /// `UTC`, `Z`, `+02:00`, `Europe/Paris`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        match text {
            "Z" | "UTC" | "GMT" | "UT" => return Some(Self::Fixed(0)),
            _ => {}
        }
        let offset = ["UTC", "GMT", "UT"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
        if offset.starts_with(['+', '-']) {
            return parse_offset(offset.as_bytes()).map(Self::Fixed);
        }
        text.parse().ok().map(Self::Named)
    }

    /// As [`Zone::parse`], with an error for the person who wrote it.
    pub(crate) fn of_session(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| {
            Error::invalid(format!("'{text}' is not a time zone"))
                .hint("write for example UTC, Europe/Paris or +02:00")
        })
    }

    /// The instant of a local time, both in microseconds since the epoch. In a gap the time moves on by the
    /// gap's length, in an overlap the earlier instant is meant, as in Java.
    pub(crate) fn instant(self, local_micros: i64) -> Option<i64> {
        match self {
            Self::Fixed(seconds) => local_micros.checked_sub(seconds * 1_000_000),
            Self::Named(zone) => {
                let local = DateTime::from_timestamp_micros(local_micros)?.naive_utc();
                local_micros.checked_sub(offset_seconds(zone, local)? * 1_000_000)
            }
        }
    }
}

fn offset_seconds(zone: Tz, local: NaiveDateTime) -> Option<i64> {
    let seconds = |offset: chrono::FixedOffset| i64::from(offset.local_minus_utc());
    match zone.offset_from_local_datetime(&local) {
        LocalResult::Single(offset) => Some(seconds(offset.fix())),
        LocalResult::Ambiguous(first, _) => Some(seconds(first.fix())),
        // No gap is longer than a day: the offset that was in force before it.
        LocalResult::None => {
            let before = local.checked_sub_signed(TimeDelta::days(1))?;
            let offset = zone.offset_from_utc_datetime(&Utc.from_utc_datetime(&before).naive_utc());
            Some(seconds(offset.fix()))
        }
    }
}

/// `+h`, `+hh`, `+hhmm`, `+hh:mm`, `+hh:mm:ss` in seconds; at most 18 hours.
pub(crate) fn parse_offset(text: &[u8]) -> Option<i64> {
    let (sign, rest) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => return None,
    };
    let mut cursor = Cursor { text: rest, at: 0 };
    let hours = cursor.number(1, 2)?;
    let colon = cursor.eat(b':');
    let minutes = if cursor.done() && !colon { 0 } else { cursor.number(1, 2)? };
    let seconds = if cursor.done() { 0 } else { cursor.eat_then_number(colon)? };
    let valid = cursor.done() && hours <= 18 && minutes < 60 && seconds < 60;
    let total = hours * 3600 + minutes * 60 + seconds;
    (valid && total <= 18 * 3600).then_some(sign * total)
}

/// Days since the epoch of a date that exists.
pub(crate) fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if day < 1 || day > last || year.abs() > 10_000_000 {
        return None;
    }
    // Counts from March, so that the leap day comes last; eras have 400 years.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * m + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

/// `yyyy`, `yyyy-[m]m` or `yyyy-[m]m-[d]d`, the last also with anything after a space or `T`. Days since the epoch.
pub(crate) fn parse_date(text: &[u8]) -> Option<i32> {
    let mut cursor = Cursor { text: text.trim_ascii(), at: 0 };
    let (day, whole) = cursor.date(7)?;
    let rest_is_fine = cursor.done() || (whole && matches!(cursor.peek(), b' ' | b'T'));
    rest_is_fine.then(|| i32::try_from(day).ok()).flatten()
}

/// A timestamp in microseconds since the epoch; `zone` is meant where the text names none.
pub(crate) fn parse_timestamp(text: &[u8], zone: Zone) -> Option<i64> {
    let (local, rest) = local_time(text.trim_ascii())?;
    let zone = match rest.trim_ascii() {
        b"" => zone,
        b"Z" => Zone::Fixed(0),
        named => Zone::parse(std::str::from_utf8(named).ok()?)?,
    };
    zone.instant(local)
}

/// A timestamp without a time zone: one in the text is not an error, it does not count. As Spark's readers do.
pub(crate) fn parse_timestamp_ntz(text: &[u8]) -> Option<i64> {
    let (local, rest) = local_time(text.trim_ascii())?;
    let rest = rest.trim_ascii();
    (rest.is_empty() || Zone::parse(std::str::from_utf8(rest).ok()?).is_some()).then_some(local)
}

fn local_time(text: &[u8]) -> Option<(i64, &[u8])> {
    if let Some(found) = usual_form(text) {
        return Some(found);
    }
    let mut cursor = Cursor { text, at: 0 };
    let (day, whole) = cursor.date(6)?;
    let mut micros = 0;
    if whole && matches!(cursor.peek(), b' ' | b'T') {
        cursor.at += 1;
        micros = cursor.time()?;
    }
    let local = day.checked_mul(DAY_MICROS)?.checked_add(micros)?;
    (day.abs() < YEAR_MAX * 366).then_some((local, &text[cursor.at..]))
}

/// `2026-01-31T12:34:56` and what follows, without the general reader's detours.
#[inline]
fn usual_form(text: &[u8]) -> Option<(i64, &[u8])> {
    let head = text.first_chunk::<19>()?;
    let shape = head[4] == b'-' && head[7] == b'-' && head[13] == b':' && head[16] == b':';
    if !shape || !matches!(head[10], b'T' | b' ') {
        return None;
    }
    let mut wrong = 0;
    let mut two = |at: usize| {
        let (tens, ones) = (head[at].wrapping_sub(b'0'), head[at + 1].wrapping_sub(b'0'));
        wrong |= u8::from(tens > 9) | u8::from(ones > 9);
        i64::from(tens) * 10 + i64::from(ones)
    };
    let (year, month, day) = (two(0) * 100 + two(2), two(5), two(8));
    let (hour, minute, second) = (two(11), two(14), two(17));
    if wrong != 0 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days(year, month, day)? * 86_400 + hour * 3600 + minute * 60 + second;
    let (fraction, rest) = fraction(&text[19..])?;
    Some((seconds * 1_000_000 + fraction, rest))
}

/// Microseconds of `.123456`, if there is a point; digits beyond the sixth do not count.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let [b'.', rest @ ..] = text else { return Some((0, text)) };
    let digits = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
    let micros = rest[..digits].iter().take(6).fold(0, |micros, d| micros * 10 + i64::from(d - b'0'));
    Some((micros * 10_i64.pow(6 - digits.min(6) as u32), &rest[digits..]))
}

/// Reads a text from left to right.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }
    fn done(&self) -> bool {
        self.at == self.text.len()
    }
    fn eat(&mut self, wanted: u8) -> bool {
        let found = self.peek() == wanted;
        self.at += usize::from(found);
        found
    }
    fn eat_then_number(&mut self, colon: bool) -> Option<i64> {
        (self.eat(b':') == colon).then(|| self.number(1, 2))?
    }
    fn number(&mut self, min: usize, max: usize) -> Option<i64> {
        let rest = &self.text[self.at..];
        let len = rest.iter().take(max).take_while(|b| b.is_ascii_digit()).count();
        self.at += len;
        (len >= min).then(|| rest[..len].iter().fold(0, |n, d| n * 10 + i64::from(d - b'0')))
    }
    /// Days since the epoch, and whether the day was named.
    fn date(&mut self, year_digits_max: usize) -> Option<(i64, bool)> {
        let negative = self.eat(b'-');
        if !negative {
            self.eat(b'+');
        }
        let year = self.number(4, year_digits_max)?;
        let year = if negative { -year } else { year };
        if !self.eat(b'-') {
            return days(year, 1, 1).map(|day| (day, false));
        }
        let month = self.number(1, 2)?;
        if !self.eat(b'-') {
            return days(year, month, 1).map(|day| (day, false));
        }
        let day = self.number(1, 2)?;
        days(year, month, day).map(|day| (day, true))
    }
    /// Microseconds of `h[:m[:s[.fraction]]]`.
    fn time(&mut self) -> Option<i64> {
        let hour = self.number(1, 2)?;
        let minute = if self.eat(b':') { self.number(1, 2)? } else { 0 };
        let second = if self.eat(b':') { self.number(1, 2)? } else { 0 };
        let (micros, rest) = fraction(&self.text[self.at..])?;
        self.at = self.text.len() - rest.len();
        let valid = hour < 24 && minute < 60 && second < 60;
        valid.then_some((hour * 3600 + minute * 60 + second) * 1_000_000 + micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> Option<i64> {
        parse_timestamp(text.as_bytes(), Zone::Fixed(0))
    }

    #[test]
    fn timestamps_as_sparks_cast_reads_them() {
        let noon = Some(1_767_268_800_000_000);
        for text in [
            "2026-01-01T12:00:00Z",
            "2026-01-01 12:00:00",
            "2026-1-1T12:0:0",
            "2026-01-01T13:00:00+01:00",
            "2026-01-01T13:00:00.000 Europe/Paris",
            " 2026-01-01T12:00:00.0000009 ",
            "2026-01-01T12:00:00UTC",
            "2026-01-01T14:30:00+0230",
        ] {
            assert_eq!(utc(text), noon, "{text}");
        }
        assert_eq!(utc("2026-01-01T12:00:00.5Z"), noon.map(|t| t + 500_000));
        assert_eq!(utc("2026"), Some(1_767_225_600_000_000));
        assert_eq!(utc("1969-12-31T23:59:59.999Z"), Some(-1000));
    }

    #[test]
    fn what_is_no_timestamp_is_none() {
        for text in [
            "",
            "garbage",
            "2026-02-30",
            "2026-01-01T24:00:00",
            "2026/01/01",
            "20260101",
            "2026-01-01T",
            "2026-01-01X",
            "12",
        ] {
            assert_eq!(utc(text), None, "{text}");
        }
    }

    #[test]
    fn dates_ignore_what_follows_the_day() {
        assert_eq!(parse_date(b"2024-02-29"), Some(19_782));
        assert_eq!(parse_date(b"2024-02-29T99"), Some(19_782));
        assert_eq!(parse_date(b"1900-01-01"), Some(-25_567));
        assert_eq!(parse_date(b"1970-1-2"), Some(1));
        assert_eq!(parse_date(b"2023-02-29"), None);
        assert_eq!(parse_date(b"2023-02x"), None);
    }

    #[test]
    fn local_times_in_gaps_and_overlaps_follow_java() {
        let paris = Zone::parse("Europe/Paris").unwrap();
        let at = |text: &str| parse_timestamp(text.as_bytes(), paris);
        // 02:30 does not exist on that day: 03:30 in summer time is meant.
        assert_eq!(at("2026-03-29 02:30:00"), utc("2026-03-29T01:30:00Z"));
        // 02:30 exists twice: the first is meant.
        assert_eq!(at("2026-10-25 02:30:00"), utc("2026-10-25T00:30:00Z"));
        assert_eq!(at("2026-07-01 00:00:00"), utc("2026-06-30T22:00:00Z"));
    }

    #[test]
    fn zones_are_offsets_or_regions() {
        assert_eq!(Zone::parse("+02:00"), Some(Zone::Fixed(7200)));
        assert_eq!(Zone::parse("UTC-3"), Some(Zone::Fixed(-10_800)));
        assert_eq!(Zone::parse("Mars/Olympus"), None);
        assert_eq!(Zone::parse("+19:00"), None);
    }
}
