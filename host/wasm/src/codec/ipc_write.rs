//! Batches to Arrow IPC `RecordBatch` messages: the way into the sandbox. `codec` calls it for every batch.
//!
//! It is our own because the fixed cost of a call counts: the message's head has, for a schema, always the same
//! layout, so it is laid down without a flatbuffer builder, and buffers go straight into a buffer that is used
//! again. Of sliced arrays only the slice is sent, with offsets from 0, wherever it was cut from.

use arrow::array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, RecordBatch};
use arrow::buffer::{BooleanBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Schema, TimeUnit};
use arrow::util::bit_util::ceil;
use pelton_core::{Error, Result};

/// How many nodes and buffers a schema's messages have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    nodes: usize,
    buffers: usize,
}

impl Layout {
    pub(crate) fn of(schema: &Schema) -> Self {
        let mut layout = Self { nodes: 0, buffers: 0 };
        schema.fields().iter().for_each(|field| layout.add(field.data_type()));
        layout
    }

    fn add(&mut self, data_type: &DataType) {
        self.nodes += 1;
        self.buffers += match data_type {
            DataType::Utf8 | DataType::Binary => 3,
            DataType::Struct(_) => 1,
            _ => 2,
        };
        match data_type {
            DataType::Struct(fields) => fields.iter().for_each(|field| self.add(field.data_type())),
            DataType::List(inner) | DataType::Map(inner, _) => self.add(inner.data_type()),
            _ => {}
        }
    }

    /// Bytes of the flatbuffer.
    fn metadata_bytes(self) -> usize {
        BUFFERS_FROM_NODES_END + NODES_AT + 16 * (self.nodes + self.buffers)
    }
}

/// Marker and length before the flatbuffer.
const PREFIX_BYTES: usize = 8;
/// Where, in the flatbuffer, the field nodes begin.
const NODES_AT: usize = 72;
/// How far behind the end of the nodes the buffers begin (padding and their number).
const BUFFERS_FROM_NODES_END: usize = 8;

/// The flatbuffer up to the nodes, all little endian:
/// ```text
///  0 u32 → 16, the Message         16 Message: vtable, header → 48, i64 body length, version V5, header type 3
///  4 vtable of Message             48 RecordBatch: vtable, nodes → 68, i64 rows, buffers → behind the nodes
/// 36 vtable of RecordBatch         68 u32 number of nodes
/// ```
fn head(layout: Layout, rows: i64, body_bytes: i64) -> [u8; NODES_AT] {
    let mut head = [0; NODES_AT];
    let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
    let mut shorts = |at: usize, values: &[u16]| {
        values.iter().enumerate().for_each(|(i, value)| put(at + 2 * i, &value.to_le_bytes()));
    };
    // Size of the vtable, size of the table, then where in it each field is (0: it is not there).
    shorts(4, &[12, 20, 16, 18, 4, 8]);
    shorts(36, &[10, 20, 8, 4, 16]);
    shorts(32, &[4]);
    put(34, &[3]);
    let mut words = |at: usize, value: u32| put(at, &value.to_le_bytes());
    words(0, 16);
    words(16, 12);
    words(20, 48 - 20);
    words(48, 12);
    words(52, 68 - 52);
    words(64, (NODES_AT + 16 * layout.nodes + 4 - 64) as u32);
    words(68, layout.nodes as u32);
    put(24, &body_bytes.to_le_bytes());
    put(56, &rows.to_le_bytes());
    head
}

/// Appends the message to `out`, which is empty.
pub(crate) fn encode(layout: Layout, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
    let metadata_bytes = layout.metadata_bytes();
    let body_at = PREFIX_BYTES + metadata_bytes;
    out.resize(body_at, 0);
    let node_at = PREFIX_BYTES + NODES_AT;
    let buffer_at = node_at + 16 * layout.nodes + BUFFERS_FROM_NODES_END;
    let mut writer = Writer { out, body_at, node_at, buffer_at };
    batch.columns().iter().try_for_each(|column| writer.array(column))?;
    let body_bytes = (out.len() - body_at) as i64;
    out[..4].copy_from_slice(&[0xff; 4]);
    out[4..8].copy_from_slice(&(metadata_bytes as u32).to_le_bytes());
    out[PREFIX_BYTES..node_at].copy_from_slice(&head(layout, batch.num_rows() as i64, body_bytes));
    let count_at = node_at + 16 * layout.nodes + 4;
    out[count_at..count_at + 4].copy_from_slice(&(layout.buffers as u32).to_le_bytes());
    Ok(())
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    body_at: usize,
    /// Where the next node goes.
    node_at: usize,
    /// Where the next buffer's place is noted.
    buffer_at: usize,
}

