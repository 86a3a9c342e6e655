//! How values of a writer's schema become columns: Avro's schema resolution and then the types of Spark's
//! `AvroDeserializer`, worked out once for a pair of schemas and the columns.

use crate::avro::default::push_default;
use crate::avro::schema::{Enum, Record};
use crate::avro::to_spark::{UnionType, values};
use crate::avro::{AvroSchema, Field, Logical, Node};
use arrow::datatypes::{DataType, FieldRef, Fields, TimeUnit};
use pelton_core::types::type_name;
use std::sync::Arc;

/// How to read one value into a column.
#[derive(Debug)]
pub(super) enum Step {
    /// Has no bytes.
    Null,
    Boolean,
    Int(Number),
    Long(Number),
    Float,
    /// A float that is wanted as a double.
    FloatAsDouble,
    Double,
    Text,
    Bytes,
    Fixed(usize),
    /// A decimal in bytes, or in so many bytes.
    Decimal {
        fixed: Option<usize>,
        scale: u32,
        wanted: (u8, u32),
    },
    /// The symbols, as the reader knows them.
    Enum(Vec<Option<Arc<str>>>),
    Array(Box<Step>),
    Map(Box<Step>),
    Record(RecordSteps),
    Union(Vec<Step>),
    /// The value is this field of a struct, whose others are null.
    Member(usize, Box<Step>),
    /// A value that cannot be read, and why: a branch that the reader does not know.
    Refused(String),
}

/// What becomes of a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Int,
    Long,
    Float,
    Double,
    Date,
    /// Milliseconds that become a date.
    DateOfMillis,
    Millis,
    Micros,
}

/// How to read a record.
#[derive(Debug)]
pub(super) struct RecordSteps {
    /// The writer's fields, in order.
    pub(super) fields: Vec<FieldStep>,
    /// Columns that the writer does not have.
    pub(super) missing: Vec<(usize, Option<Constant>)>,
}

#[derive(Debug)]
pub(super) enum FieldStep {
    Read(usize, Step),
    Skip(Node),
}

/// The default of a field, as bytes and how to read them.
#[derive(Debug)]
pub(super) struct Constant {
    /// The reader's, whose value it is.
    pub(super) schema: Arc<AvroSchema>,
    pub(super) bytes: Vec<u8>,
    pub(super) step: Step,
}

/// Works out how rows with columns `wanted` are read. Without a reader's schema the writer's own counts.
pub(super) fn plan(
    writer: &Arc<AvroSchema>,
    reader: Option<&Arc<AvroSchema>>,
    wanted: &Fields,
) -> Result<RecordSteps, String> {
    let planner = Planner { writer, reader: reader.unwrap_or(writer) };
    planner.record(writer.root(), planner.reader.root(), wanted)
}

struct Planner<'a> {
    writer: &'a Arc<AvroSchema>,
    reader: &'a Arc<AvroSchema>,
}

