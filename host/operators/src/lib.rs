//! Runs what `plan` made ready: stateless steps over record batches.
//!
//! [`QueryDataflow`] is core's `Dataflow`: lanes of native runs and plugin functions, batch by batch, on whatever thread
//! calls, and the stateful operators between them. [`explain`] shows a plan to a person. Operators own no clock and
//! open no file.

mod dataflow;
mod explain;
mod native;
mod pairs;
mod plugins;
mod poison;
mod scoped;
mod segment;
mod show;
mod stateful;
mod static_join;
#[cfg(test)]
mod tests;
mod watermark;

pub use dataflow::QueryDataflow;
pub use explain::{OperatorWait, explain, waits};
pub use show::{show_state, state_layouts};
