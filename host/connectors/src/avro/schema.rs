//! Avro schemas: from JSON to a tree whose named types are looked up by name, so that they may be recursive.

use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a `fixed` type, at most.
const FIXED_BYTES_MAX: u64 = 1 << 20;
const PRIMITIVES: [&str; 8] = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"];

/// A type of Avro.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Null,
    Boolean,
    Int(Logical),
    Long(Logical),
    Float,
    Double,
    Bytes(Logical),
    String,
    Fixed(Arc<Fixed>),
    Enum(Arc<Enum>),
    Array(Arc<Node>),
    Map(Arc<Node>),
    Record(Arc<Record>),
    Union(Arc<[Node]>),
    /// A named type that is defined elsewhere in the schema.
    Named(Arc<str>),
}

/// What a value means beyond its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Logical {
    #[default]
    None,
    Date,
    TimestampMillis,
    TimestampMicros,
    LocalTimestampMillis,
    LocalTimestampMicros,
    Decimal {
        precision: u32,
        scale: u32,
    },
    /// One that Spark has no type for.
    Other,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Fixed {
    pub(crate) name: Name,
    pub(crate) size: usize,
    pub(crate) logical: Logical,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Enum {
    pub(crate) name: Name,
    pub(crate) symbols: Vec<Arc<str>>,
    pub(crate) default: Option<Arc<str>>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) name: Name,
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: Arc<str>,
    pub(crate) aliases: Vec<String>,
    pub(crate) node: Node,
    pub(crate) default: Option<Value>,
}

/// A full name and those that it had before.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Name {
    pub(crate) full: Arc<str>,
    aliases: Vec<String>,
}

impl Name {
    fn last(&self) -> &str {
        self.full.rsplit('.').next().unwrap_or_default()
    }
    /// Whether a writer's type of that name is read as this one.
    pub(crate) fn takes(&self, writer: &Self) -> bool {
        self.last() == writer.last() || self.aliases.iter().any(|alias| **alias == *writer.full)
    }
}

/// A schema whose root is a record: what is none becomes a record of one field, `value`, whose bytes are the same.
#[derive(Debug, Clone)]
pub(crate) struct AvroSchema {
    text: Arc<str>,
    root: Arc<Record>,
    names: BTreeMap<Arc<str>, Node>,
}

impl AvroSchema {
    /// Reads a schema. The error is of kind `Invalid`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::parse_with(text, &[])
    }

    /// Reads a schema that names types of others, which come before it.
    pub(crate) fn parse_with(text: &str, references: &[String]) -> Result<Self> {
        let bad = |what: String| Error::invalid(format!("not an Avro schema: {what}"));
        let mut names = BTreeMap::new();
        let mut root = Node::Null;
        for text in references.iter().map(String::as_str).chain([text]) {
            // A name alone is a schema too, quoted or not.
            let json = match PRIMITIVES.contains(&text.trim()) {
                true => Value::String(text.trim().to_owned()),
                false => serde_json::from_str(text).map_err(|e| bad(e.to_string()))?,
            };
            root = Parser { names: &mut names }.node(&json, "").map_err(bad)?;
        }
        let schema = Self { text: text.into(), root: wrapped(&root), names };
        Ok(match schema.resolve(&root).map_err(bad)? {
            Node::Record(record) => Self { root: record.clone(), ..schema },
            _ => schema,
        })
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Its fields are the columns.
    pub(crate) fn root(&self) -> &Arc<Record> {
        &self.root
    }

    /// The type itself, if `node` is but its name.
    pub(crate) fn resolve<'a>(&'a self, node: &'a Node) -> Result<&'a Node, String> {
        match node {
            Node::Named(name) => self.names.get(name).ok_or_else(|| format!("type '{name}' is not defined")),
            node => Ok(node),
        }
    }
}

fn wrapped(node: &Node) -> Arc<Record> {
    let field = Field { name: "value".into(), aliases: vec![], node: node.clone(), default: None };
    let name = Name { full: "topLevelRecord".into(), aliases: vec![] };
    Arc::new(Record { name, fields: vec![field] })
}

impl Node {
    /// The word in a schema.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Int(_) => "int",
            Self::Long(_) => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bytes(_) => "bytes",
            Self::String => "string",
            Self::Fixed(_) => "fixed",
            Self::Enum(_) => "enum",
            Self::Array(_) => "array",
            Self::Map(_) => "map",
            Self::Record(_) => "record",
            Self::Union(_) => "union",
            Self::Named(_) => "named type",
        }
    }
}

