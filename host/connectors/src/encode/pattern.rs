//! `date_format` and `timestamp_format` when writing: Spark's datetime patterns, compiled once.
//!
//! What an optional part (`[.SSS]`) needs and the type has not is left out; outside of such a part it is refused.

use super::datetime::{LocalTime, ZoneClock, push_iso, push_offset, push_two, push_year};
use pelton_core::number::push_int;
use pelton_core::{Error, Result};

/// How a date or timestamp column is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TimeFormat {
    /// Spark's default: `2013-01-01T10:00:00.000Z`.
    Iso,
    /// What the option says.
    Pattern(Vec<Item>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    Literal(char),
    Year,
    ShortYear,
    Month(usize),
    Day(usize),
    DayOfYear(usize),
    Quarter(usize),
    Weekday(usize),
    Hour(usize),
    /// 1 to 24.
    ClockHour(usize),
    HalfDayHour(usize),
    /// 1 to 12.
    HalfDayClockHour(usize),
    Minute(usize),
    Second(usize),
    Fraction(usize),
    AmPm,
    Offset {
        zulu: bool,
        minutes: bool,
        colon: bool,
    },
    ZoneName,
    Optional(Vec<Item>),
}

/// What a type knows of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knows {
    Date,
    LocalTime,
    Instant,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

impl TimeFormat {
    /// The format that an option names, or Spark's default.
    pub(crate) fn from_option(option: &str, pattern: Option<String>, knows: Knows) -> Result<Self> {
        let Some(pattern) = pattern else { return Ok(Self::Iso) };
        let mut chars: Vec<char> = pattern.chars().rev().collect();
        let wrong = |why: String| Error::invalid(format!("{option}: '{pattern}' cannot be written: {why}"));
        let items = read(&mut chars, false).map_err(wrong)?;
        let items = fit(items, knows).map_err(|item| {
            wrong(format!(
                "it asks for {item}, which {} has not",
                match knows {
                    Knows::Date => "a date",
                    _ => "a timestamp without time zone",
                }
            ))
        })?;
        Ok(Self::Pattern(items))
    }

    /// Appends a timestamp.
    pub(crate) fn push(&self, out: &mut Vec<u8>, micros: i64, clock: Option<&ZoneClock>) {
        let time = clock.map_or_else(|| LocalTime::new(micros, None), |clock| clock.local(micros));
        match self {
            Self::Iso => push_iso(out, &time),
            Self::Pattern(items) => push_items(out, items, &time, clock.map_or("", ZoneClock::name)),
        }
    }

    /// Appends a date.
    pub(crate) fn push_date(&self, out: &mut Vec<u8>, days: i32) {
        let time = LocalTime::midnight(days);
        match self {
            Self::Iso => super::datetime::push_date(out, &time),
            Self::Pattern(items) => push_items(out, items, &time, ""),
        }
    }
}

/// `chars` is a stack.
fn read(chars: &mut Vec<char>, optional: bool) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    while let Some(c) = chars.pop() {
        match c {
            '\'' => quoted(chars, &mut items)?,
            '[' => items.push(Item::Optional(read(chars, true)?)),
            ']' if optional => return Ok(items),
            c if c.is_ascii_alphabetic() => {
                let mut len = 1;
                while chars.last() == Some(&c) {
                    chars.pop();
                    len += 1;
                }
                let letters = || std::iter::repeat_n(c, len).collect::<String>();
                items.push(letter(c, len).ok_or_else(|| format!("'{}' is not understood", letters()))?);
            }
            ']' | '{' | '}' | '#' => return Err(format!("'{c}' has no meaning there")),
            literal => items.push(Item::Literal(literal)),
        }
    }
    if optional { Err("a '[' is not closed".into()) } else { Ok(items) }
}

