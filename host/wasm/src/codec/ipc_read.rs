//! Arrow IPC `RecordBatch` messages to batches: the way out of the sandbox. `codec` calls it for every answer.
//!
//! The bytes are a guest's, so nothing in them is believed: the flatbuffer is verified, every length and place is
//! compared with what is there, offsets must be monotone and inside, texts UTF-8, null counts true, nulls only
//! where the schema allows them, decimals within their precision. It never panics and allocates no more than the
//! message is long (buffers are shared, not copied, unless a guest aligned them badly).

use crate::limits::{Limits, bytes_text};
use arrow::array::types::{
    ArrowPrimitiveType, BinaryType, ByteArrayType, Date32Type, Decimal128Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, Utf8Type,
};
use arrow::array::{
    ArrayRef, BooleanArray, GenericByteArray, ListArray, MapArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StructArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType, Field, FieldRef, Fields, SchemaRef, TimeUnit};
use arrow::util::bit_util::ceil;
use arrow_ipc::{FieldNode, Message, MetadataVersion};
use std::sync::Arc;

/// A flatbuffer longer than this is not looked at.
const METADATA_BYTES: usize = 1 << 20;

/// Splits an encapsulated message into its verified flatbuffer and where its body begins.
pub(crate) fn envelope(bytes: &[u8]) -> Result<(Message<'_>, usize), String> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
    };
    let (Some(marker), Some(length)) = (word(0), word(4)) else {
        return Err(format!("expected an Arrow IPC message, got {}", bytes_text(bytes.len() as u64)));
    };
    if marker != u32::MAX {
        return Err("its IPC message does not begin with the marker 0xFFFFFFFF".into());
    }
    let length = length as usize;
    if length > METADATA_BYTES {
        return Err(format!("its IPC message claims metadata of {}", bytes_text(length as u64)));
    }
    let Some(metadata) = bytes.get(8..8 + length) else {
        return Err(format!(
            "its IPC message ends within its metadata ({} of {length} bytes)",
            bytes.len() - 8
        ));
    };
    let message = arrow_ipc::root_as_message(metadata)
        .map_err(|e| format!("its IPC message has damaged metadata ({})", first_line(&e.to_string())))?;
    if message.version() != MetadataVersion::V5 {
        return Err(format!("its IPC message has metadata version {:?}; it must be V5", message.version()));
    }
    Ok((message, 8 + length))
}