impl Planner<'_> {
    fn record(&self, writer: &Record, reader: &Record, wanted: &Fields) -> Result<RecordSteps, String> {
        // Which field of the reader a column is; case does not count, as in Spark.
        let place = |column: &FieldRef| {
            let exact = reader.fields.iter().position(|f| *f.name == **column.name());
            exact.or_else(|| reader.fields.iter().position(|f| f.name.eq_ignore_ascii_case(column.name())))
        };
        let places: Vec<Option<usize>> = wanted.iter().map(place).collect();
        let mut seen = vec![false; reader.fields.len()];
        let mut fields = Vec::with_capacity(writer.fields.len());
        for field in &writer.fields {
            let known = reader.fields.iter().position(|f| f.name == field.name);
            let known = known.or_else(|| {
                reader.fields.iter().position(|f| f.aliases.iter().any(|alias| **alias == *field.name))
            });
            known.into_iter().for_each(|index| seen[index] = true);
            let column = known.and_then(|index| places.iter().position(|place| *place == Some(index)));
            fields.push(match (known, column) {
                (Some(index), Some(column)) => {
                    let step = self.step(&field.node, &reader.fields[index].node, wanted[column].data_type());
                    FieldStep::Read(column, step.map_err(|why| format!("field '{}': {why}", field.name))?)
                }
                _ => FieldStep::Skip(field.node.clone()),
            });
        }
        if let Some(field) = reader.fields.iter().zip(&seen).find(|(f, seen)| !**seen && f.default.is_none())
        {
            return Err(format!("the writer has no field '{}', and it has no default", field.0.name));
        }
        let read =
            |column: usize| fields.iter().any(|f| matches!(f, FieldStep::Read(at, _) if *at == column));
        let missing = (0..wanted.len()).filter(|column| !read(*column)).map(|column| {
            let field = places[column].map(|index| &reader.fields[index]);
            Ok((column, field.map(|field| self.constant(field, wanted[column].data_type())).transpose()?))
        });
        let missing = missing.collect::<Result<Vec<_>, String>>()?;
        Ok(RecordSteps { fields, missing })
    }

    fn constant(&self, field: &Field, wanted: &DataType) -> Result<Constant, String> {
        let in_field = |why: String| format!("field '{}': {why}", field.name);
        let mut bytes = Vec::new();
        let null = serde_json::Value::Null;
        let default = field.default.as_ref().unwrap_or(&null);
        push_default(self.reader, &field.node, default, &mut bytes).map_err(in_field)?;
        let own = Planner { writer: self.reader, reader: self.reader };
        let step = own.step(&field.node, &field.node, wanted).map_err(in_field)?;
        Ok(Constant { schema: self.reader.clone(), bytes, step })
    }

    fn step(&self, writer: &Node, reader: &Node, wanted: &DataType) -> Result<Step, String> {
        let (writer, reader) = (self.writer.resolve(writer)?, self.reader.resolve(reader)?);
        match (writer, reader) {
            (Node::Union(branches), _) => self.union(branches, reader, wanted),
            (_, Node::Union(branches)) => self.branch(writer, branches, wanted),
            (Node::Null, Node::Null) => Ok(Step::Null),
            (Node::Array(item), Node::Array(into)) => match wanted {
                DataType::List(field) => {
                    Ok(Step::Array(Box::new(self.step(item, into, field.data_type())?)))
                }
                _ => Err(differs(reader, wanted)),
            },
            (Node::Map(value), Node::Map(into)) => match map_types(wanted) {
                Some((DataType::Utf8, field)) => Ok(Step::Map(Box::new(self.step(value, into, field)?))),
                _ => Err(differs(reader, wanted)),
            },
            (Node::Record(record), Node::Record(into)) if into.name.takes(&record.name) => match wanted {
                DataType::Struct(fields) => Ok(Step::Record(self.record(record, into, fields)?)),
                _ => Err(differs(reader, wanted)),
            },
            (Node::Enum(symbols), Node::Enum(into)) if into.name.takes(&symbols.name) => match wanted {
                DataType::Utf8 => Ok(Step::Enum(symbols_of(symbols, into))),
                _ => Err(differs(reader, wanted)),
            },
            (Node::Fixed(fixed), Node::Fixed(into))
                if fixed.size == into.size && into.name.takes(&fixed.name) =>
            {
                bytes(Some(fixed.size), into.logical, wanted).ok_or_else(|| differs(reader, wanted))
            }
            _ => scalar(writer, reader, wanted),
        }
    }

    /// A value of one of several types.
    fn union(&self, branches: &[Node], reader: &Node, wanted: &DataType) -> Result<Step, String> {
        let steps: Vec<_> = branches.iter().map(|branch| self.step(branch, reader, wanted)).collect();
        if let (false, Some(Err(why))) = (steps.iter().any(is_value), steps.iter().find(|step| step.is_err()))
        {
            return Err(why.clone());
        }
        Ok(Step::Union(steps.into_iter().map(|step| step.unwrap_or_else(Step::Refused)).collect()))
    }

    /// A value that is one of several types for the reader: of the first that is its own, or else that it widens to.
    fn branch(&self, writer: &Node, branches: &[Node], wanted: &DataType) -> Result<Step, String> {
        let values = values(branches);
        let nodes = values.iter().map(|node| self.reader.resolve(node)).collect::<Result<Vec<_>, _>>()?;
        if matches!(writer, Node::Null) {
            let nullable = nodes.len() < branches.len();
            return if nullable { Ok(Step::Null) } else { Err("null is none of the reader's types".into()) };
        }
        let own = nodes.iter().position(|node| same(writer, node));
        let place = own.or_else(|| nodes.iter().position(|node| promotes(writer, node)));
        let Some(place) = place else {
            return Err(format!("{} is none of the reader's types", writer.kind()));
        };
        match (UnionType::of(&nodes), wanted) {
            (UnionType::Members, DataType::Struct(members)) => {
                let name = format!("member{place}");
                match members.iter().position(|member| member.name().eq_ignore_ascii_case(&name)) {
                    Some(at) => {
                        let step = self.step(writer, nodes[place], members[at].data_type())?;
                        Ok(Step::Member(at, Box::new(step)))
                    }
                    None => Err(format!("{name} is none of the columns of {}", type_name(wanted))),
                }
            }
            (UnionType::Members, _) => Err(format!(
                "a union of {} types is read as struct<member0: …>, not {}",
                nodes.len(),
                type_name(wanted)
            )),
            _ => self.step(writer, nodes[place], wanted),
        }
    }
}

fn is_value(step: &Result<Step, String>) -> bool {
    matches!(step, Ok(step) if !matches!(step, Step::Null | Step::Refused(_)))
}

fn map_types(wanted: &DataType) -> Option<(&DataType, &DataType)> {
    let DataType::Map(entries, _) = wanted else { return None };
    match entries.data_type() {
        DataType::Struct(kv) if kv.len() == 2 => Some((kv[0].data_type(), kv[1].data_type())),
        _ => None,
    }
}

/// Whether a value is of this very type of the reader.
fn same(writer: &Node, reader: &Node) -> bool {
    match (writer, reader) {
        (Node::Record(a), Node::Record(b)) => b.name.takes(&a.name),
        (Node::Enum(a), Node::Enum(b)) => b.name.takes(&a.name),
        (Node::Fixed(a), Node::Fixed(b)) => b.name.takes(&a.name) && a.size == b.size,
        _ => std::mem::discriminant(writer) == std::mem::discriminant(reader),
    }
}

