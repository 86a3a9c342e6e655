//! Dates and times for writing: instants to local time, and Spark's default layouts.

use arrow::array::timezone::Tz;
use chrono::{DateTime, Offset, TimeZone};
use pelton_core::number::push_int;
use pelton_core::{Error, Result};
use std::cell::Cell;

const DAY_MICROS: i64 = 86_400_000_000;
/// No zone changes its offset within a quarter of an hour that starts at a multiple of one.
const STEADY_SECONDS: i64 = 900;

/// A time zone that remembers its last answer: rows that follow each other lie close together.
#[derive(Debug, Clone)]
pub(crate) struct ZoneClock {
    name: String,
    zone: Tz,
    last: Cell<(i64, i32)>,
}

impl ZoneClock {
    /// `UTC`, `+02:00`, `Europe/Paris`.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let zone = name.parse().map_err(|e| Error::invalid(format!("'{name}' is not a time zone: {e}")))?;
        Ok(Self { name: name.to_owned(), zone, last: Cell::new((i64::MIN, 0)) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Seconds east of UTC.
    pub(crate) fn offset_seconds(&self, micros: i64) -> i32 {
        let seconds = micros.div_euclid(1_000_000);
        let quarter = seconds.div_euclid(STEADY_SECONDS);
        let (last, offset) = self.last.get();
        if last == quarter {
            return offset;
        }
        // Out of chrono's range nothing is known of any zone.
        let offset = DateTime::from_timestamp(seconds, 0)
            .map_or(0, |utc| self.zone.offset_from_utc_datetime(&utc.naive_utc()).fix().local_minus_utc());
        self.last.set((quarter, offset));
        offset
    }

    /// The local time of an instant.
    pub(crate) fn local(&self, micros: i64) -> LocalTime {
        let offset = self.offset_seconds(micros);
        LocalTime::new(micros.saturating_add(i64::from(offset) * 1_000_000), Some(offset))
    }
}

/// A date and a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalTime {
    /// Days since the epoch.
    pub(crate) days: i64,
    pub(crate) year: i64,
    pub(crate) month: u32,
    pub(crate) day: u32,
    /// Microseconds since midnight.
    pub(crate) micros: i64,
    /// Seconds east of UTC, if it is an instant.
    pub(crate) offset: Option<i32>,
}

impl LocalTime {
    /// From microseconds of a local clock.
    pub(crate) fn new(micros: i64, offset: Option<i32>) -> Self {
        let days = micros.div_euclid(DAY_MICROS);
        let (year, month, day) = civil(days);
        Self { days, year, month, day, micros: micros.rem_euclid(DAY_MICROS), offset }
    }
    /// Midnight of a day.
    pub(crate) fn midnight(days: i32) -> Self {
        Self::new(i64::from(days) * DAY_MICROS, None)
    }
    pub(crate) fn hour(&self) -> u32 {
        (self.micros / 3_600_000_000) as u32
    }
    pub(crate) fn minute(&self) -> u32 {
        (self.micros / 60_000_000 % 60) as u32
    }
    pub(crate) fn second(&self) -> u32 {
        (self.micros / 1_000_000 % 60) as u32
    }
    /// Microseconds within the second.
    pub(crate) fn fraction(&self) -> u32 {
        (self.micros % 1_000_000) as u32
    }
}

/// Year, month and day. Counts from March, so that the leap day comes last; eras have 400 years.
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 } as u32;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// Two digits.
#[inline]
pub(crate) fn push_two(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&[b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]);
}

/// At least four digits; years that need more get a sign, as in Java.
pub(crate) fn push_year(out: &mut Vec<u8>, year: i64) {
    match year {
        0..=9999 => {
            push_two(out, (year / 100) as u32);
            push_two(out, (year % 100) as u32);
        }
        10_000.. => {
            out.push(b'+');
            push_int(out, year);
        }
        _ => out.extend_from_slice(format!("-{:04}", year.unsigned_abs()).as_bytes()),
    }
}

/// `2013-01-31`
pub(crate) fn push_date(out: &mut Vec<u8>, time: &LocalTime) {
    push_year(out, time.year);
    out.push(b'-');
    push_two(out, time.month);
    out.push(b'-');
    push_two(out, time.day);
}

