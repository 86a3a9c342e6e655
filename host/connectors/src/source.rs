//! Where rows come from: implementations of [`pelton_core::Source`].
//!
//! The binary builds them from the pipeline file's options and hands them to the engine.

pub mod file;
pub mod kafka;
pub mod rate;
mod store;

pub use file::{FileFormat, FileSource, FileSourceOptions};
pub use kafka::{KafkaSource, KafkaSourceOptions};
pub use rate::{RateSource, RateSourceOptions};
pub use store::Stores;
