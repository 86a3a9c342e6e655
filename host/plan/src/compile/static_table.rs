//! Static tables, and what a query makes of them before it joins: run once for each version of the tables.

use super::lane::unique_schema;
use super::{Compiler, internal};
use crate::sql::Session;
use crate::stateful::{StaticRelation, VersionedRows};
use crate::tree;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::{Expr, LogicalPlan as SqlPlan, LogicalPlanBuilder};
use datafusion::physical_plan::collect;
use parking_lot::Mutex;
use pelton_core::{BatchId, Result, Table};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Compiler<'_> {
    pub(super) fn static_relation(&self, plan: &SqlPlan) -> Result<StaticRelation> {
        let schema = unique_schema(plan.schema());
        let names = tree::scans(plan);
        let tables = self.logical.tables.iter().filter(|(name, _)| names.contains(name));
        let relation = Relation {
            tables: tables.map(|(name, table)| (name.clone(), Arc::clone(table))).collect(),
            plan: named(plan, &schema).map_err(|e| internal(&e))?,
            schema: schema.clone(),
            session: Arc::clone(&self.logical.session),
            known: Mutex::new(None),
        };
        let name = names.join(", ");
        Ok(StaticRelation { name, schema, rows: Box::new(move |batch_id| relation.rows(batch_id)) })
    }
}

/// The plan with the columns called as in `schema`.
fn named(plan: &SqlPlan, schema: &SchemaRef) -> DfResult<SqlPlan> {
    let columns = tree::columns(plan).into_iter().zip(schema.fields());
    let columns: Vec<Expr> = columns.map(|(column, field)| column.alias(field.name())).collect();
    LogicalPlanBuilder::from(plan.clone()).project(columns)?.build()
}

struct Relation {
    tables: BTreeMap<String, Arc<dyn Table>>,
    plan: SqlPlan,
    schema: SchemaRef,
    session: Arc<Session>,
    /// The versions of the tables and what came of them.
    known: Mutex<Option<(Vec<u64>, VersionedRows)>>,
}

impl Relation {
    fn rows(&self, batch_id: BatchId) -> Result<VersionedRows> {
        let mut known = self.known.lock();
        let mut tables = BTreeMap::new();
        for (name, table) in &self.tables {
            tables.insert(name.as_str(), table.rows(batch_id)?);
        }
        let versions: Vec<u64> = tables.values().map(|rows| rows.version).collect();
        let version = match known.as_ref() {
            Some((of, rows)) if *of == versions => return Ok(rows.clone()),
            Some((_, rows)) => rows.version + 1,
            None => 0,
        };
        let rows = self.run(&tables).map_err(|e| crate::sql::evaluation_error(&e))?;
        let rows = VersionedRows { version, rows };
        *known = Some((versions, rows.clone()));
        Ok(rows)
    }

    fn run(&self, tables: &BTreeMap<&str, VersionedRows>) -> DfResult<RecordBatch> {
        let plan = self.plan.clone().transform_up(|node| match &node {
            SqlPlan::TableScan(scan) => match tables.get(scan.table_name.table()) {
                Some(table) => {
                    let memory = MemTable::try_new(table.rows.schema(), vec![vec![table.rows.clone()]])?;
                    let name = scan.table_name.clone();
                    let scan = LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(memory)), None)?;
                    Ok(Transformed::yes(scan.build()?))
                }
                None => Ok(Transformed::no(node)),
            },
            _ => Ok(Transformed::no(node)),
        })?;
        let state = self.session.state();
        let plan = state.optimize(&plan.data)?;
        // The tables are in memory, so nothing is waited for.
        let rows = futures::executor::block_on(async {
            let physical = state.query_planner().create_physical_plan(&plan, state).await?;
            collect(physical, state.task_ctx()).await
        })?;
        self.shaped(&rows)
    }

    /// One batch of exactly the promised schema.
    fn shaped(&self, batches: &[RecordBatch]) -> DfResult<RecordBatch> {
        let Some(first) = batches.first() else { return Ok(RecordBatch::new_empty(self.schema.clone())) };
        let all = concat_batches(&first.schema(), batches)?;
        let columns = all.columns().iter().zip(self.schema.fields());
        let columns =
            columns.map(|(column, field)| cast(column, field.data_type())).collect::<Result<_, _>>()?;
        Ok(RecordBatch::try_new(self.schema.clone(), columns)?)
    }
}
