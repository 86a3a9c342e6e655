//! Record-batch messages, written in one pass: the metadata's size depends on the schema alone, so the body is
//! appended behind room left for it, and the metadata is filled in last.

use super::{CONTINUATION, HEADER_RECORD_BATCH, VERSION_5};
use crate::types::{DataType, Field, Schema};

/// Offsets within the metadata; every 8-byte value lies at a multiple of 8.
const MESSAGE_VTABLE: usize = 4;
const MESSAGE: usize = 16;
const BATCH_VTABLE: usize = 36;
const BATCH: usize = 48;
const NODES: usize = 68;

/// Buffers start at multiples of this, the widest value's size.
const ALIGN: usize = 16;

/// A record batch being written. Columns append their buffers depth first, as Arrow orders them.
#[derive(Default)]
pub struct Encoder {
    message: Vec<u8>,
    body: usize,
    nodes: Vec<(usize, usize)>,
    buffers: Vec<(usize, usize)>,
}

impl Encoder {
    /// Starts a message for rows of this schema; the memory of the last one is used again.
    pub(crate) fn begin(&mut self, schema: &Schema) {
        let (nodes, buffers) = counts(&schema.fields);
        self.nodes.clear();
        self.buffers.clear();
        self.body = 8 + metadata_bytes(nodes, buffers);
        self.message.clear();
        self.message.resize(self.body, 0);
    }

    /// Opens a column (or a level of one): its length, and its nulls as a bitmap.
    pub fn node(&mut self, len: usize, nulls: usize, bits: &[u8]) {
        self.nodes.push((len, nulls));
        self.buffer(if nulls == 0 { &[] } else { bits });
    }

    /// Appends a buffer.
    pub fn buffer(&mut self, bytes: &[u8]) {
        self.buffers.push((self.message.len() - self.body, bytes.len()));
        self.message.extend_from_slice(bytes);
        self.align();
    }

    /// Appends a buffer of fixed-width values.
    pub fn values<const N: usize>(&mut self, values: &[[u8; N]]) {
        self.buffer(values.as_flattened());
    }

    /// Appends the offsets buffer of values that end at these places.
    pub fn offsets(&mut self, ends: &[[u8; 4]]) {
        self.buffers.push((self.message.len() - self.body, 4 + 4 * ends.len()));
        self.message.extend_from_slice(&[0; 4]);
        self.message.extend_from_slice(ends.as_flattened());
        self.align();
    }

    fn align(&mut self) {
        let padded = self.message.len().next_multiple_of(ALIGN);
        self.message.resize(padded, 0);
    }

    /// Fills in the metadata for `rows` rows.
    pub(crate) fn finish(&mut self, rows: usize) -> &[u8] {
        let body_bytes = self.message.len() - self.body;
        let metadata = self.body - 8;
        debug_assert_eq!(metadata, metadata_bytes(self.nodes.len(), self.buffers.len()));
        self.message[..4].copy_from_slice(&CONTINUATION);
        self.message[4..8].copy_from_slice(&(metadata as u32).to_le_bytes());
        let mut out = Patch(&mut self.message[8..]);
        out.u32(0, MESSAGE);
        out.u16s(MESSAGE_VTABLE, &[12, 20, 16, 18, 4, 8]);
        out.u32(MESSAGE, MESSAGE - MESSAGE_VTABLE);
        out.u32(MESSAGE + 4, BATCH - (MESSAGE + 4));
        out.u64(MESSAGE + 8, body_bytes);
        out.u16s(MESSAGE + 16, &[VERSION_5 as u16, u16::from(HEADER_RECORD_BATCH)]);
        out.u16s(BATCH_VTABLE, &[10, 20, 8, 4, 16]);
        out.u32(BATCH, BATCH - BATCH_VTABLE);
        out.u32(BATCH + 4, NODES - (BATCH + 4));
        out.u64(BATCH + 8, rows);
        let buffers = NODES + 4 + 16 * self.nodes.len() + 4;
        out.u32(BATCH + 16, buffers - (BATCH + 16));
        out.pairs(NODES, &self.nodes);
        out.pairs(buffers, &self.buffers);
        &self.message
    }

    /// The finished message.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }
}

/// 8 bytes of padding at the end bring the body to a multiple of 16.
fn metadata_bytes(nodes: usize, buffers: usize) -> usize {
    NODES + 4 + 16 * nodes + 8 + 16 * buffers + 8
}

/// How many nodes and buffers columns have.
fn counts(fields: &[Field]) -> (usize, usize) {
    let one = |field: &Field| match &field.data_type {
        DataType::Utf8 | DataType::Binary => (1, 3),
        DataType::List(item) => add((1, 2), counts(std::slice::from_ref(item))),
        DataType::Map(key, value) => {
            let key = add((2, 3), counts(std::slice::from_ref(key)));
            add(key, counts(std::slice::from_ref(value)))
        }
        DataType::Struct(fields) => add((1, 1), counts(fields)),
        _ => (1, 2),
    };
    fields.iter().map(one).fold((0, 0), add)
}

fn add(a: (usize, usize), b: (usize, usize)) -> (usize, usize) {
    (a.0 + b.0, a.1 + b.1)
}

struct Patch<'a>(&'a mut [u8]);

impl Patch<'_> {
    fn u16s(&mut self, at: usize, values: &[u16]) {
        for (i, value) in values.iter().enumerate() {
            self.0[at + 2 * i..at + 2 * i + 2].copy_from_slice(&value.to_le_bytes());
        }
    }
    fn u32(&mut self, at: usize, value: usize) {
        self.0[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
    }
    fn u64(&mut self, at: usize, value: usize) {
        self.0[at..at + 8].copy_from_slice(&(value as u64).to_le_bytes());
    }
    fn pairs(&mut self, at: usize, pairs: &[(usize, usize)]) {
        self.u32(at, pairs.len());
        for (i, (a, b)) in pairs.iter().enumerate() {
            self.u64(at + 4 + 16 * i, *a);
            self.u64(at + 12 + 16 * i, *b);
        }
    }
}
