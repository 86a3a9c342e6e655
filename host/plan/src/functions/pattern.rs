//! Spark's datetime patterns (`yyyy-MM-dd HH:mm:ss.SSS`): reading them, printing and parsing by them.
//!
//! <https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html>, in English. Letters that Spark has and this
//! has not are errors when the query is planned or the pattern is first seen.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeZone, Timelike};
use chrono_tz::Tz;

/// A pattern, taken apart.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq)]
enum Item {
    Literal(String),
    /// A letter and how often it stands.
    Field(char, usize),
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
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

impl Pattern {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut items = Vec::new();
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\'' if chars.peek() == Some(&'\'') => {
                    chars.next();
                    literal(&mut items, '\'');
                }
                '\'' => loop {
                    match chars.next() {
                        Some('\'') if chars.peek() == Some(&'\'') => {
                            chars.next();
                            literal(&mut items, '\'');
                        }
                        Some('\'') => break,
                        Some(c) => literal(&mut items, c),
                        None => return Err(format!("a quote is not closed in the pattern '{text}'")),
                    }
                },
                // An optional section: printed always, and its text is required when parsing.
                '[' | ']' => {}
                c if c.is_ascii_alphabetic() => {
                    let mut count = 1;
                    while chars.next_if_eq(&c).is_some() {
                        count += 1;
                    }
                    if !"yuMLdDHhkKmsSaEVzZXxqQ".contains(c) {
                        return Err(format!("the letter '{c}' of the pattern '{text}' is not supported"));
                    }
                    items.push(Item::Field(c, count));
                }
                c => literal(&mut items, c),
            }
        }
        Ok(Self { items })
    }

    /// Prints a moment as it shows on the clocks of its zone.
    pub(super) fn print(&self, moment: &DateTime<Tz>, out: &mut String) {
        for item in &self.items {
            match item {
                Item::Literal(text) => out.push_str(text),
                Item::Field(letter, count) => print_field(out, *letter, *count, moment),
            }
        }
    }

    /// Reads a whole text. What the pattern does not mention is 1970-01-01T00:00:00 in the session's zone.
    pub(super) fn parse(&self, text: &str, zone: Tz) -> Option<DateTime<Tz>> {
        let mut parts = Parts { zone, ..Parts::default() };
        let mut rest = text;
        for (index, item) in self.items.iter().enumerate() {
            rest = match item {
                Item::Literal(literal) => rest.strip_prefix(literal.as_str())?,
                Item::Field(letter, count) => {
                    // Digits that follow directly belong to the next field: both have a fixed width then.
                    let adjacent = matches!(self.items.get(index + 1), Some(Item::Field(..)));
                    parts.read(*letter, *count, adjacent, rest)?
                }
            };
        }
        if rest.is_empty() { parts.moment() } else { None }
    }
}

fn literal(items: &mut Vec<Item>, c: char) {
    match items.last_mut() {
        Some(Item::Literal(text)) => text.push(c),
        _ => items.push(Item::Literal(c.to_string())),
    }
}

fn print_field(out: &mut String, letter: char, count: usize, at: &DateTime<Tz>) {
    let number = |out: &mut String, value: i64| padded(out, value, count);
    let hour12 = |hour: u32| if hour.is_multiple_of(12) { 12 } else { hour % 12 };
    match letter {
        'y' | 'u' if count == 2 => padded(out, i64::from(at.year().rem_euclid(100)), 2),
        'y' | 'u' => number(out, i64::from(at.year())),
        'M' | 'L' if count >= 3 => name(out, MONTHS[at.month0() as usize], count),
        'M' | 'L' => number(out, i64::from(at.month())),
        'd' => number(out, i64::from(at.day())),
        'D' => number(out, i64::from(at.ordinal())),
        'q' | 'Q' => number(out, i64::from(at.month0() / 3 + 1)),
        'E' => name(out, DAYS[at.weekday().num_days_from_monday() as usize], count.max(3)),
        'H' => number(out, i64::from(at.hour())),
        'k' => number(out, i64::from(if at.hour() == 0 { 24 } else { at.hour() })),
        'K' => number(out, i64::from(at.hour() % 12)),
        'h' => number(out, i64::from(hour12(at.hour()))),
        'm' => number(out, i64::from(at.minute())),
        's' => number(out, i64::from(at.second())),
        'S' => {
            let digits = count.min(9);
            padded(out, i64::from(at.nanosecond()) / 10_i64.pow(9 - digits as u32), digits);
        }
        'a' => out.push_str(if at.hour() < 12 { "AM" } else { "PM" }),
        'V' => out.push_str(at.timezone().name()),
        'z' => out.push_str(&at.format("%Z").to_string()),
        _ => print_offset(out, letter, count, at.offset().fix().local_minus_utc()),
    }
}

