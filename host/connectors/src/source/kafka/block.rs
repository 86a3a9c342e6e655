//! Records to rows: Kafka's own columns, or the columns of the values with those of Kafka beside them.
//!
//! A record without a value (a tombstone) is a row whose value's columns are null; it is never malformed.

use super::columns::{Metadata, raw_rows};
use super::options::KafkaSourceOptions;
use super::records::Records;
use crate::decode::{BATCH_ROWS, Decoder, DecoderSettings, project};
use crate::source::file::FormatOptions;
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{concat_batches, take};
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use pelton_core::{Block, Decoded, Error, Result};
use std::sync::Arc;

/// How records become rows.
#[derive(Clone)]
pub(super) struct Layout {
    /// Of the rows.
    pub(super) schema: SchemaRef,
    /// Of the values.
    pub(super) decoder: Option<Arc<dyn Decoder>>,
    /// Kafka's columns, which come last.
    metadata: Vec<Metadata>,
    time_zone: Arc<str>,
}

impl Layout {
    /// For these columns; `None`: all. The error is of kind `Invalid`.
    pub(super) fn new(name: &str, options: &KafkaSourceOptions, columns: Option<&[String]>) -> Result<Self> {
        let time_zone = options.time_zone.as_str();
        let full = full_schema(options)?;
        let schema = project(&full, columns)?;
        let all = match options.format {
            None => Metadata::of_raw(options.include_headers),
            Some(_) => options.metadata_columns.iter().filter_map(|name| Metadata::parse(name)).collect(),
        };
        let wanted = |column: &Metadata| schema.fields().find(column.field(time_zone).name()).is_some();
        let metadata: Vec<Metadata> = all.into_iter().filter(wanted).collect();
        let decoder = match &options.format {
            None => None,
            Some((format, map)) => {
                let values = value_schema(options)?;
                let of_value = |column: &&String| values.fields().find(column).is_some();
                let settings = DecoderSettings {
                    columns: columns.map(|columns| columns.iter().filter(of_value).cloned().collect()),
                    schema: values.clone(),
                    on_malformed: options.on_malformed,
                    time_zone: options.time_zone.clone(),
                    origin: name.to_owned(),
                };
                Some(FormatOptions::read(*format, map)?.record_decoder(&settings)?)
            }
        };
        Ok(Self { schema, decoder, metadata, time_zone: time_zone.into() })
    }

    /// The decoder of values, if rows have nothing but their columns.
    pub(super) fn alone(&self) -> Option<&Arc<dyn Decoder>> {
        self.decoder.as_ref().filter(|_| self.metadata.is_empty())
    }

    /// Whether headers must be kept.
    pub(super) fn has_headers(&self) -> bool {
        self.metadata.contains(&Metadata::Headers)
    }

    /// The rows of records.
    pub(super) fn decode(&self, records: &Records) -> Result<Decoded> {
        let count = u32::try_from(records.records.len()).unwrap_or(u32::MAX);
        let Some(decoder) = &self.decoder else {
            let starts = (0..count).step_by(BATCH_ROWS);
            let rows = |from: u32| {
                let to = from.saturating_add(BATCH_ROWS as u32).min(count);
                raw_rows(records, &self.metadata, &self.schema, &self.time_zone, from..to)
            };
            return Ok(Decoded { batches: starts.map(rows).collect::<Result<_>>()?, ..Decoded::default() });
        };
        let (values, of) = records.values();
        let position = |n: u64| records.position(of.get(n as usize).copied().unwrap_or(u32::MAX));
        let mut decoded = decoder.decode_records(&values, &position)?;
        for letter in &mut decoded.dead_letters {
            letter.message = letter.position.as_deref().and_then(|position| records.origin(position));
        }
        let rows: Vec<u32> =
            std::mem::take(&mut decoded.records).into_iter().map(|n| of[n as usize]).collect();
        let has_tombstones = values.len() < records.records.len();
        if !has_tombstones && self.metadata.is_empty() {
            return Ok(decoded);
        }
        let (values, rows) = match has_tombstones {
            false => (decoded.batches, rows),
            true => with_tombstones(records, decoder.schema(), &decoded.batches, &rows)?,
        };
        decoded.batches = self.with_metadata(records, values, &rows)?;
        Ok(decoded)
    }

