//! From the tree of a pipeline file to its types, by serde: whatever goes wrong is tied to the place in the file.
//!
//! [`super::PipelineFile::read`] calls it. Three kinds of enum that serde cannot tell apart without losing the
//! places are told apart here, by the type's name: see [`shape`].

use super::node::{Key, Node, Span, Value};
use pelton_core::suggest::{did_you_mean, nearest};
use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use std::fmt;

/// The name by which [`super::Spanned`] asks for the place beside the value.
pub(super) const SPANNED: &str = "$pelton::Spanned";

/// What is wrong, and where.
#[derive(Debug)]
pub struct ReadError {
    pub(super) message: String,
    pub(super) span: Option<Span>,
}

impl ReadError {
    fn at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }
    pub(super) fn new(message: impl Into<String>, span: Span) -> Self {
        Self { message: message.into(), span: Some(span) }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), span: None }
    }
    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format!("expected {expected}, found {}", described(found)))
    }
    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(match not_yet(field) {
            Some(what) => format!("'{field}' is not supported in this version: {what}"),
            None => {
                format!("there is no key '{field}' here{}", did_you_mean(field, expected.iter().copied()))
            }
        })
    }
    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(match PLANNED.contains(&variant) {
            true => {
                format!("'{variant}' is not supported in this version, which has: {}", expected.join(", "))
            }
            false => {
                format!("'{variant}' is not possible here{}", did_you_mean(variant, expected.iter().copied()))
            }
        })
    }
    fn missing_field(field: &'static str) -> Self {
        Self::custom(format!("the key '{field}' is missing here"))
    }
}

fn described(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(text) => format!("the text '{text}'"),
        Unexpected::Bool(value) => format!("{value} (put it in quotes if text is meant)"),
        Unexpected::Signed(value) => format!("the number {value} (put it in quotes if text is meant)"),
        Unexpected::Unsigned(value) => format!("the number {value} (put it in quotes if text is meant)"),
        Unexpected::Float(value) => format!("the number {value} (put it in quotes if text is meant)"),
        Unexpected::Unit | Unexpected::Option => "nothing".into(),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a map of keys".into(),
        other => other.to_string(),
    }
}

/// Words that the design has and this version has not.
const PLANNED: [&str; 5] = ["socket", "plugin", "avro", "raw", "orc"];

/// Keys that the design has and this version has not, with what to do instead.
fn not_yet(key: &str) -> Option<&'static str> {
    Some(match key {
        "drop_duplicates" => "the step is called `dedup`",
        "join" | "union" | "limit" | "sort" | "aggregate" | "group_by" => "write it as a `sql` step",
        "allow" => "plugins get no capabilities yet; leave it out",
        _ => return None,
    })
}

/// How an enum is written in the file.
enum Shape {
    /// One key of a map names the variant, the other keys are the variant's.
    Tagged(&'static str),
    /// The variant is the one whose name is a key of the map; the whole map is the variant's.
    OneOfTheKeys,
    /// The variant follows from what kind of value it is: (kind of value, variant).
    ByKind(&'static [(&'static str, &'static str)]),
    /// As serde does it: the variant's name, or a map of it alone.
    Plain,
}

fn shape(enum_name: &str) -> Shape {
    match enum_name {
        "SourceSpec" | "SinkSpec" | "DeadLetterConnector" => Shape::Tagged("connector"),
        "StepSpec" => Shape::OneOfTheKeys,
        "PluginSpec" => Shape::ByKind(&[("text", "path"), ("a map of keys", "full")]),
        "DeadLettersSpec" => Shape::ByKind(&[("text", "directory"), ("a map of keys", "connector")]),
        "SchemaSpec" => Shape::ByKind(&[("text", "ddl"), ("a map of keys", "columns")]),
        "SelectItem" => Shape::ByKind(&[("text", "expression"), ("a map of keys", "named")]),
        "SelectSpec" => Shape::ByKind(&[("text", "one"), ("a list", "many"), ("a map of keys", "named")]),
        "DedupSpec" => Shape::ByKind(&[("text", "all"), ("a list", "columns"), ("a map of keys", "full")]),
        "TopicsSpec" => Shape::ByKind(&[("text", "one"), ("a list", "many")]),
        "OffsetsSpec" => Shape::ByKind(&[("text", "word"), ("a map of keys", "offsets")]),
        "Truncate" => Shape::ByKind(&[("true or false", "flag"), ("a number", "width")]),
        _ => Shape::Plain,
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let read = match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value) => match u64::try_from(*value) {
                Ok(value) => visitor.visit_u64(value),
                Err(_) => visitor.visit_i64(*value),
            },
            Value::Float(value) => visitor.visit_f64(*value),
            Value::Text(value) => visitor.visit_borrowed_str(value),
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Map(entries) => visitor.visit_map(Entries::new(entries, None)),
        };
        read.map_err(|e| e.at(self.span))
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self).map_err(|e| e.at(self.span))
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match name == SPANNED {
            true => visitor.visit_seq(SpanThenValue(Some(self), true)),
            false => self.deserialize_any(visitor),
        }
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let chosen = choose(self, shape(name), variants)?;
        visitor.visit_enum(chosen).map_err(|e| e.at(self.span))
    }
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier
    }
}