fn quoted(chars: &mut Vec<char>, items: &mut Vec<Item>) -> Result<(), String> {
    if chars.last() == Some(&'\'') {
        chars.pop();
        items.push(Item::Literal('\''));
        return Ok(());
    }
    while let Some(c) = chars.pop() {
        match c {
            '\'' if chars.last() == Some(&'\'') => {
                chars.pop();
                items.push(Item::Literal('\''));
            }
            '\'' => return Ok(()),
            c => items.push(Item::Literal(c)),
        }
    }
    Err("a quote is not closed".into())
}

fn letter(c: char, len: usize) -> Option<Item> {
    Some(match (c, len) {
        ('y' | 'u', 2) => Item::ShortYear,
        ('y' | 'u', 1 | 3 | 4) => Item::Year,
        ('M' | 'L', 1..=4) => Item::Month(len),
        ('d', 1 | 2) => Item::Day(len),
        ('D', 1..=3) => Item::DayOfYear(len),
        ('Q' | 'q', 1 | 2) => Item::Quarter(len),
        ('E', 1..=4) => Item::Weekday(len),
        ('H', 1 | 2) => Item::Hour(len),
        ('k', 1 | 2) => Item::ClockHour(len),
        ('K', 1 | 2) => Item::HalfDayHour(len),
        ('h', 1 | 2) => Item::HalfDayClockHour(len),
        ('m', 1 | 2) => Item::Minute(len),
        ('s', 1 | 2) => Item::Second(len),
        ('S', 1..=9) => Item::Fraction(len),
        ('a', 1) => Item::AmPm,
        ('X', 1..=3) => Item::Offset { zulu: true, minutes: len > 1, colon: len > 2 },
        ('x', 1..=3) => Item::Offset { zulu: false, minutes: len > 1, colon: len > 2 },
        ('Z', 1..=3) => Item::Offset { zulu: false, minutes: true, colon: false },
        ('Z', 5) => Item::Offset { zulu: true, minutes: true, colon: true },
        ('V', 2) => Item::ZoneName,
        _ => return None,
    })
}

/// Leaves out optional parts that the type cannot fill. The error names what is asked for in vain.
fn fit(items: Vec<Item>, knows: Knows) -> Result<Vec<Item>, &'static str> {
    let mut fitting = Vec::with_capacity(items.len());
    for item in items {
        match item {
            Item::Optional(inner) => fitting.extend(fit(inner, knows).unwrap_or_default()),
            Item::Offset { .. } | Item::ZoneName if knows != Knows::Instant => return Err("a time zone"),
            item if knows == Knows::Date && item.is_time() => return Err("a time of day"),
            item => fitting.push(item),
        }
    }
    Ok(fitting)
}

impl Item {
    fn is_time(&self) -> bool {
        use Item as I;
        matches!(
            self,
            I::Hour(_)
                | I::ClockHour(_)
                | I::HalfDayHour(_)
                | I::HalfDayClockHour(_)
                | I::Minute(_)
                | I::Second(_)
                | I::Fraction(_)
                | I::AmPm
        )
    }
}

fn push_items(out: &mut Vec<u8>, items: &[Item], time: &LocalTime, zone: &str) {
    for item in items {
        push_item(out, item, time, zone);
    }
}

