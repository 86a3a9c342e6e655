//! What a store may take of the machine. Made by whoever opens a store; holds no state.

use std::path::PathBuf;

/// How much memory a [`crate::CheckpointedStateStore`] may take, and where it puts what does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateOptions {
    /// For the state, in bytes: the entries and what surrounds them, what RocksDB takes, and what the last micro-batch took
    /// until its changes were committed (up to a quarter of all; more comes on top).
    pub memory_bytes_max: u64,
    /// Where to make a directory of its own if the state outgrows that. Nothing in it outlives the store.
    pub directory: PathBuf,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self { memory_bytes_max: 1 << 30, directory: std::env::temp_dir() }
    }
}