/// What Avro's schema resolution widens.
fn promotes(writer: &Node, reader: &Node) -> bool {
    matches!(
        (writer, reader),
        (Node::Int(_), Node::Long(_) | Node::Float | Node::Double)
            | (Node::Long(_), Node::Float | Node::Double)
            | (Node::Float, Node::Double)
            | (Node::String, Node::Bytes(_))
            | (Node::Bytes(_), Node::String)
    )
}

fn symbols_of(writer: &Enum, reader: &Enum) -> Vec<Option<Arc<str>>> {
    let known = |symbol: &Arc<str>| match reader.symbols.contains(symbol) {
        true => Some(symbol.clone()),
        false => reader.default.clone(),
    };
    writer.symbols.iter().map(known).collect()
}

fn scalar(writer: &Node, reader: &Node, wanted: &DataType) -> Result<Step, String> {
    if !same(writer, reader) && !promotes(writer, reader) {
        return Err(format!("{} cannot be read as {}", writer.kind(), reader.kind()));
    }
    let step = match (reader, wanted) {
        (Node::Boolean, DataType::Boolean) => Some(Step::Boolean),
        (Node::Int(_) | Node::Long(_), _) => number(reader, wanted).map(|into| match writer {
            Node::Int(_) => Step::Int(into),
            _ => Step::Long(into),
        }),
        (Node::Float, DataType::Float32) => Some(match writer {
            Node::Int(_) => Step::Int(Number::Float),
            Node::Long(_) => Step::Long(Number::Float),
            _ => Step::Float,
        }),
        (Node::Float | Node::Double, DataType::Float64) => Some(match writer {
            Node::Int(_) => Step::Int(Number::Double),
            Node::Long(_) => Step::Long(Number::Double),
            Node::Float => Step::FloatAsDouble,
            _ => Step::Double,
        }),
        (Node::String, DataType::Utf8) => Some(Step::Text),
        (Node::Bytes(logical), _) => bytes(None, *logical, wanted),
        _ => None,
    };
    step.ok_or_else(|| differs(reader, wanted))
}

/// What Spark reads a whole number as.
fn number(reader: &Node, wanted: &DataType) -> Option<Number> {
    match (reader, wanted) {
        (Node::Int(_), DataType::Int32) => Some(Number::Int),
        (Node::Int(_) | Node::Long(_), DataType::Int64) => Some(Number::Long),
        (Node::Int(_), DataType::Float64) => Some(Number::Double),
        (Node::Int(_), DataType::Date32) => Some(Number::Date),
        (Node::Long(_), DataType::Date32) => Some(Number::DateOfMillis),
        (Node::Long(logical), DataType::Timestamp(TimeUnit::Microsecond, zone)) => match (logical, zone) {
            // Without a meaning of its own, a long is one of milliseconds, as in Spark.
            (Logical::None, _)
            | (Logical::TimestampMillis, Some(_))
            | (Logical::LocalTimestampMillis, None) => Some(Number::Millis),
            (Logical::TimestampMicros, Some(_)) | (Logical::LocalTimestampMicros, None) => {
                Some(Number::Micros)
            }
            _ => None,
        },
        _ => None,
    }
}

fn bytes(fixed: Option<usize>, logical: Logical, wanted: &DataType) -> Option<Step> {
    match (logical, wanted) {
        (_, DataType::Binary) => Some(fixed.map_or(Step::Bytes, Step::Fixed)),
        (Logical::Decimal { precision, scale }, DataType::Decimal128(p, s)) => {
            let (p, s) = (u32::from(*p), u32::try_from(*s).ok()?);
            // Digits before the point must not be lost, as in Spark.
            let fits = precision - scale <= p - s;
            fits.then_some(Step::Decimal { fixed, scale, wanted: (u8::try_from(p).ok()?, s) })
        }
        _ => None,
    }
}

fn differs(reader: &Node, wanted: &DataType) -> String {
    format!("Avro type {} cannot be read as {}", shown(reader), type_name(wanted))
}

fn shown(node: &Node) -> String {
    let logical = match node {
        Node::Int(logical) | Node::Long(logical) | Node::Bytes(logical) => *logical,
        Node::Fixed(fixed) => fixed.logical,
        _ => Logical::None,
    };
    match logical {
        Logical::None => node.kind().to_owned(),
        Logical::Decimal { precision, scale } => format!("{} (decimal({precision},{scale}))", node.kind()),
        Logical::Date => format!("{} (date)", node.kind()),
        Logical::TimestampMillis => format!("{} (timestamp-millis)", node.kind()),
        Logical::TimestampMicros => format!("{} (timestamp-micros)", node.kind()),
        Logical::LocalTimestampMillis => format!("{} (local-timestamp-millis)", node.kind()),
        Logical::LocalTimestampMicros => format!("{} (local-timestamp-micros)", node.kind()),
        Logical::Other => format!("{} (of a logical type that Spark does not read)", node.kind()),
    }
}