fn push_item(out: &mut Vec<u8>, item: &Item, time: &LocalTime, zone: &str) {
    match item {
        Item::Literal(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        Item::Year => push_year(out, time.year),
        Item::ShortYear => push_two(out, time.year.rem_euclid(100) as u32),
        Item::Month(len @ 1..=2) => push_padded(out, time.month, *len),
        Item::Month(len) => push_name(out, MONTHS[time.month as usize - 1], *len),
        Item::Day(len) => push_padded(out, time.day, *len),
        Item::DayOfYear(len) => push_padded(out, day_of_year(time), *len),
        Item::Quarter(len) => push_padded(out, time.month.div_ceil(3), *len),
        // The epoch was a Thursday.
        Item::Weekday(len) => push_name(out, WEEKDAYS[(time.days + 3).rem_euclid(7) as usize], *len),
        Item::Hour(len) => push_padded(out, time.hour(), *len),
        Item::ClockHour(len) => push_padded(out, (time.hour() + 23) % 24 + 1, *len),
        Item::HalfDayHour(len) => push_padded(out, time.hour() % 12, *len),
        Item::HalfDayClockHour(len) => push_padded(out, (time.hour() + 11) % 12 + 1, *len),
        Item::Minute(len) => push_padded(out, time.minute(), *len),
        Item::Second(len) => push_padded(out, time.second(), *len),
        Item::Fraction(len) => {
            let digits = format!("{:06}000", time.fraction());
            out.extend_from_slice(&digits.as_bytes()[..*len]);
        }
        Item::AmPm => out.extend_from_slice(if time.hour() < 12 { b"AM" } else { b"PM" }),
        Item::Offset { zulu, minutes, colon } => {
            push_offset(out, time.offset.unwrap_or(0), *zulu, *minutes, *colon);
        }
        Item::ZoneName => out.extend_from_slice(zone.as_bytes()),
        Item::Optional(items) => push_items(out, items, time, zone),
    }
}

fn push_padded(out: &mut Vec<u8>, value: u32, len: usize) {
    match len {
        1 => push_int(out, value),
        2 => push_two(out, value),
        _ => out.extend_from_slice(format!("{value:0len$}").as_bytes()),
    }
}

fn push_name(out: &mut Vec<u8>, name: &str, len: usize) {
    out.extend_from_slice(if len < 4 { &name.as_bytes()[..3] } else { name.as_bytes() });
}

fn day_of_year(time: &LocalTime) -> u32 {
    let leap = (time.year % 4 == 0 && time.year % 100 != 0) || time.year % 400 == 0;
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][time.month as usize - 1];
    before + time.day + u32::from(leap && time.month > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pattern: &str, knows: Knows) -> String {
        let format = match TimeFormat::from_option("timestamp_format", Some(pattern.into()), knows) {
            Ok(format) => format,
            Err(e) => return e.to_string(),
        };
        let clock = (knows == Knows::Instant).then(|| ZoneClock::new("Europe/Paris").unwrap());
        let mut out = Vec::new();
        match knows {
            Knows::Date => format.push_date(&mut out, 19_782), // 2024-02-29
            _ => format.push(&mut out, 1_709_240_645_123_456, clock.as_ref()), // 2024-02-29T21:04:05.123456Z
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn letters_mean_what_they_mean_in_spark() {
        for (pattern, text) in [
            ("yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "2024-02-29T22:04:05.123+01:00"),
            ("dd.MM.yy H:m:s.SSSSSS", "29.02.24 22:4:5.123456"),
            ("EEE, d MMM yyyy hh:mm a Z", "Thu, 29 Feb 2024 10:04 PM +0100"),
            ("EEEE MMMM D 'o''clock' k K VV x", "Thursday February 60 o'clock 22 10 Europe/Paris +01"),
            ("QQ ''", "01 '"),
        ] {
            assert_eq!(written(pattern, Knows::Instant), text, "{pattern}");
        }
    }

    #[test]
    fn what_a_type_has_not_is_left_out_or_refused() {
        assert_eq!(written("yyyy[ HH:mm][ XXX]", Knows::LocalTime), "2024 21:04");
        assert_eq!(written("MM/dd/yyyy[ HH:mm]", Knows::Date), "02/29/2024");
        assert_eq!(
            written("yyyy HH", Knows::Date),
            "timestamp_format: 'yyyy HH' cannot be written: it asks for a time of day, which a date has not"
        );
        assert!(written("yyyy XXX", Knows::LocalTime).contains("a time zone"));
        assert!(written("YYYY", Knows::Date).contains("'YYYY' is not understood"));
        assert!(written("yyyy['", Knows::Date).contains("a quote is not closed"));
    }
}
