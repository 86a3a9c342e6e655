//! Directory names of partitions, as Hive and Spark write them.

use crate::encode::{Column, push_shown};

/// The value of a null or an empty string.
const NULL_PARTITION: &str = "__HIVE_DEFAULT_PARTITION__";

/// `column=value/column=value` for a row; the columns are those of the partition.
pub(super) fn directory(names: &[String], columns: &[Column<'_>], row: usize) -> String {
    let level = |(name, column): (&String, &Column<'_>)| {
        let mut value = Vec::new();
        if !column.is_null(row) {
            push_shown(&mut value, column, row);
        }
        let value = match String::from_utf8_lossy(&value) {
            value if value.is_empty() => NULL_PARTITION.into(),
            value => escape(&value),
        };
        format!("{}={value}", escape(name))
    };
    names.iter().zip(columns).map(level).collect::<Vec<_>>().join("/")
}

/// Characters that a path or a URL could misread become `%` and two hex digits.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{1}'..='\u{1f}'
            | '\u{7f}'
            | '"'
            | '#'
            | '%'
            | '\''
            | '*'
            | '/'
            | ':'
            | '='
            | '?'
            | '\\'
            | '{'
            | '['
            | ']'
            | '^' => out.push_str(&format!("%{:02X}", c as u32)),
            // No storage can hold it in a name.
            '\0' => out.push_str("%00"),
            plain => out.push(plain),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        ArrayRef, Date32Array, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
    };
    use std::sync::Arc;

    #[test]
    fn values_are_escaped_as_by_spark() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("s=", Arc::new(StringArray::from(vec![Some("a/b c:%ü"), Some(""), None]))),
            ("d", Arc::new(Date32Array::from(vec![Some(15_706), None, Some(0)]))),
            (
                "t",
                Arc::new(
                    TimestampMicrosecondArray::from(vec![Some(0), Some(500_000), None]).with_timezone("UTC"),
                ),
            ),
            ("f", Arc::new(Float64Array::from(vec![Some(1.0), Some(1e10), None]))),
        ];
        let batch =
            RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
        let names: Vec<String> = batch.schema().fields().iter().map(|f| f.name().clone()).collect();
        let columns = Column::of(&batch).unwrap();
        let found: Vec<String> = (0..3).map(|row| directory(&names, &columns, row)).collect();
        assert_eq!(found[0], "s%3D=a%2Fb c%3A%25ü/d=2013-01-01/t=1970-01-01 00%3A00%3A00/f=1.0");
        assert_eq!(
            found[1],
            "s%3D=__HIVE_DEFAULT_PARTITION__/d=__HIVE_DEFAULT_PARTITION__/t=1970-01-01 00%3A00%3A00.5/f=1.0E10"
        );
        assert!(found[2].ends_with("f=__HIVE_DEFAULT_PARTITION__"), "{}", found[2]);
    }
}
