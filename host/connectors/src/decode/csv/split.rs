//! Cuts CSV into records and records into fields, as univocity does it for Spark. Used by the decoder and by
//! the file source, which must not cut a block inside quotes.

use std::borrow::Cow;

/// A field's place in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    start: u32,
    end: u32,
    /// It stood in quotes, which the place leaves out.
    pub(crate) quoted: bool,
    /// There is something in it to take away: doubled quotes or escapes.
    escaped: bool,
}

/// The characters that mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Splitter {
    pub(crate) sep: u8,
    pub(crate) quote: Option<u8>,
    pub(crate) escape: Option<u8>,
    pub(crate) comment: Option<u8>,
    pub(crate) trim_start: bool,
    pub(crate) trim_end: bool,
    /// Line breaks may stand in quotes.
    pub(crate) multi_line: bool,
}

/// Where in a record a reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    RecordStart,
    FieldStart,
    Plain,
    Quoted,
    /// Behind an escape in quotes.
    Escaped,
    /// Behind a quote in quotes: the end of the field, or the first half of a doubled quote.
    Closed,
    Comment,
}

/// Follows the quotes through a file, to know which line feeds end a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quotes {
    splitter: Splitter,
    state: State,
}

impl Quotes {
    pub(crate) fn new(splitter: Splitter) -> Self {
        Self { splitter, state: State::RecordStart }
    }

    /// Takes the next byte; true if it ends a record.
    #[inline]
    pub(crate) fn ends_record(&mut self, byte: u8) -> bool {
        let splitter = &self.splitter;
        let quote = splitter.quote == Some(byte);
        let escape = splitter.escape == Some(byte) && splitter.escape != splitter.quote;
        self.state = match self.state {
            State::Quoted if escape => State::Escaped,
            State::Quoted if quote => State::Closed,
            State::Quoted | State::Escaped => State::Quoted,
            State::Closed if quote => State::Quoted,
            _ if byte == b'\n' => State::RecordStart,
            State::Comment => State::Comment,
            State::RecordStart if splitter.comment == Some(byte) => State::Comment,
            _ if byte == splitter.sep => State::FieldStart,
            State::RecordStart | State::FieldStart if quote => State::Quoted,
            state @ (State::RecordStart | State::FieldStart) if splitter.trim_start && byte == b' ' => state,
            _ => State::Plain,
        };
        self.state == State::RecordStart
    }
}

impl Splitter {
    /// Where the record that starts at `at` ends: its line feed, or the end of the bytes.
    #[inline]
    pub(crate) fn record_end(&self, bytes: &[u8], at: usize) -> usize {
        if !self.multi_line {
            return memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |len| at + len);
        }
        let mut quotes = Quotes::new(*self);
        bytes[at..].iter().position(|b| quotes.ends_record(*b)).map_or(bytes.len(), |len| at + len)
    }

    /// The fields of a record; false if a quote is not closed.
    pub(crate) fn split(&self, record: &[u8], fields: &mut Vec<Field>) -> bool {
        fields.clear();
        let mut at = 0;
        loop {
            if self.trim_start {
                at += record[at..].iter().take_while(|b| self.blank(**b)).count();
            }
            let field = match record.get(at) {
                Some(first) if Some(*first) == self.quote => match self.quoted(record, at) {
                    Some(found) => found,
                    None => return false,
                },
                _ => self.plain(record, at),
            };
            fields.push(field.0);
            at = field.1 + 1;
            if at > record.len() {
                return true;
            }
        }
    }

    fn blank(&self, byte: u8) -> bool {
        byte <= b' ' && byte != self.sep
    }

    /// The field without quotes at `start`, and where its separator is.
    #[inline]
    fn plain(&self, record: &[u8], start: usize) -> (Field, usize) {
        let stop = find(record, start, self.sep);
        let mut end = stop;
        while self.trim_end && end > start && record[end - 1] <= b' ' {
            end -= 1;
        }
        (Field { start: start as u32, end: end as u32, quoted: false, escaped: false }, stop)
    }

    /// The field in quotes at `start`, and where its separator is. What follows the closing quote other than
    /// white space makes it a field without quotes.
    fn quoted(&self, record: &[u8], start: usize) -> Option<(Field, usize)> {
        let (mut at, mut escaped) = (start + 1, false);
        let doubled = |at: usize| record.get(at + 1).copied() == self.quote;
        loop {
            let byte = *record.get(at)?;
            if self.escape == Some(byte) && self.escape != self.quote {
                escaped = true;
                at += 2;
            } else if self.quote != Some(byte) {
                at += 1;
            } else if doubled(at) {
                escaped = true;
                at += 2;
            } else {
                break;
            }
        }
        let blanks = record[at + 1..].iter().take_while(|b| self.blank(**b)).count();
        let stop = at + 1 + blanks;
        match record.get(stop) {
            Some(next) if *next != self.sep => Some(self.plain(record, start)),
            _ => Some((Field { start: start as u32 + 1, end: at as u32, quoted: true, escaped }, stop)),
        }
    }

    /// The field's text.
    #[inline]
    pub(crate) fn text<'r>(&self, record: &'r [u8], field: &Field) -> Cow<'r, [u8]> {
        let raw = record.get(field.start as usize..field.end as usize).unwrap_or_default();
        if field.escaped { Cow::Owned(self.unescape(raw)) } else { Cow::Borrowed(raw) }
    }

    fn unescape(&self, raw: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(raw.len());
        let mut at = 0;
        while let Some(byte) = raw.get(at).copied() {
            let next = raw.get(at + 1).copied();
            let quote_next = next.is_some() && next == self.quote;
            let pair = (Some(byte) == self.escape && (quote_next || next == self.escape))
                || (Some(byte) == self.quote && quote_next);
            text.push(if pair { next.unwrap_or(byte) } else { byte });
            at += if pair { 2 } else { 1 };
        }
        text
    }
}

