//! What Spark's reader tolerates beyond JSON: single quotes, comments and the like. A record that is not JSON
//! is rewritten once by these rules and read again; records that are JSON never come here.

use super::text::quote;

/// What is tolerated; Spark's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lenience {
    pub(super) comments: bool,
    pub(super) unquoted_names: bool,
    pub(super) single_quotes: bool,
    pub(super) leading_zeros: bool,
    pub(super) any_escape: bool,
    pub(super) control_characters: bool,
}

impl Lenience {
    /// The record as JSON, if the rules change it at all; whether it then is JSON is for the scanner to say.
    pub(super) fn rewrite(self, record: &[u8]) -> Option<Vec<u8>> {
        let mut writer =
            Rewriter { rules: self, text: record, at: 0, out: Vec::with_capacity(record.len() + 16) };
        while writer.at < record.len() {
            writer.step();
        }
        (writer.out != record).then_some(writer.out)
    }
}

struct Rewriter<'a> {
    rules: Lenience,
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl Rewriter<'_> {
    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn step(&mut self) {
        let byte = self.text[self.at];
        match byte {
            b'"' => self.string(b'"'),
            b'\'' if self.rules.single_quotes => self.string(b'\''),
            b'/' if self.rules.comments && self.comment() => {}
            b'0' if self.rules.leading_zeros && self.number_starts() => self.zeros(),
            b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'$' => self.word(),
            other => {
                self.out.push(other);
                self.at += 1;
            }
        }
    }

    /// A string in either kind of quotes, written in double quotes. One that is not closed stays open.
    fn string(&mut self, close: u8) {
        let mut plain = Vec::new();
        self.at += 1;
        self.out.push(b'"');
        while let Some(byte) = self.text.get(self.at).copied() {
            self.at += 1;
            match byte {
                b'\\' => self.escape(),
                found if found == close => {
                    self.out.push(b'"');
                    return;
                }
                b'"' => self.out.extend_from_slice(b"\\\""),
                0..=0x1F if self.rules.control_characters => {
                    plain.clear();
                    quote(&[byte], &mut plain);
                    self.out.extend_from_slice(&plain[1..plain.len() - 1]);
                }
                other => self.out.push(other),
            }
        }
    }

    /// Behind a backslash.
    fn escape(&mut self) {
        let Some(byte) = self.text.get(self.at).copied() else { return self.out.push(b'\\') };
        self.at += 1;
        let known = matches!(byte, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' | b'u');
        let plain = self.rules.any_escape || (byte == b'\'' && self.rules.single_quotes);
        if known || !plain {
            self.out.push(b'\\');
        }
        self.out.push(byte);
    }

    /// Leaves a comment out; false if there is none here.
    fn comment(&mut self) -> bool {
        let len = match self.rest() {
            [b'/', b'/', ..] => self.rest().len(),
            [b'/', b'*', inside @ ..] => match memchr::memmem::find(inside, b"*/") {
                Some(end) => end + 4,
                None => return false,
            },
            _ => return false,
        };
        self.at += len;
        true
    }

    fn number_starts(&self) -> bool {
        let before = self.at.checked_sub(1).map_or(b' ', |i| self.text[i]);
        !(before.is_ascii_digit() || matches!(before, b'.' | b'e' | b'E' | b'+'))
    }

    fn zeros(&mut self) {
        let zeros = self.rest().iter().take_while(|b| **b == b'0').count();
        let digit_follows = self.rest().get(zeros).is_some_and(u8::is_ascii_digit);
        self.at += zeros;
        if !digit_follows {
            self.out.push(b'0');
        }
    }

    /// A bare word: a field's name if a colon follows.
    fn word(&mut self) {
        let inside = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$');
        let len = self.rest().iter().take_while(inside).count();
        let word = &self.text[self.at..self.at + len];
        let colon = self.text[self.at + len..].trim_ascii_start().first() == Some(&b':');
        if self.rules.unquoted_names && colon {
            quote(word, &mut self.out);
        } else {
            self.out.extend_from_slice(word);
        }
        self.at += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Lenience {
        Lenience {
            comments: true,
            unquoted_names: true,
            single_quotes: true,
            leading_zeros: true,
            any_escape: true,
            control_characters: true,
        }
    }
    fn rewritten(record: &str) -> Option<String> {
        all().rewrite(record.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn writes_what_is_tolerated_as_json() {
        assert_eq!(rewritten(r#"{'a': 'x"\'y'}"#).unwrap(), r#"{"a": "x\"'y"}"#);
        assert_eq!(rewritten("{a: 1, $b_2 : true}").unwrap(), r#"{"a": 1, "$b_2" : true}"#);
        assert_eq!(
            rewritten("{\"a\": /* x */ 007, \"b\": -00.5} // end").unwrap(),
            "{\"a\":  7, \"b\": -0.5} "
        );
        assert_eq!(rewritten("{\"a\": \"x\ty\\q\"}").unwrap(), r#"{"a": "x\tyq"}"#);
    }

    #[test]
    fn leaves_json_alone() {
        for record in [r#"{"a": "it's // fine", "b": [0, 10, 1.00, 1e05]}"#, "[null]"] {
            assert_eq!(rewritten(record), None, "{record}");
        }
    }
}
