//! The schema of JSON lines from a sample of them, by the rules of Spark's inference. Called by the file
//! source when it starts without a declared schema.

use super::options::JsonOptions;
use super::{one_line, trimmed};
use crate::decode::time::{Zone, parse_timestamp};
use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use pelton_core::types::list_of;
use pelton_core::{Error, Result};
use serde_json::{Number, Value};
use std::collections::BTreeMap;

/// What a value may be; fields are sorted by name, as Spark sorts them.
#[derive(Debug, Clone, PartialEq)]
enum Guess {
    Null,
    Boolean,
    Long,
    Double,
    /// Precision and scale.
    Decimal(u8, u8),
    Timestamp,
    Text,
    Array(Box<Guess>),
    Struct(BTreeMap<String, Guess>),
}

/// The schema that holds all records of the sample. With `keep_malformed` the column for malformed records is
/// part of it if the sample has any; without, they do not count. A sample without any record is an error of
/// kind `Invalid`.
pub fn infer_json(
    sample: &[&[u8]],
    options: &JsonOptions,
    time_zone: &str,
    keep_malformed: bool,
) -> Result<Schema> {
    let guesser = Guesser { options, zone: Zone::of_session(time_zone)? };
    let mut all = Guess::Null;
    let mut malformed = false;
    let lines = sample.iter().flat_map(|piece| piece.split(|b| *b == b'\n'));
    for line in lines.map(|line| trimmed(line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line))) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match guesser.record(line) {
            Some(guess) => all = merge(all, guess),
            None => malformed = true,
        }
    }
    let Guess::Struct(mut fields) = all else {
        return Err(Error::invalid("no schema can be inferred: the files hold no JSON object")
            .hint("declare the columns with schema: {name: type, …}"));
    };
    if malformed && keep_malformed {
        fields.insert(options.column_name_of_corrupt_record.clone(), Guess::Text);
    }
    Ok(Schema::new(fields_of(&fields, options, time_zone)))
}

struct Guesser<'a> {
    options: &'a JsonOptions,
    zone: Zone,
}

impl Guesser<'_> {
    /// `None` if the record is malformed.
    fn record(&self, line: &[u8]) -> Option<Guess> {
        let value: Value = serde_json::from_slice(&one_line(line)).ok().or_else(|| {
            let rewritten = self.options.lenience().rewrite(line)?;
            serde_json::from_slice(&rewritten).ok()
        })?;
        match value {
            Value::Object(_) => Some(self.value(&value)),
            Value::Array(rows) if rows.iter().all(Value::is_object) => {
                Some(rows.iter().fold(Guess::Null, |all, row| merge(all, self.value(row))))
            }
            _ => None,
        }
    }

    fn value(&self, value: &Value) -> Guess {
        match value {
            Value::Null => Guess::Null,
            Value::Bool(_) | Value::Number(_) if self.options.primitives_as_string => Guess::Text,
            Value::Bool(_) => Guess::Boolean,
            Value::Number(number) => self.number(number),
            Value::String(text) if text.is_empty() => Guess::Null,
            Value::String(text) if self.options.infer_timestamp => {
                match parse_timestamp(text.as_bytes(), self.zone) {
                    Some(_) => Guess::Timestamp,
                    None => Guess::Text,
                }
            }
            Value::String(_) => Guess::Text,
            Value::Array(items) => Guess::Array(Box::new(
                items.iter().fold(Guess::Null, |all, item| merge(all, self.value(item))),
            )),
            Value::Object(fields) => {
                Guess::Struct(fields.iter().map(|(name, value)| (name.clone(), self.value(value))).collect())
            }
        }
    }

    fn number(&self, number: &Number) -> Guess {
        if number.is_i64() {
            return Guess::Long;
        }
        if number.is_u64() {
            return Guess::Decimal(20, 0);
        }
        let text = number.to_string();
        match decimal_digits(&text).filter(|_| self.options.prefers_decimal) {
            Some((precision, scale)) => Guess::Decimal(precision, scale),
            None => Guess::Double,
        }
    }
}

/// Precision and scale of a number written without an exponent, if it fits a decimal.
fn decimal_digits(text: &str) -> Option<(u8, u8)> {
    let (whole, fraction) = text.trim_start_matches('-').split_once('.')?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let precision = (whole.trim_start_matches('0').len() + fraction.len()).max(1);
    (precision <= 38).then_some((precision as u8, fraction.len() as u8))
}

