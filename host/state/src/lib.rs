//! Stores for the state of stateful operators, behind [`pelton_core::StateStore`].
//!
//! Stands on `core` alone. [`MemoryStateStore`] keeps everything in memory and dies with the process: it serves
//! tests and runs without a checkpoint.

mod memory;
mod rows;

pub use memory::MemoryStateStore;
pub use rows::{EncodedRows, RowCodec, key_group, ordered_i64, split_ordered_i64};
