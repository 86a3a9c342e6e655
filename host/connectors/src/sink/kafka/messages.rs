//! Rows to messages. Spark's columns `key`, `value`, `headers`, `topic` and `partition`, or a format for the value.

use super::options::KafkaSinkOptions;
use crate::encode::{Encoder, Records};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type, Schema};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use pelton_core::suggest::did_you_mean;
use pelton_core::types::type_name;
use pelton_core::{Error, Result, RowStream};
use std::sync::Arc;

/// Rows that are encoded in one piece.
const PIECE_ROWS: usize = 8_192;
/// What is kept of a micro-batch to be sent again in another transaction.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Turns rows of one schema into messages.
#[derive(Debug)]
pub(super) struct MessageEncoder {
    topic: Option<Arc<str>>,
    columns: Columns,
    value: Value,
}

/// Where columns that are Kafka's stand in the rows.
#[derive(Debug, Clone, Copy, Default)]
struct Columns {
    key: Option<usize>,
    topic: Option<usize>,
    partition: Option<usize>,
    headers: Option<usize>,
}

#[derive(Debug)]
enum Value {
    Column(usize),
    Encoded(Box<Encoder>, Vec<usize>),
}

impl MessageEncoder {
    /// Finds the columns and checks their types. The error is of kind `Invalid`.
    pub(super) fn new(options: &KafkaSinkOptions, schema: &Schema) -> Result<Self> {
        let at = |name: &str| schema.index_of(name).ok();
        let key = match &options.key {
            Some(name) => Some(at(name).ok_or_else(|| {
                let near = did_you_mean(name, schema.fields().iter().map(|field| field.name().as_str()));
                Error::invalid(format!("key: there is no column '{name}'{near}"))
            })?),
            None => at("key"),
        };
        let columns = Columns {
            key,
            // The option goes before the column, as in Spark.
            topic: at("topic").filter(|_| options.topic.is_none()),
            partition: at("partition"),
            headers: at("headers"),
        };
        columns.check(schema)?;
        if options.topic.is_none() && columns.topic.is_none() {
            return Err(Error::invalid("the rows have no topic to go to")
                .hint("add a line 'topic: …', or a column `topic` in the last step"));
        }
        let value = match &options.format {
            None => Value::Column(value_column(schema, &columns)?),
            Some((format, map)) => {
                let special = [
                    columns.topic,
                    columns.partition,
                    columns.headers,
                    at("key").filter(|_| options.key.is_none()),
                ];
                let rest: Vec<usize> =
                    (0..schema.fields().len()).filter(|nth| !special.contains(&Some(*nth))).collect();
                if rest.is_empty() {
                    return Err(Error::invalid(format!(
                        "no column is left for the value that format {} writes",
                        format.as_str()
                    )));
                }
                Value::Encoded(Box::new(Encoder::new(*format, &schema.project(&rest)?, map)?), rest)
            }
        };
        Ok(Self { topic: options.topic.as_deref().map(Into::into), columns, value })
    }

    /// Gets ready what the format needs from outside. See [`Encoder::prepare`].
    pub(super) async fn prepare(&self) -> Result<()> {
        match &self.value {
            Value::Column(_) => Ok(()),
            Value::Encoded(encoder, _) => encoder.prepare(self.topic.as_deref()).await,
        }
    }

    fn encode(&self, rows: &RecordBatch) -> Result<Messages> {
        let column = |nth: Option<usize>| nth.map(|nth| Arc::clone(rows.column(nth)));
        let values = match &self.value {
            Value::Column(nth) => Values::Column(Arc::clone(rows.column(*nth))),
            Value::Encoded(encoder, columns) => {
                let records = encoder.encode_records(&rows.project(columns)?)?;
                if records.ends.len() != rows.num_rows() {
                    return Err(Error::internal("an encoder has not made one record of each row"));
                }
                Values::Records(records)
            }
        };
        Ok(Messages {
            count: rows.num_rows(),
            default_topic: self.topic.clone(),
            keys: column(self.columns.key),
            topics: column(self.columns.topic),
            partitions: column(self.columns.partition),
            headers: column(self.columns.headers),
            values,
        })
    }
}

