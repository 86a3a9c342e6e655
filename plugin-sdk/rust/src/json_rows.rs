//! Rows of any schema as JSON, in the contract's words for values.

use crate::array::{Array, Data};
use crate::error::Error;
use crate::types::{DataType, Field, Schema};
use std::fmt::Write;

/// Nothing sensible is nested deeper, and the writer recurses.
const DEPTH_MAX: usize = 64;

impl Array<'_> {
    /// The rows as JSON, an object and a line break each; columns and fields that are null are left out. Values are as the
    /// contract writes them: times in ISO 8601 and UTC, binary in base64, decimals and numbers that JSON cannot hold as
    /// texts, maps as arrays of keys and values.
    ///
    /// # Errors
    /// If the rows are not of this schema.
    pub fn json_lines(&self, schema: &Schema) -> Result<String, Error> {
        let mut out = String::new();
        for row in 0..self.len() {
            object(self, &schema.fields, row, &mut out, 0)?;
            out.push('\n');
        }
        Ok(out)
    }
}

fn object(
    array: &Array<'_>,
    fields: &[Field],
    row: usize,
    out: &mut String,
    depth: usize,
) -> Result<(), Error> {
    let mut separator = '{';
    if array.columns().len() != fields.len() {
        return Err(mismatch());
    }
    for (column, field) in array.columns().iter().zip(fields).filter(|(column, _)| !column.is_null(row)) {
        out.push(separator);
        separator = ',';
        text(&field.name, out);
        out.push(':');
        value(column, &field.data_type, row, out, depth + 1)?;
    }
    out.push_str(if separator == '{' { "{}" } else { "}" });
    Ok(())
}

fn mismatch() -> Error {
    Error::Failed("the rows are not of the schema that was given for them".to_owned())
}

fn value(
    array: &Array<'_>,
    data_type: &DataType,
    row: usize,
    out: &mut String,
    depth: usize,
) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::Failed("a column is nested too deep".to_owned()));
    }
    if array.is_null(row) {
        out.push_str("null");
        return Ok(());
    }
    match (&array.data, data_type) {
        (Data::Boolean(bits), _) => {
            out.push_str(if bits[row / 8] >> (row % 8) & 1 == 1 { "true" } else { "false" })
        }
        (Data::Float32(values), _) => {
            float(f64::from(f32::from_le_bytes(values[row])), &f32::from_le_bytes(values[row]), out)
        }
        (Data::Float64(values), _) => {
            float(f64::from_le_bytes(values[row]), &f64::from_le_bytes(values[row]), out)
        }
        (Data::Decimal(values), DataType::Decimal { scale, .. }) => {
            decimal(i128::from_le_bytes(values[row]), *scale, out)
        }
        (Data::Date(values), _) => {
            out.push('"');
            date(i64::from(i32::from_le_bytes(values[row])), out);
            out.push('"');
        }
        (Data::Timestamp(values), DataType::Timestamp { zone }) => {
            timestamp(i64::from_le_bytes(values[row]), zone.is_some(), out);
        }
        (Data::Utf8(slices), _) => text(&String::from_utf8_lossy(slices.get(row)), out),
        (Data::Binary(slices), _) => base64(slices.get(row), out),
        (Data::List(offsets, items), DataType::List(field)) => {
            let mut separator = '[';
            for item in offsets.range(row) {
                out.push(separator);
                separator = ',';
                value(items, &field.data_type, item, out, depth + 1)?;
            }
            out.push_str(if separator == '[' { "[]" } else { "]" });
        }
        (Data::Map(offsets, keys, values), DataType::Map(key, field)) => {
            let mut separator = "[";
            for item in offsets.range(row) {
                out.push_str(separator);
                separator = ",";
                out.push_str("{\"key\":");
                value(keys, &key.data_type, item, out, depth + 1)?;
                out.push_str(",\"value\":");
                value(values, &field.data_type, item, out, depth + 1)?;
                out.push('}');
            }
            out.push_str(if separator == "[" { "[]" } else { "]" });
        }
        (Data::Struct(_), DataType::Struct(fields)) => object(array, fields, row, out, depth)?,
        _ => match array.integer(row) {
            Some(integer) => number(&integer, out),
            None => return Err(mismatch()),
        },
    }
    Ok(())
}

fn number(value: &impl std::fmt::Display, out: &mut String) {
    // Writing to memory does not fail.
    let _ = write!(out, "{value}");
}

fn float(value: f64, shown: &impl std::fmt::Display, out: &mut String) {
    match value {
        value if value.is_finite() => number(shown, out),
        value if value.is_nan() => out.push_str("\"NaN\""),
        value if value < 0.0 => out.push_str("\"-Infinity\""),
        _ => out.push_str("\"Infinity\""),
    }
}

fn decimal(value: i128, scale: i8, out: &mut String) {
    let sign = if value < 0 { "-" } else { "" };
    let digits = value.unsigned_abs().to_string();
    let scale = usize::try_from(scale).unwrap_or(0);
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let point = if scale > 0 { "." } else { "" };
    let _ = write!(out, "\"{sign}{whole}{point}{fraction}\"");
}

/// Of days since 1970-01-01, by the proleptic Gregorian calendar.
fn date(days: i64, out: &mut String) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}");
}

fn timestamp(micros: i64, is_utc: bool, out: &mut String) {
    const DAY: i64 = 86_400_000_000;
    out.push('"');
    date(micros.div_euclid(DAY), out);
    let of_day = micros.rem_euclid(DAY);
    let (seconds, micros) = (of_day / 1_000_000, of_day % 1_000_000);
    let zone = if is_utc { "Z" } else { "" };
    let _ = write!(
        out,
        "T{:02}:{:02}:{:02}.{micros:06}{zone}\"",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
}

fn text(value: &str, out: &mut String) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn base64(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.push('"');
    for group in bytes.chunks(3) {
        let word = (0..3).fold(0_u32, |word, at| word << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * at) & 63) as usize] as char;
            out.push(if at <= group.len() { digit } else { '=' });
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(write: impl Fn(&mut String)) -> String {
        let mut out = String::new();
        write(&mut out);
        out
    }

    #[test]
    fn values_are_written_as_the_contract_says() {
        assert_eq!(shown(|out| decimal(-150, 2, out)), "\"-1.50\"");
        assert_eq!(shown(|out| decimal(5, 3, out)), "\"0.005\"");
        assert_eq!(shown(|out| decimal(7, 0, out)), "\"7\"");
        for (days, text) in
            [(0, "1970-01-01"), (-1, "1969-12-31"), (15_764, "2013-02-28"), (19_782, "2024-02-29")]
        {
            assert_eq!(shown(|out| date(days, out)), text);
        }
        assert_eq!(shown(|out| timestamp(-1, true, out)), "\"1969-12-31T23:59:59.999999Z\"");
        assert_eq!(shown(|out| timestamp(45_000_000_000, false, out)), "\"1970-01-01T12:30:00.000000\"");
        assert_eq!(shown(|out| text("a\"\\\n\u{1}水", out)), "\"a\\\"\\\\\\n\\u0001水\"");
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"foob", "Zm9vYg==")]
        {
            assert_eq!(shown(|out| base64(bytes, out)), format!("\"{text}\""));
        }
    }
}
