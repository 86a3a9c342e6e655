//! The nodes that SQL does not know.

use datafusion::common::{DFSchemaRef, Result};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan as SqlPlan, UserDefinedLogicalNodeCore};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// What a node of ours does.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd)]
pub(crate) enum StreamOp {
    /// Changes nothing: everything below, down to the next such mark, was written in this step.
    Step(usize),
    /// Declares the event time.
    Watermark {
        /// Which of the query's watermarks.
        index: usize,
        /// The column's position.
        column: usize,
        /// How far it stays behind.
        delay_ms: i64,
    },
    /// Keeps the first row of each key.
    Dedup {
        /// The key's columns by position.
        keys: Vec<usize>,
        /// Remembers a key for the watermark's delay only.
        within_watermark: bool,
    },
    /// A plugin's boolean function; its step has it.
    PluginFilter(usize),
    /// A plugin's transform function; its step has it.
    PluginTransform(usize),
    /// A plugin's stateful function; its step has it.
    GroupState(usize),
}

/// A node of ours over one input.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StreamNode {
    pub(crate) op: StreamOp,
    pub(crate) input: SqlPlan,
    pub(crate) schema: DFSchemaRef,
}

impl StreamNode {
    /// A node whose rows have the columns of its input.
    pub(crate) fn over(input: SqlPlan, op: StreamOp) -> SqlPlan {
        let schema = input.schema().clone();
        Self { op, input, schema }.plan()
    }

    pub(crate) fn plan(self) -> SqlPlan {
        SqlPlan::Extension(Extension { node: Arc::new(self) })
    }
}

/// Our node, if the plan's top is one.
pub(crate) fn stream_node(plan: &SqlPlan) -> Option<&StreamNode> {
    match plan {
        SqlPlan::Extension(extension) => extension.node.as_any().downcast_ref::<StreamNode>(),
        _ => None,
    }
}

impl PartialOrd for StreamNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.op.partial_cmp(&other.op).filter(|order| *order != Ordering::Equal || self == other)
    }
}

impl UserDefinedLogicalNodeCore for StreamNode {
    fn name(&self) -> &str {
        match self.op {
            StreamOp::Step(_) => "Step",
            StreamOp::Watermark { .. } => "Watermark",
            StreamOp::Dedup { .. } => "Dedup",
            StreamOp::PluginFilter(_) => "PluginFilter",
            StreamOp::PluginTransform(_) => "PluginTransform",
            StreamOp::GroupState(_) => "GroupState",
        }
    }
    fn inputs(&self) -> Vec<&SqlPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.op)
    }
    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<SqlPlan>) -> Result<Self> {
        let Some(input) = inputs.pop() else {
            return datafusion::common::internal_err!("a node lost its input");
        };
        let schema = match self.op {
            StreamOp::PluginTransform(_) | StreamOp::GroupState(_) => self.schema.clone(),
            _ => input.schema().clone(),
        };
        Ok(Self { op: self.op.clone(), input, schema })
    }
}
