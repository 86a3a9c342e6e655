//! The table `input` of a step: a leaf that takes its rows from the task that runs it, so that one physical plan
//! serves many threads at once.

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, exec_err};
use datafusion::execution::context::SessionConfig;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use std::fmt;
use std::sync::Arc;

/// The rows that the leaves of a plan read: at least their columns.
pub struct InputRows(pub RecordBatch);

/// A task whose leaves read these rows.
pub fn task(config: &SessionConfig, runtime: &TaskContext, rows: RecordBatch) -> Arc<TaskContext> {
    let config = config.clone().with_extension(Arc::new(InputRows(rows)));
    Arc::new(TaskContext::new(
        None,
        String::new(),
        config,
        Default::default(),
        Default::default(),
        Default::default(),
        Default::default(),
        runtime.runtime_env(),
    ))
}

/// The table while it is planned.
#[derive(Debug)]
pub(crate) struct InputTable {
    schema: SchemaRef,
}

impl InputTable {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self { schema }
    }
}

#[async_trait]
impl TableProvider for InputTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn table_type(&self) -> TableType {
        TableType::Base
    }
    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        Ok(Arc::new(InputExec::new(schema)))
    }
}

/// The leaf.
#[derive(Debug)]
pub struct InputExec {
    properties: Arc<PlanProperties>,
}

impl InputExec {
    fn new(schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { properties: Arc::new(properties) }
    }
}

impl DisplayAs for InputExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.properties.eq_properties.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "InputExec: [{}]", names.join(", "))
    }
}

impl ExecutionPlan for InputExec {
    fn name(&self) -> &str {
        "InputExec"
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }
    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }
    fn execute(&self, _: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        match task.session_config().get_extension::<InputRows>() {
            Some(rows) => {
                let rows = columns(&rows.0, &self.schema())?;
                Ok(Box::pin(MemoryStream::try_new(vec![rows], self.schema(), None)?))
            }
            None => exec_err!("the plan was run without rows"),
        }
    }
}

/// The columns of one leaf, by name; a plan may have several leaves that read different columns.
fn columns(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if rows.schema_ref() == schema {
        return Ok(rows.clone());
    }
    let positions = schema.fields().iter().map(|field| rows.schema_ref().index_of(field.name()));
    Ok(rows.project(&positions.collect::<Result<Vec<_>, _>>()?)?)
}
