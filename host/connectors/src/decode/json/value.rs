//! JSON texts in a column to values of one type, row by row: what `from_json` is made of.

use super::convert::{Converter, Node, Outcome};
use super::options::JsonOptions;
use super::scan::{Fault, Kind, Scanner, Span};
use super::{one_line, trimmed};
use crate::decode::column::{Column, Values, all_nullable, count};
use crate::decode::corrupt_column;
use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::DataType;
use pelton_core::{Error, Result};

/// Decodes JSON texts to structs, arrays or maps. Spark's `from_json` with mode `PERMISSIVE` or `FAILFAST`.
#[derive(Debug)]
pub struct JsonColumn {
    data_type: DataType,
    converter: Converter,
    options: JsonOptions,
    fail: bool,
    corrupt: Option<usize>,
}

impl JsonColumn {
    /// For values of `data_type`: a struct, an array or a map. With `fail` a malformed text is an error of kind
    /// `Data`, otherwise it gives a struct of nulls (and its text in the column for malformed records), or null.
    pub fn new(data_type: &DataType, options: &JsonOptions, time_zone: &str, fail: bool) -> Result<Self> {
        let data_type = all_nullable(data_type);
        let corrupt = match &data_type {
            DataType::Struct(fields) => corrupt_column(fields, &options.column_name_of_corrupt_record)?,
            DataType::List(_) | DataType::Map(..) => None,
            other => {
                let found = pelton_core::types::type_name(other);
                return Err(Error::invalid(format!(
                    "from_json gives a struct, an array or a map, not {found}"
                )));
            }
        };
        Node::new(&data_type)?;
        let options = JsonOptions { exact_strings: false, ..options.clone() };
        Ok(Self { converter: options.converter(time_zone)?, data_type, options, fail, corrupt })
    }

    /// The type of the values, everything in it nullable.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// One value for each text. Null and blank texts give null.
    pub fn decode(&self, texts: &StringArray) -> Result<ArrayRef> {
        let mut column = Column::new(&self.data_type)?;
        let mut node = Node::new(&self.data_type)?;
        for text in texts.iter() {
            match text.filter(|text| !text.trim_ascii().is_empty()) {
                None => column.push_null(),
                Some(text) => self.text(&mut node, &mut column, text.as_bytes())?,
            }
        }
        column.finish()
    }

    fn text(&self, node: &mut Node, column: &mut Column, text: &[u8]) -> Result<()> {
        let line = one_line(trimmed(text));
        let mut why = String::new();
        let outcome = match self.checked(&line) {
            Ok(span) => self.root(node, column, span, &line, &mut why),
            Err(fault) => match self.tolerated(&line) {
                Some((rewritten, span)) => self.root(node, column, span, &rewritten, &mut why),
                None => {
                    why = format!("not JSON at byte {}: {}", fault.at + 1, fault.what);
                    Outcome::Bad
                }
            },
        };
        if outcome == Outcome::Good {
            self.keep_malformed(column, None);
            return Ok(());
        }
        if self.fail {
            let shown: String = String::from_utf8_lossy(text).chars().take(200).collect();
            let why = if why.is_empty() { "it has another type".into() } else { why };
            return Err(Error::data(format!("from_json: {why}; the text: {shown}")));
        }
        if outcome == Outcome::Bad {
            self.push_nulls(column);
        }
        self.keep_malformed(column, Some(text));
        Ok(())
    }

    fn checked(&self, line: &[u8]) -> Result<Span, Fault> {
        let mut scanner = Scanner { text: line, at: 0, non_numeric: self.options.allow_non_numeric_numbers };
        scanner.spaces();
        // What follows the value does not count, as in Spark.
        scanner.value()
    }

    fn tolerated(&self, line: &[u8]) -> Option<(Vec<u8>, Span)> {
        let rewritten = self.options.lenience().rewrite(line)?;
        let span = self.checked(&rewritten).ok()?;
        Some((rewritten, span))
    }

    fn root(
        &self,
        node: &mut Node,
        column: &mut Column,
        span: Span,
        text: &[u8],
        why: &mut String,
    ) -> Outcome {
        match (&mut *node, &mut column.values, span.kind) {
            // A single object does for an array of objects.
            (Node::List(inner), Values::List { offsets, item, .. }, Kind::Object)
                if matches!(**inner, Node::Struct(_)) =>
            {
                let len = item.len();
                let outcome = self.converter.append(inner, item, span, text, why);
                if outcome == Outcome::Bad {
                    item.truncate(len);
                } else {
                    offsets.push(count(item.len()));
                    column.valid();
                }
                outcome
            }
            _ => self.converter.append(node, column, span, text, why),
        }
    }