impl Writer<'_> {
    fn array(&mut self, array: &ArrayRef) -> Result<()> {
        self.node(array);
        match array.data_type() {
            DataType::Boolean => self.bits(array.as_boolean().values()),
            DataType::Int8 => self.primitive::<Int8Type>(array),
            DataType::Int16 => self.primitive::<Int16Type>(array),
            DataType::Int32 => self.primitive::<Int32Type>(array),
            DataType::Int64 => self.primitive::<Int64Type>(array),
            DataType::Float32 => self.primitive::<Float32Type>(array),
            DataType::Float64 => self.primitive::<Float64Type>(array),
            DataType::Decimal128(..) => self.primitive::<Decimal128Type>(array),
            DataType::Date32 => self.primitive::<Date32Type>(array),
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                self.primitive::<TimestampMicrosecondType>(array)
            }
            DataType::Utf8 => {
                let strings = array.as_string::<i32>();
                self.variable(strings.offsets(), strings.values());
            }
            DataType::Binary => {
                let binaries = array.as_binary::<i32>();
                self.variable(binaries.offsets(), binaries.values());
            }
            DataType::Struct(_) => {
                array.as_struct().columns().iter().try_for_each(|column| self.array(column))?;
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let (from, length) = self.offsets(list.offsets());
                self.array(&list.values().slice(from, length))?;
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let (from, length) = self.offsets(map.offsets());
                let entries: ArrayRef = std::sync::Arc::new(map.entries().slice(from, length));
                self.array(&entries)?;
            }
            other => return Err(Error::internal(format!("no plugin takes values of type {other}"))),
        }
        Ok(())
    }

    /// Length and nulls of an array, and its validity bits if it has nulls.
    fn node(&mut self, array: &ArrayRef) {
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        let null_count = nulls.map_or(0, |nulls| nulls.null_count());
        self.out[self.node_at..self.node_at + 8].copy_from_slice(&(array.len() as i64).to_le_bytes());
        self.out[self.node_at + 8..self.node_at + 16].copy_from_slice(&(null_count as i64).to_le_bytes());
        self.node_at += 16;
        match nulls {
            Some(nulls) => self.bits(nulls.inner()),
            None => self.buffer(&[]),
        }
    }

    fn primitive<T: ArrowPrimitiveType>(&mut self, array: &ArrayRef) {
        self.buffer(array.as_primitive::<T>().values().inner().as_slice());
    }

    fn variable(&mut self, offsets: &OffsetBuffer<i32>, values: &[u8]) {
        let (from, length) = self.offsets(offsets);
        self.buffer(&values[from..from + length]);
    }

    /// Offsets that begin at 0; from where in the values on they count, and how far.
    fn offsets(&mut self, offsets: &OffsetBuffer<i32>) -> (usize, usize) {
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        if first == 0 {
            self.buffer(offsets.inner().inner().as_slice());
        } else {
            let at = self.out.len();
            self.out.extend(offsets.iter().flat_map(|offset| (offset - first).to_le_bytes()));
            self.note(at);
        }
        (first as usize, (last - first) as usize)
    }

    fn bits(&mut self, bits: &BooleanBuffer) {
        let at = self.out.len();
        if bits.offset().is_multiple_of(8) {
            let from = bits.offset() / 8;
            self.out.extend_from_slice(&bits.values()[from..from + ceil(bits.len(), 8)]);
        } else {
            self.out.extend_from_slice(&bits.sliced().as_slice()[..ceil(bits.len(), 8)]);
        }
        // What lies behind the last bit must not depend on where the array was cut from.
        if let (used @ 1.., Some(last)) = (bits.len() % 8, self.out.last_mut()) {
            *last &= (1 << used) - 1;
        }
        self.note(at);
    }

    fn buffer(&mut self, bytes: &[u8]) {
        let at = self.out.len();
        self.out.extend_from_slice(bytes);
        self.note(at);
    }

    /// Notes that a buffer lies from `at` to the end, and pads it.
    fn note(&mut self, at: usize) {
        let place = [(at - self.body_at) as i64, (self.out.len() - at) as i64];
        self.out[self.buffer_at..self.buffer_at + 8].copy_from_slice(&place[0].to_le_bytes());
        self.out[self.buffer_at + 8..self.buffer_at + 16].copy_from_slice(&place[1].to_le_bytes());
        self.buffer_at += 16;
        self.out.resize(self.out.len().next_multiple_of(8), 0);
    }
}