impl Columns {
    fn check(&self, schema: &Schema) -> Result<()> {
        let is_bytes: fn(&DataType) -> bool = |t| matches!(t, DataType::Utf8 | DataType::Binary);
        let is_headers: fn(&DataType) -> bool = |t| match t {
            DataType::List(item) => match item.data_type() {
                DataType::Struct(fields) => {
                    let types: Vec<&DataType> = fields.iter().map(|field| field.data_type()).collect();
                    matches!(types[..], [DataType::Utf8, DataType::Utf8 | DataType::Binary])
                }
                _ => false,
            },
            _ => false,
        };
        type Fits = fn(&DataType) -> bool;
        let wanted: [(Option<usize>, Fits, &str); 4] = [
            (self.key, is_bytes, "string or binary"),
            (self.topic, |t| *t == DataType::Utf8, "string"),
            (self.partition, |t| *t == DataType::Int32, "int"),
            (self.headers, is_headers, "array<struct<key: string, value: binary>>"),
        ];
        for (nth, fits, what) in wanted {
            let Some(field) = nth.map(|nth| schema.field(nth)) else { continue };
            if !fits(field.data_type()) {
                let found = type_name(field.data_type());
                return Err(Error::invalid(format!(
                    "the column '{}' says where a message goes and must be {what}, not {found}",
                    field.name()
                ))
                .hint(format!(
                    "cast it in the last step, or give it another name: CAST({} AS …)",
                    field.name()
                )));
            }
        }
        Ok(())
    }
}

/// Spark's column `value`; others than Kafka's would be lost.
fn value_column(schema: &Schema, columns: &Columns) -> Result<usize> {
    let value = schema.index_of("value").map_err(|_| {
        Error::invalid("without `format` the rows need a column `value`, a string or binary").hint(
            "add a line 'format: json', or make the value in the last step: to_json(struct(*)) AS value",
        )
    })?;
    let data_type = schema.field(value).data_type();
    if !matches!(data_type, DataType::Utf8 | DataType::Binary) {
        return Err(Error::invalid(format!(
            "the column 'value' must be string or binary, not {}",
            type_name(data_type)
        ))
        .hint("add a line 'format: json', or cast it in the last step"));
    }
    let known = [Some(value), columns.key, columns.topic, columns.partition, columns.headers];
    let lost = (0..schema.fields().len())
        .filter(|nth| !known.contains(&Some(*nth)))
        .map(|nth| schema.field(nth).name().as_str())
        // With a topic for all, the rows may still say the one that they come from.
        .find(|name| *name != "topic");
    match lost {
        None => Ok(value),
        Some(name) => Err(Error::invalid(format!(
            "the column '{name}' is none of a message: it would be lost"
        ))
        .hint("with `format: json` it becomes part of the value; otherwise leave it out in the last step")),
    }
}

/// Messages of some rows.
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) count: usize,
    default_topic: Option<Arc<str>>,
    keys: Option<ArrayRef>,
    topics: Option<ArrayRef>,
    partitions: Option<ArrayRef>,
    headers: Option<ArrayRef>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Column(ArrayRef),
    Records(Records),
}

/// One of them. Without a value it is a tombstone.
pub(super) struct Message<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: Option<i32>,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

impl Messages {
    pub(super) fn get(&self, nth: usize) -> Result<Message<'_>> {
        let topic = match &self.topics {
            Some(topics) if topics.is_valid(nth) => Some(topics.as_string::<i32>().value(nth)),
            Some(_) => None,
            None => self.default_topic.as_deref(),
        };
        let topic = topic.ok_or_else(|| {
            Error::data("a row's topic is null").hint("filter such rows out, or set `topic` for all rows")
        })?;
        let partition = match &self.partitions {
            Some(partitions) if partitions.is_valid(nth) => {
                Some(partitions.as_primitive::<Int32Type>().value(nth))
            }
            _ => None,
        };
        if let Some(partition) = partition.filter(|partition| *partition < 0) {
            return Err(Error::data(format!("a row's partition is {partition}"))
                .hint("partitions are numbered from 0; null lets the key decide"));
        }
        let value = match &self.values {
            Values::Column(column) => bytes_of(column, nth),
            Values::Records(records) => records.get(nth),
        };
        let key = self.keys.as_ref().and_then(|keys| bytes_of(keys, nth));
        Ok(Message { topic, partition, key, value, headers: self.headers_of(nth) })
    }

    fn headers_of(&self, nth: usize) -> Vec<(&str, Option<&[u8]>)> {
        let Some(headers) = self.headers.as_ref().filter(|headers| headers.is_valid(nth)) else {
            return Vec::new();
        };
        let list = headers.as_list::<i32>();
        let entries = list.values().as_struct();
        let (keys, values) = (entries.column(0).as_string::<i32>(), entries.column(1));
        let offsets = list.value_offsets();
        let of = offsets[nth] as usize..offsets[nth + 1] as usize;
        // A header's name cannot be null; an empty one can be.
        let name = |at: usize| if keys.is_valid(at) { keys.value(at) } else { "" };
        of.map(|at| (name(at), bytes_of(values, at))).collect()
    }

    /// Bytes that they hold, about.
    fn byte_count(&self) -> usize {
        let arrays = [&self.keys, &self.topics, &self.partitions, &self.headers];
        let others: usize = arrays.into_iter().flatten().map(|array| array.get_array_memory_size()).sum();
        others
            + match &self.values {
                Values::Column(column) => column.get_array_memory_size(),
                Values::Records(records) => records.bytes.len() + 8 * records.ends.len(),
            }
    }
}

