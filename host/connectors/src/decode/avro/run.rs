//! Reads values into columns by the steps that were worked out for their schema. What fails half-way has left parts of
//! a row in the columns; the caller cuts them back.

use super::plan::{FieldStep, Number, RecordSteps, Step};
use crate::avro::AvroSchema;
use crate::avro::wire::{Cursor, Fault};
use crate::decode::column::{Column, Values, count};

const MILLIS_PER_DAY: i64 = 86_400_000;
/// Nested values after which a column could no longer count its items.
const ITEMS_MAX: usize = i32::MAX as usize - 1;

/// Reads a record into one row of the columns.
pub(super) fn record(
    schema: &AvroSchema,
    steps: &RecordSteps,
    cursor: &mut Cursor<'_>,
    columns: &mut [Column],
) -> Result<(), Fault> {
    for field in &steps.fields {
        match field {
            FieldStep::Read(column, step) => value(schema, step, cursor, &mut columns[*column])?,
            FieldStep::Skip(node) => cursor.skip(schema, node, 0)?,
        }
    }
    for (column, constant) in &steps.missing {
        match constant {
            None => columns[*column].push_null(),
            Some(constant) => {
                let mut bytes = Cursor::new(&constant.bytes);
                value(&constant.schema, &constant.step, &mut bytes, &mut columns[*column])?;
            }
        }
    }
    Ok(())
}

fn value(
    schema: &AvroSchema,
    step: &Step,
    cursor: &mut Cursor<'_>,
    column: &mut Column,
) -> Result<(), Fault> {
    match (step, &mut column.values) {
        (Step::Null, _) => {
            column.push_null();
            return Ok(());
        }
        (Step::Refused(why), _) => return Err(why.clone().into()),
        (Step::Union(branches), _) => {
            let branch = cursor.index(branches.len(), "branch")?;
            return value(schema, &branches[branch], cursor, column);
        }
        (Step::Boolean, Values::Boolean(values)) => values.append(cursor.boolean()?),
        (Step::Int(into), _) => number(cursor.int()?.into(), *into, column)?,
        (Step::Long(into), _) => number(cursor.long()?, *into, column)?,
        (Step::Float, Values::Float32(values)) => values.push(f32::from_le_bytes(cursor.array()?)),
        (Step::FloatAsDouble, Values::Float64(values)) => {
            values.push(f32::from_le_bytes(cursor.array()?).into());
        }
        (Step::Double, Values::Float64(values)) => values.push(f64::from_le_bytes(cursor.array()?)),
        (Step::Text, Values::Text(pieces)) => pieces.push(cursor.text()?),
        (Step::Bytes, Values::Binary(pieces)) => pieces.push(cursor.bytes()?),
        (Step::Fixed(size), Values::Binary(pieces)) => pieces.push(cursor.take(*size)?),
        (Step::Decimal { fixed, scale, wanted }, Values::Decimal { values, .. }) => {
            let bytes = match fixed {
                Some(size) => cursor.take(*size)?,
                None => cursor.bytes()?,
            };
            values.push(decimal(bytes, *scale, *wanted)?);
        }
        (Step::Enum(symbols), Values::Text(pieces)) => {
            let symbol = &symbols[cursor.index(symbols.len(), "symbol")?];
            let symbol = symbol.as_ref().ok_or("a symbol is none of the reader's")?;
            pieces.push(symbol.as_bytes());
        }
        (Step::Array(of), Values::List { offsets, item, .. }) => {
            cursor.blocks(|cursor| {
                room(item)?;
                value(schema, of, cursor, item)
            })?;
            offsets.push(count(item.len()));
        }
        (Step::Map(of), Values::Map { offsets, key, value: entry, .. }) => {
            cursor.blocks(|cursor| {
                room(entry)?;
                value(schema, &Step::Text, cursor, key)?;
                value(schema, of, cursor, entry)
            })?;
            offsets.push(count(entry.len()));
        }
        (Step::Record(steps), Values::Struct { columns, .. }) => record(schema, steps, cursor, columns)?,
        (Step::Member(member, of), Values::Struct { columns, .. }) => {
            for (at, column) in columns.iter_mut().enumerate() {
                match at == *member {
                    true => value(schema, of, cursor, column)?,
                    false => column.push_null(),
                }
            }
        }
        (step, _) => return Err(format!("a column does not take {step:?}").into()),
    }
    column.valid();
    Ok(())
}