    /// Adds Kafka's columns to the values'. `rows` says of which record each row is.
    fn with_metadata(
        &self,
        records: &Records,
        values: Vec<RecordBatch>,
        rows: &[u32],
    ) -> Result<Vec<RecordBatch>> {
        let mut left = rows;
        let mut batches = Vec::with_capacity(values.len());
        for batch in values {
            let (of_batch, rest) = left
                .split_at_checked(batch.num_rows())
                .ok_or_else(|| Error::internal("a decoder has not said which record each row comes of"))?;
            left = rest;
            let mut columns = batch.columns().to_vec();
            for column in &self.metadata {
                columns.push(column.array(records, of_batch, &self.time_zone)?);
            }
            batches.push(batch_of(&self.schema, columns, of_batch.len())?);
        }
        Ok(batches)
    }
}

/// All columns.
pub(super) fn full_schema(options: &KafkaSourceOptions) -> Result<Schema> {
    let field = |column: Metadata| Arc::new(column.field(&options.time_zone));
    if options.format.is_none() {
        let columns = Metadata::of_raw(options.include_headers);
        return Ok(Schema::new(columns.into_iter().map(field).collect::<Vec<FieldRef>>()));
    }
    let values = value_schema(options)?;
    let mut fields: Vec<FieldRef> =
        values.fields().iter().map(|f| Arc::new(Field::clone(f).with_nullable(true))).collect();
    fields.extend(options.metadata_columns.iter().filter_map(|name| Metadata::parse(name)).map(field));
    Ok(Schema::new(fields))
}

fn value_schema(options: &KafkaSourceOptions) -> Result<SchemaRef> {
    let schema = match &options.schema {
        Some(schema) => Some(schema.clone()),
        None => options.own_schema()?,
    };
    schema.ok_or_else(|| Error::internal("a Kafka source whose values have no schema was not refused"))
}

/// The rows with those of records without a value in between, and of which record each is.
fn with_tombstones(
    records: &Records,
    schema: SchemaRef,
    batches: &[RecordBatch],
    rows: &[u32],
) -> Result<(Vec<RecordBatch>, Vec<u32>)> {
    let decoded = concat_batches(&schema, batches)?;
    let mut left = rows.iter().copied().zip(0_u32..).peekable();
    let (mut places, mut of) = (Vec::new(), Vec::new());
    for (record, n) in records.records.iter().zip(0_u32..) {
        if record.value.is_none() {
            places.push(None);
            of.push(n);
        }
        while let Some((_, place)) = left.next_if(|(row, _)| *row == n) {
            places.push(Some(place));
            of.push(n);
        }
    }
    let places = UInt32Array::from(places);
    let columns = decoded.columns().iter().map(|column| take(column, &places, None));
    let merged = batch_of(&schema, columns.collect::<Result<Vec<_>, _>>()?, of.len())?;
    let starts = (0..of.len()).step_by(BATCH_ROWS);
    Ok((starts.map(|at| merged.slice(at, BATCH_ROWS.min(of.len() - at))).collect(), of))
}

fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

/// Records with the way to their rows.
pub(super) struct KafkaBlock {
    pub(super) records: Records,
    pub(super) layout: Layout,
    /// As the source names it.
    pub(super) partition: String,
}

impl Block for KafkaBlock {
    fn input_bytes(&self) -> u64 {
        self.records.byte_count() as u64
    }

    fn partition(&self) -> &str {
        &self.partition
    }