/// A number with zeros in front up to `width` digits.
pub(super) fn padded(out: &mut String, value: i64, width: usize) {
    if value < 0 {
        out.push('-');
    }
    let mut digits = [b'0'; 20];
    let (mut rest, mut at) = (value.unsigned_abs(), digits.len());
    while rest > 0 || digits.len() - at < width.min(digits.len()) {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits[at..].iter().for_each(|digit| out.push(char::from(*digit)));
}

fn name(out: &mut String, name: &str, count: usize) {
    out.push_str(if count == 3 { &name[..3] } else { name });
}

/// `X`: `Z` for zero; `XXX`, `xxx`, `ZZZZZ` with a colon; `X`, `x` the hours alone if the minutes are zero.
fn print_offset(out: &mut String, letter: char, count: usize, seconds: i32) {
    if seconds == 0 && (letter == 'X' || (letter == 'Z' && count == 5)) {
        out.push('Z');
        return;
    }
    let (sign, seconds) = if seconds < 0 { ('-', -seconds) } else { ('+', seconds) };
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    if letter == 'Z' && count == 4 {
        out.push_str("GMT");
    }
    let colon = count == 3 && letter != 'Z' || count == 5 || (letter == 'Z' && count == 4);
    match (colon, count) {
        (true, _) => out.push_str(&format!("{sign}{hours:02}:{minutes:02}")),
        (false, 1) if letter != 'Z' && minutes == 0 => out.push_str(&format!("{sign}{hours:02}")),
        (false, _) => out.push_str(&format!("{sign}{hours:02}{minutes:02}")),
    }
}

/// What has been read of a text so far.
struct Parts {
    zone: Tz,
    year: i32,
    month: u32,
    day: u32,
    day_of_year: Option<u32>,
    hour: u32,
    hour12: Option<u32>,
    afternoon: bool,
    minute: u32,
    second: u32,
    nanos: u32,
    offset_seconds: Option<i32>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            zone: Tz::UTC,
            year: 1970,
            month: 1,
            day: 1,
            day_of_year: None,
            hour: 0,
            hour12: None,
            afternoon: false,
            minute: 0,
            second: 0,
            nanos: 0,
            offset_seconds: None,
        }
    }
}

impl Parts {
    fn read<'a>(&mut self, letter: char, count: usize, adjacent: bool, text: &'a str) -> Option<&'a str> {
        match letter {
            'M' | 'L' if count >= 3 => {
                let (month, rest) = named(&MONTHS, text, count)?;
                self.month = month + 1;
                return Some(rest);
            }
            'E' => return named(&DAYS, text, count.max(3)).map(|(_, rest)| rest),
            'a' => {
                let half = text.get(..2)?.to_ascii_uppercase();
                self.afternoon = half == "PM";
                return (half == "AM" || half == "PM").then(|| &text[2..]);
            }
            'X' | 'x' | 'Z' => return self.offset(text),
            'V' | 'z' => return self.named_zone(text),
            'S' => return self.fraction(count, text),
            _ => {}
        }
        // One letter: as many digits as there are. More: exactly as many, but a year of four may have more.
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let year = matches!(letter, 'y' | 'u');
        let width = match (count, adjacent) {
            (1, false) => digits.min(if year { 6 } else { 2 }),
            (4, false) if year => digits.clamp(4, 6),
            _ => count,
        };
        if width == 0 || digits < width || (digits > width && !adjacent) {
            return None;
        }
        let value: u32 = text[..width].parse().ok()?;
        match letter {
            'y' | 'u' if count == 2 => self.year = 2000 + i32::try_from(value).ok()?,
            'y' | 'u' => self.year = i32::try_from(value).ok()?,
            'M' | 'L' => self.month = value,
            'd' => self.day = value,
            'D' => self.day_of_year = Some(value),
            'H' => self.hour = value,
            'k' => self.hour = value % 24,
            'h' | 'K' => self.hour12 = Some(value % 12),
            'm' => self.minute = value,
            's' => self.second = value,
            _ => return None,
        }
        Some(&text[width..])
    }

    fn fraction<'a>(&mut self, count: usize, text: &'a str) -> Option<&'a str> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 || digits > count.max(1) || count > 9 {
            return None;
        }
        self.nanos = format!("{:0<9}", &text[..digits]).parse().ok()?;
        Some(&text[digits..])
    }

    fn offset<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let text = text.strip_prefix("GMT").unwrap_or(text);
        if let Some(rest) = text.strip_prefix('Z') {
            self.offset_seconds = Some(0);
            return Some(rest);
        }
        let (seconds, rest) = super::timestamp::offset(text)?;
        self.offset_seconds = Some(seconds);
        Some(rest)
    }

    fn named_zone<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let end =
            text.find(|c: char| !(c.is_ascii_alphanumeric() || "/_+-".contains(c))).unwrap_or(text.len());
        self.zone = text[..end].parse().ok()?;
        Some(&text[end..])
    }

    fn moment(&self) -> Option<DateTime<Tz>> {
        let date = match self.day_of_year {
            Some(day) => NaiveDate::from_yo_opt(self.year, day)?,
            None => NaiveDate::from_ymd_opt(self.year, self.month, self.day)?,
        };
        let hour = match self.hour12 {
            Some(hour) => hour + if self.afternoon { 12 } else { 0 },
            None => self.hour,
        };
        let time = NaiveTime::from_hms_nano_opt(hour, self.minute, self.second, self.nanos)?;
        let local = NaiveDateTime::new(date, time);
        match self.offset_seconds {
            Some(seconds) => {
                let utc = local.checked_sub_signed(chrono::TimeDelta::seconds(i64::from(seconds)))?;
                Some(self.zone.from_utc_datetime(&utc))
            }
            None => super::timestamp::in_zone(local, self.zone),
        }
    }
}

