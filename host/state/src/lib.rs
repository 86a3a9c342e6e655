//! Stores for the state of stateful operators, behind [`pelton_core::StateStore`], and the encoding of what they hold.
//!
//! Stands on `core` alone. [`CheckpointedStateStore`] keeps a working copy in memory, what does not fit there on local
//! disk, and the truth in the checkpoint, where another one may look at an earlier micro-batch meanwhile; a
//! [`ForkedStateStore`] begins there and goes its own way.
//! [`MemoryStateStore`] dies with the process: it serves tests and runs without a checkpoint. [`RowCodec`] makes bytes
//! of rows.

mod blob;
mod changes;
mod checkpointed;
mod entries;
mod forked;
mod memory;
mod options;
mod rows;
mod spill;
mod tables;
mod threads;
mod varint;

pub use checkpointed::CheckpointedStateStore;
pub use forked::{ForkedStateStore, differing_entries};
pub use memory::MemoryStateStore;
pub use options::StateOptions;
pub use rows::{EncodedRows, RowCodec, group_of_hash, key_group, key_hash, ordered_i64, split_ordered_i64};
