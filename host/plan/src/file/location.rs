//! Error messages that show their place in the pipeline file.
//!
//! Reading, resolving and the binary use it, so that every message has the same form.

use super::node::Span;
use pelton_core::Error;

/// The text of a pipeline file and its name.
#[derive(Debug, Default)]
pub struct SourceText {
    name: String,
    text: String,
    sets: Vec<String>,
}

impl SourceText {
    pub(super) fn new(name: &str, text: &str, sets: &[String]) -> Self {
        Self { name: name.to_owned(), text: text.to_owned(), sets: sets.to_vec() }
    }

    /// The same text with these `--set`s.
    pub(super) fn with_sets(&self, sets: &[String]) -> Self {
        Self::new(&self.name, &self.text, sets)
    }

    /// The file's name as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An `Invalid` error at a place: `file:line:column: message`, then the line with a caret below the place.
    pub fn error(&self, span: Span, message: String) -> Error {
        Error::invalid(self.located(span, &message))
    }

    /// `file:line:column: message` and the line with a caret.
    pub fn located(&self, span: Span, message: &str) -> String {
        if span.line == 0 {
            return match self.sets.get((span.column as usize).wrapping_sub(1)) {
                Some(set) => format!("--set {}: {message}", without_passwords(set)),
                None => format!("{}: {message}", self.name),
            };
        }
        let place = format!("{}:{}:{}: {message}", self.name, span.line, span.column);
        let Some(line) = self.text.lines().nth(span.line as usize - 1) else { return place };
        let before = (span.column as usize).saturating_sub(1);
        let room = line.chars().count().saturating_sub(before);
        let carets = "^".repeat((span.length as usize).clamp(1, room.max(1)));
        let number = span.line.to_string();
        let margin = " ".repeat(number.len());
        let indent: String = line.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let line = without_passwords(line.trim_end());
        format!("{place}\n{margin} |\n{number} | {line}\n{margin} | {indent}{carets}")
    }

    /// The place of a character inside a text value: `offset` counts the value's characters from 0. Works through
    /// quotes and block scalars by counting what is not white space, which YAML's folding never changes.
    pub fn within(&self, span: Span, value: &str, offset: usize, length: usize) -> Span {
        if span.line == 0 {
            return span;
        }
        let wanted = value.chars().take(offset).filter(|c| !c.is_whitespace()).count();
        let lines = self.text.lines().skip(span.line as usize - 1);
        let mut seen = 0;
        let mut quote = None;
        for (index, line) in lines.enumerate() {
            let skip = if index == 0 { span.column as usize - 1 } else { 0 };
            let mut chars = line.chars().enumerate().skip(skip).peekable();
            if index == 0 {
                match chars.peek() {
                    Some((_, '|' | '>')) => continue,
                    Some((_, c @ ('\'' | '"'))) => {
                        quote = Some(*c);
                        chars.next();
                    }
                    _ => {}
                }
            }
            while let Some((column, c)) = chars.next() {
                if c.is_whitespace() {
                    continue;
                }
                if seen == wanted {
                    let column = u32::try_from(column + 1).unwrap_or(u32::MAX);
                    let length = u32::try_from(length).unwrap_or(u32::MAX);
                    return Span { line: span.line + u32::try_from(index).unwrap_or(0), column, length };
                }
                // '' in single quotes and \x in double quotes are one character of the value.
                let doubled = quote == Some('\'') && c == '\'';
                let escaped = quote == Some('"') && c == '\\';
                if doubled || escaped {
                    chars.next();
                }
                seen += 1;
            }
        }
        span
    }
}

/// The text with `*` for every character of a password in a URL: `postgresql://user:******@host`.
fn without_passwords(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        // A password may hold characters that a URL should have escaped: it ends at the word's last `@`.
        let word = &after[..after.find([' ', '\t', '\'', '"']).unwrap_or(after.len())];
        let colon = word.find(':').filter(|colon| word.rfind('@').is_some_and(|at| *colon < at));
        rest = after;
        if let (Some(colon), Some(at)) = (colon, word.rfind('@')) {
            shown.push_str(&word[..=colon]);
            shown.extend(word[colon + 1..at].chars().map(|_| '*'));
            rest = &after[at..];
        }
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, line: u32, column: u32, value: &str, word: &str) -> (u32, u32) {
        let source = SourceText::new("p.yaml", text, &[]);
        let offset = value.find(word).expect("the word is in the value");
        let found = source.within(Span { line, column, length: 0 }, value, offset, word.len());
        (found.line, found.column)
    }

    #[test]
    fn finds_places_in_every_kind_of_scalar() {
        assert_eq!(at("sql: SELECT a FROM input", 1, 6, "SELECT a FROM input", "a FROM"), (1, 13));
        assert_eq!(at("sql: |\n  SELECT\n    a\n", 1, 6, "SELECT\n  a\n", "a"), (3, 5));
        assert_eq!(at("sql: >-\n  SELECT\n  a, b\n", 1, 6, "SELECT a, b", "b"), (3, 6));
        assert_eq!(at("sql: 'SELECT ''x'', b'", 1, 6, "SELECT 'x', b", "b"), (1, 21));
    }

    #[test]
    fn shows_the_line_with_a_caret() {
        let source = SourceText::new("p.yaml", "a: 1\nbc: 22\n", &[]);
        let span = Span { line: 2, column: 5, length: 2 };
        assert_eq!(source.located(span, "wrong"), "p.yaml:2:5: wrong\n  |\n2 | bc: 22\n  |     ^^");
    }

    #[test]
    fn passwords_are_not_shown() {
        let text = "sink: {connector: postgres, url: postgresql://ann:s3/cr@t@db:5432/x, tabl: a@b}\n";
        let source = SourceText::new("p.yaml", text, &["sink.url=postgres://ann:s3cret@db/x".into()]);
        let shown = source.located(Span { line: 1, column: 68, length: 4 }, "wrong");
        assert!(shown.contains("postgresql://ann:*******@db:5432/x, tabl: a@b}"), "{shown}");
        let set = source.located(Span { line: 0, column: 1, length: 0 }, "wrong");
        assert_eq!(set, "--set sink.url=postgres://ann:******@db/x: wrong");
        assert_eq!(
            without_passwords("path: s3://bucket/a:b, url: http://h:80/"),
            "path: s3://bucket/a:b, url: http://h:80/"
        );
    }
}
