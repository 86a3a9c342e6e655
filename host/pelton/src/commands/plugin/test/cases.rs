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
    #[serde(default)]
    pub(super) rows: Vec<Row>,
    /// Of a stateful function: the columns of the key, as DDL.
    #[serde(default)]
    pub(super) key: String,
    /// Why the groups are called.
    #[serde(default)]
    pub(super) reason: Reason,
    /// The groups of the call, in their order.
    #[serde(default)]
    pub(super) groups: Vec<Group>,
    /// Older entries of a variable, in place of groups.
    pub(super) migrate: Option<Migration>,
    #[serde(default)]
    pub(super) clock: Clock,
    pub(super) expect: Expect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Scalar,
    Transform,
    Stateful,
}

impl Case {
    /// Functions over rows and functions over groups are given other things.
    pub(super) fn is_of_one_kind(&self) -> Result<(), String> {
        let has_groups = !(self.groups.is_empty() && self.key.is_empty() && self.migrate.is_none());
        match self.kind {
            Kind::Stateful if !self.rows.is_empty() => {
                Err("a case of kind 'stateful' has its rows in 'groups'".to_owned())
            }
            Kind::Stateful if !self.groups.is_empty() && self.migrate.is_some() => {
                Err("a case has either 'groups' or 'migrate'".to_owned())
            }
            Kind::Scalar | Kind::Transform if has_groups => {
                Err("'key', 'groups' and 'migrate' are for cases of kind 'stateful'".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Why a stateful function is called.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    #[default]
    Data,
    Timeout,
    Timer,
}

/// A group of a call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    #[serde(default)]
    pub(super) key: Row,
    #[serde(default)]
    pub(super) rows: Vec<Row>,
    /// Entries by variable, as the function has asked for them.
    #[serde(default)]
    pub(super) state: State,
    /// The timer that it is called for.
    pub(super) fired: Option<NamedTime>,
    /// The timers that wait.
    #[serde(default)]
    pub(super) timers: Vec<NamedTime>,
}

/// Entries by variable.
pub(super) type State = BTreeMap<String, Vec<Row>>;

/// A timer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedTime {
    pub(super) name: String,
    /// ISO 8601.
    pub(super) at: String,
}

/// Entries of a variable that an older version of the function has left.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Migration {
    pub(super) variable: String,
    /// The version.
    pub(super) from: u32,
    /// The fields that they had, as DDL: the key's first.
    pub(super) schema: String,
    pub(super) entries: Vec<Row>,
}

/// What a stateful function is like.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Signature {
    /// `map_groups`, `flat_map_groups`, `processor`.
    pub(super) form: String,
    /// `none`, `processing_time`, `event_time`.
    pub(super) time_mode: String,
    /// `total: value v1 (n: long)` each.
    pub(super) variables: Vec<String>,
}

/// What a group must have after a call. What is missing must not be there.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExpectedGroup {
    pub(super) state: State,
    pub(super) timeout: Option<String>,
    pub(super) timers: Vec<NamedTime>,
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
    /// Of a stateful function: what its groups have then.
    pub(super) groups: Option<Vec<ExpectedGroup>>,
    pub(super) signature: Option<Signature>,
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
