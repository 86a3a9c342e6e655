//! Schemas to and from Arrow IPC `Schema` messages. `codec` calls it when a function is opened. It reads no rows.

use super::ipc_read::{envelope, header_name};
use crate::limits::{Limits, clean_text};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit as ArrowUnit};
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_ipc::{DateUnit, Endianness, MetadataVersion, Precision, TimeUnit, Type};
use pelton_core::{Error, Result, types};
use std::sync::Arc;

/// The schema as a message: without metadata, its timestamps in UTC whatever the session's zone.
pub(crate) fn encode(schema: &Schema) -> Result<Vec<u8>> {
    let fields: Fields = schema.fields().iter().map(in_utc).collect();
    let wrong = |e| Error::internal(format!("a schema could not be encoded: {e}"));
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).map_err(wrong)?;
    let message = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        &Schema::new(fields),
        &mut DictionaryTracker::new(false),
        &options,
    );
    let mut bytes = Vec::new();
    write_message(&mut bytes, message, &options).map_err(wrong)?;
    Ok(bytes)
}

fn in_utc(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("UTC".into())),
        DataType::List(item) => DataType::List(in_utc(item)),
        DataType::Map(entries, sorted) => DataType::Map(in_utc(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(in_utc).collect()),
        other => other.clone(),
    };
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

/// Reads a guest's schema message. Its timestamps with a zone become those of the session's.
pub(crate) fn decode(message: &[u8], zone: &str, limits: &Limits) -> Result<Schema, String> {
    let (message, _) = envelope(message)?;
    let Some(schema) = message.header_as_schema() else {
        return Err(format!("expected an IPC Schema message, it is a {}", header_name(&message)));
    };
    if schema.endianness() != Endianness::Little {
        return Err("its schema is big-endian; values must be little-endian".into());
    }
    let mut reader = Reader { zone, left: limits.schema_columns };
    let fields = schema.fields().into_iter().flatten();
    Ok(Schema::new(reader.fields(fields, limits.schema_depth)?))
}

struct Reader<'a> {
    zone: &'a str,
    left: usize,
}

