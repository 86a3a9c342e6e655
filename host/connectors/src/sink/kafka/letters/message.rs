//! A dead letter as a message: what is its value, its key, and which headers it has. `docs/kafka.md` has them for people.

use arrow::array::{ArrayRef, BinaryBuilder, ListArray, RecordBatch, StringBuilder, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use pelton_core::{BatchInfo, DeadLetter, LossKind, PluginNames, Result};
use std::borrow::Cow;
use std::sync::Arc;

/// What is left for the record's frame when a key or a value is cut.
const FRAME_BYTES: usize = 1_024;

/// What all letters of a micro-batch have in common.
pub(super) struct Envelope {
    query: Arc<str>,
    batch: Arc<BatchInfo>,
    plugins: PluginNames,
    message_bytes_max: usize,
    /// Letters that there were.
    sequence: u64,
}

/// Kafka's columns `key`, `value` and `headers`.
pub(super) fn schema() -> SchemaRef {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    let headers = DataType::List(Arc::new(field("item", DataType::Struct(header_fields()))));
    Arc::new(Schema::new(vec![
        field("key", DataType::Binary),
        field("value", DataType::Binary),
        field("headers", headers),
    ]))
}

fn header_fields() -> Fields {
    vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)].into()
}

type Headers<'a> = Vec<(&'static str, Cow<'a, str>)>;

impl Envelope {
    pub(super) fn new(
        query: Arc<str>,
        batch: Arc<BatchInfo>,
        plugins: PluginNames,
        message_bytes_max: usize,
    ) -> Self {
        Self { query, batch, plugins, message_bytes_max, sequence: 0 }
    }

    /// The next letters.
    pub(super) fn rows(&mut self, letters: &[DeadLetter]) -> Result<RecordBatch> {
        let (mut keys, mut values) = (BinaryBuilder::new(), BinaryBuilder::new());
        let (mut names, mut texts, mut counts) = (StringBuilder::new(), BinaryBuilder::new(), Vec::new());
        for letter in letters {
            let mut headers = self.headers(letter);
            let (key, value) = self.fitting(letter, &mut headers);
            keys.append_option(key);
            values.append_value(value);
            counts.push(headers.len());
            for (name, text) in headers {
                names.append_value(name);
                texts.append_value(text.as_bytes());
            }
            self.sequence += 1;
        }
        let of_headers: [ArrayRef; 2] = [Arc::new(names.finish()), Arc::new(texts.finish())];
        let headers = StructArray::try_new(header_fields(), of_headers.into(), None)?;
        let item = Arc::new(Field::new("item", DataType::Struct(header_fields()), true));
        let offsets = OffsetBuffer::from_lengths(counts);
        let headers = ListArray::try_new(item, offsets, Arc::new(headers), None)?;
        let columns: [ArrayRef; 3] = [Arc::new(keys.finish()), Arc::new(values.finish()), Arc::new(headers)];
        Ok(RecordBatch::try_new(schema(), columns.into())?)
    }

    fn headers<'a>(&'a self, letter: &'a DeadLetter) -> Headers<'a> {
        // A reason of half a message leaves room for the rest.
        let reason = &letter.reason[..letter.reason.floor_char_boundary(self.message_bytes_max / 2)];
        let mut headers: Headers<'a> = vec![
            ("pelton.query", self.query.as_ref().into()),
            ("pelton.query_id", self.batch.query_id.as_str().into()),
            ("pelton.batch_id", self.batch.batch_id.to_string().into()),
            ("pelton.sequence", self.sequence.to_string().into()),
            ("pelton.kind", letter.kind.as_str().into()),
            ("pelton.reason", reason.into()),
        ];
        if reason.len() < letter.reason.len() {
            headers.push(("pelton.reason_bytes", letter.reason.len().to_string().into()));
        }
        // What decodes is the source, everything behind it are steps.
        let origin = match letter.kind {
            LossKind::Malformed => "pelton.source",
            LossKind::Refused | LossKind::Late | LossKind::Poison => "pelton.step",
        };
        headers.push((origin, letter.origin.as_str().into()));
        if let Some(position) = &letter.position {
            headers.push(("pelton.position", position.as_str().into()));
        }
        if let Some(message) = &letter.message {
            headers.push(("pelton.topic", message.topic.as_ref().into()));
            headers.push(("pelton.partition", message.partition.to_string().into()));
            headers.push(("pelton.offset", message.offset.to_string().into()));
        }
        if let Some(digest) = &letter.plugin {
            if let Some(name) = self.plugins.get(digest) {
                headers.push(("pelton.plugin", name.as_str().into()));
            }
            headers.push(("pelton.plugin_digest", digest.as_str().into()));
        }
        headers
    }

    /// Key and payload; as much of them as a message takes, with headers that say how much it was. The key comes first.
    fn fitting<'a>(&self, letter: &'a DeadLetter, headers: &mut Headers<'_>) -> (Option<&'a [u8]>, &'a [u8]) {
        let others: usize = headers.iter().map(|(name, text)| name.len() + text.len() + 10).sum();
        let most = self.message_bytes_max.saturating_sub(others + FRAME_BYTES);
        let key = letter.message.as_ref().and_then(|message| message.key.as_deref());
        let key = key.map(|key| cut(key, most, "pelton.key_bytes", headers));
        let most = most - key.map_or(0, <[u8]>::len);
        (key, cut(&letter.payload, most, "pelton.payload_bytes", headers))
    }
}

