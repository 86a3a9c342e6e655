//! Walks over JSON text, checks its structure and marks values as spans. Called for every byte of input, so
//! it goes by words of eight bytes where it can; it never copies and never looks at types.
//!
//! A line feed ends a record and is never crossed: to this module it is not white space.

/// Deepest nesting, as in the JSON parser that Spark uses.
const DEPTH_MAX: usize = 1000;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// No such field in the record.
    Missing,
    Null,
    False,
    True,
    /// An integer of at most 18 digits: [`Span::integer`] holds it.
    Integer,
    /// A longer integer.
    BigInteger,
    /// A number with a point or an exponent.
    Fraction,
    /// `NaN`, `Infinity`, `-INF` … without quotes.
    NonNumeric,
    /// A string without escapes; the span is what is between the quotes.
    Text,
    /// A string with escapes; the span is what is between the quotes.
    Escaped,
    Object,
    Array,
}

/// A value's place in the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) kind: Kind,
    pub(super) integer: i64,
}

impl Span {
    pub(super) const MISSING: Self = Self { start: 0, end: 0, kind: Kind::Missing, integer: 0 };

    #[inline]
    fn new(start: usize, end: usize, kind: Kind) -> Self {
        // Inputs are bounded below 4 GiB by `check_size`.
        Self { start: start as u32, end: end as u32, kind, integer: 0 }
    }
    /// The value's bytes.
    #[inline]
    pub(super) fn of<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// Where the text stops being JSON, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

/// A place in the text.
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    /// Whether `NaN` and its like are numbers.
    pub(super) non_numeric: bool,
}

