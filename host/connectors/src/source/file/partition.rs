//! `key=value` directories as columns, as in Spark: names and values from paths, types from the declared
//! schema or from the values.

use crate::decode::csv::one_value;
use crate::decode::{Zone, parse_date, parse_i64, parse_timestamp};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};
use pelton_core::types::type_name;
use pelton_core::{Decoded, Error, Result};
use std::sync::Arc;

/// What Spark writes for null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The `key=value` directories of a path below its base, in order; escapes are taken away.
pub(super) fn pairs(below: &str) -> Vec<(String, Option<String>)> {
    let directories = below.rsplit_once('/').map_or("", |(directories, _)| directories);
    let pair = |directory: &str| {
        let (key, value) = directory.split_once('=').filter(|(key, _)| !key.is_empty())?;
        Some((unescape(key), (value != NULL).then(|| unescape(value))))
    };
    directories.split('/').filter_map(pair).collect()
}

/// Takes Hive's escapes away: `%3A` is `:`.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *byte == b'%') {
            Some(code) => {
                out.push(code);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The narrowest type that holds all values of a column.
pub(super) fn infer<'v>(values: impl Iterator<Item = &'v str>, time_zone: &str) -> DataType {
    let mut all: Option<DataType> = None;
    for value in values {
        let found = type_of(value, time_zone);
        all = Some(match all {
            None => found,
            Some(all) => wider(all, found),
        });
    }
    all.unwrap_or(DataType::Utf8)
}

fn type_of(value: &str, time_zone: &str) -> DataType {
    let bytes = value.as_bytes();
    match parse_i64(bytes) {
        Some(n) if i32::try_from(n).is_ok() => return DataType::Int32,
        Some(_) => return DataType::Int64,
        None => {}
    }
    let looks_numeric =
        bytes.iter().any(u8::is_ascii_digit) && !bytes.last().is_some_and(u8::is_ascii_alphabetic);
    if looks_numeric && value.parse::<f64>().is_ok() {
        return DataType::Float64;
    }
    if parse_date(bytes).is_some() && value.len() <= 10 && value.contains('-') {
        return DataType::Date32;
    }
    match parse_timestamp(bytes, Zone::Fixed(0)) {
        Some(_) if value.contains(':') => DataType::Timestamp(TimeUnit::Microsecond, Some(time_zone.into())),
        _ => DataType::Utf8,
    }
}

fn wider(a: DataType, b: DataType) -> DataType {
    use DataType as T;
    match (a, b) {
        (a, b) if a == b => a,
        (T::Int32, T::Int64) | (T::Int64, T::Int32) => T::Int64,
        (T::Int32 | T::Int64, T::Float64) | (T::Float64, T::Int32 | T::Int64) => T::Float64,
        (T::Date32, t @ T::Timestamp(..)) | (t @ T::Timestamp(..), T::Date32) => t,
        _ => T::Utf8,
    }
}

/// The partition columns that the rows of one file have, each as an array of one value.
#[derive(Debug, Clone)]
pub(super) struct Constants {
    /// By name.
    values: Vec<(String, ArrayRef)>,
    schema: SchemaRef,
}

impl Constants {
    /// Of a file at `below` its base. `columns` are the partition columns that are read, `schema` is that of
    /// the finished rows. A value that is not of its column's type is an error of kind `Data`.
    pub(super) fn new(
        file: &str,
        below: &str,
        columns: &[Field],
        schema: SchemaRef,
        time_zone: &str,
    ) -> Result<Self> {
        let pairs = pairs(below);
        let mut values = Vec::with_capacity(columns.len());
        for column in columns {
            let pair = pairs.iter().find(|(key, _)| key.eq_ignore_ascii_case(column.name()));
            let text = pair.and_then(|(_, value)| value.as_deref());
            let value = one_value(column.data_type(), text, time_zone)?.ok_or_else(|| {
                let (text, wanted) = (text.unwrap_or_default(), type_name(column.data_type()));
                Error::data(format!("{file}: directory {}={text} is not {wanted}", column.name()))
                    .hint(format!("declare the column in the schema, for example {}: string", column.name()))
            })?;
            values.push((column.name().clone(), value));
        }
        Ok(Self { values, schema })
    }

    /// Adds the columns to decoded rows.
    pub(super) fn add(&self, decoded: Decoded) -> Result<Decoded> {
        if self.values.is_empty() {
            return Ok(decoded);
        }
        let batches = decoded.batches.iter().map(|batch| self.add_to(batch)).collect::<Result<Vec<_>>>()?;
        Ok(Decoded { batches, ..decoded })
    }

    fn add_to(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let firsts = UInt32Array::from(vec![0; rows]);
        let column = |field: &Arc<Field>| match self.values.iter().find(|(name, _)| name == field.name()) {
            Some((_, value)) => Ok(take(value, &firsts, None)?),
            None => batch
                .column_by_name(field.name())
                .cloned()
                .ok_or_else(|| Error::internal(format!("column '{}' was not decoded", field.name()))),
        };
        let columns = self.schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_become_pairs() {
        let expected = [
            ("year".to_owned(), Some("2024".to_owned())),
            ("k".into(), Some("a:b".into())),
            ("n".into(), None),
        ];
        assert_eq!(pairs("year=2024/x/k=a%3Ab/n=__HIVE_DEFAULT_PARTITION__/f=1.json"), expected);
        assert!(pairs("f.json").is_empty());
    }

    #[test]
    fn types_are_inferred_as_in_spark() {
        let infer = |values: &[&str]| type_name(&infer(values.iter().copied(), "UTC"));
        assert_eq!(infer(&["1", "2"]), "int");
        assert_eq!(infer(&["1", "3000000000"]), "long");
        assert_eq!(infer(&["1", "2.5"]), "double");
        assert_eq!(infer(&["2024-01-31"]), "date");
        assert_eq!(infer(&["2024-01-31", "2024-01-31 10:00:00"]), "timestamp");
        assert_eq!(infer(&["1", "x"]), "string");
        assert_eq!(infer(&["1d", "2024"]), "string");
        assert_eq!(infer(&[]), "string");
    }
}
