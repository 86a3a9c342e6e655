//! Numbers from text, with the rules of Java's parsers that Spark uses. Called by the decoders' columns.

/// As `Long.parseLong`: an optional sign, digits, nothing else.
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 40 {
        return None;
    }
    let mut value = 0_i64;
    for byte in digits {
        let digit = i64::from(byte.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        let signed = if negative { -digit } else { digit };
        value = value.checked_mul(10)?.checked_add(signed)?;
    }
    Some(value)
}

/// As `Double.parseDouble`: spaces around it do not count, a trailing `d` or `f` neither.
pub(crate) fn parse_f64(text: &[u8]) -> Option<f64> {
    java_number(text).and_then(|number| fast_float2::parse(number).ok())
}

/// As `Float.parseFloat`.
pub(crate) fn parse_f32(text: &[u8]) -> Option<f32> {
    java_number(text).and_then(|number| fast_float2::parse(number).ok())
}

fn java_number(text: &[u8]) -> Option<&[u8]> {
    let text = text.trim_ascii();
    let bare = match text {
        [b'+' | b'-', rest @ ..] => rest,
        rest => rest,
    };
    match bare {
        b"NaN" | b"Infinity" => Some(text),
        [b'0'..=b'9' | b'.', .., b'd' | b'D' | b'f' | b'F'] => text.get(..text.len() - 1),
        [b'0'..=b'9' | b'.', ..] => Some(text),
        _ => None,
    }
}

/// A decimal as its unscaled value, rounded half up to `scale` digits after the point;
/// `None` if it is no number or has more than `precision` digits.
pub(crate) fn parse_decimal(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let (negative, whole, fraction, exponent) = decimal_parts(text)?;
    let digits = || whole.iter().chain(fraction).map(|d| d - b'0').skip_while(|d| *d == 0);
    let significant = digits().count() as i64;
    let shift = exponent.checked_sub(fraction.len() as i64)?.checked_add(i64::from(scale))?;
    let kept = significant.checked_add(shift)?;
    if significant == 0 || kept < 0 {
        return Some(0);
    }
    if kept > i64::from(precision) {
        return None;
    }
    let mut value =
        digits().chain(std::iter::repeat(0)).take(kept as usize).fold(0_i128, |v, d| v * 10 + i128::from(d));
    if digits().nth(kept as usize).is_some_and(|next| next >= 5) {
        value += 1;
    }
    (value < 10_i128.pow(u32::from(precision))).then_some(if negative { -value } else { value })
}

/// Sign, digits before the point, digits after it, exponent.
fn decimal_parts(text: &[u8]) -> Option<(bool, &[u8], &[u8], i64)> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (whole, rest) = digits_of(rest);
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => digits_of(rest),
        rest => (&rest[..0], rest),
    };
    let exponent = match rest {
        [] => 0,
        [b'e' | b'E', digits @ ..] => parse_i64(digits).filter(|e| e.abs() < 100_000)?,
        _ => return None,
    };
    (whole.len() + fraction.len() > 0).then_some((negative, whole, fraction, exponent))
}

fn digits_of(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_bounded_and_plain() {
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_i64(b"9223372036854775808"), None);
        assert_eq!(parse_i64(b"+7"), Some(7));
        for bad in ["", "-", " 1", "1.0", "1e2", "0x1"] {
            assert_eq!(parse_i64(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn doubles_follow_java() {
        assert_eq!(parse_f64(b" 1.5 "), Some(1.5));
        assert_eq!(parse_f64(b"2f"), Some(2.0));
        assert_eq!(parse_f64(b"-Infinity"), Some(f64::NEG_INFINITY));
        assert!(parse_f64(b"NaN").is_some_and(f64::is_nan));
        for bad in ["", "inf", "nan", "1,5", "d", "infinity"] {
            assert_eq!(parse_f64(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn decimals_round_half_up_and_keep_their_precision() {
        let check =
            |text: &str, expected| assert_eq!(parse_decimal(text.as_bytes(), 10, 2), expected, "{text}");
        check("12.345", Some(1235));
        check("-0.005", Some(-1));
        check("0.004", Some(0));
        check("1e3", Some(100_000));
        check("0.00000000000000000000000000001", Some(0));
        check("99999999.994", Some(9_999_999_999));
        check("99999999.995", None);
        check("100000000", None);
        check(".5", Some(50));
        check("1.", Some(100));
        check("", None);
        check(".", None);
        check("1e", None);
        check("x", None);
    }
}
