//! `date_format` and `timestamp_format`: Spark's datetime patterns, compiled once and read from left to right.
//!
//! Understood are the letters that files have in practice; any other is refused when the pipeline is checked.

use super::time::{Zone, days, parse_offset};
use pelton_core::{Error, Result};

/// A compiled pattern.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pattern {
    items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq)]
enum Item {
    Literal(char),
    Number {
        field: Field,
        min: usize,
        max: usize,
    },
    /// Two digits: 2000 to 2099.
    ShortYear,
    /// Digits of a second: at least, at most.
    Fraction(usize),
    /// `Jan`, `January`.
    Month {
        short: bool,
    },
    /// `Mon`, `Monday`: read and not used.
    Weekday {
        short: bool,
    },
    AmPm,
    /// `+02:00`, with `Z` for zero if so.
    Offset {
        zulu: bool,
    },
    /// `Europe/Paris`, `UTC`, `+02:00`.
    ZoneName,
    Optional(Vec<Item>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Year,
    Month,
    Day,
    DayOfYear,
    Hour,
    /// 1 to 24.
    ClockHour,
    HalfDayHour,
    /// 1 to 12.
    HalfDayClockHour,
    Minute,
    Second,
}

/// What a text said.
#[derive(Debug, Clone, Copy, Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: Option<i64>,
    half_day_hour: Option<i64>,
    afternoon: Option<bool>,
    minute: i64,
    second: i64,
    micros: i64,
    zone: Option<Zone>,
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

impl Pattern {
    /// Reads a pattern such as `yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut chars = text.chars().collect::<Vec<_>>();
        chars.reverse();
        let mut items = read_items(&mut chars, text, false)?;
        bound_years(&mut items);
        Ok(Self { items })
    }

    /// Days since the epoch.
    pub(crate) fn date(&self, text: &str) -> Option<i32> {
        let (parts, _) = self.parts(text)?;
        i32::try_from(parts.day_number()?).ok()
    }

    /// Microseconds since the epoch; `zone` is meant where the text names none.
    pub(crate) fn timestamp(&self, text: &str, zone: Zone) -> Option<i64> {
        let (parts, local) = self.parts(text)?;
        parts.zone.unwrap_or(zone).instant(local)
    }

    /// Microseconds of the local time.
    pub(crate) fn local(&self, text: &str) -> Option<i64> {
        self.parts(text).map(|(_, local)| local)
    }

    fn parts(&self, text: &str) -> Option<(Parts, i64)> {
        let mut parts = Parts::default();
        let rest = read(&self.items, text, &mut parts)?;
        if !rest.is_empty() {
            return None;
        }
        let seconds = parts.day_number()?.checked_mul(86_400)? + parts.second_of_day()?;
        let local = seconds.checked_mul(1_000_000)?.checked_add(parts.micros)?;
        Some((parts, local))
    }
}

impl Parts {
    fn day_number(&self) -> Option<i64> {
        let year = self.year.unwrap_or(1970);
        match self.day_of_year {
            Some(nth) if nth >= 1 && self.month.is_none() => {
                let day = days(year, 1, 1)? + nth - 1;
                (day < days(year + 1, 1, 1)?).then_some(day)
            }
            _ => days(year, self.month.unwrap_or(1), self.day.unwrap_or(1)),
        }
    }
    fn second_of_day(&self) -> Option<i64> {
        let hour = match (self.hour, self.half_day_hour) {
            (Some(hour), _) => hour,
            (None, Some(hour)) => hour + 12 * i64::from(self.afternoon.unwrap_or(false)),
            (None, None) => 12 * i64::from(self.afternoon.unwrap_or(false)),
        };
        let valid = hour < 24 && self.minute < 60 && self.second < 60;
        valid.then_some(hour * 3600 + self.minute * 60 + self.second)
    }
    fn set(&mut self, field: Field, value: i64) {
        match field {
            Field::Year => self.year = Some(value),
            Field::Month => self.month = Some(value),
            Field::Day => self.day = Some(value),
            Field::DayOfYear => self.day_of_year = Some(value),
            Field::Hour => self.hour = Some(value),
            Field::ClockHour => self.hour = Some(value % 24),
            Field::HalfDayHour => self.half_day_hour = Some(value),
            Field::HalfDayClockHour => self.half_day_hour = Some(value % 12),
            Field::Minute => self.minute = value,
            Field::Second => self.second = value,
        }
    }
}

