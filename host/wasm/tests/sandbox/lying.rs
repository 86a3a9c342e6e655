//! Guests whose messages say one thing and are another.

use crate::guests::Guest;
use crate::*;
use arrow::array::{Array, BooleanArray, ListArray, StringArray};
use arrow::datatypes::{Int32Type, SchemaRef};
use arrow_ipc::writer::{
    DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
};
use pelton_core::ErrorKind;

/// Three strings, one of them null, and three lists.
fn honest() -> RecordBatch {
    let s: ArrayRef = Arc::new(StringArray::from(vec![Some("aa"), None, Some("cß")]));
    let l: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1), Some(2)]),
        Some(vec![]),
        Some(vec![Some(3)]),
    ]));
    RecordBatch::try_from_iter_with_nullable([("s", s, true), ("l", l, true)]).expect("a batch")
}

/// The message as Arrow's own writer makes it.
fn message(batch: &RecordBatch) -> Vec<u8> {
    let options = IpcWriteOptions::try_new(8, false, arrow_ipc::MetadataVersion::V5).expect("options");
    let (_, encoded) = IpcDataGenerator::default()
        .encode(batch, &mut DictionaryTracker::new(false), &options, &mut IpcWriteContext::default())
        .expect("encodes");
    let mut bytes = Vec::new();
    write_message(&mut bytes, encoded, &options).expect("writes");
    bytes
}

/// Places in a message: where nodes and buffers are described, and where the body begins.
struct Places {
    nodes: usize,
    buffers: usize,
    body: usize,
}

fn places(bytes: &[u8]) -> Places {
    let length = u32::from_le_bytes(bytes[4..8].try_into().expect("four")) as usize;
    let metadata = &bytes[8..8 + length];
    let message = arrow_ipc::root_as_message(metadata).expect("honest");
    let batch = message.header_as_record_batch().expect("rows");
    let at = |part: &[u8]| part.as_ptr() as usize - bytes.as_ptr() as usize;
    Places {
        nodes: at(batch.nodes().expect("nodes").bytes()),
        buffers: at(batch.buffers().expect("buffers").bytes()),
        body: 8 + length,
    }
}

impl Places {
    fn length(&self, node: usize) -> usize {
        self.nodes + 16 * node
    }
    fn null_count(&self, node: usize) -> usize {
        self.nodes + 16 * node + 8
    }
    fn offset(&self, buffer: usize) -> usize {
        self.buffers + 16 * buffer
    }
    fn bytes(&self, buffer: usize) -> usize {
        self.buffers + 16 * buffer + 8
    }
    /// Where the buffer's content lies.
    fn content(&self, message: &[u8], buffer: usize) -> usize {
        let at = self.offset(buffer);
        self.body + i64::from_le_bytes(message[at..at + 8].try_into().expect("eight")) as usize
    }
}

fn answer_to(schema: SchemaRef, bytes: Vec<u8>) -> Result<TransformOutput> {
    let plugin = load(&Guest::answering(bytes))?;
    let function = plugin.transform("f", schema)?;
    process(&function, &honest())
}

fn refused(schema: SchemaRef, bytes: Vec<u8>, reason: &str) {
    let error = answer_to(schema, bytes).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Plugin, "{error}");
    assert!(
        error.message().starts_with("plugin 'p', function 'f', batch 7: answered wrong rows: "),
        "{error}"
    );
    assert!(error.message().contains(reason), "{error}\n  should contain: {reason}");
}

/// Changes the honest message and expects it to be refused.
fn lie(change: impl FnOnce(&mut Vec<u8>, &Places), reason: &str) {
    let mut bytes = message(&honest());
    let places = places(&bytes);
    change(&mut bytes, &places);
    refused(honest().schema(), bytes, reason);
}

