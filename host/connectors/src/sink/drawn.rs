//! A table of rows as Spark's `Dataset.show` draws it.

use crate::encode::{Column, push_shown};
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use pelton_core::Result;
use unicode_width::UnicodeWidthStr;

/// Columns are not narrower than this.
const WIDTH_MIN: usize = 3;

/// Collects the first rows of a micro-batch and draws them.
pub struct DrawnTable {
    rows_max: usize,
    truncate: Option<usize>,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    more: bool,
}

impl DrawnTable {
    /// `truncate`: characters that a cell keeps; `None` for all of them.
    pub fn new(schema: &Schema, rows_max: usize, truncate: Option<usize>) -> Self {
        let header = schema.fields().iter().map(|field| cell(field.name(), truncate)).collect();
        Self { rows_max, truncate, header, rows: Vec::new(), more: false }
    }

    /// Takes the rows of a batch as far as there is room.
    pub fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let room = self.rows_max - self.rows.len();
        self.more |= batch.num_rows() > room;
        if room == 0 || batch.num_rows() == 0 {
            return Ok(());
        }
        let batch = batch.slice(0, room.min(batch.num_rows()));
        let columns = Column::of(&batch)?;
        let text = |column: &Column<'_>, row| {
            let mut out = Vec::new();
            push_shown(&mut out, column, row);
            cell(&String::from_utf8_lossy(&out), self.truncate)
        };
        let rows = (0..batch.num_rows()).map(|row| columns.iter().map(|column| text(column, row)).collect());
        self.rows.extend(rows);
        Ok(())
    }

    /// Rows have come for which there was no room: no others need come.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// The table, and a line that says that there is more, if there is.
    pub fn draw(&self) -> String {
        let widths: Vec<usize> = (0..self.header.len())
            .map(|nth| {
                let cells = self.rows.iter().map(|row| &row[nth]).chain([&self.header[nth]]);
                cells.map(|cell| cell.width()).fold(WIDTH_MIN, usize::max)
            })
            .collect();
        let line = widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("+");
        let line = format!("+{line}+\n");
        let mut out = line.clone();
        self.draw_row(&self.header, &widths, &mut out);
        out.push_str(&line);
        for row in &self.rows {
            self.draw_row(row, &widths, &mut out);
        }
        out.push_str(&line);
        if self.more {
            let rows = if self.rows_max == 1 { "row" } else { "rows" };
            out.push_str(&format!("only showing top {} {rows}\n", self.rows_max));
        }
        out
    }

    /// Spark aligns cut cells to the right and whole ones to the left.
    fn draw_row(&self, cells: &[String], widths: &[usize], out: &mut String) {
        out.push('|');
        for (cell, width) in cells.iter().zip(widths) {
            let padding = " ".repeat(width - cell.width());
            match self.truncate {
                Some(_) => out.extend([padding.as_str(), cell]),
                None => out.extend([cell.as_str(), &padding]),
            }
            out.push('|');
        }
        out.push('\n');
    }
}

/// A value on one line, cut to `truncate` characters: the last three are dots if there is room for them.
fn cell(text: &str, truncate: Option<usize>) -> String {
    let mut one_line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => one_line.push_str("\\n"),
            '\r' => one_line.push_str("\\r"),
            '\t' => one_line.push_str("\\t"),
            '\u{c}' => one_line.push_str("\\f"),
            '\u{8}' => one_line.push_str("\\b"),
            '\u{b}' => one_line.push_str("\\v"),
            '\u{7}' => one_line.push_str("\\a"),
            // Spark leaves these as they are; a terminal would obey them.
            c if c.is_control() => one_line.extend(c.escape_unicode()),
            c => one_line.push(c),
        }
    }
    match truncate {
        Some(max) if one_line.chars().count() > max => match max.checked_sub(3) {
            Some(kept) if kept > 0 => one_line.chars().take(kept).chain("...".chars()).collect(),
            _ => one_line.chars().take(max).collect(),
        },
        _ => one_line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        ArrayRef, BinaryArray, Float64Array, Int64Array, ListArray, StringArray, StructArray,
        TimestampMicrosecondArray,
    };
    use arrow::datatypes::{DataType, Field, Int32Type};
    use std::sync::Arc;

    fn drawn(columns: Vec<(&str, ArrayRef)>, rows_max: usize, truncate: Option<usize>) -> String {
        let batch =
            RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap();
        let mut table = DrawnTable::new(&batch.schema(), rows_max, truncate);
        table.push(&batch).unwrap();
        table.draw()
    }

    #[test]
    fn cells_are_cut_and_stand_right() {
        let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        let b: ArrayRef =
            Arc::new(StringArray::from(vec!["a text of more than twenty characters", "日本\tx"]));
        let expected = "\
+----+--------------------+
|   a|                name|
+----+--------------------+
|   1|a text of more th...|
|NULL|             日本\\tx|
+----+--------------------+
";
        assert_eq!(drawn(vec![("a", Arc::clone(&a)), ("name", Arc::clone(&b))], 20, Some(20)), expected);
        let expected = "\
+---+-------------------------------------+
|a  |name                                 |
+---+-------------------------------------+
|1  |a text of more than twenty characters|
+---+-------------------------------------+
only showing top 1 row
";
        assert_eq!(drawn(vec![("a", a), ("name", b)], 1, None), expected);
    }

    #[test]
    fn a_terminal_is_told_nothing_by_a_cell() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["\u{1b}[2J\n\u{9b}1m"]));
        let table = drawn(vec![("a\u{1b}", text)], 20, None);
        assert!(!table.contains(|c: char| c.is_control() && c != '\n'), "{table:?}");
        assert!(table.contains(r"|\u{1b}[2J\n\u{9b}1m|"), "{table}");
    }

    #[test]
    fn values_look_as_in_spark() {
        let fields = vec![(
            Arc::new(Field::new("x", DataType::Int64, true)),
            Arc::new(Int64Array::from(vec![None::<i64>])) as ArrayRef,
        )];
        let columns: Vec<(&str, ArrayRef)> = vec![
            (
                "t",
                Arc::new(TimestampMicrosecondArray::from(vec![1_357_034_400_500_000]).with_timezone("UTC")),
            ),
            ("d", Arc::new(Float64Array::from(vec![1e10]))),
            ("l", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None])]))),
            ("s", Arc::new(StructArray::from(fields))),
            ("b", Arc::new(BinaryArray::from(vec![&b"hi"[..]]))),
        ];
        let table = drawn(columns, 20, Some(0).filter(|_| false));
        assert!(table.contains("|2013-01-01 10:00:00.5|1.0E10|[1, NULL]|{NULL}|[68 69]|"), "{table}");
    }

    #[test]
    fn no_rows_still_have_a_header() {
        let empty: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
        assert_eq!(drawn(vec![("a", empty)], 20, Some(20)), "+---+\n|  a|\n+---+\n+---+\n");
        assert_eq!(cell("abcdef", Some(2)), "ab");
        assert_eq!(cell("abcdef", Some(4)), "a...");
    }
}
