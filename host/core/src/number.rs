//! Numbers as Java prints them, which is how Spark writes them everywhere: in files, in JSON, and in a cast to string.
//! Called by whoever makes text of numbers.

/// Appends an integer.
#[inline]
pub fn push_int<I: itoa::Integer>(out: &mut Vec<u8>, value: I) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends as `Double.toString`: `0.1`, `1.0E10`, `NaN`, `-Infinity`.
#[inline]
pub fn push_f64(out: &mut Vec<u8>, value: f64) {
    let size = value.abs();
    let plain = (1e-3..1e7).contains(&size) || size == 0.0;
    push_float(out, plain, value.is_finite(), zmij::Buffer::new().format(value));
}

/// Appends as `Float.toString`.
#[inline]
pub fn push_f32(out: &mut Vec<u8>, value: f32) {
    let size = value.abs();
    let plain = (1e-3..1e7).contains(&size) || size == 0.0;
    push_float(out, plain, value.is_finite(), zmij::Buffer::new().format(value));
}

/// `text` holds the shortest digits that read back as the number; only their layout may differ from Java's.
#[inline]
fn push_float(out: &mut Vec<u8>, plain: bool, finite: bool, text: &str) {
    match text {
        _ if finite && plain && !text.contains('e') => out.extend_from_slice(text.as_bytes()),
        _ if finite => push_scientific(out, plain, text),
        "NaN" => out.extend_from_slice(b"NaN"),
        text if text.starts_with('-') => out.extend_from_slice(b"-Infinity"),
        _ => out.extend_from_slice(b"Infinity"),
    }
}

#[cold]
fn push_scientific(out: &mut Vec<u8>, plain: bool, text: &str) {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let leading_zeros = digits.len() - digits.trim_start_matches('0').len();
    // The value is 0.d1d2d3… × 10^point.
    let point = whole.len() as i32 + exponent.parse().unwrap_or(0) - leading_zeros as i32;
    let digits = digits.trim_matches('0');
    if negative {
        out.push(b'-');
    }
    if plain {
        push_plain(out, digits, point);
        return;
    }
    let (first, rest) = digits.split_at(1);
    out.extend_from_slice(first.as_bytes());
    out.push(b'.');
    out.extend_from_slice(if rest.is_empty() { b"0" } else { rest.as_bytes() });
    out.push(b'E');
    push_int(out, point - 1);
}

fn push_plain(out: &mut Vec<u8>, digits: &str, point: i32) {
    let places = point.max(0) as usize;
    match digits.len() {
        0 => out.extend_from_slice(b"0.0"),
        _ if point <= 0 => {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', point.unsigned_abs() as usize));
            out.extend_from_slice(digits.as_bytes());
        }
        len if len <= places => {
            out.extend_from_slice(digits.as_bytes());
            out.extend(std::iter::repeat_n(b'0', places - len));
            out.extend_from_slice(b".0");
        }
        _ => {
            out.extend_from_slice(&digits.as_bytes()[..places]);
            out.push(b'.');
            out.extend_from_slice(&digits.as_bytes()[places..]);
        }
    }
}

/// Appends as `BigDecimal.toString`: very small numbers get an exponent (`0E-10`).
pub fn push_decimal(out: &mut Vec<u8>, value: i128, scale: i8) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value.unsigned_abs());
    let adjusted = digits.len() as i32 - 1 - i32::from(scale);
    if scale >= 0 && adjusted >= -6 {
        return push_decimal_plain(out, value, scale);
    }
    if value < 0 {
        out.push(b'-');
    }
    let (first, rest) = digits.split_at(1);
    out.extend_from_slice(first.as_bytes());
    if !rest.is_empty() {
        out.push(b'.');
        out.extend_from_slice(rest.as_bytes());
    }
    out.push(b'E');
    if adjusted > 0 {
        out.push(b'+');
    }
    push_int(out, adjusted);
}

/// Appends as `BigDecimal.toPlainString`, which is Spark's cast to string.
pub fn push_decimal_plain(out: &mut Vec<u8>, value: i128, scale: i8) {
    if value < 0 {
        out.push(b'-');
    }
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value.unsigned_abs()).as_bytes();
    let scale = i32::from(scale);
    if scale <= 0 {
        out.extend_from_slice(digits);
        let zeros = if value == 0 { 0 } else { scale.unsigned_abs() as usize };
        out.extend(std::iter::repeat_n(b'0', zeros));
        return;
    }
    let scale = scale as usize;
    match digits.len().checked_sub(scale) {
        Some(whole) if whole > 0 => {
            out.extend_from_slice(&digits[..whole]);
            out.push(b'.');
            out.extend_from_slice(&digits[whole..]);
        }
        _ => {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', scale - digits.len()));
            out.extend_from_slice(digits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl Fn(&mut Vec<u8>), expected: &str) {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn floats_look_as_in_java() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-12.5, "-12.5"),
            (0.001, "0.001"),
            (0.0001, "1.0E-4"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (12_345_678.9, "1.23456789E7"),
            (1e21, "1.0E21"),
            (-1.5e-9, "-1.5E-9"),
            (f64::MAX, "1.7976931348623157E308"),
            (5e-324, "4.9E-324"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            // Java shows the smallest number with one digit more than needed.
            let text = if value == 5e-324 { "5.0E-324" } else { text };
            check(|out| push_f64(out, value), text);
        }
        check(|out| push_f32(out, 3.4e38), "3.4E38");
        check(|out| push_f32(out, 0.1), "0.1");
    }

    #[test]
    fn plain_layout_holds_for_any_digits() {
        check(|out| push_scientific(out, true, "1.25e-3"), "0.00125");
        check(|out| push_scientific(out, true, "1e+3"), "1000.0");
        check(|out| push_scientific(out, true, "1.2345e+2"), "123.45");
    }

    #[test]
    fn decimals_look_as_in_java() {
        for (value, scale, text, plain) in [
            (0, 0, "0", "0"),
            (0, 2, "0.00", "0.00"),
            (5, 2, "0.05", "0.05"),
            (-12345, 2, "-123.45", "-123.45"),
            (0, 10, "0E-10", "0.0000000000"),
            (123, 10, "1.23E-8", "0.0000000123"),
            (-1, 7, "-1E-7", "-0.0000001"),
            (12, -2, "1.2E+3", "1200"),
        ] {
            check(|out| push_decimal(out, value, scale), text);
            check(|out| push_decimal_plain(out, value, scale), plain);
        }
    }
}