    /// The value of a text that could not be read at all: a struct of nulls, or null.
    fn push_nulls(&self, column: &mut Column) {
        match &mut column.values {
            Values::Struct { columns, .. } => {
                columns.iter_mut().for_each(Column::push_null);
                column.valid();
            }
            _ => column.push_null(),
        }
    }

    /// Replaces the null that stands in the column for malformed records.
    fn keep_malformed(&self, column: &mut Column, text: Option<&[u8]>) {
        let (Some(index), Values::Struct { columns, .. }) = (self.corrupt, &mut column.values) else {
            return;
        };
        let kept = &mut columns[index];
        kept.truncate(kept.len().saturating_sub(1));
        match (text, &mut kept.values) {
            (Some(text), Values::Text(pieces)) => {
                pieces.push(text);
                kept.valid();
            }
            _ => kept.push_null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::util::display::{ArrayFormatter, FormatOptions};
    use pelton_core::types::parse_type;

    fn check(schema: &str, cases: &[(&str, &str)]) {
        let options = JsonOptions { column_name_of_corrupt_record: "_bad".into(), ..JsonOptions::default() };
        let column = JsonColumn::new(&parse_type(schema, "UTC").unwrap(), &options, "UTC", false).unwrap();
        let texts: StringArray = cases.iter().map(|(text, _)| Some(*text)).collect();
        let values = column.decode(&texts).unwrap();
        let format = FormatOptions::new().with_null("null");
        let shown = ArrayFormatter::try_new(&values, &format).unwrap();
        for (i, (text, expected)) in cases.iter().enumerate() {
            assert_eq!(shown.value(i).to_string(), *expected, "{text}");
        }
    }

    #[test]
    fn answers_as_spark_does() {
        check(
            "struct<a: int, b: string, t: timestamp>",
            &[
                (
                    r#"{"a": 1, "b": "x", "t": "2026-01-01T00:00:00Z"}"#,
                    "{a: 1, b: x, t: 2026-01-01T00:00:00Z}",
                ),
                (r#"{"a": 1, "b": "x""#, "{a: null, b: null, t: null}"),
                ("not json", "{a: null, b: null, t: null}"),
                ("", "null"),
                ("   ", "null"),
                (r#"{"a": "notint", "b": 5}"#, "{a: null, b: 5, t: null}"),
                (r#"{"z": 1}"#, "{a: null, b: null, t: null}"),
                (r#"{"a": 3000000000, "b": "big"}"#, "{a: null, b: big, t: null}"),
                (r#"{"a": 1.5, "b": "frac"}"#, "{a: null, b: frac, t: null}"),
                (r#"[{"a": 10, "b": "arr"}]"#, "{a: null, b: null, t: null}"),
                (r#"{"a": 1, "a": 2, "b": "dup"}"#, "{a: 2, b: dup, t: null}"),
                (r#"{"a": 4, "b": {"nested": true}}"#, r#"{a: 4, b: {"nested":true}, t: null}"#),
                (r#"{"A": 7, "B": "case"}"#, "{a: null, b: null, t: null}"),
                ("null", "{a: null, b: null, t: null}"),
                (r#"{"a": true, "t": "garbage"}"#, "{a: null, b: null, t: null}"),
            ],
        );
    }

    #[test]
    fn keeps_malformed_texts_in_their_column() {
        check(
            "struct<a: int, _bad: string>",
            &[
                (r#"{"a": 1}"#, "{a: 1, _bad: null}"),
                (r#"{"a": 1"#, r#"{a: null, _bad: {"a": 1}"#),
                (r#"{"a": "x"}"#, r#"{a: null, _bad: {"a": "x"}}"#),
            ],
        );
    }

    #[test]
    fn arrays_and_maps_may_stand_at_the_top() {
        check(
            "array<struct<a: int>>",
            &[(r#"[{"a": 1}, null]"#, "[{a: 1}, null]"), (r#"{"a": 2}"#, "[{a: 2}]"), ("7", "null")],
        );
        check("map<string, int>", &[(r#"{"x": 1}"#, "{x: 1}"), (r#"{"x": "y"}"#, "null")]);
    }

    #[test]
    fn failfast_names_the_text() {
        let column = JsonColumn::new(
            &parse_type("struct<a: int>", "UTC").unwrap(),
            &JsonOptions::default(),
            "UTC",
            true,
        );
        let error = column.unwrap().decode(&StringArray::from(vec![r#"{"a": "x"}"#])).unwrap_err();
        assert_eq!(error.message(), r#"from_json: column 'a': "x" is not int; the text: {"a": "x"}"#);
    }
}
