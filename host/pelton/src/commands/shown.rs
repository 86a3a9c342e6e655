//! Rows of state on stdout: a table for a person, or JSON lines. Used by `pelton state`.

use crate::cli::TableFormat;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use pelton_connectors::sink::DrawnTable;
use pelton_core::suggest::did_you_mean;
use pelton_core::{BatchId, Error, Result, StateLayout};
use pelton_plan::json::{Nulls, row_json};
use serde_json::Value;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rows of a table if no limit is given.
const TABLE_ROWS: usize = 20;

/// Which rows are shown: those whose columns have these values, as JSON writes them.
#[derive(Default)]
pub(super) struct KeyFilter(Vec<(String, String)>);

impl KeyFilter {
    pub(super) fn new(columns: &[(String, String)]) -> Self {
        Self(columns.to_vec())
    }

    fn fits(&self, rows: &RecordBatch) -> bool {
        self.0.iter().all(|(name, _)| rows.schema_ref().index_of(name).is_ok())
    }

    /// The rows that pass.
    fn rows(&self, rows: &RecordBatch) -> Result<Option<RecordBatch>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let schema = rows.schema();
        let names = || schema.fields().iter().map(|field| field.name().as_str());
        if let Some((unknown, _)) = self.0.iter().find(|(name, _)| schema.index_of(name).is_err()) {
            let near = did_you_mean(unknown, names());
            return Err(Error::invalid(format!("--key: the state has no column '{unknown}'{near}"))
                .hint(format!("its columns: {}", names().collect::<Vec<_>>().join(", "))));
        }
        let mut passing = Vec::new();
        for row in 0..rows.num_rows() {
            let json = row_json(rows, row, Nulls::Written)?;
            let has = |(name, value): &(String, String)| match &json[name] {
                Value::String(text) => text == value,
                other => {
                    let text = other.to_string();
                    text == *value
                }
            };
            if self.0.iter().all(has) {
                passing.push(row as u32);
            }
        }
        Ok(Some(take_record_batch(rows, &UInt32Array::from(passing))?))
    }
}

/// What is to be shown.
pub(super) struct Shown {
    format: TableFormat,
    limit: usize,
    filter: KeyFilter,
    /// For tables: each part and its rows.
    tables: Vec<(String, SchemaRef, DrawnTable)>,
    given: usize,
}

impl Shown {
    /// `limit`: so many rows at most. By default a table shows some and JSON all.
    pub(super) fn new(format: TableFormat, limit: Option<usize>, filter: KeyFilter) -> Self {
        let all = if format == TableFormat::Json { usize::MAX } else { TABLE_ROWS };
        Self { format, limit: limit.unwrap_or(all), filter, tables: Vec::new(), given: 0 }
    }

    /// Takes rows of a part of an operator; breaks if no more of them will be shown. Of several parts those without a
    /// column that is asked for are left out.
    pub(super) fn rows(&mut self, part: &str, rows: &RecordBatch) -> Result<ControlFlow<()>> {
        if !part.is_empty() && !self.filter.fits(rows) {
            return Ok(ControlFlow::Break(()));
        }
        let passing = self.filter.rows(rows)?;
        let rows = passing.as_ref().unwrap_or(rows);
        match self.format {
            TableFormat::Json => self.lines(part, rows),
            TableFormat::Table => self.draw(part, rows),
        }
    }

    /// Takes an operator, with how many rows its state has.
    pub(super) fn operator(&mut self, layout: &StateLayout, batch_id: BatchId, rows: u64) -> Result<()> {
        self.limit = usize::MAX;
        let text = |text: String| Arc::new(StringArray::from(vec![text])) as ArrayRef;
        let number = |number: u64| {
            Arc::new(Int64Array::from(vec![i64::try_from(number).unwrap_or(i64::MAX)])) as ArrayRef
        };
        let row = RecordBatch::try_from_iter([
            ("operator", text(layout.name.clone())),
            ("kind", text(layout.kind.clone())),
            ("batch_id", number(batch_id.0)),
            ("rows", number(rows)),
            ("state", text(layout.to_string())),
        ])?;
        self.rows("", &row).map(|_| ())
    }

    fn lines(&mut self, part: &str, rows: &RecordBatch) -> Result<ControlFlow<()>> {
        for row in 0..rows.num_rows().min(self.limit - self.given) {
            let mut line = row_json(rows, row, Nulls::Written)?;
            if let (Value::Object(fields), false) = (&mut line, part.is_empty()) {
                fields.insert("side".to_owned(), part.into());
            }
            super::print_line(&line.to_string())?;
            self.given += 1;
        }
        Ok(until(self.given == self.limit))
    }

    fn draw(&mut self, part: &str, rows: &RecordBatch) -> Result<ControlFlow<()>> {
        let is_its =
            |(of, schema, _): &(String, SchemaRef, DrawnTable)| of == part && *schema == rows.schema();
        let at = self.tables.iter().position(is_its).unwrap_or(self.tables.len());
        if at == self.tables.len() {
            let table = DrawnTable::new(&rows.schema(), self.limit, None);
            self.tables.push((part.to_owned(), rows.schema(), table));
        }
        let table = &mut self.tables[at].2;
        table.push(rows)?;
        Ok(until(table.has_more()))
    }

    /// Prints what is left to print.
    pub(super) fn finish(&mut self) -> Result<()> {
        for (part, _, table) in self.tables.drain(..) {
            if !part.is_empty() {
                super::print_line(&format!("{part}:"))?;
            }
            super::print_line(table.draw().trim_end())?;
        }
        Ok(())
    }
}

fn until(is_over: bool) -> ControlFlow<()> {
    if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
