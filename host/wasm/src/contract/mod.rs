//! The contract's types as Wasmtime moves them, and the names under which plugins export them. `code`, `plugin`
//! and `opened` call through them. They mirror plugin-sdk/wit/pelton-plugin.wit field by field; Wasmtime checks
//! that they do when it looks a function up. No logic lives here.
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "the WIT documents them; the derive macros want public parts"
)]

pub(crate) mod http;
pub(crate) mod sink;
pub(crate) mod stateful;

use pelton_core::{CallScope, Encoding, FunctionKind};
use wasmtime::component::{ComponentType, Lift, Lower, TypedFunc};

/// The contract itself, as plugins are built against it.
pub const CONTRACT_WIT: &str = include_str!("../../../../plugin-sdk/wit/pelton-plugin.wit");

/// The versions of the contract that this host runs. From 1.0 on none is ever removed.
pub const CONTRACT_VERSIONS: [&str; 1] = ["0.1.0"];

/// The WIT package that plugins implement.
pub(crate) const PACKAGE: &str = "pelton:plugin";

/// The interfaces of the contract that a plugin can export.
pub(crate) const EXPORTS: [&str; 5] = ["describe", "scalar", "transform", "stateful", "sink"];

/// The interfaces of the contract that a plugin can import, and their functions.
pub(crate) const LENT: [(&str, &[&str]); 2] = [("host", &["log", "count"]), ("http", &["send"])];

/// `pelton:plugin/scalar@0.1.0`
pub(crate) fn interface_name(interface: &str, version: &str) -> String {
    format!("{PACKAGE}/{interface}@{version}")
}

/// Interface and version of `pelton:plugin/scalar@0.1.0`; `None` for names of other packages.
pub(crate) fn parse_interface(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(PACKAGE)?.strip_prefix('/')?.split_once('@')
}

#[derive(Debug, Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub struct Clock {
    #[component(name = "batch-id")]
    pub batch_id: u64,
    #[component(name = "processing-time")]
    pub processing_time: i64,
    pub watermark: Option<i64>,
    pub seed: u64,
}

impl Clock {
    pub(crate) fn of(scope: &CallScope<'_>) -> Self {
        let micros = |ms: i64| ms.saturating_mul(1000);
        Self {
            batch_id: scope.batch.batch_id.0,
            processing_time: micros(scope.batch.time_ms),
            watermark: scope.batch.watermark_ms.map(micros),
            seed: scope.seed(),
        }
    }
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct Rejection {
    pub row: u32,
    pub reason: String,
}

#[derive(Debug, ComponentType, Lift)]
#[component(variant)]
pub enum GuestError {
    #[component(name = "unsuitable")]
    Unsuitable(String),
    #[component(name = "failed")]
    Failed(String),
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct ScalarAnswer {
    pub column: Vec<u8>,
    pub rejected: Vec<Rejection>,
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct TransformAnswer {
    pub rows: Vec<u8>,
    pub rejected: Vec<Rejection>,
}

#[derive(Debug, Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
pub enum GuestEncoding {
    #[component(name = "arrow")]
    Arrow,
    #[component(name = "json")]
    Json,
}

impl From<GuestEncoding> for Encoding {
    fn from(encoding: GuestEncoding) -> Self {
        match encoding {
            GuestEncoding::Arrow => Self::Arrow,
            GuestEncoding::Json => Self::Json,
        }
    }
}

#[derive(Debug, Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
pub enum GuestKind {
    #[component(name = "scalar")]
    Scalar,
    #[component(name = "transform")]
    Transform,
    #[component(name = "stateful")]
    Stateful,
    #[component(name = "aggregate")]
    Aggregate,
    #[component(name = "sink")]
    Sink,
}

impl From<GuestKind> for FunctionKind {
    fn from(kind: GuestKind) -> Self {
        match kind {
            GuestKind::Scalar => Self::Scalar,
            GuestKind::Transform => Self::Transform,
            GuestKind::Stateful => Self::Stateful,
            GuestKind::Aggregate => Self::Aggregate,
            GuestKind::Sink => Self::Sink,
        }
    }
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct GuestFunction {
    pub name: String,
    pub kind: GuestKind,
    pub doc: String,
}

#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub struct GuestManifest {
    pub name: String,
    pub version: String,
    pub encoding: GuestEncoding,
    pub functions: Vec<GuestFunction>,
}

#[derive(Debug, Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, reason = "guests construct them")]
pub enum LogLevel {
    #[component(name = "trace")]
    Trace,
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

/// Bytes for the guest. Shared, so that a buffer can be used again after the call.
pub type Bytes = std::sync::Arc<Vec<u8>>;
/// `describe`
pub type DescribeFn = TypedFunc<(), (GuestManifest,)>;
/// `evaluate`
pub type EvaluateFn = TypedFunc<(Clock, Bytes), (Result<ScalarAnswer, GuestError>,)>;
/// `process`
pub type ProcessFn = TypedFunc<(Clock, Bytes), (Result<TransformAnswer, GuestError>,)>;