/// Reads items up to the end, or up to `]` inside of an optional part. `chars` is a stack.
fn read_items(chars: &mut Vec<char>, whole: &str, optional: bool) -> Result<Vec<Item>> {
    let mut items = Vec::new();
    while let Some(c) = chars.pop() {
        match c {
            '\'' => quoted(chars, whole, &mut items)?,
            '[' => items.push(Item::Optional(read_items(chars, whole, true)?)),
            ']' if optional => return Ok(items),
            'a'..='z' | 'A'..='Z' => {
                let mut len = 1;
                while chars.last() == Some(&c) {
                    chars.pop();
                    len += 1;
                }
                items.push(letter(c, len).ok_or_else(|| unknown(c, len, whole))?);
            }
            ']' | '{' | '}' | '#' => return Err(bad(whole, &format!("'{c}' has no meaning there"))),
            literal => items.push(Item::Literal(literal)),
        }
    }
    if optional { Err(bad(whole, "a '[' is not closed")) } else { Ok(items) }
}

fn quoted(chars: &mut Vec<char>, whole: &str, items: &mut Vec<Item>) -> Result<()> {
    if chars.last() == Some(&'\'') {
        chars.pop();
        items.push(Item::Literal('\''));
        return Ok(());
    }
    loop {
        match chars.pop() {
            Some('\'') if chars.last() == Some(&'\'') => {
                chars.pop();
                items.push(Item::Literal('\''));
            }
            Some('\'') => return Ok(()),
            Some(c) => items.push(Item::Literal(c)),
            None => return Err(bad(whole, "a quote is not closed")),
        }
    }
}

fn letter(c: char, len: usize) -> Option<Item> {
    let number = |field, max_len: usize| {
        let (min, max) = if len == 1 { (1, max_len.max(2)) } else { (len, len.max(max_len)) };
        (len <= max_len).then_some(Item::Number { field, min, max })
    };
    match (c, len) {
        ('y' | 'u', 2) => Some(Item::ShortYear),
        ('y' | 'u', 1..=6) => Some(Item::Number { field: Field::Year, min: len, max: 7 }),
        ('M' | 'L', 3) => Some(Item::Month { short: true }),
        ('M' | 'L', 4) => Some(Item::Month { short: false }),
        ('M' | 'L', _) => number(Field::Month, 2),
        ('d', _) => number(Field::Day, 2),
        ('D', _) => number(Field::DayOfYear, 3),
        ('H', _) => number(Field::Hour, 2),
        ('k', _) => number(Field::ClockHour, 2),
        ('K', _) => number(Field::HalfDayHour, 2),
        ('h', _) => number(Field::HalfDayClockHour, 2),
        ('m', _) => number(Field::Minute, 2),
        ('s', _) => number(Field::Second, 2),
        ('S', 1..=9) => Some(Item::Fraction(len)),
        ('E', 1..=3) => Some(Item::Weekday { short: true }),
        ('E', 4) => Some(Item::Weekday { short: false }),
        ('a', 1) => Some(Item::AmPm),
        ('X', 1..=5) => Some(Item::Offset { zulu: true }),
        ('x' | 'Z', 1..=5) => Some(Item::Offset { zulu: false }),
        ('V', 2) | ('z', 1..=4) => Some(Item::ZoneName),
        _ => None,
    }
}

/// A year that is followed by other digits at once has just the digits that the pattern shows.
fn bound_years(items: &mut [Item]) {
    for at in 0..items.len() {
        let digits_follow =
            matches!(items.get(at + 1), Some(Item::Number { .. } | Item::ShortYear | Item::Fraction(_)));
        match &mut items[at] {
            Item::Number { min, max, .. } if digits_follow => *max = *min,
            Item::Optional(inner) => bound_years(inner),
            _ => {}
        }
    }
}

fn read<'t>(items: &[Item], mut text: &'t str, parts: &mut Parts) -> Option<&'t str> {
    for item in items {
        text = read_one(item, text, parts)?;
    }
    Some(text)
}

