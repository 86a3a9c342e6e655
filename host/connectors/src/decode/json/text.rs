//! Strings of JSON: taking escapes away, and values as compact text. Works on text that the scanner has checked.

/// Appends the string's text to `out`. `raw` is what stands between the quotes. Half of a surrogate pair that
/// stands alone becomes `?`, as when Java writes it.
pub(super) fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let (plain, used) = match rest.get(at + 1) {
            Some(b'u') => {
                let (c, used) = unicode(&rest[at..]);
                let mut bytes = [0; 4];
                out.extend_from_slice(c.encode_utf8(&mut bytes).as_bytes());
                rest = &rest[at + used..];
                continue;
            }
            Some(b'b') => (8, 2),
            Some(b'f') => (12, 2),
            Some(b'n') => (b'\n', 2),
            Some(b'r') => (b'\r', 2),
            Some(b't') => (b'\t', 2),
            Some(other) => (*other, 2),
            None => (b'\\', 1),
        };
        out.push(plain);
        rest = &rest[at + used..];
    }
    out.extend_from_slice(rest);
}

/// The character of `\uXXXX`, or of a pair of them, and how many bytes it takes.
fn unicode(text: &[u8]) -> (char, usize) {
    let first = unit(text);
    if !(0xD800..0xDC00).contains(&first) {
        return (char::from_u32(first).unwrap_or('?'), 6.min(text.len()));
    }
    let second = text.get(6..).filter(|rest| rest.starts_with(b"\\u")).map_or(0, unit);
    if !(0xDC00..0xE000).contains(&second) {
        return ('?', 6.min(text.len()));
    }
    (char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)).unwrap_or('?'), 12)
}

fn unit(escape: &[u8]) -> u32 {
    let digits = escape.get(2..6).unwrap_or_default();
    digits.iter().fold(0, |value, digit| value * 16 + char::from(*digit).to_digit(16).unwrap_or(0))
}

/// Appends a value without white space between its parts and with the fewest escapes, as Jackson writes it.
pub(super) fn compact(raw: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    let mut plain = Vec::new();
    while let Some(byte) = raw.get(at) {
        at += 1;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'"' => {
                let end = at + closing_quote(&raw[at..]);
                plain.clear();
                unescape(&raw[at..end], &mut plain);
                quote(&plain, out);
                at = end + 1;
            }
            other => out.push(*other),
        }
    }
}

fn closing_quote(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// Appends `text` as a JSON string.
pub(super) fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            0..=0x1F => out.extend_from_slice(format!("\\u{byte:04X}").as_bytes()),
            other => out.push(*other),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(raw: &str) -> String {
        let mut out = Vec::new();
        unescape(raw.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn takes_escapes_away() {
        assert_eq!(plain(r#"a\"b\\c\/d\n\t"#), "a\"b\\c/d\n\t");
        assert_eq!(plain(r"\u00e9\ud83d\ude00"), "é😀");
        assert_eq!(plain(r"\ud83dx\ude00"), "?x?");
        assert_eq!(plain(r"\ud83d\u0041"), "?A");
    }

    #[test]
    fn writes_values_compactly() {
        let mut out = Vec::new();
        compact(br#"{ "a b" : [ 1 , "\u0041\u0001\/ \"" ] }"#, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"a b":[1,"A\u0001/ \""]}"#);
    }
}