fn choose<'de>(node: &'de Node, shape: Shape, variants: &[&'static str]) -> Result<Chosen<'de>, ReadError> {
    let list = || variants.join(", ");
    match shape {
        Shape::Tagged(tag) => {
            let Value::Map(entries) = &node.value else {
                return Err(ReadError::new(
                    format!("expected a map of keys, found {}", node.kind()),
                    node.span,
                ));
            };
            let Some(value) = node.get(tag) else {
                return Err(ReadError::new(
                    format!("the key '{tag}' is missing here; there are: {}", list()),
                    node.span,
                ));
            };
            let Value::Text(variant) = &value.value else {
                return Err(ReadError::new(format!("'{tag}' must be one of: {}", list()), value.span));
            };
            Ok(Chosen { variant, span: value.span, content: Content::Rest(entries, tag, node.span) })
        }
        Shape::OneOfTheKeys => one_of_the_keys(node, variants),
        Shape::ByKind(kinds) => match kinds.iter().find(|(kind, _)| *kind == node.kind()) {
            Some((_, variant)) => Ok(Chosen { variant, span: node.span, content: Content::Node(node) }),
            None => {
                let kinds: Vec<&str> = kinds.iter().map(|(kind, _)| *kind).collect();
                Err(ReadError::new(
                    format!("expected {}, found {}", kinds.join(" or "), node.kind()),
                    node.span,
                ))
            }
        },
        Shape::Plain => match &node.value {
            Value::Text(variant) => Ok(Chosen { variant, span: node.span, content: Content::Nothing }),
            Value::Map(entries) if entries.len() == 1 => {
                let (key, value) = &entries[0];
                Ok(Chosen { variant: &key.text, span: key.span, content: Content::Node(value) })
            }
            _ => Err(ReadError::new(format!("expected one of: {}", list()), node.span)),
        },
    }
}

fn one_of_the_keys<'de>(node: &'de Node, variants: &[&'static str]) -> Result<Chosen<'de>, ReadError> {
    let list = variants.join(", ");
    let Value::Map(entries) = &node.value else {
        let what =
            format!("a step is a key and its value, for example 'filter: x > 1'; found {}", node.kind());
        return Err(ReadError::new(what, node.span));
    };
    let mut found = entries.iter().filter(|(key, _)| variants.contains(&key.text.as_str()));
    match (found.next(), found.next()) {
        (Some((key, _)), None) => {
            Ok(Chosen { variant: &key.text, span: key.span, content: Content::Node(node) })
        }
        (Some((first, _)), Some((second, _))) => {
            let what = format!("a step does one thing; '{}' and '{}' are two steps", first.text, second.text);
            Err(ReadError::new(what, second.span))
        }
        (None, _) => {
            let Some((key, _)) = entries.iter().find(|(key, _)| key.text != "name") else {
                return Err(ReadError::new(format!("a step needs one of: {list}"), node.span));
            };
            let what = match not_yet(&key.text) {
                Some(what) => format!("'{}' is not supported in this version: {what}", key.text),
                None => match nearest(&key.text, variants.iter().copied()) {
                    Some(near) => format!("there is no step '{}'; did you mean '{near}'?", key.text),
                    None => format!("there is no step '{}'; there are: {list}", key.text),
                },
            };
            Err(ReadError::new(what, key.span))
        }
    }
}

enum Content<'de> {
    Nothing,
    Node(&'de Node),
    /// All entries but the tag's.
    Rest(&'de [(Key, Node)], &'static str, Span),
}

struct Chosen<'de> {
    variant: &'de str,
    span: Span,
    content: Content<'de>,
}

impl<'de> EnumAccess<'de> for Chosen<'de> {
    type Error = ReadError;
    type Variant = Content<'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Content<'de>), ReadError> {
        let name: StrDeserializer<'de, ReadError> = self.variant.into_deserializer();
        Ok((seed.deserialize(name).map_err(|e| e.at(self.span))?, self.content))
    }
}