fn bytes_of(array: &ArrayRef, nth: usize) -> Option<&[u8]> {
    if array.is_null(nth) {
        return None;
    }
    match array.data_type() {
        DataType::Binary => Some(array.as_binary::<i32>().value(nth)),
        _ => array.as_string_opt::<i32>().map(|texts| texts.value(nth).as_bytes()),
    }
}

/// The messages of one micro-batch, which may have to be sent more than once.
pub(super) struct Pieces {
    stream: BoxStream<'static, Result<Messages>>,
    kept: Vec<Arc<Messages>>,
    kept_bytes: usize,
    /// Something was sent that is not kept.
    is_cut: bool,
    /// The stream has come to its end.
    pub(super) has_ended: bool,
    pub(super) rows: u64,
}

impl Pieces {
    /// Encodes on worker threads, `at_once` pieces at a time, in order.
    pub(super) fn new(rows: RowStream, encoder: &Arc<MessageEncoder>, at_once: usize) -> Self {
        let encoder = Arc::clone(encoder);
        let pieces = rows.map_ok(|batch| {
            let cuts = (0..batch.num_rows()).step_by(PIECE_ROWS);
            let slice =
                move |from: usize| Ok::<_, Error>(batch.slice(from, PIECE_ROWS.min(batch.num_rows() - from)));
            stream::iter(cuts.map(slice))
        });
        let encoded = pieces.try_flatten().map_ok(move |rows: RecordBatch| {
            let encoder = Arc::clone(&encoder);
            async move { crate::kafka::blocking(move || encoder.encode(&rows)).await? }
        });
        let stream = encoded.try_buffered(at_once).boxed();
        Self { stream, kept: Vec::new(), kept_bytes: 0, is_cut: false, has_ended: false, rows: 0 }
    }

    /// Whether they can be sent from the first on.
    pub(super) fn can_repeat(&self) -> bool {
        !self.is_cut
    }

    /// Those that have been sent before, when they must be sent again.
    pub(super) fn sent(&self) -> Vec<Arc<Messages>> {
        self.kept.clone()
    }

