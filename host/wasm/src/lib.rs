//! User code in a sandbox: loads WebAssembly plugins, checks them, and calls their functions by the batch.
//! The binary makes one [`PluginHost`] and hands its plugins to the engine as `core::Plugin`s. Nothing outside this
//! crate names Wasmtime; this crate knows nothing of pipelines, sources, sinks and checkpoints.
//!
//! | part | does |
//! |---|---|
//! | `host` | [`PluginHost`]: from bytes to a loaded plugin |
//! | `form`, `cache` | recognising and wrapping files; compiled code on disk |
//! | `services`, `wasi`, `http` | all that a guest can call |
//! | `code`, `guest`, `log`, `reason` | one instance: made, called under limits, and why it failed |
//! | `plugin`, `opened` | [`WasmPlugin`], opened functions and their pool of instances |
//! | `codec` | rows and schemas across the wall, both ways |
//!
//! ```
//! # use pelton_wasm::{HostOptions, PluginHost, PluginSettings};
//! # fn main() -> pelton_core::Result<()> {
//! let host = PluginHost::new(HostOptions::default())?;
//! let refused = host.load("flights", b"not wasm", PluginSettings::default()).err();
//! assert!(refused.is_some_and(|e| e.message().starts_with("plugin 'flights': not a WebAssembly file")));
//! # Ok(())
//! # }
//! ```

mod cache;
mod code;
mod codec;
mod contract;
mod engine;
mod form;
mod guest;
mod host;
mod http;
mod limits;
mod log;
mod opened;
mod plugin;
mod reason;
mod services;
mod stats;
mod wasi;

pub use contract::{CONTRACT_VERSIONS, CONTRACT_WIT};
pub use engine::TICK_MS;
pub use form::Form;
pub use host::{HostOptions, PluginHost, PluginSettings, digest};
pub use http::{HttpAllowance, HttpOrigin};
pub use limits::Limits;
pub use log::LogListener;
pub use plugin::{Inspection, WasmPlugin};