impl<'a> Scanner<'a> {
    /// The byte here; a line feed where the text ends.
    #[inline]
    pub(super) fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(b'\n')
    }
    pub(super) fn fault<T>(&self, what: &'static str) -> Result<T, Fault> {
        Err(Fault { at: self.at, what })
    }
    #[inline]
    pub(super) fn spaces(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r') {
            self.at += 1;
        }
    }
    #[inline]
    fn expect(&mut self, wanted: u8, what: &'static str) -> Result<(), Fault> {
        if self.peek() != wanted {
            return self.fault(what);
        }
        self.at += 1;
        Ok(())
    }

    /// The value here, checked to its end.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Span, Fault> {
        match self.peek() {
            b'"' => self.string(),
            b'0'..=b'9' | b'-' => self.number(),
            b'{' | b'[' => self.nested(),
            _ => self.word(),
        }
    }

    /// The string here, from quote to quote.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Span, Fault> {
        let start = self.at + 1;
        self.at = start;
        let mut kind = Kind::Text;
        loop {
            self.ordinary();
            match self.peek() {
                b'"' => {
                    let end = self.at;
                    self.at += 1;
                    return Ok(Span::new(start, end, kind));
                }
                b'\\' => {
                    kind = Kind::Escaped;
                    self.escape()?;
                }
                b'\n' => return self.fault("the string is not closed"),
                _ => return self.fault("a control character must be escaped in a string"),
            }
        }
    }

    /// Moves on to the next quote, backslash or control character.
    #[inline]
    fn ordinary(&mut self) {
        while let Some(chunk) = self.text.get(self.at..).and_then(<[u8]>::first_chunk::<8>) {
            let special = special(u64::from_le_bytes(*chunk));
            if special != 0 {
                self.at += (special.trailing_zeros() / 8) as usize;
                return;
            }
            self.at += 8;
        }
        while !matches!(self.peek(), b'"' | b'\\' | 0..=0x1F) {
            self.at += 1;
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let digits = self.text.get(self.at + 2..self.at + 6).unwrap_or_default();
                if digits.len() < 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return self.fault("\\u needs four hexadecimal digits");
                }
                self.at += 6;
            }
            _ => return self.fault("there is no such escape"),
        }
        Ok(())
    }

    #[inline]
    fn digits(&mut self) -> u64 {
        let mut value = 0_u64;
        loop {
            let digit = self.peek().wrapping_sub(b'0');
            if digit > 9 {
                return value;
            }
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            self.at += 1;
        }
    }

    #[inline]
    fn number(&mut self) -> Result<Span, Fault> {
        let start = self.at;
        let negative = self.peek() == b'-';
        self.at += usize::from(negative);
        let first = self.at;
        let value = self.digits();
        let digits = self.at - first;
        if digits == 0 {
            return if negative { self.non_numeric(start) } else { self.fault("a digit is missing") };
        }
        if digits > 1 && self.text[first] == b'0' {
            self.at = first;
            return self.fault("a number must not start with 0");
        }
        if matches!(self.peek(), b'.' | b'e' | b'E') {
            return self.fraction(start);
        }
        if digits > 18 {
            return Ok(Span::new(start, self.at, Kind::BigInteger));
        }
        let value = value as i64;
        let integer = if negative { -value } else { value };
        Ok(Span { integer, ..Span::new(start, self.at, Kind::Integer) })
    }

    fn fraction(&mut self, start: usize) -> Result<Span, Fault> {
        if self.peek() == b'.' {
            self.at += 1;
            self.some_digits("a digit is missing after the point")?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), b'+' | b'-'));
            self.some_digits("a digit is missing in the exponent")?;
        }
        Ok(Span::new(start, self.at, Kind::Fraction))
    }

    fn some_digits(&mut self, what: &'static str) -> Result<(), Fault> {
        let first = self.at;
        self.digits();
        if self.at == first { self.fault(what) } else { Ok(()) }
    }

    fn word(&mut self) -> Result<Span, Fault> {
        let start = self.at;
        for (word, kind) in [("true", Kind::True), ("false", Kind::False), ("null", Kind::Null)] {
            if self.text[start.min(self.text.len())..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(Span::new(start, self.at, kind));
            }
        }
        self.at += usize::from(self.peek() == b'+');
        self.non_numeric(start)
    }

    /// `NaN`, `Infinity` or `INF`, whose sign is already behind.
    fn non_numeric(&mut self, start: usize) -> Result<Span, Fault> {
        let rest = &self.text[self.at.min(self.text.len())..];
        let signed = self.at > start;
        for word in ["NaN", "Infinity", "INF"] {
            if self.non_numeric && rest.starts_with(word.as_bytes()) && !(signed && word == "NaN") {
                self.at += word.len();
                return Ok(Span::new(start, self.at, Kind::NonNumeric));
            }
        }
        self.at = start;
        self.fault(if self.peek() == b'\n' { "the record ends too early" } else { "a value is missing" })
    }

    /// The object or array here, however deep, checked to its end.
    fn nested(&mut self) -> Result<Span, Fault> {
        let start = self.at;
        let kind = if self.peek() == b'{' { Kind::Object } else { Kind::Array };
        let mut open = Vec::with_capacity(8);
        loop {
            let object = self.peek() == b'{';
            open.push(object);
            if open.len() > DEPTH_MAX {
                return self.fault("the nesting is too deep");
            }
            self.at += 1;
            self.spaces();
            let empty = self.peek() == if object { b'}' } else { b']' };
            if !empty {
                if object {
                    self.key_and_colon()?;
                }
                if matches!(self.peek(), b'{' | b'[') {
                    continue;
                }
                self.value()?;
            }
            if self.up_to_next_container(&mut open)? {
                return Ok(Span::new(start, self.at, kind));
            }
        }
    }

    /// From behind a value on: closes what closes and reads scalars, until the next container opens (false)
    /// or the outermost is closed (true).
    fn up_to_next_container(&mut self, open: &mut Vec<bool>) -> Result<bool, Fault> {
        while let Some(object) = open.last().copied() {
            self.spaces();
            match (self.peek(), object) {
                (b'}', true) | (b']', false) => {
                    self.at += 1;
                    open.pop();
                }
                (b',', _) => {
                    self.at += 1;
                    self.spaces();
                    if object {
                        self.key_and_colon()?;
                    }
                    if matches!(self.peek(), b'{' | b'[') {
                        return Ok(false);
                    }
                    self.value()?;
                }
                (b'\n', _) => return self.fault("the record ends too early"),
                (_, true) => return self.fault("expected ',' or '}'"),
                (_, false) => return self.fault("expected ',' or ']'"),
            }
        }
        Ok(true)
    }

    fn key_and_colon(&mut self) -> Result<(), Fault> {
        self.key().map(|_| ())
    }

    /// The key here and the colon behind it; stands at the value then.
    pub(super) fn key(&mut self) -> Result<Span, Fault> {
        if self.peek() != b'"' {
            let what = if self.peek() == b'\n' {
                "the record ends too early"
            } else {
                "a field's name in quotes is missing"
            };
            return self.fault(what);
        }
        let key = self.string()?;
        self.spaces();
        self.expect(b':', "expected ':' after the field's name")?;
        self.spaces();
        Ok(key)
    }
}

