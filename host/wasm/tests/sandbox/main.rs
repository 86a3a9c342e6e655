//! Plugins from outside: what well-behaved guests are given, and what becomes of hostile ones.
//! Every hostile guest must be answered by an error that names plugin, function, batch and reason, within its
//! limits; the host must go on.

mod guests;
mod hostile;
mod image;
mod lying;
mod recycling;
mod sinks;
mod stateful;
mod working;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use pelton_core::{
    BatchId, BatchInfo, CallScope, Plugin, QueryId, Result, TransformFunction, TransformOutput,
};
use pelton_wasm::{HostOptions, Limits, PluginHost, PluginSettings, WasmPlugin};
use std::sync::{Arc, OnceLock};

fn host() -> &'static PluginHost {
    static HOST: OnceLock<PluginHost> = OnceLock::new();
    HOST.get_or_init(|| PluginHost::new(HostOptions::default()).expect("starts"))
}

/// Tight limits: a hostile guest must be done for within them.
fn limits() -> Limits {
    Limits { time_ms: 300, memory_bytes: 16 << 20, output_bytes: 4 << 20, ..Limits::default() }
}

fn load_with(bytes: &[u8], limits: Limits) -> Result<Arc<WasmPlugin>> {
    host().load("p", bytes, PluginSettings { limits, ..PluginSettings::default() })
}

fn load(guest: &guests::Guest) -> Result<Arc<WasmPlugin>> {
    load_with(&guest.wat(), limits())
}

fn numbers(count: i64) -> RecordBatch {
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
    RecordBatch::try_from_iter([("n", n)]).expect("a batch")
}

fn batch_info(batch_id: u64) -> BatchInfo {
    BatchInfo {
        query_id: QueryId("q".into()),
        batch_id: BatchId(batch_id),
        time_ms: 1_700_000_000_123,
        watermark_ms: None,
        late_watermark_ms: None,
    }
}

fn in_batch<R>(batch_id: u64, call: impl FnOnce(&CallScope<'_>) -> R) -> R {
    let batch = batch_info(batch_id);
    call(&CallScope { batch: &batch, operator: "step1", partition: 0, call: 0 })
}

fn process(function: &Arc<dyn TransformFunction>, rows: &RecordBatch) -> Result<TransformOutput> {
    in_batch(7, |scope| function.process(scope, rows))
}

fn open(plugin: &WasmPlugin) -> Result<Arc<dyn TransformFunction>> {
    plugin.transform("f", numbers(0).schema())
}
