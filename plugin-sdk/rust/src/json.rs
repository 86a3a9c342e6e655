//! JSON text to a value: as much as a configuration needs, so that a plugin has no further dependency and stays
//! small. The host writes the text itself, so messages say where it broke and no more.

use std::collections::BTreeMap;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number without fraction and exponent that fits.
    Integer(i64),
    /// Any other number.
    Number(f64),
    /// A text.
    Text(String),
    /// `[…]`
    List(Vec<Json>),
    /// `{…}`; of a key that comes twice the last value counts.
    Object(BTreeMap<String, Json>),
}

/// Nothing sensible is nested deeper, and the reader recurses.
const DEPTH_MAX: usize = 128;

impl Json {
    /// Reads a text that holds one value.
    ///
    /// # Errors
    /// The byte at which it stops being JSON.
    pub fn parse(text: &str) -> Result<Json, usize> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0).and_then(|value| (reader.peek().is_none()).then_some(value));
        value.ok_or(reader.at)
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    /// The next byte that is no space.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        self.text.as_bytes().get(self.at).copied()
    }
    fn eat(&mut self, word: &str) -> Option<()> {
        let found = self.text[self.at..].starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found.then_some(())
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek()? {
            b'n' => self.eat("null").map(|()| Json::Null),
            b't' => self.eat("true").map(|()| Json::Bool(true)),
            b'f' => self.eat("false").map(|()| Json::Bool(false)),
            b'"' => self.text().map(Json::Text),
            b'[' => {
                let mut items = Vec::new();
                self.sequence("[", "]", |reader| {
                    items.push(reader.value(depth + 1)?);
                    Some(())
                })?;
                Some(Json::List(items))
            }
            b'{' => {
                let mut entries = BTreeMap::new();
                self.sequence("{", "}", |reader| {
                    reader.peek()?;
                    let key = reader.text()?;
                    reader.peek()?;
                    reader.eat(":")?;
                    entries.insert(key, reader.value(depth + 1)?);
                    Some(())
                })?;
                Some(Json::Object(entries))
            }
            _ => self.number(),
        }
    }

    /// Items between `open` and `close`, with commas between them.
    fn sequence(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.eat(open)?;
        self.peek()?;
        if self.eat(close).is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            self.peek()?;
            if self.eat(",").is_none() {
                return self.eat(close);
            }
        }
    }

    fn number(&mut self) -> Option<Json> {
        let rest = &self.text[self.at..];
        let end =
            rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(rest.len());
        let number = match rest[..end].parse() {
            Ok(integer) if !rest.starts_with('+') => Json::Integer(integer),
            _ if rest.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                Json::Number(rest[..end].parse().ok()?)
            }
            _ => return None,
        };
        self.at += end;
        Some(number)
    }

    fn text(&mut self) -> Option<String> {
        self.eat("\"")?;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find(['"', '\\'])?;
            text.push_str(&rest[..end]);
            self.at += end + 1;
            if rest.as_bytes()[end] == b'"' {
                return Some(text);
            }
            text.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Option<char> {
        let c = self.text[self.at..].chars().next()?;
        self.at += c.len_utf8();
        Some(match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let first = self.hex4()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return char::from_u32(first);
                }
                self.eat("\\u")?;
                let second = self.hex4()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                return char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + second);
            }
            _ => return None,
        })
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_kind_of_value() {
        let text = r#" {"a": [1, -2.5e3, true, null, {}], "b": "x\n\"\u00e9\ud83d\ude00", "c": []} "#;
        let list = vec![
            Json::Integer(1),
            Json::Number(-2500.0),
            Json::Bool(true),
            Json::Null,
            Json::Object(BTreeMap::new()),
        ];
        let entries =
            [("a", Json::List(list)), ("b", Json::Text("x\n\"é😀".into())), ("c", Json::List(vec![]))];
        let object = entries.map(|(key, value)| (key.to_owned(), value)).into();
        assert_eq!(Json::parse(text), Ok(Json::Object(object)));
        assert_eq!(Json::parse("9007199254740993"), Ok(Json::Integer(9_007_199_254_740_993)));
    }

    #[test]
    fn says_where_it_breaks() {
        for (text, at) in
            [("", 0), ("[1,]", 3), ("{\"a\" 1}", 5), ("\"a", 1), ("1 2", 2), ("nul", 0), ("\"\\ud800\"", 7)]
        {
            assert_eq!(Json::parse(text), Err(at), "{text}");
        }
    }
}
