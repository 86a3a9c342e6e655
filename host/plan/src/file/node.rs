//! A pipeline file, or another document written like one, as a tree in which every value knows where it stands.
//!
//! [`super::PipelineFile::read`] and [`super::Document::read`] call it; what the keys mean is none of its business.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Where something stands in a pipeline file, counted from 1. Line 0: it was given by `--set`, and the column
/// counts which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Span {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// How many characters of the file it takes; 0 if that is not known.
    pub length: u32,
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub(super) span: Span,
    pub(super) value: Value,
}

/// What a value can be.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key of a map and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) text: String,
    pub(super) span: Span,
}

impl Node {
    /// Reads YAML, and so JSON too. The error is a message and where it belongs.
    pub(super) fn read(text: &str) -> Result<Self, (String, Span)> {
        let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
        let read = serde_saphyr::from_str_with_options::<Self>(text, options);
        read.map_err(|error| {
            let span = error.location().map(span_of).unwrap_or_default();
            (plain_message(&error.to_string()), span)
        })
    }

    /// Where it stands.
    pub fn span(&self) -> Span {
        self.span
    }

    /// What the value is called in messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map of keys",
        }
    }

    /// Its text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Its items, if it is a list.
    pub fn items(&self) -> Option<&[Self]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// Its keys in the order of the file, each with its place and its value, if it is a map.
    pub fn entries(&self) -> Option<impl Iterator<Item = (&str, Span, &Self)>> {
        match &self.value {
            Value::Map(entries) => {
                Some(entries.iter().map(|(key, node)| (key.text.as_str(), key.span, node)))
            }
            _ => None,
        }
    }

    /// The same as JSON. Numbers that JSON cannot hold are text, as in rows: `"NaN"`, `"Infinity"`.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => Json::from(*value),
            Value::Float(value) => match serde_json::Number::from_f64(*value) {
                Some(number) => Json::Number(number),
                None if value.is_nan() => Json::from("NaN"),
                None => Json::from(if *value > 0.0 { "Infinity" } else { "-Infinity" }),
            },
            Value::Text(text) => Json::from(text.as_str()),
            Value::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Value::Map(entries) => {
                Json::Object(entries.iter().map(|(key, node)| (key.text.clone(), node.to_json())).collect())
            }
        }
    }

    /// The value of a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, v)| v),
            _ => None,
        }
    }
}

/// The library ends its messages with the place; ours begin with it.
fn plain_message(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let text = first.split(" at line ").next().unwrap_or(first);
    let text = text.strip_prefix("error: ").unwrap_or(text);
    match text.find("column ").filter(|_| text.starts_with("line ")) {
        Some(_) => text.split_once(": ").map_or(text, |(_, rest)| rest).to_owned(),
        None => text.to_owned(),
    }
}

fn span_of(location: serde_saphyr::Location) -> Span {
    let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Span {
        line: narrow(location.line()),
        column: narrow(location.column()),
        length: narrow(location.span().len()),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_saphyr::Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { span: span_of(spanned.referenced), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_saphyr::Spanned::<String>::deserialize(deserializer)?;
        Ok(Self { span: span_of(spanned.referenced), text: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_place() {
        let tree = Node::read("a: 1\nb:\n  - c: no\n  - 2.5\n").expect("reads");
        let b = tree.get("b").expect("b");
        let Value::List(items) = &b.value else { panic!("a list: {b:?}") };
        let c = items[0].get("c").expect("c");
        assert_eq!((&c.value, c.span.line, c.span.column), (&Value::Text("no".into()), 3, 8));
        assert_eq!((&items[1].value, items[1].span.line), (&Value::Float(2.5), 4));
        let Value::Map(entries) = &tree.value else { panic!("a map") };
        assert_eq!((entries[1].0.span.line, entries[1].0.span.column), (2, 1));
    }

    #[test]
    fn broken_yaml_is_an_error_with_its_place() {
        let (message, span) = Node::read("a: [1, 2\nb: 3\n").expect_err("refused");
        assert!(span.line >= 1 && !message.is_empty(), "{message} {span:?}");
    }

    #[test]
    fn a_key_given_twice_is_refused() {
        let (message, span) = Node::read("a: 1\na: 2\n").expect_err("refused");
        assert!(message.contains("duplicate") && span.line == 2, "{message} {span:?}");
    }
}
