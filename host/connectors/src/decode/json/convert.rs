//! From spans to columns: what a JSON value means for a column of some type, as Spark's reader has it.
//!
//! A value of the wrong type is null in its struct and makes the record malformed; an array or a map with
//! such a value is null as a whole; what stands beside it is kept (Spark's partial results).

use super::scan::{Kind, Scanner, Span};
use super::shape::Shape;
use super::text::{compact, unescape};
use crate::decode::column::{Column, Values, count};
use crate::decode::number::{parse_decimal, parse_i64};
use crate::decode::pattern::Pattern;
use crate::decode::time::{Zone, parse_date, parse_timestamp, parse_timestamp_ntz};
use arrow::datatypes::{DataType, Fields};
use base64::Engine;
use pelton_core::types::type_name;
use pelton_core::{Error, Result};
use std::borrow::Cow;

/// How texts become values.
#[derive(Debug, Clone)]
pub(super) struct Converter {
    pub(super) zone: Zone,
    pub(super) date: Option<Pattern>,
    pub(super) timestamp: Option<Pattern>,
    pub(super) timestamp_ntz: Option<Pattern>,
    /// Whether `NaN` and its like are numbers, with or without quotes.
    pub(super) non_numeric: bool,
    /// Objects and arrays go into a string as they are written (Spark's files), not compactly (`from_json`).
    pub(super) exact: bool,
}

/// A type's part that knows objects; it mirrors the column's structure.
#[derive(Debug)]
pub(super) enum Node {
    Leaf,
    List(Box<Node>),
    Map(Box<Node>),
    Struct(Box<StructNode>),
}

/// A struct: its fields' places in the object being read.
#[derive(Debug)]
pub(super) struct StructNode {
    fields: Fields,
    shape: Shape,
    pub(super) spans: Vec<Span>,
    children: Vec<Node>,
    /// A column that is not read from the object.
    skip: Option<usize>,
}

/// What became of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is in the column.
    Good,
    /// It is in the column, but something in it is null that should not be.
    Partial,
    /// Nothing was appended.
    Bad,
}

impl Node {
    pub(super) fn new(data_type: &DataType) -> Result<Self> {
        Ok(match data_type {
            DataType::List(item) => Self::List(Box::new(Self::new(item.data_type())?)),
            DataType::Struct(fields) => Self::Struct(Box::new(StructNode::new(fields, None)?)),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(kv) if kv.len() == 2 && kv[0].data_type() == &DataType::Utf8 => {
                    Self::Map(Box::new(Self::new(kv[1].data_type())?))
                }
                _ => {
                    let found = type_name(data_type);
                    return Err(Error::invalid(format!(
                        "the keys of a map in JSON are strings, which {found} has not"
                    )));
                }
            },
            _ => Self::Leaf,
        })
    }
}

impl StructNode {
    pub(super) fn new(fields: &Fields, skip: Option<usize>) -> Result<Self> {
        let names = fields.iter().enumerate().filter(|(i, _)| Some(*i) != skip);
        Ok(Self {
            shape: Shape::new(names.map(|(i, f)| (f.name().as_str(), i))),
            spans: vec![Span::MISSING; fields.len()],
            children: fields.iter().map(|f| Node::new(f.data_type())).collect::<Result<_>>()?,
            fields: fields.clone(),
            skip,
        })
    }

    /// Reads the object at which `scanner` stands.
    #[inline]
    pub(super) fn read(&mut self, scanner: &mut Scanner<'_>) -> Result<(), super::scan::Fault> {
        self.shape.read(scanner, &mut self.spans)
    }

    /// Appends a row from the object that was read last. False: some field was null that should not be.
    #[inline]
    pub(super) fn fill(
        &mut self,
        to: &Converter,
        text: &[u8],
        columns: &mut [Column],
        why: &mut String,
    ) -> bool {
        let mut good = true;
        for (i, column) in columns.iter_mut().enumerate() {
            let span = self.spans[i];
            if matches!(span.kind, Kind::Missing | Kind::Null) {
                if Some(i) != self.skip {
                    column.push_null();
                }
                continue;
            }
            let outcome = to.append(&mut self.children[i], column, span, text, why);
            if outcome != Outcome::Good {
                good = false;
                self.note(i, outcome, span, text, column, why);
            }
        }
        good
    }

    #[cold]
    fn note(
        &self,
        i: usize,
        outcome: Outcome,
        span: Span,
        text: &[u8],
        column: &mut Column,
        why: &mut String,
    ) {
        if outcome == Outcome::Bad {
            column.push_null();
        }
        if why.is_empty() {
            let shown = String::from_utf8_lossy(span.of(text));
            let shown: String = shown.chars().take(60).collect();
            let quote = if matches!(span.kind, Kind::Text | Kind::Escaped) { "\"" } else { "" };
            let wanted = type_name(self.fields[i].data_type());
            *why = format!("column '{}': {quote}{shown}{quote} is not {wanted}", self.fields[i].name());
        }
    }
}

