//! A case file as it is written. Read by `plugin test`; plugin-sdk/conformance/README.md explains every key.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A row: values by column name.
pub(super) type Row = Map<String, Value>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    /// The plugin that the cases are for, by its manifest's name.
    pub(super) plugin: Option<String>,
    pub(super) cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// A sentence that says the behaviour.
    pub(super) name: String,
    pub(super) function: String,
    pub(super) kind: Kind,
    #[serde(default)]
    pub(super) config: Map<String, Value>,
    /// The columns that go in, as DDL.
    pub(super) schema: String,
    pub(super) rows: Vec<Row>,
    #[serde(default)]
    pub(super) clock: Clock,
    pub(super) expect: Expect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Scalar,
    Transform,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Clock {
    pub(super) batch_id: u64,
    /// ISO 8601; the Unix epoch if missing.
    pub(super) processing_time: Option<String>,
    pub(super) watermark: Option<String>,
    pub(super) seed: u64,
}

/// What must come back: one of `rows`, `column`, `error`, and what else is to be compared.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) rows: Option<Vec<Row>>,
    pub(super) column: Option<Vec<Value>>,
    pub(super) error: Option<ExpectedError>,
    #[serde(default)]
    pub(super) rejected: Vec<ExpectedRejection>,
    pub(super) schema: Option<String>,
    pub(super) counters: Option<BTreeMap<String, u64>>,
    pub(super) logs: Option<Vec<ExpectedLog>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedError {
    pub(super) kind: Failure,
    /// Words that the error's text contains.
    pub(super) message: Option<String>,
}

/// How a call can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Failure {
    /// From `bind` and `open`: the schema or the configuration does not suit the function.
    Unsuitable,
    /// From the call.
    Failed,
    /// A trap, or an overrun limit.
    Trap,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedRejection {
    pub(super) row: u32,
    /// The whole reason; any if missing.
    pub(super) reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedLog {
    pub(super) level: String,
    /// The whole text; any if missing.
    pub(super) message: Option<String>,
}

/// What serde_json says, without the place that it puts at the end.
pub(super) fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(message, _)| message.to_owned())
}
