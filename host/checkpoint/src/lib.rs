//! What a query remembers beyond its process: the offset log (intent), the commit log (done), the plugins it ran
//! with, the rows that fell out; and the decision what to do on a restart.
//!
//! Stands on `core` alone, writes through [`pelton_core::FileManager`] alone, and never reads the clock: times and
//! ids come from the caller. [`layout`] says where things lie, [`recovery`] what the logs mean.

pub mod checkpoint;
pub mod dead_letters;
mod entry;
pub mod files;
pub mod layout;
pub mod layouts;
pub mod log;
pub mod metadata;
pub mod plugins;
pub mod recovery;

pub use checkpoint::{Checkpoint, MIN_BATCHES_TO_RETAIN, Opening, Resume};
pub use dead_letters::DeadLetterFile;
pub use entry::FORMAT_VERSION;
pub use layouts::LayoutId;
pub use log::{
    CommitEntry, CommitLog, OffsetEntry, OffsetLog, PartitionMark, PartitionMarks, Probation, RolledBack,
    SinkCommit, SourceOffsets, SwappedPlugin,
};
pub use metadata::Metadata;
pub use recovery::ResumePoint;