/// So many of the bytes at most; a header says how many there were.
fn cut<'a>(bytes: &'a [u8], most: usize, header: &'static str, headers: &mut Headers<'_>) -> &'a [u8] {
    if bytes.len() <= most {
        return bytes;
    }
    headers.push((header, bytes.len().to_string().into()));
    &bytes[..most]
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Array, AsArray};
    use bytes::Bytes;
    use pelton_core::{MessageOrigin, PluginDigest};

    fn envelope(message_bytes_max: usize) -> Envelope {
        let batch = BatchInfo {
            query_id: pelton_core::QueryId("q-1".into()),
            ..crate::sink::file::test_rows::batch_info(7)
        };
        let plugins = [(PluginDigest("ab12".into()), "flights".to_owned())].into();
        Envelope::new("orders".into(), Arc::new(batch), Arc::new(plugins), message_bytes_max)
    }

    fn malformed(payload: &'static [u8]) -> DeadLetter {
        let key = Some(Bytes::from_static(b"\xffk"));
        DeadLetter {
            kind: LossKind::Malformed,
            origin: "in".into(),
            position: Some("t-3@12".into()),
            reason: "not JSON".into(),
            plugin: None,
            payload: Bytes::from_static(payload),
            message: Some(MessageOrigin { topic: "t".into(), partition: 3, offset: 12, key }),
        }
    }

    fn shown(rows: &RecordBatch, nth: usize) -> String {
        let headers = rows.column(2).as_list::<i32>().value(nth);
        let headers = headers.as_struct();
        let (names, texts) = (headers.column(0).as_string::<i32>(), headers.column(1).as_binary::<i32>());
        let pairs = names.iter().zip(texts).map(|(name, text)| {
            let name = name.unwrap().trim_start_matches("pelton.").to_owned();
            format!("{name}={}", String::from_utf8_lossy(text.unwrap()))
        });
        pairs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_letter_keeps_its_bytes_and_says_where_it_comes_from() {
        let refused = DeadLetter {
            kind: LossKind::Refused,
            origin: "classify".into(),
            position: None,
            reason: "no carrier".into(),
            plugin: Some(PluginDigest("ab12".into())),
            payload: Bytes::from_static(b"{}"),
            message: None,
        };
        let mut envelope = envelope(MAX);
        let first = envelope.rows(&[malformed(b"{\"x\xfe"), refused.clone()]).unwrap();
        assert_eq!(first.column(0).as_binary::<i32>().value(0), b"\xffk");
        assert!(first.column(0).is_null(1));
        assert_eq!(first.column(1).as_binary::<i32>().value(0), b"{\"x\xfe");
        let all = "query=orders query_id=q-1 batch_id=7";
        assert_eq!(
            shown(&first, 0),
            format!(
                "{all} sequence=0 kind=malformed reason=not JSON source=in position=t-3@12 topic=t partition=3 offset=12"
            )
        );
        let of_plugin = "reason=no carrier step=classify plugin=flights plugin_digest=ab12";
        assert_eq!(shown(&first, 1), format!("{all} sequence=1 kind=refused {of_plugin}"));
        let other = DeadLetter { plugin: Some(PluginDigest("cd".into())), ..refused };
        let second = envelope.rows(&[other]).unwrap();
        let of_plugin = "reason=no carrier step=classify plugin_digest=cd";
        assert_eq!(shown(&second, 0), format!("{all} sequence=2 kind=refused {of_plugin}"));
    }

    const MAX: usize = 1_000_000;

    #[test]
    fn what_is_too_long_for_a_message_is_cut_and_says_so() {
        let long = DeadLetter { payload: Bytes::from(vec![b'x'; MAX]), ..malformed(b"") };
        let rows = envelope(MAX).rows(&[long, malformed(b"x")]).unwrap();
        let length = rows.column(1).as_binary::<i32>().value(0).len();
        assert!((MAX - 2 * FRAME_BYTES..MAX).contains(&length), "{length}");
        assert!(shown(&rows, 0).ends_with("payload_bytes=1000000"), "{}", shown(&rows, 0));
        assert!(!shown(&rows, 1).contains("payload_bytes"));
    }

    #[test]
    fn a_key_and_a_reason_that_are_too_long_are_cut_too() {
        let key = Some(Bytes::from(vec![b'k'; 2 * MAX]));
        let message = MessageOrigin { topic: "t".into(), partition: 3, offset: 12, key };
        let long =
            DeadLetter { reason: "ä".repeat(MAX), message: Some(message), ..malformed(b"{\"payload\": 1}") };
        let rows = envelope(MAX).rows(&[long, malformed(b"x")]).unwrap();
        let key = rows.column(0).as_binary::<i32>().value(0).len();
        let shown_first = shown(&rows, 0);
        assert!((MAX - 2 * FRAME_BYTES..MAX).contains(&(key + shown_first.len())), "{key}");
        assert_eq!(rows.column(1).as_binary::<i32>().value(0), b"");
        assert!(shown_first.ends_with("key_bytes=2000000 payload_bytes=14"));
        assert!(shown_first.contains("ä reason_bytes=2000000 source=in"));
        assert_eq!(rows.column(0).as_binary::<i32>().value(1), b"\xffk");
        assert!(!shown(&rows, 1).contains("_bytes"));
    }
}