/// For eight bytes a word whose lowest set bit is in the first byte that is a quote, a backslash or a control
/// character; zero if there is none. (Higher bits may be set without reason: a borrow runs upwards.)
#[inline]
fn special(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    let zero_in = |word: u64| word.wrapping_sub(ONES) & !word;
    let quote = zero_in(word ^ (ONES * b'"' as u64));
    let backslash = zero_in(word ^ (ONES * b'\\' as u64));
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (quote | backslash | control) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> Result<(Kind, usize), &'static str> {
        let mut scanner = Scanner { text: text.as_bytes(), at: 0, non_numeric: false };
        scanner.value().map(|span| (span.kind, scanner.at)).map_err(|fault| fault.what)
    }

    #[test]
    fn marks_values() {
        assert_eq!(value("-12,"), Ok((Kind::Integer, 3)));
        assert_eq!(value("1e5 "), Ok((Kind::Fraction, 3)));
        assert_eq!(value("12345678901234567890"), Ok((Kind::BigInteger, 20)));
        assert_eq!(value(r#""a long text without escapes" "#), Ok((Kind::Text, 29)));
        assert_eq!(value(r#""a\u00e9\n""#), Ok((Kind::Escaped, 11)));
        assert_eq!(value(r#"{"a": [1, {"b": []}], "c": {}}x"#), Ok((Kind::Object, 30)));
    }

    #[test]
    fn refuses_what_is_not_json() {
        for text in [
            "01",
            "-",
            "1.",
            "1e",
            "tru",
            "\"a",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"a\u{1}\"",
            "[1,]",
            "{\"a\":}",
            "{a:1}",
            "[1 2]",
            "{\"a\":1]",
            "",
            "NaN",
        ] {
            assert!(value(text).is_err(), "{text}");
        }
        assert_eq!(value(&"[".repeat(2000)), Err("the nesting is too deep"));
    }

    #[test]
    fn a_line_feed_is_never_crossed() {
        assert_eq!(value("[1,\n2]"), Err("the record ends too early"));
        assert_eq!(value("\"a\nb\""), Err("the string is not closed"));
    }

    proptest! {
        #[test]
        fn the_first_special_byte_is_found(bytes in proptest::array::uniform8(any::<u8>())) {
            let wanted = bytes.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1F));
            let found = special(u64::from_le_bytes(bytes));
            prop_assert_eq!((found != 0).then(|| (found.trailing_zeros() / 8) as usize), wanted);
        }

        #[test]
        fn accepts_exactly_what_serde_json_accepts(text in r#"[\[\]{}:,"\\ a0-9.eE+\-u]{0,12}|(true|null|\{"a":|\[|1|"x"|,|\}|\]| ){0,10}"#) {
            let mut scanner = Scanner { text: text.as_bytes(), at: 0, non_numeric: false };
            scanner.spaces();
            let ours = scanner.value().is_ok_and(|_| { scanner.spaces(); scanner.at == text.len() });
            // A lone half of a surrogate pair is read as in Java; serde_json refuses it, so none is generated.
            prop_assert_eq!(ours, serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{}", text);
        }
    }
}