/// `10:00:00`
pub(crate) fn push_clock(out: &mut Vec<u8>, time: &LocalTime) {
    push_two(out, time.hour());
    out.push(b':');
    push_two(out, time.minute());
    out.push(b':');
    push_two(out, time.second());
}

/// `2013-01-01T10:00:00.000Z`: how Spark writes timestamps to files. Microseconds are cut.
pub(crate) fn push_iso(out: &mut Vec<u8>, time: &LocalTime) {
    push_date(out, time);
    out.push(b'T');
    push_clock(out, time);
    let millis = time.fraction() / 1000;
    out.extend_from_slice(&[b'.', b'0' + (millis / 100) as u8]);
    push_two(out, millis % 100);
    if let Some(offset) = time.offset {
        push_offset(out, offset, true, true, true);
    }
}

/// `2013-01-01 10:00:00.5`: how Spark casts timestamps to strings.
pub(crate) fn push_shown_time(out: &mut Vec<u8>, time: &LocalTime) {
    push_date(out, time);
    out.push(b' ');
    push_clock(out, time);
    if time.fraction() > 0 {
        let digits = format!(".{:06}", time.fraction());
        out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
    }
}

/// `Z`, `+02`, `+0230`, `+02:30`; seconds, which only ancient local times have, are left out as in Java.
pub(crate) fn push_offset(out: &mut Vec<u8>, seconds: i32, zulu: bool, minutes: bool, colon: bool) {
    if seconds == 0 && zulu {
        return out.push(b'Z');
    }
    let size = seconds.unsigned_abs();
    out.push(if seconds < 0 { b'-' } else { b'+' });
    push_two(out, size / 3600);
    if !minutes && size.is_multiple_of(3600) {
        return;
    }
    if colon {
        out.push(b':');
    }
    push_two(out, size / 60 % 60);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(zone: &str, micros: i64) -> String {
        let mut out = Vec::new();
        push_iso(&mut out, &ZoneClock::new(zone).unwrap().local(micros));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn instants_are_written_in_the_sessions_zone() {
        assert_eq!(iso("UTC", 1_357_034_400_123_456), "2013-01-01T10:00:00.123Z");
        assert_eq!(iso("Europe/Paris", 1_357_034_400_000_000), "2013-01-01T11:00:00.000+01:00");
        assert_eq!(iso("Europe/Paris", 1_372_672_800_000_000), "2013-07-01T12:00:00.000+02:00");
        assert_eq!(iso("-03:30", 0), "1969-12-31T20:30:00.000-03:30");
        assert_eq!(iso("UTC", -1), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn the_remembered_offset_ends_with_its_quarter_of_an_hour() {
        let clock = ZoneClock::new("Europe/Paris").unwrap();
        let change = 1_364_691_600_000_000; // 2013-03-31T01:00:00Z
        assert_eq!(clock.offset_seconds(change - 1), 3600);
        assert_eq!(clock.offset_seconds(change), 7200);
        assert_eq!(clock.offset_seconds(change - 1), 3600);
    }

    #[test]
    fn every_day_is_its_neighbours_neighbour() {
        let mut before = civil(-800_000);
        for days in -799_999..800_000 {
            let (year, month, day) = civil(days);
            let next = match before {
                (y, m, d) if (year, month) == (y, m) => day == d + 1,
                (y, m, _) if year == y => month == m + 1 && day == 1,
                (y, m, d) => (year, month, day, m, d) == (y + 1, 1, 1, 12, 31),
            };
            assert!(next, "{before:?} is followed by {:?}", (year, month, day));
            before = (year, month, day);
        }
        assert_eq!(civil(0), (1970, 1, 1));
    }

    #[test]
    fn shown_times_drop_trailing_zeros() {
        let shown = |micros| {
            let mut out = Vec::new();
            push_shown_time(&mut out, &LocalTime::new(micros, None));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(0), "1970-01-01 00:00:00");
        assert_eq!(shown(1_500_000), "1970-01-01 00:00:01.5");
        assert_eq!(shown(253_402_300_800_000_000), "+10000-01-01 00:00:00");
    }
}