struct Parser<'a> {
    names: &'a mut BTreeMap<Arc<str>, Node>,
}

impl Parser<'_> {
    fn node(&mut self, json: &Value, namespace: &str) -> Result<Node, String> {
        match json {
            Value::String(name) => self.by_name(name, namespace, Logical::None),
            Value::Array(branches) => {
                let branches = branches.iter().map(|branch| self.node(branch, namespace));
                let branches = branches.collect::<Result<Vec<_>, _>>()?;
                match branches.iter().any(|branch| matches!(branch, Node::Union(_))) {
                    true => Err("a union must not hold a union".into()),
                    false => Ok(Node::Union(branches.into())),
                }
            }
            Value::Object(map) => self.object(map, namespace),
            other => Err(format!("{other} is no type")),
        }
    }

    fn by_name(&mut self, name: &str, namespace: &str, logical: Logical) -> Result<Node, String> {
        let numeric = |logical| match logical {
            Logical::Decimal { .. } => Logical::None,
            logical => logical,
        };
        Ok(match name {
            "null" => Node::Null,
            "boolean" => Node::Boolean,
            "int" => Node::Int(numeric(logical)),
            "long" => Node::Long(numeric(logical)),
            "float" => Node::Float,
            "double" => Node::Double,
            "bytes" => Node::Bytes(logical),
            "string" => Node::String,
            name => {
                let full = full_name(name, namespace);
                let found = [full.as_str(), name].into_iter().find_map(|n| self.names.get_key_value(n));
                let known = self.names.keys().map(|name| &**name).chain(PRIMITIVES);
                let missing = || format!("there is no type '{name}'{}", did_you_mean(name, known));
                Node::Named(found.ok_or_else(missing)?.0.clone())
            }
        })
    }

    fn object(&mut self, map: &Map<String, Value>, namespace: &str) -> Result<Node, String> {
        let Some(kind) = map.get("type") else { return Err("a type has no \"type\"".into()) };
        let Value::String(kind) = kind else { return self.node(kind, namespace) };
        match kind.as_str() {
            "array" | "map" => {
                let key = if kind == "array" { "items" } else { "values" };
                let item = map.get(key).ok_or_else(|| format!("type {kind} has no \"{key}\""))?;
                let item = Arc::new(self.node(item, namespace)?);
                Ok(if kind == "array" { Node::Array(item) } else { Node::Map(item) })
            }
            "record" | "error" | "enum" | "fixed" => self.named(kind, map, namespace),
            name => self.by_name(name, namespace, logical(map)),
        }
    }

    fn named(&mut self, kind: &str, map: &Map<String, Value>, outer: &str) -> Result<Node, String> {
        let name = map.get("name").and_then(Value::as_str).ok_or(format!("a type {kind} has no name"))?;
        let namespace = map.get("namespace").and_then(Value::as_str).unwrap_or(outer);
        let full: Arc<str> = full_name(name, namespace).into();
        let namespace = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        let aliases = texts(map.get("aliases")).iter().map(|alias| full_name(alias, &namespace)).collect();
        if self.names.contains_key(&full) {
            return Err(format!("type '{full}' is defined twice"));
        }
        // Known by its name while its own fields are read: it may be recursive.
        self.names.insert(full.clone(), Node::Null);
        let name = Name { full: full.clone(), aliases };
        let node = match kind {
            "enum" => enumeration(name, map)?,
            "fixed" => fixed(name, map)?,
            _ => self.record(name, map, &namespace)?,
        };
        self.names.insert(full, node.clone());
        Ok(node)
    }

    fn record(&mut self, name: Name, map: &Map<String, Value>, namespace: &str) -> Result<Node, String> {
        let fields = map.get("fields").and_then(Value::as_array);
        let fields = fields.ok_or_else(|| format!("record '{}' has no \"fields\"", name.full))?;
        let mut read: Vec<Field> = Vec::with_capacity(fields.len());
        for field in fields {
            let in_record = |what: &str| format!("a field of record '{}' has no \"{what}\"", name.full);
            let field_name = field.get("name").and_then(Value::as_str).ok_or_else(|| in_record("name"))?;
            let node = self.node(field.get("type").ok_or_else(|| in_record("type"))?, namespace)?;
            if read.iter().any(|field| &*field.name == field_name) {
                return Err(format!("record '{}' has two fields '{field_name}'", name.full));
            }
            let aliases = texts(field.get("aliases"));
            let default = field.get("default").cloned();
            read.push(Field { name: field_name.into(), aliases, node, default });
        }
        Ok(Node::Record(Arc::new(Record { name, fields: read })))
    }
}