pub(crate) fn header_name(message: &Message<'_>) -> &'static str {
    message.header_type().variant_name().unwrap_or("message of an unknown kind")
}

fn first_line(text: &str) -> String {
    crate::limits::clean_text(text.lines().next().unwrap_or_default(), 200)
}

/// Reads a guest's rows.
pub(crate) fn decode(schema: &SchemaRef, message: Vec<u8>, limits: &Limits) -> Result<RecordBatch, String> {
    let message = Buffer::from_vec(message);
    let (header, body_at) = envelope(&message)?;
    let Some(batch) = header.header_as_record_batch() else {
        return Err(format!("expected an IPC RecordBatch message, it is a {}", header_name(&header)));
    };
    if batch.compression().is_some() {
        return Err("its rows are compressed; they must not be".into());
    }
    if batch.variadicBufferCounts().is_some_and(|counts| !counts.is_empty()) {
        return Err("its rows have view buffers; view types do not cross".into());
    }
    let there = message.len() - body_at;
    let body_bytes = usize::try_from(header.bodyLength()).ok().filter(|length| *length <= there);
    let Some(body_bytes) = body_bytes else {
        return Err(format!("its rows claim a body of {} bytes; there are {there}", header.bodyLength()));
    };
    let rows = length(batch.length(), limits)?;
    let mut reader = Reader {
        nodes: batch.nodes().into_iter().flatten(),
        buffers: batch.buffers().into_iter().flatten(),
        body: message.slice_with_length(body_at, body_bytes),
        taken: 0,
        limits,
    };
    let columns = schema.fields().iter().map(|field| {
        let column = reader.array(field).map_err(|lie| format!("its column '{}' {lie}", field.name()))?;
        match column.len() == rows {
            true => Ok(column),
            false => {
                Err(format!("its column '{}' has {} rows, its batch {rows}", field.name(), column.len()))
            }
        }
    });
    let columns = columns.collect::<Result<Vec<_>, String>>()?;
    if reader.nodes.next().is_some() || reader.buffers.next().is_some() {
        return Err("its rows have more columns than its schema".into());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
        .map_err(|e| format!("its rows do not have its schema: {}", first_line(&e.to_string())))
}

fn length(claimed: i64, limits: &Limits) -> Result<usize, String> {
    match u64::try_from(claimed) {
        Ok(length) if length <= limits.output_rows.min(i32::MAX as u64) => Ok(length as usize),
        Ok(length) => Err(format!("has {length} rows (limit output_rows: {})", limits.output_rows)),
        Err(_) => Err(format!("claims {claimed} rows")),
    }
}

struct Reader<'a, N, B> {
    nodes: N,
    buffers: B,
    body: Buffer,
    /// Up to where the body has been given to buffers: they come in order and do not overlap.
    taken: usize,
    limits: &'a Limits,
}

impl<'m, N, B> Reader<'_, N, B>
where
    N: Iterator<Item = &'m FieldNode>,
    B: Iterator<Item = &'m arrow_ipc::Buffer>,
{
    fn array(&mut self, field: &Field) -> Result<ArrayRef, String> {
        let node = self.nodes.next().ok_or("is missing in its rows")?;
        let length = length(node.length(), self.limits)?;
        let nulls = self.nulls(node.null_count(), length)?;
        // Whether nulls are allowed is for the field's parent to check: under a null struct every field may be null.
        Ok(match field.data_type() {
            DataType::Boolean => {
                let bits = self.buffer(ceil(length, 8))?;
                Arc::new(BooleanArray::new(BooleanBuffer::new(bits, 0, length), nulls))
            }
            DataType::Int8 => Arc::new(self.primitive::<Int8Type>(length, nulls)?),
            DataType::Int16 => Arc::new(self.primitive::<Int16Type>(length, nulls)?),
            DataType::Int32 => Arc::new(self.primitive::<Int32Type>(length, nulls)?),
            DataType::Int64 => Arc::new(self.primitive::<Int64Type>(length, nulls)?),
            DataType::Float32 => Arc::new(self.primitive::<Float32Type>(length, nulls)?),
            DataType::Float64 => Arc::new(self.primitive::<Float64Type>(length, nulls)?),
            DataType::Date32 => Arc::new(self.primitive::<Date32Type>(length, nulls)?),
            DataType::Decimal128(precision, scale) => {
                let decimals = self.primitive::<Decimal128Type>(length, nulls)?;
                let decimals = decimals.with_precision_and_scale(*precision, *scale).map_err(told)?;
                decimals.validate_decimal_precision(*precision).map_err(told)?;
                Arc::new(decimals)
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let values = self.primitive::<TimestampMicrosecondType>(length, nulls)?;
                Arc::new(values.with_timezone_opt(zone.clone()))
            }
            DataType::Utf8 => Arc::new(self.variable::<Utf8Type>(length, nulls)?),
            DataType::Binary => Arc::new(self.variable::<BinaryType>(length, nulls)?),
            DataType::Struct(fields) => Arc::new(self.structs(fields, length, nulls)?),
            DataType::List(item) => {
                let offsets = self.offsets(length)?;
                let items = self.array(item).map_err(|lie| format!("(its items) {lie}"))?;
                inside(&offsets, items.len())?;
                Arc::new(ListArray::try_new(item.clone(), offsets, items, nulls).map_err(told)?)
            }
            DataType::Map(entries, sorted) => Arc::new(self.map(entries, *sorted, length, nulls)?),
            other => return Err(format!("has type {other}, which does not cross")),
        })
    }

    fn nulls(&mut self, claimed: i64, length: usize) -> Result<Option<NullBuffer>, String> {
        let bits = self.buffer(0)?;
        if bits.is_empty() {
            return match claimed {
                0 => Ok(None),
                _ => Err(format!("claims {claimed} nulls, but has no validity bits")),
            };
        }
        if bits.len() < ceil(length, 8) {
            return Err(format!("has {} bytes of validity bits for {length} rows", bits.len()));
        }
        let nulls = NullBuffer::new(BooleanBuffer::new(bits, 0, length));
        match nulls.null_count() {
            found if found as i64 != claimed => {
                Err(format!("claims {claimed} nulls, its validity bits say {found}"))
            }
            0 => Ok(None),
            _ => Ok(Some(nulls)),
        }
    }

    /// The next buffer, at least `bytes_min` long.
    fn buffer(&mut self, bytes_min: usize) -> Result<Buffer, String> {
        let place = self.buffers.next().ok_or("has fewer buffers than its type needs")?;
        let (offset, length) = (usize::try_from(place.offset()), usize::try_from(place.length()));
        let buffer = match (offset, length) {
            (_, Ok(0)) => Buffer::default(),
            (Ok(offset), Ok(length)) if offset >= self.taken && offset <= self.body.len() => {
                if length > self.body.len() - offset {
                    return Err(format!(
                        "has a buffer that ends {length} bytes after {offset}, outside its body"
                    ));
                }
                self.taken = offset + length;
                self.body.slice_with_length(offset, length)
            }
            _ => {
                let (offset, length) = (place.offset(), place.length());
                return Err(format!(
                    "has a buffer of {length} bytes at {offset}, outside its body or over another"
                ));
            }
        };
        match buffer.len() >= bytes_min {
            true => Ok(buffer),
            false => Err(format!("has a buffer of {} bytes that needs {bytes_min}", buffer.len())),
        }
    }

    /// The next buffer as `length` values.
    fn values<T: ArrowNativeType>(&mut self, length: usize) -> Result<ScalarBuffer<T>, String> {
        let bytes = length * size_of::<T>();
        let buffer = self.buffer(bytes)?;
        let aligned = buffer.as_ptr().align_offset(align_of::<T>()) == 0;
        let buffer = if aligned { buffer } else { copied(&buffer) };
        Ok(ScalarBuffer::new(buffer, 0, length))
    }

    fn primitive<T: ArrowPrimitiveType>(
        &mut self,
        length: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<PrimitiveArray<T>, String> {
        PrimitiveArray::try_new(self.values(length)?, nulls).map_err(told)
    }

    /// `length + 1` offsets: from 0 or more, never falling.
    fn offsets(&mut self, length: usize) -> Result<OffsetBuffer<i32>, String> {
        if length == 0 {
            // Arrow allows an empty array to have no offsets at all.
            self.buffer(0)?;
            return Ok(OffsetBuffer::new_empty());
        }
        let offsets = self.values::<i32>(length + 1)?;
        if offsets[0] < 0 || offsets.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err("has offsets that are negative or fall".into());
        }
        Ok(OffsetBuffer::new(offsets))
    }

    fn variable<T: ByteArrayType<Offset = i32>>(
        &mut self,
        length: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<GenericByteArray<T>, String> {
        let offsets = self.offsets(length)?;
        let values = self.buffer(0)?;
        inside(&offsets, values.len())?;
        GenericByteArray::<T>::try_new(offsets, values, nulls).map_err(told)
    }

    fn structs(
        &mut self,
        fields: &Fields,
        length: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<StructArray, String> {
        let columns = fields.iter().map(|field| {
            let column = self.array(field).map_err(|lie| format!("(its field '{}') {lie}", field.name()))?;
            match column.len() == length {
                true => Ok(column),
                false => Err(format!(
                    "(its field '{}') has {} rows instead of {length}",
                    field.name(),
                    column.len()
                )),
            }
        });
        let columns = columns.collect::<Result<Vec<_>, String>>()?;
        StructArray::try_new_with_length(fields.clone(), columns, nulls, length).map_err(told)
    }

    fn map(
        &mut self,
        entries_field: &FieldRef,
        sorted: bool,
        length: usize,
        nulls: Option<NullBuffer>,
    ) -> Result<MapArray, String> {
        let offsets = self.offsets(length)?;
        let DataType::Struct(kv) = entries_field.data_type() else {
            return Err("is a map without entries".into());
        };
        let node = self.nodes.next().ok_or("has no entries in its rows")?;
        let entries_length = self::length(node.length(), self.limits)?;
        if self.nulls(node.null_count(), entries_length)?.is_some() {
            return Err("has null entries".into());
        }
        let entries = self.structs(kv, entries_length, None)?;
        inside(&offsets, entries_length)?;
        MapArray::try_new(entries_field.clone(), offsets, entries, nulls, sorted).map_err(told)
    }
}

fn inside(offsets: &OffsetBuffer<i32>, length: usize) -> Result<(), String> {
    let last = offsets.last().copied().unwrap_or_default();
    match usize::try_from(last) {
        Ok(last) if last <= length => Ok(()),
        _ => Err(format!("has offsets up to {last}, but only {length} values")),
    }
}

/// The bytes in a place that suits every type.
fn copied(buffer: &Buffer) -> Buffer {
    let mut aligned = MutableBuffer::new(buffer.len());
    aligned.extend_from_slice(buffer.as_slice());
    aligned.into()
}

fn told(e: arrow::error::ArrowError) -> String {
    format!("is not valid: {}", first_line(&e.to_string()))
}
