//! What an `expect` step says: micro-batches, of which only what is given is compared, or an error.

use crate::json::timestamp_ms;
use pelton_core::Result;
use pelton_plan::file::{Document, Node, Span};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// One item of an `expect` step.
pub(super) struct Expected {
    pub(super) span: Span,
    pub(super) what: What,
}

/// What is expected.
pub(super) enum What {
    Batch(Box<ExpectedBatch>),
    Error(ExpectedError),
}

/// A micro-batch; what is not given is not compared.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExpectedBatch {
    pub(super) batch_id: Option<u64>,
    pub(super) rows: Option<Vec<Map<String, Value>>>,
    /// Whether the order of the rows counts.
    pub(super) ordered: bool,
    /// How far numbers with a fraction may be off, relative to the expected one.
    pub(super) tolerance: Option<f64>,
    /// `null`: the query has no watermark.
    #[serde(deserialize_with = "watermark")]
    pub(super) watermark: Option<Option<i64>>,
    pub(super) no_data: Option<bool>,
    pub(super) late_rows: Option<u64>,
    pub(super) state_rows: Option<u64>,
    pub(super) dead_letters: Option<u64>,
}

/// The query's failure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedError {
    /// `invalid`, `unavailable`, `data`, `plugin`, `fenced` or `internal`; any if it is not given.
    pub(super) kind: Option<Kind>,
    /// Words that its message contains.
    pub(super) message: Option<String>,
}

/// An error's kind by its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Invalid,
    Unavailable,
    Data,
    Plugin,
    Fenced,
    Internal,
}

impl From<pelton_core::ErrorKind> for Kind {
    fn from(kind: pelton_core::ErrorKind) -> Self {
        use pelton_core::ErrorKind as K;
        match kind {
            K::Invalid => Self::Invalid,
            K::Unavailable => Self::Unavailable,
            K::Data => Self::Data,
            K::Plugin => Self::Plugin,
            K::Fenced => Self::Fenced,
            K::Internal => Self::Internal,
        }
    }
}

/// That it is given at all makes the outer `Some`.
fn watermark<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i64>>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| timestamp_ms(&text).map_err(serde::de::Error::custom)).transpose().map(Some)
}

/// A list of micro-batches, of which the last may be an error; or a single one without a list.
pub(super) fn read_expected(document: &Document, node: &Node) -> Result<Vec<Expected>> {
    let items = node.items().unwrap_or(std::slice::from_ref(node));
    let expected = items.iter().map(|item| read_one(document, item)).collect::<Result<Vec<_>>>()?;
    let is_error = |item: &Expected| matches!(item.what, What::Error(_));
    match expected.iter().position(is_error).filter(|at| at + 1 < expected.len()) {
        Some(at) => Err(document.text().error(
            expected[at + 1].span,
            "nothing runs after an error: it is the last that an 'expect' can have".to_owned(),
        )),
        None => Ok(expected),
    }
}

fn read_one(document: &Document, node: &Node) -> Result<Expected> {
    let what = match node.get("error") {
        None => What::Batch(Box::new(document.decode(node)?)),
        Some(error) => {
            let beside = node.entries().into_iter().flatten().find(|(key, ..)| *key != "error");
            if let Some((key, span, _)) = beside {
                let message =
                    format!("'{key}' cannot stand beside 'error': a micro-batch that fails is not committed");
                return Err(document.text().error(span, message));
            }
            What::Error(document.decode(error)?)
        }
    };
    Ok(Expected { span: node.span(), what })
}
