//! Rows as the text that PostgreSQL's `COPY … FROM STDIN` reads, and the rows of a micro-batch on their way there.
//!
//! Text and not the binary form: the server then converts to the columns' own types, so that a `bigint` may go into a
//! `numeric` and a string into a `uuid`.

use crate::encode::{
    Column, JsonEncoder, LocalTime, Values, push_clock, push_decimal_plain, push_f32, push_f64, push_int,
    push_two,
};
use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Schema;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use pelton_core::{Error, Result, RowStream};
use std::sync::Arc;

/// Rows that are encoded in one piece.
const PIECE_ROWS: usize = 8_192;
/// What is kept of a micro-batch to be sent again when the connection breaks.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Turns rows of one schema into lines.
#[derive(Debug)]
pub(super) struct CopyEncoder {
    names: Vec<String>,
    /// Every line begins with the row's number in its micro-batch.
    pub(super) numbered: bool,
    /// Columns that must not be null, by position.
    pub(super) not_null: Vec<usize>,
    json: JsonEncoder,
}

impl CopyEncoder {
    pub(super) fn new(schema: &Schema, numbered: bool, not_null: Vec<usize>) -> Self {
        let names = schema.fields().iter().map(|field| field.name().clone()).collect();
        Self { names, numbered, not_null, json: JsonEncoder::default() }
    }

    /// The lines of a batch. `first` is the number of its first row.
    fn encode(&self, batch: &RecordBatch, first: u64) -> Result<Bytes> {
        if let Some(nth) = self.not_null.iter().find(|nth| batch.column(**nth).null_count() > 0) {
            return Err(Error::data(format!(
                "the key column '{}' is null, and the table's unique constraint takes any two nulls for different",
                self.names[*nth]
            ))
            .hint("declare it UNIQUE NULLS NOT DISTINCT (PostgreSQL 15 and later), or use coalesce in the query"));
        }
        let columns = Column::of(batch)?;
        let mut out = Vec::with_capacity(batch.num_rows() * columns.len() * 8);
        let mut scratch = Vec::new();
        for row in 0..batch.num_rows() {
            if self.numbered {
                push_int(&mut out, first + row as u64);
                out.push(b'\t');
            }
            for (nth, column) in columns.iter().enumerate() {
                if nth > 0 {
                    out.push(b'\t');
                }
                match column.is_null(row) {
                    true => out.extend_from_slice(b"\\N"),
                    false => self.push(&mut out, &mut scratch, column, row, nth)?,
                }
            }
            out.push(b'\n');
        }
        Ok(out.into())
    }

    #[inline]
    fn push(
        &self,
        out: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
        column: &Column<'_>,
        row: usize,
        nth: usize,
    ) -> Result<()> {
        match &column.values {
            Values::Utf8(array) => return self.push_text(out, array.value(row).as_bytes(), nth),
            Values::Int64(values) => push_int(out, values[row]),
            Values::Int32(values) => push_int(out, values[row]),
            Values::Int16(values) => push_int(out, values[row]),
            Values::Int8(values) => push_int(out, values[row]),
            Values::Float64(values) => push_f64(out, values[row]),
            Values::Float32(values) => push_f32(out, values[row]),
            Values::Decimal(values, scale) => push_decimal_plain(out, values[row], *scale),
            Values::Boolean(array) => out.push(if array.value(row) { b't' } else { b'f' }),
            Values::Binary(array) => push_hex(out, array.value(row)),
            Values::Date(values) => {
                let day = LocalTime::midnight(values[row]);
                push_day(out, &day);
                push_era(out, &day);
            }
            Values::Timestamp(values, clock) => push_timestamp(out, values[row], clock.is_some()),
            Values::List(..) | Values::Map { .. } | Values::Struct(_) => {
                scratch.clear();
                self.json.push_value(scratch, &column.values, row);
                return self.push_text(out, scratch, nth);
            }
        }
        Ok(())
    }

    #[inline]
    fn push_text(&self, out: &mut Vec<u8>, text: &[u8], nth: usize) -> Result<()> {
        // Without an early exit, so that it becomes a few vector instructions.
        if !text.iter().fold(false, |found, &byte| found | (byte < 0x20) | (byte == b'\\')) {
            out.extend_from_slice(text);
            return Ok(());
        }
        for &byte in text {
            match byte {
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                0 => {
                    let what = format!(
                        "column '{}': PostgreSQL's text cannot hold the character U+0000",
                        self.names[nth]
                    );
                    return Err(
                        Error::data(what).hint("take it out in the query: replace(column, chr(0), '')")
                    );
                }
                plain => out.push(plain),
            }
        }
        Ok(())
    }
}