    /// The next that have never been sent.
    pub(super) async fn next(&mut self) -> Result<Option<Arc<Messages>>> {
        if self.has_ended {
            return Ok(None);
        }
        let Some(messages) = self.stream.try_next().await? else {
            self.has_ended = true;
            return Ok(None);
        };
        self.rows += messages.count as u64;
        let (bytes, messages) = (messages.byte_count(), Arc::new(messages));
        if self.kept_bytes + bytes <= KEPT_BYTES_MAX && !self.is_cut {
            self.kept_bytes += bytes;
            self.kept.push(Arc::clone(&messages));
        } else {
            (self.is_cut, self.kept) = (true, Vec::new());
        }
        Ok(Some(messages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::options::OptionMap;
    use crate::encode::FileFormat;
    use arrow::array::{BinaryArray, Int32Array, Int64Array, ListArray, StringArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Fields};

    fn texts(of: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(of.to_vec()))
    }

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap()
    }

    fn raw(topic: Option<&str>) -> KafkaSinkOptions {
        KafkaSinkOptions {
            topic: topic.map(str::to_owned),
            format: None,
            ..KafkaSinkOptions::new("localhost:9092", "t")
        }
    }

    fn shown(message: &Message<'_>) -> String {
        let text =
            |bytes: Option<&[u8]>| bytes.map_or("-".into(), |b| String::from_utf8_lossy(b).into_owned());
        let headers: Vec<_> =
            message.headers.iter().map(|(key, value)| format!("{key}={}", text(*value))).collect();
        format!(
            "{}/{:?} {} {} {headers:?}",
            message.topic,
            message.partition,
            text(message.key),
            text(message.value)
        )
    }

    fn encoded(options: &KafkaSinkOptions, rows: &RecordBatch) -> Vec<String> {
        let messages = MessageEncoder::new(options, &rows.schema()).unwrap().encode(rows).unwrap();
        (0..messages.count)
            .map(|nth| messages.get(nth).map_or_else(|e| e.to_string(), |m| shown(&m)))
            .collect()
    }

    fn refused(options: &KafkaSinkOptions, columns: Vec<(&str, ArrayRef)>) -> String {
        MessageEncoder::new(options, &batch(columns).schema()).unwrap_err().to_string()
    }

    fn headers() -> ArrayRef {
        let fields = Fields::from(vec![
            Field::new("key", DataType::Utf8, true),
            Field::new("value", DataType::Binary, true),
        ]);
        let values: ArrayRef = Arc::new(BinaryArray::from(vec![Some(&b"1"[..]), None]));
        let entries = StructArray::new(fields.clone(), vec![texts(&[Some("a"), Some("b")]), values], None);
        let item = Arc::new(Field::new("item", DataType::Struct(fields), true));
        Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([2, 0]), Arc::new(entries), None))
    }

    #[test]
    fn sparks_columns_make_a_message() {
        let rows = batch(vec![
            ("key", texts(&[Some("k"), None])),
            ("value", texts(&[Some("v"), None])),
            ("topic", texts(&[Some("x"), None])),
            ("partition", Arc::new(Int32Array::from(vec![Some(2), None]))),
            ("headers", headers()),
        ]);
        let of_rows = encoded(&raw(None), &rows);
        assert_eq!(of_rows[0], "x/Some(2) k v [\"a=1\", \"b=-\"]");
        assert!(of_rows[1].starts_with("a row's topic is null"), "{}", of_rows[1]);
        assert_eq!(encoded(&raw(Some("t")), &rows)[1], "t/None - - []", "the option goes before the column");
    }

    #[test]
    fn a_format_writes_the_columns_that_are_not_kafkas() {
        let columns = || {
            vec![
                ("user", texts(&[Some("ada"), Some("bob")])),
                ("n", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
                ("partition", Arc::new(Int32Array::from(vec![Some(0), None])) as ArrayRef),
            ]
        };
        let options =
            KafkaSinkOptions { key: Some("user".into()), ..KafkaSinkOptions::new("localhost:9092", "t") };
        assert_eq!(
            encoded(&options, &batch(columns())),
            ["t/Some(0) ada {\"user\":\"ada\",\"n\":1} []", "t/None bob {\"user\":\"bob\",\"n\":2} []"]
        );
        let csv = KafkaSinkOptions { format: Some((FileFormat::Csv, OptionMap::new())), ..options };
        assert_eq!(encoded(&csv, &batch(columns()))[1], "t/None bob bob,2 []");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let a = || texts(&[Some("a")]);
        let numbers = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
        assert!(refused(&raw(Some("t")), vec![("a", a())]).contains("need a column `value`"));
        assert!(
            refused(&raw(Some("t")), vec![("value", numbers())])
                .contains("must be string or binary, not long")
        );
        assert!(
            refused(&raw(Some("t")), vec![("value", a()), ("a", a())]).contains("'a' is none of a message")
        );
        assert!(refused(&raw(None), vec![("value", a())]).contains("no topic to go to"));
        assert!(
            refused(&raw(Some("t")), vec![("value", a()), ("key", numbers())])
                .contains("must be string or binary")
        );
        assert!(
            refused(&raw(Some("t")), vec![("value", a()), ("partition", numbers())])
                .contains("must be int, not long")
        );
        let key =
            KafkaSinkOptions { key: Some("usr".into()), ..KafkaSinkOptions::new("localhost:9092", "t") };
        assert!(refused(&key, vec![("user", a())]).contains("did you mean 'user'?"));
    }
}
