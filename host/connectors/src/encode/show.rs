//! Values as Spark's `show()` prints them, which is also how it casts them to strings: for the console, for keys of
//! JSON maps and for `key=value` directories.

use super::columns::{Column, Values, range};
use super::datetime::{LocalTime, push_date, push_shown_time};
use pelton_core::number::{push_decimal_plain, push_f32, push_f64, push_int};

/// Appends a value: `NULL`, `2013-01-01 10:00:00`, `{a, b}`, `[1, 2]`, `{k -> v}`, `[68 69]` for binary.
pub(crate) fn push_shown(out: &mut Vec<u8>, column: &Column<'_>, row: usize) {
    if column.is_null(row) {
        return out.extend_from_slice(b"NULL");
    }
    match &column.values {
        Values::Boolean(array) => out.extend_from_slice(if array.value(row) { b"true" } else { b"false" }),
        Values::Int8(values) => push_int(out, values[row]),
        Values::Int16(values) => push_int(out, values[row]),
        Values::Int32(values) => push_int(out, values[row]),
        Values::Int64(values) => push_int(out, values[row]),
        Values::Float32(values) => push_f32(out, values[row]),
        Values::Float64(values) => push_f64(out, values[row]),
        Values::Decimal(values, scale) => push_decimal_plain(out, values[row], *scale),
        Values::Utf8(array) => out.extend_from_slice(array.value(row).as_bytes()),
        Values::Binary(array) => push_hex(out, array.value(row)),
        Values::Date(values) => push_date(out, &LocalTime::midnight(values[row])),
        Values::Timestamp(values, clock) => {
            let micros = values[row];
            let time =
                clock.as_ref().map_or_else(|| LocalTime::new(micros, None), |clock| clock.local(micros));
            push_shown_time(out, &time);
        }
        Values::List(offsets, items) => {
            push_sequence(out, b"[]", range(offsets, row), |out, item| push_shown(out, items, item));
        }
        Values::Map { offsets, keys, values } => {
            push_sequence(out, b"{}", range(offsets, row), |out, entry| {
                push_shown(out, keys, entry);
                out.extend_from_slice(b" -> ");
                push_shown(out, values, entry);
            })
        }
        Values::Struct(fields) => {
            push_sequence(out, b"{}", 0..fields.len(), |out, field| push_shown(out, &fields[field], row));
        }
    }
}

fn push_sequence(
    out: &mut Vec<u8>,
    brackets: &[u8; 2],
    items: std::ops::Range<usize>,
    push: impl Fn(&mut Vec<u8>, usize),
) {
    out.push(brackets[0]);
    for (nth, item) in items.enumerate() {
        if nth > 0 {
            out.extend_from_slice(b", ");
        }
        push(out, item);
    }
    out.push(brackets[1]);
}

fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let digits = bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(" ");
    out.push(b'[');
    out.extend_from_slice(digits.as_bytes());
    out.push(b']');
}
