//! How the values of columns become those of an Avro schema, as Spark's `AvroSerializer` has it; worked out once.

use super::super::columns::{Column, Values, range};
use crate::avro::schema::Record;
use crate::avro::to_spark::{UnionType, decimal, values};
use crate::avro::wire::{push_bytes, push_long};
use crate::avro::{AvroSchema, Logical, Node};
use arrow::datatypes::{DataType, FieldRef, Fields, TimeUnit};
use pelton_core::types::type_name;
use pelton_core::{Error, Result};
use std::sync::Arc;

/// The columns of a record, in the order of its fields.
#[derive(Debug)]
pub(super) struct RecordPut {
    fields: Vec<FieldPut>,
}

#[derive(Debug)]
enum FieldPut {
    Column(usize, Slot),
    /// No column: always null, which is this branch.
    Null(i64),
}

/// A value, or null.
#[derive(Debug)]
struct Slot {
    name: String,
    /// The branch of null, if the type is nullable.
    null: Option<i64>,
    /// The branch of the value, if the type is a union.
    branch: Option<i64>,
    put: Put,
}

#[derive(Debug)]
enum Put {
    Boolean,
    Int,
    Long,
    /// Microseconds that are written as milliseconds.
    Millis,
    Float,
    Double,
    Text,
    Bytes,
    Fixed(usize),
    /// In so many bytes, or in as few as it needs.
    Decimal(Option<usize>),
    Enum(Vec<Arc<str>>),
    Array(Box<Slot>),
    Map(Box<Slot>),
    Record(RecordPut),
    /// A struct of which one field has a value: the branch of each field.
    Members(Vec<(i64, Put)>),
}

impl RecordPut {
    /// The error says which column or field has no partner.
    pub(super) fn new(schema: &AvroSchema, record: &Record, columns: &Fields) -> Result<Self, String> {
        let matches = |column: &FieldRef, name: &str| column.name().eq_ignore_ascii_case(name);
        if let Some(column) = columns.iter().find(|c| !record.fields.iter().any(|f| matches(c, &f.name))) {
            return Err(format!("it has no field '{}'", column.name()));
        }
        let fields = record.fields.iter().map(|field| {
            let exact = columns.iter().position(|column| **column.name() == *field.name);
            let column = exact.or_else(|| columns.iter().position(|column| matches(column, &field.name)));
            match (column, null_branch(schema.resolve(&field.node)?)) {
                (Some(at), _) => Ok(FieldPut::Column(
                    at,
                    Slot::new(schema, &field.node, &field.name, columns[at].data_type())?,
                )),
                (None, Some(null)) => Ok(FieldPut::Null(null)),
                (None, None) => Err(format!("there is no column for its field '{}'", field.name)),
            }
        });
        Ok(Self { fields: fields.collect::<Result<_, String>>()? })
    }

    pub(super) fn push(&self, columns: &[Column<'_>], row: usize, out: &mut Vec<u8>) -> Result<()> {
        self.fields.iter().try_for_each(|field| match field {
            FieldPut::Column(at, slot) => slot.push(&columns[*at], row, out),
            FieldPut::Null(branch) => {
                push_long(out, *branch);
                Ok(())
            }
        })
    }
}

fn null_branch(node: &Node) -> Option<i64> {
    let Node::Union(branches) = node else { return None };
    branches.iter().position(|branch| *branch == Node::Null).map(|at| at as i64)
}

impl Slot {
    fn new(schema: &AvroSchema, node: &Node, name: &str, data_type: &DataType) -> Result<Self, String> {
        let node = schema.resolve(node)?;
        let null = null_branch(node);
        let Node::Union(branches) = node else {
            return Ok(Self {
                name: name.into(),
                null,
                branch: None,
                put: Put::new(schema, node, name, data_type)?,
            });
        };
        let nodes =
            values(branches).into_iter().map(|node| schema.resolve(node)).collect::<Result<Vec<_>, _>>()?;
        if let (UnionType::Members, DataType::Struct(fields)) = (UnionType::of(&nodes), data_type)
            && fields.iter().all(|field| field.name().starts_with("member"))
        {
            let put = members(schema, branches, name, fields)?;
            return Ok(Self { name: name.into(), null, branch: None, put });
        }
        // The first branch that takes the column's type.
        let mut why = format!("column '{name}' is {}, and no branch of its union is", type_name(data_type));
        for (index, branch) in branches.iter().enumerate() {
            match Put::new(schema, schema.resolve(branch)?, name, data_type) {
                Ok(put) => return Ok(Self { name: name.into(), null, branch: Some(index as i64), put }),
                Err(e) if nodes.len() == 1 && *branch != Node::Null => why = e,
                Err(_) => {}
            }
        }
        Err(why)
    }