impl Converter {
    /// Appends the value at `span`, which is neither missing nor null.
    #[inline]
    pub(super) fn append(
        &self,
        node: &mut Node,
        column: &mut Column,
        span: Span,
        text: &[u8],
        why: &mut String,
    ) -> Outcome {
        match node {
            Node::Leaf => {
                if self.leaf(&mut column.values, span, text) {
                    column.valid();
                    Outcome::Good
                } else {
                    Outcome::Bad
                }
            }
            _ => self.nested(node, column, span, text, why),
        }
    }

    fn nested(
        &self,
        node: &mut Node,
        column: &mut Column,
        span: Span,
        text: &[u8],
        why: &mut String,
    ) -> Outcome {
        let len = column.len();
        let mut scanner = Scanner { text, at: span.start as usize, non_numeric: self.non_numeric };
        let outcome = match (node, &mut column.values, span.kind) {
            (Node::Struct(node), Values::Struct { columns, .. }, Kind::Object) => {
                let read = node.read(&mut scanner).is_ok();
                match read && node.fill(self, text, columns, why) {
                    true => Outcome::Good,
                    false if read => Outcome::Partial,
                    false => Outcome::Bad,
                }
            }
            (Node::List(node), Values::List { offsets, item, .. }, Kind::Array) => {
                let outcome = self.items(node, item, &mut scanner, why);
                offsets.push(count(item.len()));
                outcome
            }
            (Node::Map(node), Values::Map { offsets, key, value, .. }, Kind::Object) => {
                let outcome = self.pairs(node, (key, value), &mut scanner, why);
                offsets.push(count(key.len()));
                outcome
            }
            _ => return Outcome::Bad,
        };
        if outcome == Outcome::Bad {
            column.truncate(len);
        } else {
            column.valid();
        }
        outcome
    }

    /// The elements of the array at which `scanner` stands; it has been checked before.
    fn items(
        &self,
        node: &mut Node,
        item: &mut Column,
        scanner: &mut Scanner<'_>,
        why: &mut String,
    ) -> Outcome {
        let mut all = Outcome::Good;
        let mut more = open(scanner, b']');
        while more {
            let Ok(span) = scanner.value() else { return Outcome::Bad };
            match self.element(node, item, span, scanner.text, why) {
                Outcome::Bad => return Outcome::Bad,
                Outcome::Partial => all = Outcome::Partial,
                Outcome::Good => {}
            }
            more = another(scanner);
        }
        all
    }

    fn pairs(
        &self,
        node: &mut Node,
        to: (&mut Column, &mut Column),
        scanner: &mut Scanner<'_>,
        why: &mut String,
    ) -> Outcome {
        let mut all = Outcome::Good;
        let (keys, values) = to;
        let mut more = open(scanner, b'}');
        while more {
            let Ok(key) = scanner.key() else { return Outcome::Bad };
            let Ok(span) = scanner.value() else { return Outcome::Bad };
            self.element(&mut Node::Leaf, keys, key, scanner.text, why);
            match self.element(node, values, span, scanner.text, why) {
                Outcome::Bad => return Outcome::Bad,
                Outcome::Partial => all = Outcome::Partial,
                Outcome::Good => {}
            }
            more = another(scanner);
        }
        all
    }

    fn element(
        &self,
        node: &mut Node,
        column: &mut Column,
        span: Span,
        text: &[u8],
        why: &mut String,
    ) -> Outcome {
        if span.kind == Kind::Null {
            column.push_null();
            return Outcome::Good;
        }
        self.append(node, column, span, text, why)
    }

    #[inline]
    fn leaf(&self, values: &mut Values, span: Span, text: &[u8]) -> bool {
        let raw = span.of(text);
        match (values, span.kind) {
            (Values::Text(pieces), Kind::Text) => {
                pieces.push(raw);
                true
            }
            (Values::Int64(values), Kind::Integer) => {
                values.push(span.integer);
                true
            }
            (Values::Int32(values), Kind::Integer) => push(values, i32::try_from(span.integer).ok()),
            (Values::Float64(values), Kind::Integer) => push(values, Some(span.integer as f64)),
            (Values::Float64(values), Kind::Fraction | Kind::BigInteger) => {
                push(values, fast_float2::parse(raw).ok())
            }
            (Values::Timestamp { values, zone }, _) => push(values, self.instant(zone.is_some(), span, text)),
            (Values::Boolean(values), Kind::True | Kind::False) => {
                values.append(span.kind == Kind::True);
                true
            }
            (values, _) => self.rare(values, span, text),
        }
    }

