//! Avro types as Spark's, as its `SchemaConverters.toSqlType` has them.

use super::schema::Name;
use super::{AvroSchema, Logical, Node};
use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use pelton_core::types::{list_of, map_of};
use pelton_core::{Error, Result};
use std::sync::Arc;

/// The largest `recursive_field_max_depth`, as in Spark.
pub(crate) const RECURSION_MAX: usize = 12;

/// The columns of a schema. `recursion` is how often a record may contain itself; what is deeper is left out, and
/// without it a recursive schema is refused.
pub(crate) fn columns(schema: &AvroSchema, time_zone: &str, recursion: Option<usize>) -> Result<Schema> {
    let types = Types { schema, time_zone, recursion };
    let root = Node::Record(schema.root().clone());
    match types.of(&root, &mut Vec::new()) {
        Ok(Some(DataType::Struct(fields))) => Ok(Schema::new(fields)),
        Ok(_) => Err(Error::invalid("the Avro schema has no columns")),
        Err(why) => Err(Error::invalid(format!("the Avro schema cannot be read: {why}"))),
    }
}

/// The branches of a union that are values.
pub(crate) fn values(branches: &[Node]) -> Vec<&Node> {
    branches.iter().filter(|branch| **branch != Node::Null).collect()
}

/// How a union of these branches is one type.
pub(crate) enum UnionType {
    /// A value of the only branch.
    One,
    Long,
    Double,
    /// A struct with a field for every branch.
    Members,
}

impl UnionType {
    pub(crate) fn of(values: &[&Node]) -> Self {
        match values {
            [_] => Self::One,
            [Node::Int(_), Node::Long(_)] | [Node::Long(_), Node::Int(_)] => Self::Long,
            [Node::Float, Node::Double] | [Node::Double, Node::Float] => Self::Double,
            _ => Self::Members,
        }
    }
}

struct Types<'a> {
    schema: &'a AvroSchema,
    time_zone: &'a str,
    recursion: Option<usize>,
}

impl Types<'_> {
    /// The type; nothing, if it is too deep in a recursion. `within` are the records around it.
    fn of(&self, node: &Node, within: &mut Vec<Arc<str>>) -> Result<Option<DataType>, String> {
        Ok(Some(match self.schema.resolve(node)? {
            // Spark's `void`, which no step can do anything with.
            Node::Null => DataType::Utf8,
            Node::Boolean => DataType::Boolean,
            Node::Int(Logical::Date) => DataType::Date32,
            Node::Int(_) => DataType::Int32,
            Node::Long(Logical::TimestampMillis | Logical::TimestampMicros) => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(self.time_zone.into()))
            }
            Node::Long(Logical::LocalTimestampMillis | Logical::LocalTimestampMicros) => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            Node::Long(_) => DataType::Int64,
            Node::Float => DataType::Float32,
            Node::Double => DataType::Float64,
            Node::String | Node::Enum(_) => DataType::Utf8,
            Node::Bytes(logical) => bytes(*logical)?,
            Node::Fixed(fixed) => bytes(fixed.logical)?,
            Node::Array(item) => match self.of(item, within)? {
                Some(item) => list_of(item),
                None => return Ok(None),
            },
            Node::Map(value) => match self.of(value, within)? {
                Some(value) => map_of(DataType::Utf8, value),
                None => return Ok(None),
            },
            Node::Record(record) => {
                if self.too_deep(&record.name, within)? {
                    return Ok(None);
                }
                within.push(record.name.full.clone());
                let fields = record.fields.iter().map(|field| {
                    let in_field = |why: String| format!("field '{}': {why}", field.name);
                    let data_type = self.of(&field.node, within).map_err(in_field)?;
                    Ok(data_type.map(|data_type| Field::new(&*field.name, data_type, true)))
                });
                let fields = fields.filter_map(Result::transpose).collect::<Result<Fields, String>>()?;
                within.pop();
                DataType::Struct(fields)
            }
            Node::Union(branches) => return self.union(&values(branches), within),
            Node::Named(name) => return Err(format!("type '{name}' is not defined")),
        }))
    }

    fn too_deep(&self, name: &Name, within: &[Arc<str>]) -> Result<bool, String> {
        let depth = within.iter().filter(|record| **record == name.full).count();
        match self.recursion {
            None if depth > 0 => Err(format!(
                "record '{}' contains itself; set recursive_field_max_depth to 1 … {RECURSION_MAX}",
                name.full
            )),
            limit => Ok(limit.is_some_and(|limit| depth >= limit)),
        }
    }

    fn union(&self, values: &[&Node], within: &mut Vec<Arc<str>>) -> Result<Option<DataType>, String> {
        let values = values.iter().map(|node| self.schema.resolve(node)).collect::<Result<Vec<_>, _>>()?;
        match UnionType::of(&values) {
            _ if values.is_empty() => Ok(Some(DataType::Utf8)),
            UnionType::One => self.of(values[0], within),
            UnionType::Long => Ok(Some(DataType::Int64)),
            UnionType::Double => Ok(Some(DataType::Float64)),
            UnionType::Members => {
                let members = values.iter().enumerate().map(|(index, node)| {
                    let data_type = self.of(node, within)?;
                    Ok(data_type.map(|data_type| Field::new(format!("member{index}"), data_type, true)))
                });
                let members = members.filter_map(Result::transpose).collect::<Result<Fields, String>>()?;
                Ok(Some(DataType::Struct(members)))
            }
        }
    }
}