impl<'de> VariantAccess<'de> for Content<'de> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        match self {
            Content::Node(node) => Err(ReadError::new("expected nothing after this word", node.span)),
            _ => Ok(()),
        }
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        match self {
            Content::Nothing => Err(de::Error::custom("a value is missing after this word")),
            Content::Node(node) => seed.deserialize(node).map_err(|e| e.at(node.span)),
            Content::Rest(entries, tag, span) => seed
                .deserialize(de::value::MapAccessDeserializer::new(Entries::new(entries, Some(tag))))
                .map_err(|e| e.at(span)),
        }
    }
    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, ReadError> {
        Err(de::Error::custom("a list is not possible here"))
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ReadError> {
        Err(de::Error::custom("a map of keys is not possible here"))
    }
}

struct Items<'de>(std::slice::Iter<'de, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        self.0.next().map(|node| seed.deserialize(node).map_err(|e| e.at(node.span))).transpose()
    }
}

struct Entries<'de> {
    entries: std::slice::Iter<'de, (Key, Node)>,
    value: Option<&'de Node>,
    skip: Option<&'static str>,
}

impl<'de> Entries<'de> {
    fn new(entries: &'de [(Key, Node)], skip: Option<&'static str>) -> Self {
        Self { entries: entries.iter(), value: None, skip }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        let skip = self.skip;
        let Some((key, value)) = self.entries.find(|(key, _)| Some(key.text.as_str()) != skip) else {
            return Ok(None);
        };
        self.value = Some(value);
        seed.deserialize(KeyDeserializer(key)).map(Some).map_err(|e| e.at(key.span))
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let node = self.value.take().ok_or_else(|| de::Error::custom("a value without a key"))?;
        seed.deserialize(node).map_err(|e| e.at(node.span))
    }
}

struct KeyDeserializer<'de>(&'de Key);

impl<'de> Deserializer<'de> for KeyDeserializer<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_borrowed_str(&self.0.text)
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let Span { line, column, length } = self.0.span;
        let parts = SpanThenText(vec![line, column, length], &self.0.text, 0);
        visitor.visit_seq(parts)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// What [`super::Spanned`] reads: the place, then the value.
struct SpanThenValue<'de>(Option<&'de Node>, bool);

impl<'de> SeqAccess<'de> for SpanThenValue<'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        let Some(node) = self.0 else { return Ok(None) };
        if self.1 {
            self.1 = false;
            let Span { line, column, length } = node.span;
            return seed.deserialize(SeqDeserializer::new([line, column, length].into_iter())).map(Some);
        }
        self.0 = None;
        seed.deserialize(node).map(Some).map_err(|e| e.at(node.span))
    }
}

struct SpanThenText<'de>(Vec<u32>, &'de str, u8);

impl<'de> SeqAccess<'de> for SpanThenText<'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        self.2 += 1;
        match self.2 {
            1 => seed.deserialize(SeqDeserializer::new(std::mem::take(&mut self.0).into_iter())).map(Some),
            2 => {
                let text: StrDeserializer<'de, ReadError> = self.1.into_deserializer();
                seed.deserialize(text).map(Some)
            }
            _ => Ok(None),
        }
    }
}
