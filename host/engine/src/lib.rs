//! The micro-batch loop: what turns sources, steps and a sink into a query that is done exactly once.
//!
//! ```text
//! Start { name, files, clock }.recover()        own the checkpoint, learn where to go on
//!   → Query::builder(recovered)                 hand over the parts
//!       .input(…).logic(…).state(…).sink(…)     state: if stateful, opened at recovered.state_commit()
//!       .build()                                they fit each other and the checkpoint
//!         → query.run(&control)                 fire triggers; `micro_batch` is one turn
//! ```
//!
//! Stands on `core` and `checkpoint`; knows sources, steps, state and sinks only as core's ports. It owns the clock and the
//! worker threads; no other crate on the rows' way has either.

mod admission;
mod builder;
mod clock;
mod compatible;
mod fit;
mod letters;
pub mod live;
mod meters;
mod micro_batch;
mod position;
pub mod progress;
mod query;
mod recover;
mod replay;
mod report;
mod reset;
mod rows;
mod swap;
mod tables;
pub mod testing;
mod trigger;
mod waits;
mod watermark;

pub use builder::QueryBuilder;
pub use clock::SystemClock;
pub use fit::check_output_mode;
pub use micro_batch::Turn;
pub use progress::{Phase, Progress, RunEnd, RunSummary};
pub use query::{Logic, PluginCode, Query, RunControl};
pub use recover::{Recovered, Start};
pub use replay::{Losses, LostRows, Replay, Replayed, ReplayedBatch};
pub use reset::ResetState;
pub use swap::{
    Candidate, LastSwap, PROBATION_BATCHES, PluginProgress, SwapCounts, SwapKind, SwapOutcome, Swaps,
    check_swap, in_force,
};
pub use trigger::next_trigger_ms;
pub use waits::Waits;

#[cfg(test)]
mod changed_state_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod partition_tests;
#[cfg(test)]
mod query_tests;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod stateful_crash_tests;
#[cfg(test)]
mod stateful_tests;
#[cfg(test)]
mod swap_crash_tests;
