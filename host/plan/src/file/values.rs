//! Small values of the pipeline file: durations, sizes, options, and values that know their place.

use super::deserialize::SPANNED;
use super::node::Span;
use pelton_core::Interval;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// A value and its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Span,
}

/// A text and its place.
pub type SpannedText = Spanned<String>;

impl<T> Spanned<T> {
    /// A value that stands in no file, such as a default.
    pub fn unplaced(value: T) -> Self {
        Self { value, span: Span::default() }
    }
}

impl<T: Default> Default for Spanned<T> {
    fn default() -> Self {
        Self::unplaced(T::default())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
            type Value = Spanned<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value with its place")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Spanned<T>, A::Error> {
                let missing = || de::Error::custom("a place and a value");
                let [line, column, length]: [u32; 3] = seq.next_element()?.ok_or_else(missing)?;
                let value = seq.next_element()?.ok_or_else(missing)?;
                Ok(Spanned { value, span: Span { line, column, length } })
            }
        }
        deserializer.deserialize_struct(SPANNED, &["span", "value"], Parts(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

/// A duration as Spark writes intervals: `10 minutes`, `1 hour 30 minutes`, `500 ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duration(Interval);

impl Duration {
    /// Reads one; negative ones are refused.
    pub fn parse(text: &str) -> Result<Self, String> {
        let interval = Interval::parse(text)?;
        match interval.as_micros() {
            0.. => Ok(Self(interval)),
            _ => Err(format!("'{text}' is negative; a duration here is not")),
        }
    }
    /// As core has it.
    pub fn interval(self) -> Interval {
        self.0
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_str(Text("a duration such as '10 seconds'"))?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "title": "duration", "examples": ["10 seconds", "1 hour 30 minutes"]})
    }
}

/// A number of bytes: `4096`, `64KiB`, `64MiB`, `1GiB` (`KB`, `MB`, `GB` are powers of 1000).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Reads one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let wrong = || format!("'{text}' is not a number of bytes; write for example '64MiB'");
        let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number.checked_mul(scale).map(Self).ok_or_else(|| format!("'{text}' is too large"))
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(Text("a number of bytes such as '64MiB'"))?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "bytes".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "integer"], "title": "bytes", "examples": ["64MiB"]})
    }
}

/// Reads a text, and a whole number as its text.
struct Text(&'static str);

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }
}

/// The options of a format by Spark's names in snake case: `{header: true, null_value: NA}`. Which there are is
/// the format's business.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct FormatOptions(pub BTreeMap<String, Spanned<OptionValue>>);

impl FormatOptions {
    /// The options as texts: `true`, `NA`, `100`.
    pub fn texts(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, value)| (name.clone(), value.value.to_string())).collect()
    }
}

/// An option's value: text, a number, true or false.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// A text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// Another number.
    Float(f64),
    /// True or false.
    Bool(bool),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Int(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Bool(value) => value.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for OptionValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = OptionValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, a number, true or false")
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<OptionValue, E> {
                Ok(OptionValue::Text(value.to_owned()))
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<OptionValue, E> {
                Ok(OptionValue::Bool(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<OptionValue, E> {
                Ok(OptionValue::Int(value))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<OptionValue, E> {
                i64::try_from(value).map(OptionValue::Int).map_err(|_| E::custom("the number is too large"))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<OptionValue, E> {
                Ok(OptionValue::Float(value))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

impl JsonSchema for OptionValue {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "option".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "number", "boolean"]})
    }
}
