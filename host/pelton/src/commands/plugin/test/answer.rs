//! What a plugin answers to a case: loads it, binds the function, calls it once with all the rows.

use super::cases::{Case, Clock, Failure, Kind, Row};
use super::stateful::{self, Kept};
use super::{Subject, capture, unknown_column};
use crate::json;
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use pelton_core::function::ScalarOutput;
use pelton_core::types::parse_columns;
use pelton_core::{BatchId, BatchInfo, CallScope, Error, ErrorKind, Plugin, QueryId, Rejected};
use pelton_wasm::{PluginSettings, WasmPlugin};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that can be compared.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) result: Result<Returned, (Failure, String)>,
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) logs: Vec<capture::Line>,
}

/// What a call that did not fail gave back.
#[derive(Debug)]
pub(super) struct Returned {
    /// The rows, or the one column of a scalar function.
    pub(super) rows: RecordBatch,
    pub(super) rejected: Vec<Rejected>,
    /// Of a stateful function alone.
    pub(super) kept: Option<Kept>,
}

/// Runs the case. The error says why the case itself cannot be run.
pub(super) fn of(subject: &Subject, case: &Case) -> Result<Answer, String> {
    case.is_of_one_kind()?;
    let columns = parse_columns(&case.schema, "UTC").map_err(|why| format!("schema: {why}"))?;
    let schema = Arc::new(Schema::new(columns));
    let rows = rows_of(&case.rows, &schema)?;
    let info = batch_info(&case.clock)?;
    let settings = PluginSettings {
        config: Value::Object(case.config.clone()),
        seed: Some(case.clock.seed),
        ..PluginSettings::default()
    };
    let plugin = subject.host.load(&subject.name, &subject.bytes, settings).map_err(|why| why.to_string())?;
    let (result, logs) = capture::logs_of(|| call(&plugin, case, &schema, &rows, &info));
    let counters = plugin.metrics().counters;
    let result = result?;
    Ok(Answer { result: result.map_err(|error| classify(&error)), counters, logs })
}

fn call(
    plugin: &WasmPlugin,
    case: &Case,
    schema: &SchemaRef,
    rows: &RecordBatch,
    info: &BatchInfo,
) -> Result<pelton_core::Result<Returned>, String> {
    let scope = CallScope { batch: info, operator: "case", partition: 0, call: 0 };
    match case.kind {
        Kind::Scalar => Ok(scalar(plugin, case, schema, rows, &scope)),
        Kind::Transform => Ok(transform(plugin, case, schema, rows, &scope)),
        Kind::Stateful => stateful::call(plugin, case, schema, &scope),
    }
}

fn scalar(
    plugin: &WasmPlugin,
    case: &Case,
    schema: &SchemaRef,
    rows: &RecordBatch,
    scope: &CallScope<'_>,
) -> pelton_core::Result<Returned> {
    let function = plugin.scalar(&case.function, Arc::clone(schema))?;
    let ScalarOutput { column, rejected } = function.evaluate(scope, rows)?;
    let schema = Arc::new(Schema::new(vec![function.field()]));
    Ok(Returned { rows: RecordBatch::try_new(schema, vec![column])?, rejected, kept: None })
}

fn transform(
    plugin: &WasmPlugin,
    case: &Case,
    schema: &SchemaRef,
    rows: &RecordBatch,
    scope: &CallScope<'_>,
) -> pelton_core::Result<Returned> {
    let output = plugin.transform(&case.function, Arc::clone(schema))?.process(scope, rows)?;
    Ok(Returned { rows: output.rows, rejected: output.rejected, kept: None })
}

/// The contract's own words for what went wrong.
fn classify(error: &Error) -> (Failure, String) {
    let message = error.message();
    let failure = match error.kind() {
        ErrorKind::Invalid => Failure::Unsuitable,
        _ if message.contains(": failed: ") => Failure::Failed,
        _ => Failure::Trap,
    };
    (failure, message.to_owned())
}

fn batch_info(clock: &Clock) -> Result<BatchInfo, String> {
    let ms = |text: &Option<String>| text.as_deref().map(json::timestamp_ms).transpose();
    Ok(BatchInfo {
        query_id: QueryId("00000000-0000-0000-0000-000000000000".to_owned()),
        batch_id: BatchId(clock.batch_id),
        time_ms: ms(&clock.processing_time)?.unwrap_or(0),
        watermark_ms: ms(&clock.watermark)?,
        late_watermark_ms: ms(&clock.watermark)?,
    })
}

/// Reads rows as Pelton's JSON format does, in one batch with exactly this schema.
pub(super) fn rows_of(rows: &[Row], schema: &SchemaRef) -> Result<RecordBatch, String> {
    let unknown = rows.iter().flat_map(Row::keys).find(|column| schema.field_with_name(column).is_err());
    if let Some(column) = unknown {
        return Err(unknown_column(column, schema));
    }
    let lines: String = rows.iter().map(|row| Value::Object(row.clone()).to_string() + "\n").collect();
    json::one_batch(lines.as_bytes(), schema).map_err(|why| why.to_string())
}