fn bytes(logical: Logical) -> Result<DataType, String> {
    match logical {
        Logical::Decimal { precision, scale } => decimal(precision, scale)
            .ok_or_else(|| format!("a decimal of {precision} digits is wider than Spark's 38")),
        _ => Ok(DataType::Binary),
    }
}

/// The decimal type, if Spark has it.
pub(crate) fn decimal(precision: u32, scale: u32) -> Option<DataType> {
    let precision = u8::try_from(precision).ok().filter(|precision| *precision <= 38)?;
    Some(DataType::Decimal128(precision, i8::try_from(scale).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::types::columns_name;

    fn of(text: &str, recursion: Option<usize>) -> String {
        let schema = AvroSchema::parse(text).unwrap();
        match columns(&schema, "UTC", recursion) {
            Ok(columns) => columns_name(columns.fields()),
            Err(e) => e.message().to_owned(),
        }
    }

    #[test]
    fn every_type_is_sparks() {
        let field = |name: &str, node: &str| format!(r#"{{"name": "{name}", "type": {node}}}"#);
        let fields = [
            field("a", r#"["null", "int", "long"]"#),
            field("b", r#"["float", "double"]"#),
            field("c", r#"["null", "int", "string"]"#),
            field("d", r#"{"type": "int", "logicalType": "date"}"#),
            field("e", r#"{"type": "long", "logicalType": "timestamp-millis"}"#),
            field("f", r#"{"type": "long", "logicalType": "local-timestamp-micros"}"#),
            field("g", r#"{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}"#),
            field("h", r#"{"type": "array", "items": {"type": "map", "values": "bytes"}}"#),
            field("i", r#"{"type": "int", "logicalType": "time-millis"}"#),
            field("j", r#"{"type": "string", "logicalType": "uuid"}"#),
        ];
        let record = format!(r#"{{"type": "record", "name": "r", "fields": [{}]}}"#, fields.join(","));
        assert_eq!(
            of(&record, None),
            "a: long, b: double, c: struct<member0: int, member1: string>, d: date, e: timestamp, \
             f: timestamp_ntz, g: decimal(9,2), h: array<map<string, binary>>, i: int, j: string"
        );
    }

    #[test]
    fn recursion_is_refused_or_cut() {
        let list = r#"{"type": "record", "name": "L", "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "L"]}]}"#;
        assert!(of(list, None).contains("'L' contains itself"), "{}", of(list, None));
        assert_eq!(of(list, Some(1)), "v: int");
        assert_eq!(of(list, Some(2)), "v: int, next: struct<v: int>");
    }
}
