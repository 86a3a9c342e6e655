//! Where rows come from: implementations of [`pelton_core::Source`].
//!
//! The binary builds them from the pipeline file's options and hands them to the engine.

mod decoding;
pub mod file;
pub mod http;
pub mod kafka;
pub mod line;
pub mod rate;
pub mod replay;
mod store;

pub use decoding::LineOptions;
pub use file::{FileFormat, FileSource, FileSourceOptions};
pub use http::{HttpSource, HttpSourceOptions};
pub use kafka::{KafkaSource, KafkaSourceOptions};
pub use line::{LineSource, LineSourceOptions};
pub use rate::{RateSource, RateSourceOptions};
pub use replay::{ReplayLog, ReplaySource, ReplayedLetter};
pub use store::Stores;