fn room(column: &Column) -> Result<(), Fault> {
    match column.len() < ITEMS_MAX {
        true => Ok(()),
        false => Err("a column holds more items than it can count".into()),
    }
}

#[inline]
fn number(value: i64, into: Number, column: &mut Column) -> Result<(), Fault> {
    let beyond = || Fault::from(format!("{value} is beyond the type's values"));
    match (into, &mut column.values) {
        (Number::Int, Values::Int32(values)) | (Number::Date, Values::Date(values)) => {
            values.push(i32::try_from(value).map_err(|_| beyond())?);
        }
        (Number::DateOfMillis, Values::Date(values)) => {
            values.push(i32::try_from(value / MILLIS_PER_DAY).map_err(|_| beyond())?);
        }
        (Number::Long, Values::Int64(values)) | (Number::Micros, Values::Timestamp { values, .. }) => {
            values.push(value);
        }
        (Number::Millis, Values::Timestamp { values, .. }) => {
            values.push(value.checked_mul(1000).ok_or_else(beyond)?);
        }
        (Number::Float, Values::Float32(values)) => values.push(value as f32),
        (Number::Double, Values::Float64(values)) => values.push(value as f64),
        (into, _) => return Err(format!("a column does not take {into:?}").into()),
    }
    Ok(())
}

/// A number in big-endian two's complement as an unscaled value of the wanted scale; what is cut off is rounded half up.
fn decimal(bytes: &[u8], scale: u32, (precision, wanted): (u8, u32)) -> Result<i128, Fault> {
    let beyond = || Fault::from(format!("a decimal has more than {precision} digits"));
    let negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    let sign = if negative { 0xFF } else { 0 };
    let (head, tail) = bytes.split_at(bytes.len().saturating_sub(16));
    if head.iter().any(|byte| *byte != sign) || tail.first().is_some_and(|b| b & 0x80 != sign & 0x80) {
        return Err(beyond());
    }
    let mut value = if negative { -1_i128 } else { 0 };
    tail.iter().for_each(|byte| value = value << 8 | i128::from(*byte));
    let power = |digits: u32| 10_i128.checked_pow(digits).ok_or_else(beyond);
    if wanted >= scale {
        value = value.checked_mul(power(wanted - scale)?).ok_or_else(beyond)?;
    } else {
        let by = power(scale - wanted)?;
        let (whole, rest) = (value / by, value % by);
        value = if rest.unsigned_abs() >= by.unsigned_abs() / 2 { whole + value.signum() } else { whole };
    }
    if value.unsigned_abs() >= 10_u128.pow(precision.into()) {
        return Err(beyond());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_keep_sign_and_scale() {
        assert_eq!(decimal(&[0x04, 0xD2], 2, (10, 2)).unwrap(), 1234);
        assert_eq!(decimal(&[0xFB, 0x2E], 2, (10, 3)).unwrap(), -12_340);
        assert_eq!(decimal(&[0x04, 0xD2], 2, (10, 1)).unwrap(), 123);
        assert_eq!(decimal(&[0x04, 0xD7], 2, (10, 1)).unwrap(), 124);
        assert_eq!(decimal(&[], 2, (10, 2)).unwrap(), 0);
        assert_eq!(decimal(&[0xFF; 40], 0, (38, 0)).unwrap(), -1);
        assert_eq!(decimal(&[0x7F; 17], 0, (38, 0)).unwrap_err(), "a decimal has more than 38 digits");
        assert!(decimal(&[0x04, 0xD2], 0, (3, 0)).is_err());
    }
}
