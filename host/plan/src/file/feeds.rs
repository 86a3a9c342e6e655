//! Sources that rows are sent to, in a pipeline file: over HTTP, from a socket, on stdin.

use super::events::WatermarkSpec;
use super::sources::{Format, MalformedPolicySchema, SchemaSpec, policy};
use super::values::{ByteSize, FormatOptions, Spanned};
use pelton_core::MalformedPolicy;
use schemars::JsonSchema;
use serde::Deserialize;

/// Rows that others send by POST. A request is answered when its rows are durable in the checkpoint, so what was acknowledged is
/// never lost; with an `Idempotency-Key` it may be sent again without doubling them.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpSource {
    /// Where to listen: `127.0.0.1:8080`. Anything but this machine alone needs a token.
    pub listen: Spanned<String>,
    /// The path that takes requests. Unless said: `/`.
    #[serde(default = "root")]
    pub path: String,
    /// The environment variable that holds the token which requests must have as `Authorization: Bearer …`. Unless said:
    /// `PELTON_HTTP_TOKEN`; if that is not set, no token is asked for.
    #[serde(default)]
    pub token_env: Option<Spanned<String>>,
    /// What a body holds: `json`, `csv` or `text`, a row a line. Unless said: `json`.
    #[serde(default = "json")]
    pub format: Format,
    /// The format's own options. With `header: true` each body has its own.
    #[serde(default)]
    pub options: FormatOptions,
    /// The columns, as for files.
    #[serde(default)]
    pub schema: Option<SchemaSpec>,
    /// What becomes of a line that does not decode. With `fail` the request is refused as a whole (400) and the query goes on.
    #[serde(default, deserialize_with = "policy")]
    #[schemars(with = "MalformedPolicySchema")]
    pub on_malformed: MalformedPolicy,
    /// Bytes of a body, at most; a larger one is refused (413). Unless said: 8MiB.
    #[serde(default)]
    pub max_body: Option<ByteSize>,
    /// Bytes that may wait for their micro-batch; beyond that requests are told to come back later (503). Unless said: 256MiB.
    #[serde(default)]
    pub max_backlog: Option<ByteSize>,
    /// How many rows one micro-batch takes at most, to the nearest request; at least one request is taken.
    #[serde(default)]
    pub max_rows_per_trigger: Option<Spanned<u64>>,
    /// How many bytes one micro-batch takes at most, to the nearest request.
    #[serde(default)]
    pub max_bytes_per_trigger: Option<ByteSize>,
    /// The event time of its rows.
    #[serde(default)]
    pub watermark: Option<Spanned<WatermarkSpec>>,
}

fn root() -> String {
    "/".into()
}

fn json() -> Format {
    Format::Json
}

/// Lines from a server that it connects to, for trying things out: it cannot read anything twice, so a crash may lose rows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SocketSource {
    /// The server.
    pub host: Spanned<String>,
    /// Its port.
    pub port: u16,
    /// What lines hold: `json`, `csv` or `text`. Unless said: `text`, one column `value`.
    #[serde(default = "text")]
    pub format: Format,
    /// The format's own options.
    #[serde(default)]
    pub options: FormatOptions,
    /// The columns, as for files.
    #[serde(default)]
    pub schema: Option<SchemaSpec>,
    /// What becomes of a line that does not decode.
    #[serde(default, deserialize_with = "policy")]
    #[schemars(with = "MalformedPolicySchema")]
    pub on_malformed: MalformedPolicy,
    /// Adds a column `timestamp`: the time of the micro-batch that first saw the line.
    #[serde(default)]
    pub include_timestamp: bool,
    /// How many lines one micro-batch takes at most. Unless said: all that are there.
    #[serde(default)]
    pub max_rows_per_trigger: Option<Spanned<u64>>,
    /// The event time of its rows.
    #[serde(default)]
    pub watermark: Option<Spanned<WatermarkSpec>>,
}

fn text() -> Format {
    Format::Text
}

/// Lines on the process's input. A query that reads nothing else ends with them. It cannot read anything twice, so a crash may
/// lose rows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StdinSource {
    /// What lines hold: `json`, `csv` or `text`.
    pub format: Format,
    /// The format's own options.
    #[serde(default)]
    pub options: FormatOptions,
    /// The columns, as for files.
    #[serde(default)]
    pub schema: Option<SchemaSpec>,
    /// What becomes of a line that does not decode.
    #[serde(default, deserialize_with = "policy")]
    #[schemars(with = "MalformedPolicySchema")]
    pub on_malformed: MalformedPolicy,
    /// Adds a column `timestamp`: the time of the micro-batch that first saw the line.
    #[serde(default)]
    pub include_timestamp: bool,
    /// How many lines one micro-batch takes at most. Unless said: all that are there.
    #[serde(default)]
    pub max_rows_per_trigger: Option<Spanned<u64>>,
    /// The event time of its rows.
    #[serde(default)]
    pub watermark: Option<Spanned<WatermarkSpec>>,
}