    fn decode(self: Box<Self>) -> Result<Decoded> {
        self.layout.decode(&self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::super::offsets::TopicPartition;
    use super::*;
    use crate::decode::options::OptionMap;
    use crate::encode::JsonEncoder;
    use crate::source::file::FileFormat;
    use pelton_core::types::{columns_name, parse_columns};
    use pelton_core::{MalformedPolicy, MessageOrigin};

    const OF: [(Option<&str>, Option<&str>); 5] = [
        (Some("a"), Some("{\"x\":1}")),
        (Some("b"), None),
        (None, Some("{\"x\"")),
        (Some("c"), Some("{\"x\":3}")),
        (Some("a"), None),
    ];

    fn options(change: impl Fn(&mut KafkaSourceOptions)) -> KafkaSourceOptions {
        let mut options = KafkaSourceOptions::new("localhost:9092", "t");
        change(&mut options);
        options.check().unwrap();
        options
    }

    fn json(policy: MalformedPolicy, metadata: &[&str]) -> KafkaSourceOptions {
        options(|options| {
            options.format = Some((FileFormat::Json, OptionMap::new()));
            options.schema = Some(Arc::new(Schema::new(parse_columns("x long", "UTC").unwrap())));
            options.on_malformed = policy;
            options.metadata_columns = metadata.iter().map(|&name| name.to_owned()).collect();
        })
    }

    fn rows(options: &KafkaSourceOptions, columns: Option<&[&str]>) -> (Vec<String>, Decoded) {
        let columns = columns.map(|columns| columns.iter().map(|&c| c.to_owned()).collect::<Vec<_>>());
        let layout = Layout::new("s", options, columns.as_deref()).unwrap();
        let records = Records::of_test(&TopicPartition::new("t", 3), &OF);
        let decoded = layout.decode(&records).unwrap();
        let mut out = Vec::new();
        let encoder = JsonEncoder::default().with_null_fields();
        for batch in &decoded.batches {
            assert_eq!(batch.schema(), layout.schema);
            encoder.encode(batch, &mut out).unwrap();
        }
        (String::from_utf8(out).unwrap().lines().map(str::to_owned).collect(), decoded)
    }

    #[test]
    fn without_a_format_there_are_sparks_columns() {
        let raw = options(|options| options.include_headers = true);
        let schema = full_schema(&raw).unwrap();
        assert_eq!(
            columns_name(schema.fields()),
            "key: binary, value: binary, topic: string, partition: int, offset: long, timestamp: timestamp, \
             timestamp_type: int, headers: array<struct<key: string, value: binary>>"
        );
        let (lines, _) = rows(&raw, None);
        assert_eq!(lines.len(), 5);
        assert_eq!(
            lines[1],
            r#"{"key":"Yg==","value":null,"topic":"t","partition":3,"offset":11,"timestamp":"1970-01-01T00:00:01.001Z","timestamp_type":0,"headers":[{"key":"h","value":"AQ=="}]}"#
        );
        let (lines, _) = rows(&raw, Some(&["offset", "partition"]));
        assert_eq!(lines[4], r#"{"partition":3,"offset":14}"#);
    }

    #[test]
    fn a_tombstone_is_a_row_of_nulls_and_a_malformed_value_a_dead_letter() {
        let (lines, decoded) = rows(&json(MalformedPolicy::DeadLetter, &[]), None);
        assert_eq!(lines, [r#"{"x":1}"#, r#"{"x":null}"#, r#"{"x":3}"#, r#"{"x":null}"#]);
        let letter = &decoded.dead_letters[0];
        assert_eq!((letter.position.as_deref(), letter.payload.as_ref()), (Some("t-3@12"), &b"{\"x\""[..]));
        let without_key = MessageOrigin { topic: "t".into(), partition: 3, offset: 12, key: None };
        assert_eq!(letter.message.as_ref(), Some(&without_key));
        let records = Records::of_test(&TopicPartition::new("t", 3), &OF);
        let key = records.origin("t-3@10").unwrap().key.unwrap();
        assert_eq!(key.as_ref(), b"a");
    }

    #[test]
    fn kafkas_columns_stand_beside_the_values() {
        let (lines, _) = rows(&json(MalformedPolicy::Drop, &["key", "offset"]), None);
        assert_eq!(
            lines,
            [
                r#"{"x":1,"key":"YQ==","offset":10}"#,
                r#"{"x":null,"key":"Yg==","offset":11}"#,
                r#"{"x":3,"key":"Yw==","offset":13}"#,
                r#"{"x":null,"key":"YQ==","offset":14}"#,
            ]
        );
        let (lines, _) = rows(&json(MalformedPolicy::Null, &["key", "offset"]), Some(&["offset"]));
        assert_eq!(lines.concat(), r#"{"offset":10}{"offset":11}{"offset":12}{"offset":13}{"offset":14}"#);
    }

    #[test]
    fn a_malformed_value_fails_naming_its_offset() {
        let layout = Layout::new("s", &json(MalformedPolicy::Fail, &[]), None).unwrap();
        let failed = layout.decode(&Records::of_test(&TopicPartition::new("t", 3), &OF)).unwrap_err();
        assert!(failed.message().starts_with("t-3@12: not JSON"), "{failed}");
    }
}