    fn rare(&self, values: &mut Values, span: Span, text: &[u8]) -> bool {
        let raw = span.of(text);
        match (values, span.kind) {
            (Values::Text(pieces), kind) => {
                match kind {
                    Kind::Escaped => unescape(raw, &mut pieces.data),
                    Kind::Object | Kind::Array if !self.exact => compact(raw, &mut pieces.data),
                    _ => pieces.data.extend_from_slice(raw),
                }
                pieces.close();
                true
            }
            (Values::Int8(values), Kind::Integer) => push(values, i8::try_from(span.integer).ok()),
            (Values::Int16(values), Kind::Integer) => push(values, i16::try_from(span.integer).ok()),
            (Values::Int64(values), Kind::BigInteger) => push(values, parse_i64(raw)),
            (Values::Float32(values), Kind::Integer) => push(values, Some(span.integer as f32)),
            (Values::Float32(values), Kind::Fraction | Kind::BigInteger) => {
                push(values, fast_float2::parse(raw).ok())
            }
            (Values::Float64(values), Kind::Text | Kind::NonNumeric) => push(values, self.special(raw)),
            (Values::Float32(values), Kind::Text | Kind::NonNumeric) => {
                push(values, self.special(raw).map(|special| special as f32))
            }
            (Values::Decimal { values, precision, scale }, kind) => {
                push(values, decimal(raw, kind, *precision, *scale))
            }
            (Values::Date(values), Kind::Text | Kind::Escaped) => push(values, self.day(&string(span, text))),
            (Values::Binary(pieces), Kind::Text | Kind::Escaped) => {
                let base64 = base64::engine::general_purpose::STANDARD;
                match base64.decode(string(span, text).as_ref()) {
                    Ok(bytes) => pieces.push(&bytes),
                    Err(_) => return false,
                }
                true
            }
            _ => false,
        }
    }

    fn special(&self, raw: &[u8]) -> Option<f64> {
        match raw {
            _ if !self.non_numeric => None,
            b"NaN" => Some(f64::NAN),
            b"Infinity" | b"+Infinity" | b"INF" | b"+INF" => Some(f64::INFINITY),
            b"-Infinity" | b"-INF" => Some(f64::NEG_INFINITY),
            _ => None,
        }
    }

    fn day(&self, text: &[u8]) -> Option<i32> {
        match &self.date {
            None => parse_date(text),
            Some(pattern) => pattern.date(std::str::from_utf8(text).ok()?),
        }
    }

    /// A timestamp; with a zone a number means seconds since the epoch.
    #[inline]
    fn instant(&self, zoned: bool, span: Span, text: &[u8]) -> Option<i64> {
        let string = match span.kind {
            Kind::Text => Cow::Borrowed(span.of(text)),
            Kind::Escaped => string(span, text),
            Kind::Integer if zoned => return span.integer.checked_mul(1_000_000),
            _ => return None,
        };
        let pattern = if zoned { &self.timestamp } else { &self.timestamp_ntz };
        match (pattern, zoned) {
            (None, true) => parse_timestamp(&string, self.zone),
            (None, false) => parse_timestamp_ntz(&string),
            (Some(pattern), true) => pattern.timestamp(std::str::from_utf8(&string).ok()?, self.zone),
            (Some(pattern), false) => pattern.local(std::str::from_utf8(&string).ok()?),
        }
    }
}

#[inline]
fn push<T>(values: &mut Vec<T>, value: Option<T>) -> bool {
    let found = value.is_some();
    values.extend(value);
    found
}

/// A string's text, with or without escapes in it.
fn string(span: Span, text: &[u8]) -> Cow<'_, [u8]> {
    let raw = span.of(text);
    if span.kind != Kind::Escaped {
        return Cow::Borrowed(raw);
    }
    let mut plain = Vec::with_capacity(raw.len());
    unescape(raw, &mut plain);
    Cow::Owned(plain)
}

fn decimal(raw: &[u8], kind: Kind, precision: u8, scale: i8) -> Option<i128> {
    match kind {
        Kind::Integer | Kind::BigInteger | Kind::Fraction => parse_decimal(raw, precision, scale),
        // Commas between digits are for people: Spark takes them out.
        Kind::Text => {
            let plain: Vec<u8> = raw.iter().copied().filter(|b| *b != b',').collect();
            parse_decimal(&plain, precision, scale)
        }
        _ => None,
    }
}

/// Steps into a container; false if it is empty.
pub(super) fn open(scanner: &mut Scanner<'_>, close: u8) -> bool {
    scanner.at += 1;
    scanner.spaces();
    scanner.peek() != close
}

/// Steps to the next element; false if there is none.
pub(super) fn another(scanner: &mut Scanner<'_>) -> bool {
    scanner.spaces();
    let comma = scanner.peek() == b',';
    scanner.at += 1;
    scanner.spaces();
    comma
}
