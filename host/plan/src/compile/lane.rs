//! A lane while it is being made: what is closed, and the stretch of SQL on top that is still growing.

use super::{At, Compiler, internal};
use crate::input::InputTable;
use crate::logical::Operation;
use crate::physical::{PhysicalStep, Stretch};
use crate::sql::INPUT;
use crate::stateful::Origin;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan as SqlPlan, LogicalPlanBuilder};
use pelton_core::Result;
use std::sync::Arc;

/// A lane whose end is open.
pub(super) struct OpenLane {
    pub(super) origin: Origin,
    /// What is closed.
    pub(super) steps: Vec<PhysicalStep>,
    /// What is not; its leaf is the end of `steps`.
    pub(super) plan: SqlPlan,
    /// The schema of the leaf, if its columns have other names than the plan gives them.
    pub(super) leaf_schema: Option<SchemaRef>,
    /// How far behind the query's watermark the rows can be (0 or less); `None` without a watermark.
    pub(super) watermark_ms: Option<i64>,
    /// The steps that the open stretch does the work of.
    written_in: Vec<usize>,
    /// Whether the open stretch is more than its leaf.
    grown: bool,
}

impl OpenLane {
    pub(super) fn begin(origin: Origin, plan: SqlPlan, watermark_ms: Option<i64>) -> Self {
        Self {
            origin,
            steps: Vec::new(),
            plan,
            leaf_schema: None,
            watermark_ms,
            written_in: Vec::new(),
            grown: false,
        }
    }

    /// Puts a stateless node, which stands on `self.plan` already, on top.
    pub(super) fn grow(&mut self, plan: SqlPlan, at: At) {
        // Another name for a table is no work.
        self.grown |= !matches!(plan, SqlPlan::SubqueryAlias(_));
        self.plan = plan;
        if let Some(step) = at
            && !self.written_in.contains(&step)
        {
            self.written_in.push(step);
        }
    }

    /// Ends the open stretch; the schema has unique names, column by column those of the plan.
    pub(super) fn close(&mut self, compiler: &Compiler<'_>) -> Result<SchemaRef> {
        let schema = match (&self.leaf_schema, self.grown) {
            (Some(leaf), false) => leaf.clone(),
            _ => unique_schema(self.plan.schema()),
        };
        self.close_to(&schema, compiler)?;
        Ok(schema)
    }

    /// Ends the open stretch so that its rows have this schema, column by column.
    pub(super) fn close_to(&mut self, schema: &SchemaRef, compiler: &Compiler<'_>) -> Result<()> {
        let leaf = self.leaf_schema.clone().unwrap_or_else(|| unique_schema(self.plan.schema()));
        if !self.grown && leaf == *schema {
            return Ok(());
        }
        let columns = self.plan.schema().iter().map(|(qualifier, field)| Column::from((qualifier, field)));
        let renamed =
            columns.zip(schema.fields()).map(|(column, field)| Expr::Column(column).alias(field.name()));
        let plan = LogicalPlanBuilder::from(self.plan.clone()).project(renamed.collect::<Vec<_>>());
        let plan = plan.and_then(LogicalPlanBuilder::build).map_err(|e| internal(&e))?;
        let steps = self.written_in.iter().filter_map(|step| compiler.logical.steps.get(*step));
        let (operators, texts) = steps.map(|step| (step.name.clone(), text_of(&step.operation))).unzip();
        let stretch = Stretch { operators, texts, plan, schema: schema.clone() };
        self.steps.push(PhysicalStep::Native(stretch.native(&compiler.logical.session)?));
        self.grown = false;
        self.written_in.clear();
        Ok(())
    }

    /// Begins a new stretch on rows of `schema`, whose columns the plan above calls as in `named`.
    pub(super) fn reopen(&mut self, schema: &SchemaRef, named: &DFSchema) -> Result<()> {
        self.plan = leaf(schema, named)?;
        self.leaf_schema = Some(schema.clone());
        self.grown = false;
        Ok(())
    }
}

fn text_of(operation: &Operation) -> String {
    match operation {
        Operation::Sql { kind, text } => {
            format!("{kind}: {}", text.split_whitespace().collect::<Vec<_>>().join(" "))
        }
        _ => String::new(),
    }
}

/// A scan of rows of `schema`, with the names that the plan above knows the columns by.
pub(super) fn leaf(schema: &SchemaRef, named: &DFSchema) -> Result<SqlPlan> {
    let table = provider_as_source(Arc::new(InputTable::new(schema.clone())));
    let columns = schema.fields().iter().zip(named.iter()).map(|(field, (qualifier, name))| {
        let column = Expr::Column(Column::new(Some(TableReference::bare(INPUT)), field.name()));
        column.alias_qualified(qualifier.cloned(), name.name())
    });
    LogicalPlanBuilder::scan(INPUT, table, None)
        .and_then(|scan| scan.project(columns.collect::<Vec<_>>()))
        .and_then(LogicalPlanBuilder::build)
        .map_err(|e| internal(&e))
}

/// The columns without table names; a name that occurs twice gets a number.
pub(super) fn unique_schema(schema: &DFSchema) -> SchemaRef {
    let mut names: Vec<String> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let numbered = (2..).map(|n| format!("{}#{n}", field.name()));
        let mut candidates = std::iter::once(field.name().clone()).chain(numbered);
        names.extend(candidates.find(|name| !names.contains(name)));
    }
    let field = |(name, field): (String, &Arc<Field>)| field.as_ref().clone().with_name(name);
    Arc::new(Schema::new(names.into_iter().zip(schema.fields()).map(field).collect::<Vec<_>>()))
}