fn put(bytes: &mut [u8], at: usize, value: i64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn the_truth_is_accepted() {
    let bytes = message(&honest());
    assert_eq!(answer_to(honest().schema(), bytes).expect("accepted").rows, honest());
}

#[test]
fn lengths() {
    lie(|m, p| put(m, p.length(0), 2), "its column 's'");
    lie(|m, p| put(m, p.length(0), 1 << 40), "limit output_rows");
    lie(|m, p| put(m, p.length(0), -1), "claims -1 rows");
    lie(|m, p| put(m, p.bytes(1), 8), "has a buffer of 8 bytes that needs 16");
    lie(|m, p| put(m, p.bytes(2), i64::MAX), "outside its body");
    lie(|m, p| put(m, p.bytes(2), -1), "outside its body or over another");
    lie(|m, p| put(m, p.offset(2), i64::MAX), "outside its body or over another");
    lie(|m, p| put(m, p.offset(2), 0), "outside its body or over another");
    lie(|m, _| m[4..8].copy_from_slice(&(1_u32 << 30).to_le_bytes()), "claims metadata of 1 GiB");
    lie(|m, _| m[4..8].copy_from_slice(&(1_u32 << 16).to_le_bytes()), "ends within its metadata");
    lie(|m, p| m.truncate(p.body + 8), "claim a body of");
    lie(|m, _| m.clear(), "expected an Arrow IPC message, got 0 bytes");
    lie(|m, _| m[0] = 0, "does not begin with the marker");
}

#[test]
fn null_counts() {
    lie(|m, p| put(m, p.null_count(0), 0), "claims 0 nulls, its validity bits say 1");
    lie(|m, p| put(m, p.null_count(0), 3), "claims 3 nulls, its validity bits say 1");
    lie(|m, p| put(m, p.null_count(1), 2), "claims 2 nulls");
}

#[test]
fn offsets() {
    let offset = |bytes: &mut Vec<u8>, places: &Places, buffer: usize, index: usize, value: i32| {
        let at = places.content(bytes, buffer) + 4 * index;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    lie(|m, p| offset(m, p, 1, 1, 100), "offsets that are negative or fall");
    lie(|m, p| offset(m, p, 1, 0, -1), "offsets that are negative or fall");
    lie(|m, p| offset(m, p, 1, 3, 1000), "has offsets up to 1000, but only");
    // Between the two bytes of 'ß'.
    lie(|m, p| (1..3).for_each(|i| offset(m, p, 1, i, 4)), "is not valid");
    lie(|m, p| offset(m, p, 4, 3, 1000), "has offsets up to 1000, but only 3 values");
}

#[test]
fn texts() {
    lie(
        |m, p| {
            let at = p.content(m, 2);
            m[at] = 0xff;
        },
        "its column 's' is not valid",
    );
}

#[test]
fn a_schema_that_does_not_match_the_rows() {
    let other: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let one = RecordBatch::try_from_iter([("n", other.clone())]).expect("a batch");
    refused(honest().schema(), message(&one), "its column");
    let booleans: ArrayRef = Arc::new(BooleanArray::from(vec![true; 3]));
    let three =
        RecordBatch::try_from_iter([("a", booleans), ("b", other.clone()), ("c", other)]).expect("a batch");
    refused(honest().schema(), message(&three), "its column");
    let longer = arrow::compute::concat_batches(&honest().schema(), [&honest(), &honest()]).expect("longer");
    assert_eq!(answer_to(honest().schema(), message(&longer)).expect("a flatMap").rows.num_rows(), 6);
}

#[test]
fn nulls_where_the_schema_has_none() {
    let nullable: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    assert_eq!(nullable.null_count(), 1);
    let nullable = RecordBatch::try_from_iter_with_nullable([("s", nullable, true)]).expect("a batch");
    let strict: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let strict = RecordBatch::try_from_iter_with_nullable([("s", strict, false)]).expect("a batch");
    let plugin = load(&Guest::answering(message(&nullable))).expect("loads");
    let function = plugin.transform("f", strict.schema()).expect("opens");
    let error = process(&function, &strict).expect_err("refused");
    assert!(error.message().contains("non-nullable but contains null"), "{error}");
}

#[test]
fn a_message_of_another_kind() {
    let mut stream = Vec::new();
    arrow_ipc::writer::StreamWriter::try_new(&mut stream, &honest().schema()).expect("a stream");
    refused(honest().schema(), stream, "expected an IPC RecordBatch message, it is a Schema");
}
