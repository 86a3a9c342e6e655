//! Where rows go.
//!
//! The binary builds a sink from the pipeline file and hands it to the engine as [`pelton_core::Sink`]. A sink takes
//! whole micro-batches; none reads the clock, and the file sink reaches storage by [`pelton_core::FileManager`] alone.

pub mod console;
mod drawn;
pub mod file;
pub mod kafka;
pub mod memory;
pub mod plugin;
pub mod postgres;

pub use console::{ConsoleFormat, ConsoleOptions, ConsoleSink};
pub use drawn::DrawnTable;
pub use file::{CommittedFile, FileSink, FileSinkOptions, Rollover, committed_files};
pub use kafka::{DeadLetterTopic, DeadLetterTopicOptions, KafkaSink, KafkaSinkOptions};
pub use memory::MemorySink;
pub use plugin::PluginSink;
pub use postgres::{PostgresSink, PostgresSinkOptions};

use std::num::NonZero;

/// Pieces that are encoded at once.
fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(8)
}