/// `bytea` in hex; the backslash is doubled for COPY.
fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\\\x");
    for byte in bytes {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// `2013-01-31`; the year before the year 1 is 1 BC.
fn push_day(out: &mut Vec<u8>, time: &LocalTime) {
    let year = if time.year > 0 { time.year } else { 1 - time.year };
    match year {
        0..=9999 => {
            push_two(out, (year / 100) as u32);
            push_two(out, (year % 100) as u32);
        }
        _ => push_int(out, year),
    }
    out.push(b'-');
    push_two(out, time.month);
    out.push(b'-');
    push_two(out, time.day);
}

fn push_era(out: &mut Vec<u8>, time: &LocalTime) {
    if time.year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// `2013-01-31 10:00:00.000001+00`; an instant in UTC.
fn push_timestamp(out: &mut Vec<u8>, micros: i64, is_instant: bool) {
    let time = LocalTime::new(micros, None);
    push_day(out, &time);
    out.push(b' ');
    push_clock(out, &time);
    if time.fraction() > 0 {
        out.extend_from_slice(format!(".{:06}", time.fraction()).as_bytes());
    }
    if is_instant {
        out.extend_from_slice(b"+00");
    }
    push_era(out, &time);
}

/// A piece of a micro-batch, ready to be sent.
#[derive(Debug, Clone)]
struct Piece {
    bytes: Bytes,
    rows: u64,
}

/// The rows of one micro-batch, which may have to be sent more than once.
pub(super) struct Pieces {
    stream: BoxStream<'static, Result<Piece>>,
    kept: Vec<Piece>,
    kept_bytes: usize,
    /// Something was sent that is not kept.
    is_cut: bool,
    /// The stream has come to its end.
    pub(super) has_ended: bool,
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

impl Pieces {
    /// Encodes on worker threads, `at_once` pieces at a time, in order.
    pub(super) fn new(rows: RowStream, encoder: Arc<CopyEncoder>, at_once: usize) -> Self {
        let mut next = 0_u64;
        let pieces = rows.map_ok(move |batch| {
            let first = next;
            next += batch.num_rows() as u64;
            let cuts = (0..batch.num_rows()).step_by(PIECE_ROWS);
            let slice = move |from: usize| {
                let rows = batch.slice(from, PIECE_ROWS.min(batch.num_rows() - from));
                Ok::<_, Error>((rows, first + from as u64))
            };
            stream::iter(cuts.map(slice))
        });
        let encoded = pieces.try_flatten().map_ok(move |(rows, first): (RecordBatch, u64)| {
            let encoder = Arc::clone(&encoder);
            let encode = move || {
                let bytes = encoder.encode(&rows, first)?;
                Ok(Piece { bytes, rows: rows.num_rows() as u64 })
            };
            async move {
                let ended = tokio::task::spawn_blocking(encode).await;
                ended.unwrap_or_else(|e| Err(Error::internal(format!("encoding rows: {e}")).caused_by(e)))
            }
        });
        let stream = encoded.try_buffered(at_once).boxed();
        Self { stream, kept: Vec::new(), kept_bytes: 0, is_cut: false, has_ended: false, rows: 0, bytes: 0 }
    }

    /// Whether the rows can be sent from the first on.
    pub(super) fn can_repeat(&self) -> bool {
        !self.is_cut
    }

    /// Those that have been sent before, when they must be sent again.
    pub(super) fn sent(&self) -> Vec<Bytes> {
        self.kept.iter().map(|piece| piece.bytes.clone()).collect()
    }

    /// The next that has never been sent.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.has_ended {
            return Ok(None);
        }
        let Some(piece) = self.stream.try_next().await? else {
            self.has_ended = true;
            return Ok(None);
        };
        self.rows += piece.rows;
        self.bytes += piece.bytes.len() as u64;
        if self.kept_bytes + piece.bytes.len() <= KEPT_BYTES_MAX && !self.is_cut {
            self.kept_bytes += piece.bytes.len();
            self.kept.push(piece.clone());
        } else {
            (self.is_cut, self.kept) = (true, Vec::new());
        }
        Ok(Some(piece.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        ArrayRef, BinaryArray, Date32Array, Decimal128Array, Float64Array, StringArray,
        TimestampMicrosecondArray,
    };

    fn check(column: ArrayRef, expected: &[&str]) {
        let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
        let encoder = CopyEncoder::new(batch.schema_ref(), false, vec![]);
        let lines = encoder.encode(&batch, 0).unwrap();
        assert_eq!(std::str::from_utf8(&lines).unwrap().lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn values_are_written_as_copy_reads_them() {
        check(
            Arc::new(StringArray::from(vec![Some("plain"), Some("a\tb\n\\N\r"), Some(""), None])),
            &["plain", "a\\tb\\n\\\\N\\r", "", "\\N"],
        );
        check(
            Arc::new(Float64Array::from(vec![1e10, -0.0, f64::NAN, f64::NEG_INFINITY])),
            &["1.0E10", "-0.0", "NaN", "-Infinity"],
        );
        let decimals = Decimal128Array::from(vec![-5, 123_456]).with_precision_and_scale(10, 3).unwrap();
        check(Arc::new(decimals), &["-0.005", "123.456"]);
        check(Arc::new(BinaryArray::from_vec(vec![b"\x00\xff"])), &["\\\\x00ff"]);
    }

    #[test]
    fn times_are_written_in_every_century() {
        check(
            Arc::new(Date32Array::from(vec![0, -719_528, 3_000_000])),
            &["1970-01-01", "0001-01-01 BC", "10183-09-21"],
        );
        let instants = TimestampMicrosecondArray::from(vec![1_357_034_400_000_001, -1]);
        check(
            Arc::new(instants.clone().with_timezone("Europe/Paris")),
            &["2013-01-01 10:00:00.000001+00", "1969-12-31 23:59:59.999999+00"],
        );
        check(Arc::new(instants.slice(1, 1)), &["1969-12-31 23:59:59.999999"]);
    }

    #[test]
    fn what_a_table_cannot_hold_is_refused() {
        let zero: ArrayRef = Arc::new(StringArray::from(vec!["a\0b"]));
        let batch = RecordBatch::try_from_iter([("c", zero)]).unwrap();
        let error = CopyEncoder::new(batch.schema_ref(), false, vec![]).encode(&batch, 0).unwrap_err();
        assert!(error.message().starts_with("column 'c': PostgreSQL's text"), "{error}");
        let null: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>]));
        let batch = RecordBatch::try_from_iter_with_nullable([("c", null, true)]).unwrap();
        let error = CopyEncoder::new(batch.schema_ref(), true, vec![0]).encode(&batch, 0).unwrap_err();
        assert!(error.message().starts_with("the key column 'c' is null"), "{error}");
    }
}