    fn push(&self, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<()> {
        if column.is_null(row) {
            let null = self.null.ok_or_else(|| self.bad("is null, which its Avro type does not allow"))?;
            push_long(out, null);
            return Ok(());
        }
        if let Some(branch) = self.branch {
            push_long(out, branch);
        }
        self.put(&self.put, column, row, out)
    }

    fn put(&self, put: &Put, column: &Column<'_>, row: usize, out: &mut Vec<u8>) -> Result<()> {
        match (put, &column.values) {
            (Put::Boolean, Values::Boolean(values)) => out.push(values.value(row).into()),
            (Put::Int, Values::Int8(values)) => push_long(out, values[row].into()),
            (Put::Int, Values::Int16(values)) => push_long(out, values[row].into()),
            (Put::Int, Values::Int32(values) | Values::Date(values)) => push_long(out, values[row].into()),
            (Put::Long, Values::Int64(values) | Values::Timestamp(values, _)) => push_long(out, values[row]),
            (Put::Millis, Values::Timestamp(values, _)) => push_long(out, values[row].div_euclid(1000)),
            (Put::Float, Values::Float32(values)) => out.extend_from_slice(&values[row].to_le_bytes()),
            (Put::Double, Values::Float64(values)) => out.extend_from_slice(&values[row].to_le_bytes()),
            (Put::Text, Values::Utf8(values)) => push_bytes(out, values.value(row).as_bytes()),
            (Put::Bytes, Values::Binary(values)) => push_bytes(out, values.value(row)),
            (Put::Fixed(size), Values::Binary(values)) => {
                let bytes = values.value(row);
                if bytes.len() != *size {
                    return Err(self.bad(&format!("has {} bytes, its Avro type {size}", bytes.len())));
                }
                out.extend_from_slice(bytes);
            }
            (Put::Decimal(size), Values::Decimal(values, _)) => self.decimal(values[row], *size, out)?,
            (Put::Enum(symbols), Values::Utf8(values)) => {
                let symbol = values.value(row);
                let index = symbols.iter().position(|known| **known == *symbol);
                let index =
                    index.ok_or_else(|| self.bad(&format!("is '{symbol}', which is none of its symbols")))?;
                push_long(out, index as i64);
            }
            (Put::Array(item), Values::List(offsets, items)) => {
                let range = range(offsets, row);
                push_items(out, range.len(), |out| {
                    range.into_iter().try_for_each(|at| item.push(items, at, out))
                })?;
            }
            (Put::Map(slot), Values::Map { offsets, keys, values }) => {
                let range = range(offsets, row);
                let Values::Utf8(keys) = &keys.values else { return Err(self.other()) };
                push_items(out, range.len(), |out| {
                    range.into_iter().try_for_each(|at| {
                        push_bytes(out, keys.value(at).as_bytes());
                        slot.push(values, at, out)
                    })
                })?;
            }
            (Put::Record(record), Values::Struct(columns)) => record.push(columns, row, out)?,
            (Put::Members(members), Values::Struct(columns)) => {
                let found = columns.iter().zip(members).find(|(column, _)| !column.is_null(row));
                let (column, (branch, put)) = match (found, self.null) {
                    (Some(found), _) => found,
                    (None, Some(null)) => {
                        push_long(out, null);
                        return Ok(());
                    }
                    (None, None) => return Err(self.bad("has no member that is not null")),
                };
                push_long(out, *branch);
                self.put(put, column, row, out)?;
            }
            _ => return Err(self.other()),
        }
        Ok(())
    }

    fn decimal(&self, value: i128, size: Option<usize>, out: &mut Vec<u8>) -> Result<()> {
        let bytes = value.to_be_bytes();
        let sign = if value < 0 { 0xFF } else { 0 };
        // The fewest bytes whose first bit is the sign.
        let spare = bytes.iter().take_while(|byte| **byte == sign).count();
        let spare = match bytes.get(spare) {
            Some(next) if next & 0x80 == sign & 0x80 => spare,
            _ => spare.saturating_sub(1),
        };
        let least = &bytes[spare.min(15)..];
        match size {
            None => push_bytes(out, least),
            Some(size) if least.len() <= size => {
                out.extend(std::iter::repeat_n(sign, size - least.len()));
                out.extend_from_slice(least);
            }
            Some(size) => {
                return Err(self.bad(&format!("needs {} bytes, its Avro type has {size}", least.len())));
            }
        }
        Ok(())
    }

    fn bad(&self, what: &str) -> Error {
        Error::data(format!("column '{}' {what}", self.name))
    }

    fn other(&self) -> Error {
        Error::internal(format!("column '{}' of another type reached the Avro encoder", self.name))
    }
}

fn push_items(out: &mut Vec<u8>, count: usize, items: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    if count > 0 {
        push_long(out, i64::try_from(count).unwrap_or(i64::MAX));
        items(out)?;
    }
    push_long(out, 0);
    Ok(())
}

/// The branches of a union by the fields `member0`, `member1` … of a struct.
fn members(schema: &AvroSchema, branches: &[Node], name: &str, fields: &Fields) -> Result<Put, String> {
    let branches = branches.iter().enumerate().filter(|(_, branch)| **branch != Node::Null);
    let branches: Vec<_> = branches.collect();
    let members = fields.iter().map(|field| {
        let nth = field.name().strip_prefix("member").and_then(|n| n.parse::<usize>().ok());
        let branch = nth.and_then(|nth| branches.get(nth));
        let (index, node) = branch.ok_or_else(|| {
            format!("column '{name}' has a field '{}', its union {} branches", field.name(), branches.len())
        })?;
        Ok((*index as i64, Put::new(schema, schema.resolve(node)?, name, field.data_type())?))
    });
    Ok(Put::Members(members.collect::<Result<_, String>>()?))
}

impl Put {
    fn new(schema: &AvroSchema, node: &Node, name: &str, data_type: &DataType) -> Result<Self, String> {
        use DataType as T;
        let micros = TimeUnit::Microsecond;
        Ok(match (data_type, node) {
            (T::Boolean, Node::Boolean) => Self::Boolean,
            (T::Int8 | T::Int16 | T::Int32 | T::Date32, Node::Int(_)) => Self::Int,
            (T::Int64, Node::Long(_)) => Self::Long,
            (T::Timestamp(unit, Some(_)), Node::Long(Logical::TimestampMicros)) if *unit == micros => {
                Self::Long
            }
            (T::Timestamp(unit, Some(_)), Node::Long(Logical::TimestampMillis | Logical::None))
            | (T::Timestamp(unit, None), Node::Long(Logical::LocalTimestampMillis | Logical::None))
                if *unit == micros =>
            {
                Self::Millis
            }
            (T::Timestamp(unit, None), Node::Long(Logical::LocalTimestampMicros)) if *unit == micros => {
                Self::Long
            }
            (T::Float32, Node::Float) => Self::Float,
            (T::Float64, Node::Double) => Self::Double,
            (T::Utf8, Node::String) => Self::Text,
            (T::Utf8, Node::Enum(symbols)) => Self::Enum(symbols.symbols.clone()),
            (T::Binary, Node::Bytes(_)) => Self::Bytes,
            (T::Binary, Node::Fixed(fixed)) => Self::Fixed(fixed.size),
            (T::Decimal128(..), Node::Bytes(logical)) if is(*logical, data_type) => Self::Decimal(None),
            (T::Decimal128(..), Node::Fixed(fixed)) if is(fixed.logical, data_type) => {
                Self::Decimal(Some(fixed.size))
            }
            (T::List(field), Node::Array(item)) => {
                Self::Array(Box::new(Slot::new(schema, item, name, field.data_type())?))
            }
            (T::Map(entries, _), Node::Map(value)) => match entries.data_type() {
                T::Struct(kv) if kv.len() == 2 && kv[0].data_type() == &T::Utf8 => {
                    Self::Map(Box::new(Slot::new(schema, value, name, kv[1].data_type())?))
                }
                _ => {
                    return Err(format!(
                        "column '{name}' is {}, Avro's maps have strings as keys",
                        type_name(data_type)
                    ));
                }
            },
            (T::Struct(fields), Node::Record(record)) => {
                let put = RecordPut::new(schema, record, fields);
                Self::Record(put.map_err(|why| format!("column '{name}': {why}"))?)
            }
            _ => {
                return Err(format!(
                    "column '{name}' is {}, its field {}",
                    type_name(data_type),
                    node.kind()
                ));
            }
        })
    }
}

fn is(logical: Logical, data_type: &DataType) -> bool {
    match logical {
        Logical::Decimal { precision, scale } => decimal(precision, scale).as_ref() == Some(data_type),
        _ => false,
    }
}