fn named<'a>(names: &[&str], text: &'a str, count: usize) -> Option<(u32, &'a str)> {
    let found = |name: &&str| {
        let wanted = if count == 3 { &name[..3] } else { name };
        text.get(..wanted.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(wanted))
            .then_some(wanted.len())
    };
    names.iter().enumerate().find_map(|(index, name)| {
        let length = found(name)?;
        Some((u32::try_from(index).ok()?, &text[length..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(pattern: &str, text: &str) -> Option<String> {
        let pattern = Pattern::read(pattern).expect("a pattern");
        let zone: Tz = "Europe/Berlin".parse().expect("a zone");
        pattern.parse(text, zone).map(|moment| moment.to_rfc3339())
    }

    #[test]
    fn parses_what_spark_parses() {
        let check = |pattern, text, wanted: Option<&str>| {
            assert_eq!(round(pattern, text).as_deref(), wanted, "{pattern} {text}");
        };
        check("yyyy-MM-dd HH:mm:ss", "2026-01-02 03:04:05", Some("2026-01-02T03:04:05+01:00"));
        check("yyyyMMddHHmmss", "20260102030405", Some("2026-01-02T03:04:05+01:00"));
        check("dd/MMM/yyyy:HH:mm:ss Z", "02/Jul/2026:03:04:05 +0000", Some("2026-07-02T05:04:05+02:00"));
        check(
            "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
            "2026-01-02T03:04:05.250Z",
            Some("2026-01-02T04:04:05.250+01:00"),
        );
        check("M/d/yyyy h:mm a", "7/4/2026 3:07 PM", Some("2026-07-04T15:07:00+02:00"));
        check("yyyy-MM-dd", "2026-02-30", None);
        check("yyyy-MM-dd", "2026-02-03x", None);
        check("yy", "26", Some("2026-01-01T00:00:00+01:00"));
    }

    #[test]
    fn prints_what_spark_prints() {
        let zone: Tz = "Europe/Berlin".parse().expect("a zone");
        let moment = zone.with_ymd_and_hms(2026, 7, 4, 15, 7, 9).single().expect("a moment");
        let check = |pattern, wanted: &str| {
            let mut shown = String::new();
            Pattern::read(pattern).expect("a pattern").print(&moment, &mut shown);
            assert_eq!(shown, wanted, "{pattern}");
        };
        check("yyyy-MM-dd HH:mm:ss.SSS", "2026-07-04 15:07:09.000");
        check("EEEE, d. MMMM yy", "Saturday, 4. July 26");
        check("E h a XXX Z VV", "Sat 3 PM +02:00 +0200 Europe/Berlin");
        check("D 'of' ''yyyy''", "185 of '2026'");
        check("Q", "3");
    }

    #[test]
    fn an_unknown_letter_is_an_error() {
        assert_eq!(
            Pattern::read("YYYY").expect_err("refused"),
            "the letter 'Y' of the pattern 'YYYY' is not supported"
        );
        assert!(Pattern::read("yyyy 'oops").is_err());
    }
}
