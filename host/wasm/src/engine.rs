//! The Wasmtime engine and the thread that moves its epoch on, by which calls are interrupted. `host` makes one
//! for all plugins; loaded plugins keep it alive. It knows nothing of the contract.

use pelton_core::{Error, Result};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use wasmtime::{Config, Engine, OptLevel};

/// How often a running guest's time is looked at, in milliseconds.
pub const TICK_MS: u64 = 5;

/// Every option that the compiled code depends on. Guests must give the same bytes on every machine and in every
/// rerun: NaN bits are canonical, relaxed SIMD and threads are off.
pub(crate) fn engine(stack_bytes: usize) -> Result<Engine> {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .cranelift_opt_level(OptLevel::Speed)
        .wasm_simd(true)
        .wasm_relaxed_simd(false)
        .wasm_memory64(false)
        .concurrency_support(false)
        .max_wasm_stack(stack_bytes);
    Engine::new(&config).map_err(|e| Error::internal(format!("the WebAssembly engine did not start: {e:#}")))
}

/// Moves the engine's epoch on every [`TICK_MS`] while it is held by anyone.
pub(crate) struct Ticker {
    /// Dropping it wakes and ends the thread.
    _stop: Sender<()>,
}

impl Ticker {
    pub(crate) fn start(engine: &Engine) -> Result<Arc<Self>> {
        let (stop, stopped) = channel::<()>();
        let engine = engine.weak();
        std::thread::Builder::new()
            .name("pelton-wasm-epoch".into())
            .spawn(move || {
                while stopped.recv_timeout(Duration::from_millis(TICK_MS)) == Err(RecvTimeoutError::Timeout) {
                    match engine.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => break,
                    }
                }
            })
            .map_err(|e| Error::unavailable(format!("no thread for the plugins' time limit: {e}")))?;
        Ok(Arc::new(Self { _stop: stop }))
    }
}

/// The epochs after which a call of `time_ms` is over: rounded up, and one more because the first is under way.
pub(crate) fn epochs(time_ms: u64) -> u64 {
    time_ms.div_ceil(TICK_MS).saturating_add(1)
}