/// Where `byte` is next, or the end. Fields are short: eight bytes at once beat a call.
#[inline]
fn find(text: &[u8], mut at: usize, byte: u8) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    while let Some(chunk) = text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk) ^ (ONES * u64::from(byte));
        let found = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    text[at..].iter().position(|b| *b == byte).map_or(text.len(), |len| at + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comma() -> Splitter {
        Splitter {
            sep: b',',
            quote: Some(b'"'),
            escape: Some(b'\\'),
            comment: None,
            trim_start: false,
            trim_end: false,
            multi_line: false,
        }
    }

    fn check(splitter: &Splitter, record: &str, expected: &[&str]) {
        let mut fields = Vec::new();
        assert!(splitter.split(record.as_bytes(), &mut fields), "{record}");
        let texts = fields
            .iter()
            .map(|f| String::from_utf8(splitter.text(record.as_bytes(), f).into_owned()).unwrap());
        assert_eq!(texts.collect::<Vec<_>>(), expected, "{record}");
    }

    #[test]
    fn splits_as_univocity_does() {
        check(&comma(), "a,b", &["a", "b"]);
        check(&comma(), "", &[""]);
        check(&comma(), ",", &["", ""]);
        check(&comma(), "a long first field,b,", &["a long first field", "b", ""]);
        check(&comma(), r#""a,b",c"#, &["a,b", "c"]);
        check(&comma(), r#""a""b","c\"d","e\\","\n""#, &["a\"b", "c\"d", "e\\", "\\n"]);
        check(&comma(), r#""a" ,b"#, &["a", "b"]);
        check(&comma(), r#"a"b,5" pipe"#, &["a\"b", "5\" pipe"]);
        check(&comma(), r#" "a",b"#, &[" \"a\"", "b"]);
        check(&comma(), r#""a"x,b"#, &["\"a\"x", "b"]);
    }

    #[test]
    fn an_open_quote_is_noticed() {
        assert!(!comma().split(br#"a,"b"#, &mut Vec::new()));
        assert!(!comma().split(br#"a,"b\"#, &mut Vec::new()));
    }

    #[test]
    fn white_space_goes_if_wanted() {
        let trim = Splitter { trim_start: true, trim_end: true, ..comma() };
        check(&trim, r#" a , "b" ,  c"#, &["a", "b", "c"]);
        check(&Splitter { sep: b'\t', ..trim }, "a\t\tb", &["a", "", "b"]);
    }

    #[test]
    fn quotes_may_be_doubled_or_off() {
        check(&Splitter { escape: Some(b'"'), ..comma() }, r#""a""b","\""#, &["a\"b", "\\"]);
        check(&Splitter { quote: None, ..comma() }, r#""a","b"#, &["\"a\"", "\"b"]);
    }

    #[test]
    fn records_end_outside_of_quotes() {
        let splitter = Splitter { multi_line: true, comment: Some(b'#'), ..comma() };
        let text = b"a,\"x\ny\"\nb\"\n# \"\nc,\"d\"\"\n\\\"\"\n";
        let mut at = 0;
        let mut ends = Vec::new();
        while at < text.len() {
            let end = splitter.record_end(text, at);
            ends.push(String::from_utf8_lossy(&text[at..end]).into_owned());
            at = end + 1;
        }
        assert_eq!(ends, ["a,\"x\ny\"", "b\"", "# \"", "c,\"d\"\"\n\\\"\""]);
    }
}