impl Reader<'_> {
    fn fields<'f>(
        &mut self,
        fields: impl Iterator<Item = arrow_ipc::Field<'f>>,
        depth: usize,
    ) -> Result<Fields, String> {
        if depth == 0 {
            return Err("its schema is nested too deeply (limit schema_depth)".into());
        }
        let mut read = Vec::new();
        for field in fields {
            self.left =
                self.left.checked_sub(1).ok_or("its schema has too many columns (limit schema_columns)")?;
            read.push(self.field(field, depth)?);
        }
        Ok(read.into())
    }

    fn field(&mut self, field: arrow_ipc::Field<'_>, depth: usize) -> Result<Field, String> {
        let name = field.name().unwrap_or_default();
        let shown = clean_text(name, 80);
        if field.dictionary().is_some() {
            return Err(format!("its column '{shown}' is dictionary-encoded; dictionaries do not cross"));
        }
        let children = field.children().into_iter().flatten();
        let data_type = match field.type_type() {
            Type::Struct_ => DataType::Struct(self.fields(children, depth - 1)?),
            Type::List => match &self.fields(children, depth - 1)?[..] {
                // Arrow writers name the items as they like; here they have one name.
                [item] => DataType::List(Arc::new(Field::new_list_field(
                    item.data_type().clone(),
                    item.is_nullable(),
                ))),
                _ => return Err(format!("its column '{shown}' is a list without exactly one item type")),
            },
            Type::Map => self.map(field, &shown, depth)?,
            _ => self.leaf(field).map_err(|found| {
                format!("its column '{shown}' has Arrow type {found}, which Pelton does not move; {ADMITTED}")
            })?,
        };
        Ok(Field::new(name, data_type, field.nullable()))
    }

    fn map(&mut self, field: arrow_ipc::Field<'_>, shown: &str, depth: usize) -> Result<DataType, String> {
        let children = field.children().into_iter().flatten();
        let entries = self.fields(children, depth - 1)?;
        let wrong = || format!("its column '{shown}' is a map without a key and a value type");
        let [entries] = &entries[..] else { return Err(wrong()) };
        let DataType::Struct(kv) = entries.data_type() else { return Err(wrong()) };
        let [key, value] = &kv[..] else { return Err(wrong()) };
        let DataType::Map(inner, sorted) = types::map_of(key.data_type().clone(), value.data_type().clone())
        else {
            return Err(wrong());
        };
        let kv = Fields::from(vec![
            Field::new("key", key.data_type().clone(), false),
            Field::new("value", value.data_type().clone(), value.is_nullable()),
        ]);
        Ok(DataType::Map(Arc::new(Field::new(inner.name(), DataType::Struct(kv), false)), sorted))
    }

    /// The type of a column without children; else what it is, for the message.
    fn leaf(&self, field: arrow_ipc::Field<'_>) -> Result<DataType, String> {
        let found = || Err(field.type_type().variant_name().unwrap_or("unknown").to_owned());
        match field.type_type() {
            Type::Bool => Ok(DataType::Boolean),
            Type::Utf8 => Ok(DataType::Utf8),
            Type::Binary => Ok(DataType::Binary),
            Type::Int => match field.type_as_int().map(|int| (int.is_signed(), int.bitWidth())) {
                Some((true, 8)) => Ok(DataType::Int8),
                Some((true, 16)) => Ok(DataType::Int16),
                Some((true, 32)) => Ok(DataType::Int32),
                Some((true, 64)) => Ok(DataType::Int64),
                Some((signed, bits)) => Err(format!("{}Int{bits}", if signed { "" } else { "U" })),
                None => found(),
            },
            Type::FloatingPoint => match field.type_as_floating_point().map(|float| float.precision()) {
                Some(Precision::SINGLE) => Ok(DataType::Float32),
                Some(Precision::DOUBLE) => Ok(DataType::Float64),
                Some(Precision::HALF) => Err("Float16".into()),
                _ => found(),
            },
            Type::Decimal => match field.type_as_decimal() {
                Some(d) if d.bitWidth() == 128 => decimal(d.precision(), d.scale()),
                Some(d) => Err(format!("Decimal{}", d.bitWidth())),
                None => found(),
            },
            Type::Date => match field.type_as_date().map(|date| date.unit()) {
                Some(DateUnit::DAY) => Ok(DataType::Date32),
                _ => Err("Date64".into()),
            },
            Type::Timestamp => match field.type_as_timestamp() {
                Some(t) if t.unit() == TimeUnit::MICROSECOND => match t.timezone() {
                    None | Some("") => Ok(DataType::Timestamp(ArrowUnit::Microsecond, None)),
                    Some(zone) if UTC.contains(&zone) => {
                        Ok(DataType::Timestamp(ArrowUnit::Microsecond, Some(self.zone.into())))
                    }
                    Some(zone) => {
                        Err(format!("Timestamp in zone '{}' (it must be UTC)", clean_text(zone, 80)))
                    }
                },
                _ => Err("Timestamp of another unit than microseconds".into()),
            },
            _ => found(),
        }
    }
}

/// The names by which guests call UTC.
const UTC: [&str; 5] = ["UTC", "+00:00", "Z", "Etc/UTC", "utc"];

const ADMITTED: &str = "there are: Bool, Int8 to Int64, Float32, Float64, Decimal128, Utf8, Binary, Date32, \
    Timestamp(µs, UTC), Timestamp(µs), List, Struct, Map";

fn decimal(precision: i32, scale: i32) -> Result<DataType, String> {
    if !(1..=38).contains(&precision) || !(0..=precision).contains(&scale) {
        return Err(format!(
            "Decimal128({precision}, {scale}) (it needs 1 <= precision <= 38 and 0 <= scale <= precision)"
        ));
    }
    Ok(DataType::Decimal128(precision as u8, scale as i8))
}