fn read_one<'t>(item: &Item, text: &'t str, parts: &mut Parts) -> Option<&'t str> {
    match item {
        Item::Literal(c) => text.strip_prefix(*c),
        Item::Number { field, min, max } => {
            let (value, rest) = number(text, *min, *max)?;
            parts.set(*field, value);
            Some(rest)
        }
        Item::ShortYear => {
            let (value, rest) = number(text, 2, 2)?;
            parts.year = Some(2000 + value);
            Some(rest)
        }
        Item::Fraction(digits) => {
            let (value, rest) = number(text, *digits, *digits)?;
            let power = *digits as i32 - 6;
            let scale = 10_i64.pow(power.unsigned_abs());
            parts.micros = if power > 0 { value / scale } else { value * scale };
            Some(rest)
        }
        Item::Month { short } => {
            let (index, rest) = word(text, &MONTHS, *short)?;
            parts.month = Some(index as i64 + 1);
            Some(rest)
        }
        Item::Weekday { short } => word(text, &WEEKDAYS, *short).map(|(_, rest)| rest),
        Item::AmPm => {
            let (index, rest) = word(text, &["AM", "PM"], false)?;
            parts.afternoon = Some(index == 1);
            Some(rest)
        }
        Item::Offset { zulu: true } if text.starts_with('Z') => {
            parts.zone = Some(Zone::Fixed(0));
            Some(&text[1..])
        }
        Item::Offset { .. } => {
            let rest = text.strip_prefix(['+', '-'])?;
            let end = rest.find(|c: char| !(c.is_ascii_digit() || c == ':')).unwrap_or(rest.len());
            parts.zone = Some(Zone::Fixed(parse_offset(&text.as_bytes()[..end + 1])?));
            Some(&rest[end..])
        }
        Item::ZoneName => {
            let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '+' | '-' | ':');
            let end = text.find(|c| !inside(c)).unwrap_or(text.len());
            parts.zone = Some(Zone::parse(&text[..end]).filter(|_| end > 0)?);
            Some(&text[end..])
        }
        Item::Optional(inner) => {
            let before = *parts;
            Some(read(inner, text, parts).unwrap_or_else(|| {
                *parts = before;
                text
            }))
        }
    }
}

fn number(text: &str, min: usize, max: usize) -> Option<(i64, &str)> {
    let len = text.bytes().take(max).take_while(u8::is_ascii_digit).count();
    if len < min {
        return None;
    }
    Some((text[..len].parse().ok()?, &text[len..]))
}

fn word<'t>(text: &'t str, words: &[&str], short: bool) -> Option<(usize, &'t str)> {
    words.iter().enumerate().find_map(|(index, word)| {
        let word = if short { &word[..3] } else { word };
        let head = text.get(..word.len())?;
        head.eq_ignore_ascii_case(word).then(|| (index, &text[word.len()..]))
    })
}

fn unknown(c: char, len: usize, whole: &str) -> Error {
    let letters: String = std::iter::repeat_n(c, len).collect();
    bad(whole, &format!("'{letters}' is not understood"))
        .hint("letters: y M d D E H h K k m s S a X x Z VV z, text in '…', optional parts in […]")
}

fn bad(whole: &str, why: &str) -> Error {
    Error::invalid(format!("'{whole}' is not a datetime pattern: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pattern: &str, text: &str) -> Option<i64> {
        Pattern::parse(pattern).unwrap().timestamp(text, Zone::Fixed(0)).map(|micros| micros / 1000)
    }

    #[test]
    fn reads_the_usual_patterns() {
        assert_eq!(at("yyyy-MM-dd HH:mm:ss", "2026-01-01 12:00:00"), Some(1_767_268_800_000));
        assert_eq!(at("yyyyMMddHHmmss", "20260101120000"), Some(1_767_268_800_000));
        assert_eq!(at("dd/MM/yy hh:mm a", "01/01/26 12:00 PM"), Some(1_767_268_800_000));
        assert_eq!(
            at("EEE, d MMM yyyy HH:mm:ss Z", "Thu, 1 Jan 2026 13:00:00 +0100"),
            Some(1_767_268_800_000)
        );
        assert_eq!(
            at("yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "2026-01-01T12:00:00.250Z"),
            Some(1_767_268_800_250)
        );
        assert_eq!(at("yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "2026-01-01T12:00:00"), Some(1_767_268_800_000));
        assert_eq!(at("yyyy-MM-dd VV", "2026-01-01 Europe/Paris"), Some(1_767_222_000_000));
        assert_eq!(at("HH:mm", "00:01"), Some(60_000));
    }

    #[test]
    fn what_does_not_fit_is_none() {
        assert_eq!(at("yyyy-MM-dd", "2026-1-1"), None);
        assert_eq!(at("yyyy-MM-dd", "2026-02-30"), None);
        assert_eq!(at("yyyy-MM-dd", "2026-01-01 "), None);
        assert_eq!(at("HH", "24"), None);
    }

    #[test]
    fn dates_have_patterns_too() {
        assert_eq!(Pattern::parse("d.M.yyyy").unwrap().date("2.1.1970"), Some(1));
        assert_eq!(Pattern::parse("yyyy-DDD").unwrap().date("1970-032"), Some(31));
    }

    #[test]
    fn other_letters_are_refused() {
        let error = Pattern::parse("yyyy-QQ").unwrap_err();
        assert_eq!(error.message(), "'yyyy-QQ' is not a datetime pattern: 'QQ' is not understood");
        assert!(Pattern::parse("yyyy'T").is_err());
        assert!(Pattern::parse("[yyyy").is_err());
    }
}
