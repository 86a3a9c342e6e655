//! From a field's text to a value, as Spark's CSV reader does it.

use super::options::CsvOptions;
use crate::decode::column::{Column, Values};
use crate::decode::number::{parse_decimal, parse_f32, parse_f64, parse_i64};
use crate::decode::pattern::Pattern;
use crate::decode::time::{Zone, parse_date, parse_timestamp, parse_timestamp_ntz};
use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use pelton_core::Result;

/// How texts become values.
#[derive(Debug, Clone)]
pub(super) struct Converter {
    zone: Zone,
    date: Option<Pattern>,
    timestamp: Option<Pattern>,
    timestamp_ntz: Option<Pattern>,
    nan: String,
    positive_inf: String,
    negative_inf: String,
}

impl Converter {
    pub(super) fn new(options: &CsvOptions, time_zone: &str) -> Result<Self> {
        let pattern = |text: &Option<String>| text.as_deref().map(Pattern::parse).transpose();
        Ok(Self {
            zone: Zone::of_session(time_zone)?,
            date: pattern(&options.date_format)?,
            timestamp: pattern(&options.timestamp_format)?,
            timestamp_ntz: pattern(&options.timestamp_ntz_format)?,
            nan: options.nan_value.clone(),
            positive_inf: options.positive_inf.clone(),
            negative_inf: options.negative_inf.clone(),
        })
    }

    /// Writes the value; false: the text is no such value and nothing was written.
    #[inline]
    pub(super) fn append(&self, column: &mut Column, text: &[u8]) -> bool {
        match &mut column.values {
            Values::Text(pieces) | Values::Binary(pieces) => {
                pieces.push(text);
                true
            }
            Values::Int32(values) => push(values, parse_i64(text).and_then(|n| i32::try_from(n).ok())),
            Values::Int64(values) => push(values, parse_i64(text)),
            Values::Float64(values) => push(values, self.double(text)),
            Values::Timestamp { values, zone } => push(values, self.instant(text, zone.is_some())),
            Values::Date(values) => push(values, self.day(text)),
            Values::Int8(values) => push(values, parse_i64(text).and_then(|n| i8::try_from(n).ok())),
            Values::Int16(values) => push(values, parse_i64(text).and_then(|n| i16::try_from(n).ok())),
            Values::Float32(values) => {
                let special = self.special(text).map(|special| special as f32);
                push(values, special.or_else(|| parse_f32(text)))
            }
            Values::Boolean(values) => {
                let is = text.eq_ignore_ascii_case(b"true");
                let known = is || text.eq_ignore_ascii_case(b"false");
                if known {
                    values.append(is);
                }
                known
            }
            Values::Decimal { values, precision, scale } => {
                let plain: Vec<u8> = text.iter().copied().filter(|b| *b != b',').collect();
                push(values, parse_decimal(&plain, *precision, *scale))
            }
            Values::List { .. } | Values::Map { .. } | Values::Struct { .. } => false,
        }
    }

    fn special(&self, text: &[u8]) -> Option<f64> {
        match text {
            _ if text == self.nan.as_bytes() => Some(f64::NAN),
            _ if text == self.negative_inf.as_bytes() => Some(f64::NEG_INFINITY),
            _ if text == self.positive_inf.as_bytes() => Some(f64::INFINITY),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn double(&self, text: &[u8]) -> Option<f64> {
        match text.first() {
            Some(b'0'..=b'9') => parse_f64(text),
            _ => self.special(text).or_else(|| parse_f64(text)),
        }
    }

    pub(super) fn day(&self, text: &[u8]) -> Option<i32> {
        match &self.date {
            None => parse_date(text),
            Some(pattern) => pattern.date(std::str::from_utf8(text).ok()?),
        }
    }

    pub(super) fn instant(&self, text: &[u8], zoned: bool) -> Option<i64> {
        let pattern = if zoned { &self.timestamp } else { &self.timestamp_ntz };
        match (pattern, zoned) {
            (None, true) => parse_timestamp(text, self.zone),
            (None, false) => parse_timestamp_ntz(text),
            (Some(pattern), true) => pattern.timestamp(std::str::from_utf8(text).ok()?, self.zone),
            (Some(pattern), false) => pattern.local(std::str::from_utf8(text).ok()?),
        }
    }
}

#[inline]
fn push<T>(values: &mut Vec<T>, value: Option<T>) -> bool {
    let found = value.is_some();
    values.extend(value);
    found
}

/// A text as an array of one value, by the rules of CSV with its default options; null for none. `None`: the
/// text is no such value. For the values of `key=value` directories.
pub(crate) fn one_value(
    data_type: &DataType,
    text: Option<&str>,
    time_zone: &str,
) -> Result<Option<ArrayRef>> {
    let converter = Converter::new(&CsvOptions::default(), time_zone)?;
    let mut column = Column::new(data_type)?;
    match text {
        None => column.push_null(),
        Some(text) if converter.append(&mut column, text.as_bytes()) => column.valid(),
        Some(_) => return Ok(None),
    }
    column.finish().map(Some)
}
