//! Late rows as dead letters.

use arrow::array::RecordBatch;
use arrow::datatypes::FieldRef;
use pelton_core::{DeadLetter, LossKind, Result};
use pelton_plan::json::{Nulls, row_json};
use pelton_plan::stateful::COMPUTED;

/// A row that came too late, by its position in a batch.
pub(crate) struct LateRow {
    pub(crate) row: usize,
    /// How far behind the watermark it was.
    pub(crate) late_by_ms: i64,
}

/// A dead letter for each late row, with the row's columns as JSON; without those that the planner has added.
pub(crate) fn letters(operator: &str, rows: &RecordBatch, late: &[LateRow]) -> Result<Vec<DeadLetter>> {
    let is_users = |(_, field): &(usize, &FieldRef)| !field.name().starts_with(COMPUTED);
    let users = rows.schema_ref().fields().iter().enumerate().filter(is_users).map(|(index, _)| index);
    let rows = rows.project(&users.collect::<Vec<_>>())?;
    let letter = |late: &LateRow| {
        Ok(DeadLetter {
            kind: LossKind::Late,
            origin: operator.to_owned(),
            position: None,
            reason: format!("{} ms behind the watermark", late.late_by_ms),
            plugin: None,
            payload: row_json(&rows, late.row, Nulls::Written)?.to_string().into(),
            message: None,
        })
    };
    late.iter().map(letter).collect()
}