/// The narrowest that holds both; strings hold everything.
fn merge(a: Guess, b: Guess) -> Guess {
    match (a, b) {
        (a, b) if a == b => a,
        (Guess::Null, other) | (other, Guess::Null) => other,
        (Guess::Long, Guess::Double) | (Guess::Double, Guess::Long) => Guess::Double,
        (Guess::Double, Guess::Decimal(..)) | (Guess::Decimal(..), Guess::Double) => Guess::Double,
        (Guess::Long, Guess::Decimal(p, s)) | (Guess::Decimal(p, s), Guess::Long) => wider((20, 0), (p, s)),
        (Guess::Decimal(p1, s1), Guess::Decimal(p2, s2)) => wider((p1, s1), (p2, s2)),
        (Guess::Array(a), Guess::Array(b)) => Guess::Array(Box::new(merge(*a, *b))),
        (Guess::Struct(a), Guess::Struct(b)) => Guess::Struct(merge_fields(a, b)),
        _ => Guess::Text,
    }
}

fn wider(a: (u8, u8), b: (u8, u8)) -> Guess {
    let scale = a.1.max(b.1);
    let whole = (a.0 - a.1).max(b.0 - b.1);
    if whole + scale > 38 { Guess::Double } else { Guess::Decimal(whole + scale, scale) }
}

fn merge_fields(mut a: BTreeMap<String, Guess>, b: BTreeMap<String, Guess>) -> BTreeMap<String, Guess> {
    for (name, guess) in b {
        let merged = match a.remove(&name) {
            Some(other) => merge(other, guess),
            None => guess,
        };
        a.insert(name, merged);
    }
    a
}

fn fields_of(fields: &BTreeMap<String, Guess>, options: &JsonOptions, time_zone: &str) -> Fields {
    let field =
        |(name, guess): (&String, &Guess)| Some(Field::new(name, type_of(guess, options, time_zone)?, true));
    fields.iter().filter_map(field).collect()
}

/// `None`: the field is left out, because nothing is known of it that a column could hold.
fn type_of(guess: &Guess, options: &JsonOptions, time_zone: &str) -> Option<DataType> {
    Some(match guess {
        Guess::Null if options.drop_field_if_all_null => return None,
        Guess::Null | Guess::Text => DataType::Utf8,
        Guess::Boolean => DataType::Boolean,
        Guess::Long => DataType::Int64,
        Guess::Double => DataType::Float64,
        Guess::Decimal(precision, scale) => DataType::Decimal128(*precision, *scale as i8),
        Guess::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some(time_zone.into())),
        Guess::Array(item) => list_of(type_of(item, options, time_zone)?),
        Guess::Struct(fields) => {
            let fields = fields_of(fields, options, time_zone);
            return (!fields.is_empty()).then_some(DataType::Struct(fields));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::types::columns_name;

    fn check(lines: &str, options: &JsonOptions, expected: &str) {
        let schema = infer_json(&[lines.as_bytes()], options, "UTC", true);
        assert_eq!(
            schema.map_or_else(|e| e.message().to_owned(), |s| columns_name(s.fields())),
            expected,
            "{lines}"
        );
    }

    #[test]
    fn infers_as_spark_does() {
        let default = JsonOptions::default();
        check(
            r#"{"b": 1, "a": "x", "n": null, "e": "", "t": true}
               {"b": 1.5, "s": {"y": [1, 2.5], "x": "2026-01-01"}, "l": [], "m": [{"a": 1}, {"b": 2}]}"#,
            &default,
            "a: string, b: double, e: string, l: array<string>, m: array<struct<a: long, b: long>>, n: string, \
             s: struct<x: string, y: array<double>>, t: boolean",
        );
        check("{\"a\": 1}\n{\"a\": \"x\"}", &default, "a: string");
        check("{\"a\": 18446744073709551615}", &default, "a: decimal(20,0)");
        check("[{\"a\": 1}, {\"b\": {}}]", &default, "a: long");
        check("{\"a\": 1}\nnot json\n\n", &default, "_corrupt_record: string, a: long");
        check("", &default, "no schema can be inferred: the files hold no JSON object");
    }

    #[test]
    fn options_change_the_guess() {
        let options = JsonOptions {
            prefers_decimal: true,
            infer_timestamp: true,
            drop_field_if_all_null: true,
            ..Default::default()
        };
        check(
            r#"{"a": 1.25, "n": null, "t": "2026-01-01T00:00:00Z"}"#,
            &options,
            "a: decimal(3,2), t: timestamp",
        );
        let options = JsonOptions { primitives_as_string: true, ..Default::default() };
        check(r#"{"a": 1.25, "b": [true]}"#, &options, "a: string, b: array<string>");
    }
}
