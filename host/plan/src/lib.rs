//! From the pipeline file to the plan that runs.
//!
//! | stage | type | what it knows |
//! |---|---|---|
//! | as written | [`PipelineFile`] | texts and where they stand |
//! | resolved | [`LogicalPlan`] | names, types, functions |
//! | checked | [`check()`] | what may not run, and why |
//! | ready | [`PhysicalPlan`] | operators with stable names, native runs as DataFusion plans |
//!
//! Called by `pelton`; `operators` runs the last stage. This crate opens no file, reads no clock and processes no rows
//! outside of the functions that it gives to DataFusion.

pub mod check;
pub(crate) mod compile;
pub mod file;
pub(crate) mod functions;
pub mod input;
pub mod json;
pub mod logical;
pub mod physical;
pub mod scope;
mod sql;
pub mod stateful;
pub(crate) mod tree;

pub use check::{Refusal, RefusedBy, Rule, check, warnings};
pub use file::PipelineFile;
pub use functions::plugin::FailedCall;
pub use logical::{
    FunctionRef, GroupState, InitialState, LogicalPlan, LogicalSource, LogicalStep, Operation, PlanInputs,
};
pub use physical::{
    NativeRun, PhysicalInput, PhysicalPlan, PhysicalStep, PluginFilter, PluginTransform, RowOperation,
};
pub use sql::{Plugins, evaluation_error, expression_name};

/// The most rows that a batch between parts has.
pub const ROWS_PER_BATCH_MAX: usize = 8192;
