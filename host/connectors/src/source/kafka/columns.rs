//! Kafka's columns: what a record has beside, or instead of, the columns of its value. Spark's schema, in snake case.

use super::records::{Record, Records};
use arrow::array::{
    ArrayRef, BinaryBuilder, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StringBuilder,
    StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use pelton_core::types::list_of;
use pelton_core::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// A column of Kafka's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metadata {
    Key,
    Value,
    Topic,
    Partition,
    Offset,
    Timestamp,
    TimestampType,
    Headers,
}

impl Metadata {
    const ALL: [Self; 8] = [
        Self::Key,
        Self::Value,
        Self::Topic,
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::TimestampType,
        Self::Headers,
    ];
    pub(super) const NAMES: [&str; 8] =
        ["key", "value", "topic", "partition", "offset", "timestamp", "timestamp_type", "headers"];

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|known| *known == name).map(|nth| Self::ALL[nth])
    }

    fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The columns of a source without a format.
    pub(super) fn of_raw(include_headers: bool) -> Vec<Self> {
        Self::ALL.into_iter().filter(|column| include_headers || *column != Self::Headers).collect()
    }

    pub(super) fn field(self, time_zone: &str) -> Field {
        let data_type = match self {
            Self::Key | Self::Value => DataType::Binary,
            Self::Topic => DataType::Utf8,
            Self::Partition | Self::TimestampType => DataType::Int32,
            Self::Offset => DataType::Int64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some(time_zone.into())),
            Self::Headers => list_of(DataType::Struct(header_fields())),
        };
        Field::new(self.name(), data_type, true)
    }

    /// The column for some of the records, in the order of `rows`.
    pub(super) fn array(self, of: &Records, rows: &[u32], time_zone: &str) -> Result<ArrayRef> {
        let records = rows.iter().map(|row| &of.records[*row as usize]);
        Ok(match self {
            Self::Key => binary(of, records.map(|record| record.key.as_ref())),
            Self::Value => binary(of, records.map(|record| record.value.as_ref())),
            Self::Topic => Arc::new(StringArray::from_iter_values(records.map(|_| of.at.topic.as_ref()))),
            Self::Partition => Arc::new(Int32Array::from_iter_values(records.map(|_| of.at.partition))),
            Self::Offset => Arc::new(Int64Array::from_iter_values(records.map(|record| record.offset))),
            Self::TimestampType => {
                Arc::new(Int32Array::from_iter_values(records.map(|record| record.timestamp_type)))
            }
            Self::Timestamp => {
                let micros = records.map(|record| record.timestamp_ms.saturating_mul(1_000));
                Arc::new(TimestampMicrosecondArray::from_iter_values(micros).with_timezone(time_zone))
            }
            Self::Headers => headers(of, records)?,
        })
    }
}

fn binary<'a>(of: &Records, values: impl Iterator<Item = Option<&'a Range<usize>>>) -> ArrayRef {
    let mut builder = BinaryBuilder::with_capacity(of.records.len(), of.byte_count());
    values.for_each(|range| builder.append_option(range.map(|range| of.bytes(range))));
    Arc::new(builder.finish())
}

fn header_fields() -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)])
}

/// A record without headers has a null, as in Spark.
fn headers<'a>(of: &Records, records: impl Iterator<Item = &'a Record>) -> Result<ArrayRef> {
    let (mut keys, mut values) = (StringBuilder::new(), BinaryBuilder::new());
    let (mut lengths, mut valid) = (Vec::new(), Vec::new());
    for record in records {
        lengths.push(record.headers.len());
        valid.push(!record.headers.is_empty());
        for (key, value) in &record.headers {
            keys.append_value(String::from_utf8_lossy(of.bytes(key)));
            values.append_option(value.as_ref().map(|value| of.bytes(value)));
        }
    }
    let entries = StructArray::try_new(
        header_fields(),
        vec![Arc::new(keys.finish()), Arc::new(values.finish())],
        None,
    )?;
    let DataType::List(item) = list_of(DataType::Struct(header_fields())) else {
        return Err(Error::internal("headers are no list"));
    };
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(entries), Some(valid.into()))?))
}

/// Rows of Kafka's columns alone.
pub(super) fn raw_rows(
    of: &Records,
    columns: &[Metadata],
    schema: &arrow::datatypes::SchemaRef,
    time_zone: &str,
    rows: Range<u32>,
) -> Result<RecordBatch> {
    let rows: Vec<u32> = rows.collect();
    let arrays =
        columns.iter().map(|column| column.array(of, &rows, time_zone)).collect::<Result<Vec<_>>>()?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)?)
}