fn enumeration(name: Name, map: &Map<String, Value>) -> Result<Node, String> {
    let symbols: Vec<Arc<str>> = texts(map.get("symbols")).into_iter().map(Into::into).collect();
    if symbols.is_empty() {
        return Err(format!("enum '{}' has no \"symbols\"", name.full));
    }
    let default = map.get("default").and_then(Value::as_str).map(Into::into);
    Ok(Node::Enum(Arc::new(Enum { name, symbols, default })))
}

fn fixed(name: Name, map: &Map<String, Value>) -> Result<Node, String> {
    let size = map.get("size").and_then(Value::as_u64).filter(|size| *size <= FIXED_BYTES_MAX);
    let size = size
        .ok_or_else(|| format!("fixed '{}' needs a \"size\" of at most {FIXED_BYTES_MAX} bytes", name.full))?
        as usize;
    let logical = match logical(map) {
        // As the specification says: a decimal that does not fit into the bytes is none.
        Logical::Decimal { precision, .. } if !fits(precision, size) => Logical::None,
        logical => logical,
    };
    Ok(Node::Fixed(Arc::new(Fixed { name, size, logical })))
}

/// Whether all decimals of a precision fit into so many bytes.
fn fits(precision: u32, size: usize) -> bool {
    let bits = (size as f64 * 8.0 - 1.0).max(0.0);
    f64::from(precision) <= (bits * std::f64::consts::LOG10_2).floor()
}

fn logical(map: &Map<String, Value>) -> Logical {
    let number = |key: &str| map.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    match map.get("logicalType").and_then(Value::as_str) {
        Some("date") => Logical::Date,
        Some("timestamp-millis") => Logical::TimestampMillis,
        Some("timestamp-micros") => Logical::TimestampMicros,
        Some("local-timestamp-millis") => Logical::LocalTimestampMillis,
        Some("local-timestamp-micros") => Logical::LocalTimestampMicros,
        Some("decimal") => match (number("precision"), number("scale").unwrap_or(0)) {
            (Some(precision), scale) if precision > 0 && scale <= precision => {
                Logical::Decimal { precision, scale }
            }
            _ => Logical::None,
        },
        Some("time-millis" | "time-micros" | "timestamp-nanos" | "local-timestamp-nanos") => Logical::Other,
        _ => Logical::None,
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn full_name(name: &str, namespace: &str) -> String {
    match namespace.is_empty() || name.contains('.') {
        true => name.to_owned(),
        false => format!("{namespace}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_their_namespace() {
        let text = r#"{"type": "record", "name": "a.b.R", "fields": [
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X"]}},
            {"name": "again", "type": "E"}, {"name": "self", "type": ["null", "R"], "default": null}]}"#;
        let schema = AvroSchema::parse(text).unwrap();
        assert_eq!(schema.root().fields[1].node, Node::Named("a.b.E".into()));
        let named = schema.resolve(&schema.root().fields[1].node).unwrap();
        assert_eq!(named, &schema.root().fields[0].node);
    }

    #[test]
    fn what_is_no_record_is_one_column() {
        for text in ["long", "\"long\"", r#"{"type": "long"}"#] {
            let schema = AvroSchema::parse(text).unwrap();
            assert_eq!(&*schema.root().fields[0].name, "value");
            assert_eq!(schema.root().fields[0].node, Node::Long(Logical::None));
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let wrong = |text: &str| AvroSchema::parse(text).unwrap_err().message().to_owned();
        assert_eq!(wrong("\"lon\""), "not an Avro schema: there is no type 'lon'; did you mean 'long'?");
        assert_eq!(wrong(r#"{"type": "array"}"#), "not an Avro schema: type array has no \"items\"");
        assert!(wrong("{").starts_with("not an Avro schema: EOF"), "{}", wrong("{"));
        let twice =
            r#"[{"type": "fixed", "name": "f", "size": 1}, {"type": "fixed", "name": "f", "size": 2}]"#;
        assert_eq!(wrong(twice), "not an Avro schema: type 'f' is defined twice");
    }

    #[test]
    fn a_decimal_needs_room() {
        for (precision, size, fit) in
            [(2, 1, true), (3, 1, false), (18, 8, true), (19, 8, false), (38, 16, true)]
        {
            assert_eq!(fits(precision, size), fit, "{precision} digits in {size} bytes");
        }
    }
}
