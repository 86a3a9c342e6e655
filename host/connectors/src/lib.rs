//! Where rows come from and where they go: sources with their decoders, sinks with their encoders.
//!
//! `pelton` (the binary) builds them from the pipeline file and hands them to the engine as
//! [`pelton_core::Source`], [`pelton_core::Sink`] and [`pelton_core::Table`]. Nothing in here knows of plans, operators or state.

mod avro;
pub mod decode;
pub mod encode;
mod format;
pub mod http;
pub mod kafka;
mod protobuf;
mod registry;
pub mod sink;
pub mod source;
pub mod table;
#[cfg(test)]
mod testing;
