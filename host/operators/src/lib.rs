//! Runs what `plan` made ready: stateless steps over record batches.
//!
//! [`StatelessSegment`] is core's `Segment`: native runs and plugin functions in order, batch by batch, on whatever
//! thread calls. [`explain`] shows a plan to a person. Operators own no clock and open no file.

mod explain;
mod native;
#[allow(dead_code, reason = "the operators come")]
mod pairs;
mod plugins;
mod scoped;
mod segment;
#[allow(dead_code, reason = "the operators come")]
mod stateful;
#[allow(dead_code, reason = "the operators come")]
mod static_join;
#[cfg(test)]
mod tests;

pub use explain::explain;
pub use segment::StatelessSegment;
