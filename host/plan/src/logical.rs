//! The resolved plan: the whole query as one tree, and every step with its name, its meaning and the schema of its
//! result.
//!
//! The binary resolves a pipeline file once the schemas of sources and tables and the plugins are known, then
//! [`crate::check()`]s the result and makes a [`crate::PhysicalPlan`] of it. Nothing here runs anything but `open` and
//! `bind` of plugins, which is how their schemas are found.

mod functions;
mod groups;

use crate::file::{
    DedupStep, FilterStep, LatePolicy, PipelineFile, PluginStep, SelectItem, SelectSpec, SinkSpec, Span,
    SpannedText, StepSpec, WatermarkPolicySpec, WatermarkSpec,
};
use crate::input::InputTable;
use crate::sql::{INPUT, Placed, Plugins, Relations, Session};
use crate::tree::{self, StreamNode, StreamOp, scans};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan as SqlPlan, LogicalPlanBuilder, cast};
pub use functions::FunctionRef;
pub use groups::{GroupState, InitialState};
use pelton_core::suggest::did_you_mean;
use pelton_core::types::{normalize_schema, type_name};
use pelton_core::{
    Error, FunctionKind, OutputMode, PerPartition, Result, ScalarFunction, Table, TransformFunction, Trigger,
    WatermarkInfo,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// What a plan stands on: sources, tables and plugins by their name in the file.
#[derive(Clone, Default)]
pub struct PlanInputs {
    /// Schemas of the sources, with all of their columns.
    pub sources: BTreeMap<String, SchemaRef>,
    /// The static tables.
    pub tables: BTreeMap<String, Arc<dyn Table>>,
    /// The loaded plugins.
    pub plugins: Plugins,
}

/// A pipeline whose names and types are known.
pub struct LogicalPlan {
    /// The query's name.
    pub name: String,
    /// The sources that are read, in the order of their names.
    pub sources: Vec<LogicalSource>,
    /// The static tables by name.
    pub tables: BTreeMap<String, Arc<dyn Table>>,
    /// The steps in order.
    pub steps: Vec<LogicalStep>,
    /// The watermarks: first those of sources, then those of steps.
    pub watermarks: Vec<WatermarkInfo>,
    /// How they make the query's.
    pub watermark_policy: WatermarkPolicySpec,
    /// What becomes of late rows.
    pub on_late: LatePolicy,
    /// What goes to the sink.
    pub output_mode: OutputMode,
    /// When micro-batches start.
    pub trigger: Trigger,
    /// The sink's connector.
    pub sink: &'static str,
    /// The session time zone.
    pub time_zone: String,
    pub(crate) root: SqlPlan,
    pub(crate) schema: SchemaRef,
    pub(crate) file: Arc<crate::file::SourceText>,
    pub(crate) session: Arc<Session>,
}

/// A source of the query.
#[derive(Debug, Clone)]
pub struct LogicalSource {
    /// Its name in the file.
    pub name: String,
    /// Its connector: `file`, `rate`.
    pub connector: &'static str,
    /// All of its columns.
    pub schema: SchemaRef,
}

/// A step whose result is known.
pub struct LogicalStep {
    /// The operator's stable name: given by the user, or made from what the step is.
    pub name: String,
    /// Where it stands in the file.
    pub span: Span,
    /// What it does.
    pub operation: Operation,
    /// Schema of its result.
    pub schema: SchemaRef,
    /// INTERSECT or EXCEPT, if it is in the step's SQL.
    pub(crate) set_operation: Option<&'static str>,
}

/// What a step does.
pub enum Operation {
    /// Filter, projection or SELECT.
    Sql {
        /// The key in the file: `filter`, `select` or `sql`.
        kind: &'static str,
        /// The text that the user wrote.
        text: String,
    },
    /// A plugin's boolean scalar function that keeps, drops or refuses rows.
    PluginFilter {
        /// Which function it is.
        function: FunctionRef,
        /// A projection of `input` to the function's arguments.
        arguments: Box<SqlPlan>,
        /// The function, bound to the types of its arguments.
        scalar: Arc<dyn ScalarFunction>,
    },
    /// A plugin's transform function.
    PluginTransform {
        /// Which function it is.
        function: FunctionRef,
        /// The function, opened for the rows of the step before.
        transform: Arc<dyn TransformFunction>,
    },
    /// A plugin's stateful function.
    GroupState(Box<GroupState>),
    /// Declares the event time.
    Watermark,
    /// Keeps the first row of each key.
    Dedup,
}

impl LogicalPlan {
    /// Resolves names and types. Errors point into the pipeline file.
    pub fn resolve(file: &PipelineFile, inputs: &PlanInputs) -> Result<Self> {
        let policies = file.plugins.iter();
        let policies =
            policies.map(|(name, spec)| (name.clone(), spec.options().on_plugin_failure.policy())).collect();
        let session = Arc::new(Session::new(file.time_zone(), inputs.plugins.clone(), policies));
        let mut resolver = Resolver::new(file, &session, inputs)?;
        let steps = file.steps.iter().map(|step| resolver.step(step)).collect::<Result<Vec<_>>>()?;
        if let SinkSpec::Plugin(sink) = &file.sink {
            resolver.plugin_function(&sink.plugin, FunctionKind::Sink)?;
        }
        let Some(root) = resolver.input else {
            let what = "a pipeline with several sources needs a sql step that says how they come together";
            return Err(file.text().error(file.sources.span, what.into()));
        };
        let read = tree::scans(&root);
        if let Some(unread) = inputs.sources.keys().find(|name| !read.contains(name)) {
            let what =
                format!("the source '{unread}' is read by no step; use it in a sql step or leave it out");
            return Err(file.text().error(file.sources.span, what));
        }
        let schema = Arc::new(Schema::new(root.schema().fields().clone()));
        let sources = file.sources.value.iter().map(|(name, spec)| LogicalSource {
            name: name.clone(),
            connector: spec.connector(),
            schema: inputs.sources.get(name).cloned().unwrap_or_else(|| Arc::new(Schema::empty())),
        });
        Ok(Self {
            name: file.name.value.clone(),
            sources: sources.collect(),
            tables: inputs.tables.clone(),
            steps,
            watermarks: resolver.watermarks,
            watermark_policy: file.watermark_policy,
            on_late: file.on_late,
            output_mode: file.output_mode.value.into(),
            trigger: file.trigger.into(),
            sink: file.sink.connector(),
            time_zone: file.time_zone().to_owned(),
            root,
            schema,
            file: file.text().clone(),
            session,
        })
    }

    /// Schema of the rows that reach the sink.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether a table of SQL is a source.
    pub(crate) fn is_source(&self, name: &str) -> bool {
        self.sources.iter().any(|source| source.name == name)
    }
}

struct Resolver<'a> {
    file: &'a PipelineFile,
    session: &'a Session,
    names: HashSet<String>,
    /// What SQL may read, with the schemas.
    relations: Relations,
    /// What the names of sources and tables stand for.
    meanings: BTreeMap<String, SqlPlan>,
    /// The step before; at first the source, if there is one alone.
    input: Option<SqlPlan>,
    watermarks: Vec<WatermarkInfo>,
    /// How many steps are done.
    done: usize,
}

impl<'a> Resolver<'a> {
    fn new(file: &'a PipelineFile, session: &'a Session, inputs: &PlanInputs) -> Result<Self> {
        let mut resolver = Self {
            file,
            session,
            names: HashSet::new(),
            relations: Relations::default(),
            meanings: BTreeMap::new(),
            input: None,
            watermarks: Vec::new(),
            done: 0,
        };
        for (name, spec) in &file.sources.value {
            let Some(schema) = inputs.sources.get(name) else {
                return Err(Error::internal(format!("the source '{name}' was not opened")));
            };
            let mut plan = scan(name, schema)?;
            if let Some(watermark) = spec.watermark() {
                plan = resolver.watermark(plan, &watermark.value, name)?;
            }
            resolver.relations.set(name, schema.clone());
            resolver.meanings.insert(name.clone(), plan);
        }
        for (name, table) in &inputs.tables {
            resolver.relations.set(name, table.schema());
            resolver.meanings.insert(name.clone(), scan(name, &table.schema())?);
        }
        let mut sources = file.sources.value.keys();
        if let (Some(only), None) = (sources.next(), sources.next()) {
            let plan = resolver.meanings.get(only).cloned();
            if let Some(plan) = plan {
                resolver.set_input(plan);
            }
        }
        Ok(resolver)
    }

    fn set_input(&mut self, plan: SqlPlan) {
        self.relations.set(INPUT, Arc::new(Schema::new(plan.schema().fields().clone())));
        self.input = Some(plan);
    }

    /// Declares a column as event time.
    fn watermark(&mut self, plan: SqlPlan, spec: &WatermarkSpec, name: &str) -> Result<SqlPlan> {
        let at = self.placed(&spec.column);
        let column = self.column(at, plan.schema())?;
        let field = plan.schema().field(column).clone();
        if !matches!(field.data_type(), DataType::Timestamp(_, Some(_))) {
            let what = format!(
                "the event time must be a timestamp, but '{}' is {}",
                field.name(),
                type_name(field.data_type())
            );
            return Err(at
                .error(what)
                .hint("convert it in a select step before, for example with to_timestamp()"));
        }
        let delay_ms = spec.delay.interval().as_millis();
        let index = self.watermarks.len();
        let per_partition = self.per_partition(&plan, spec)?;
        let column_name = field.name().clone();
        self.watermarks.push(WatermarkInfo {
            name: name.to_owned(),
            column: column_name,
            delay_ms,
            per_partition,
        });
        Ok(StreamNode::over(plan, StreamOp::Watermark { index, column, delay_ms }))
    }

    /// Whose partitions a watermark over `plan` follows.
    fn per_partition(&self, plan: &SqlPlan, spec: &WatermarkSpec) -> Result<Option<PerPartition>> {
        match (spec.per_partition, &spec.idle_timeout) {
            (false, Some(timeout)) => {
                let what = "idle_timeout is for a watermark that is kept by partition".to_owned();
                Err(self.file.text().error(timeout.span, what).hint("add per_partition: true"))
            }
            (false, None) => Ok(None),
            (true, timeout) => Ok(Some(PerPartition {
                sources: scans(plan)
                    .into_iter()
                    .filter(|name| self.file.sources.value.contains_key(name))
                    .collect(),
                idle_timeout_ms: timeout.as_ref().map(|timeout| timeout.value.interval().as_millis()),
            })),
        }
    }

    /// The position of a column that the file names.
    fn column(&self, at: Placed<'_>, schema: &DFSchema) -> Result<usize> {
        let names = || schema.fields().iter().map(|field| field.name().as_str());
        let exact = names().position(|name| name == at.text);
        exact.or_else(|| names().position(|name| name.eq_ignore_ascii_case(at.text))).ok_or_else(|| {
            let near = did_you_mean(at.text, names());
            let all: Vec<&str> = names().collect();
            at.error(format!("there is no column '{}'{near}", at.text))
                .hint(format!("the columns are {}", all.join(", ")))
        })
    }

    /// The step before.
    fn before(&self, span: Span) -> Result<SqlPlan> {
        self.input.clone().ok_or_else(|| {
            let what = "there are several sources, so the first step must be a sql step that names them";
            self.file.text().error(span, what.into())
        })
    }

    fn step(&mut self, step: &'a StepSpec) -> Result<LogicalStep> {
        let (given, default) = match step {
            StepSpec::Filter(step) => (&step.name, "filter"),
            StepSpec::Select(step) => (&step.name, "select"),
            StepSpec::Sql(step) => (&step.name, "sql"),
            StepSpec::Plugin(step) => (&step.name, step.plugin.value.as_str()),
            StepSpec::Watermark(step) => (&step.name, "watermark"),
            StepSpec::Dedup(step) => (&step.name, "dedup"),
        };
        let name = self.name(given.as_ref(), default)?;
        let mut set_operation = None;
        let (span, operation, plan) = match step {
            StepSpec::Filter(step) => self.filter(step)?,
            StepSpec::Select(step) => self.select(&step.select)?,
            StepSpec::Sql(step) => {
                let plan = self.session.query(self.placed(&step.sql), &self.relations)?;
                set_operation = self.session.set_operation(self.placed(&step.sql))?;
                let plan = self.composed(plan, step.sql.span)?;
                (step.sql.span, Operation::Sql { kind: "sql", text: step.sql.value.clone() }, plan)
            }
            StepSpec::Plugin(step) if self.is_stateful(step) => self.group_state(step)?,
            StepSpec::Plugin(step) => self.transform(step)?,
            StepSpec::Watermark(step) => {
                let span = step.watermark.span;
                let plan = self.before(span)?;
                (span, Operation::Watermark, self.watermark(plan, &step.watermark.value, &name)?)
            }
            StepSpec::Dedup(step) => (step.dedup.span, Operation::Dedup, self.dedup(step)?),
        };
        let plan = StreamNode::over(plan, StreamOp::Step(self.done));
        let schema = Arc::new(Schema::new(plan.schema().fields().clone()));
        self.set_input(plan);
        self.done += 1;
        Ok(LogicalStep { name, span, operation, schema, set_operation })
    }

    /// Puts the meanings of the names into a step's plan, and cuts its result to the types that may leave a step.
    fn composed(&self, plan: SqlPlan, span: Span) -> Result<SqlPlan> {
        let at = Placed { text: "", span, file: self.file.text() };
        let plan = normalized(plan, &self.session.time_zone, at)?;
        let columns = self.relations.columns();
        let plan = self.session.analyze(plan).map_err(|e| at.plan_error(e, &columns))?;
        let meaning = |name: &str| match name == INPUT {
            true => self.input.clone(),
            false => self.meanings.get(name).cloned(),
        };
        let plan = tree::compose(plan, &meaning).map_err(|e| at.plan_error(e, &columns))?;
        let Some(windows) = self.session.scalar(crate::functions::window::WINDOWS) else { return Ok(plan) };
        tree::windows::expand(plan, windows).map_err(|e| at.plan_error(e, &columns))
    }

    fn dedup(&self, step: &DedupStep) -> Result<SqlPlan> {
        let plan = self.before(step.dedup.span)?;
        let (columns, within_watermark) = step.dedup.value.parts();
        if let crate::file::DedupSpec::All(word) = &step.dedup.value
            && word.value != "all"
        {
            let what = format!("'{}' is not possible here; write a list of columns, or `all`", word.value);
            return Err(self.file.text().error(word.span, what));
        }
        let keys = match columns {
            None => (0..plan.schema().fields().len()).collect(),
            Some(columns) => {
                let position = |column| self.column(self.placed(column), plan.schema());
                columns.iter().map(position).collect::<Result<Vec<_>>>()?
            }
        };
        Ok(StreamNode::over(plan, StreamOp::Dedup { keys, within_watermark }))
    }

    fn placed(&self, text: &'a SpannedText) -> Placed<'a> {
        Placed { text: &text.value, span: text.span, file: self.file.text() }
    }

    /// The name in the file, or what the step is, with a number from the second on.
    fn name(&mut self, given: Option<&SpannedText>, default: &str) -> Result<String> {
        if let Some(given) = given {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if given.value.is_empty() || !given.value.chars().all(allowed) {
                let what = format!(
                    "'{}' is no name for a step: letters, digits, '-', '_' and '.' make names",
                    given.value
                );
                return Err(self.file.text().error(given.span, what));
            }
            if !self.names.insert(given.value.clone()) {
                let what = format!("another step is called '{}' already", given.value);
                return Err(self.file.text().error(given.span, what));
            }
            return Ok(given.value.clone());
        }
        let mut name = default.to_owned();
        let mut count = 1;
        while !self.names.insert(name.clone()) {
            count += 1;
            name = format!("{default}-{count}");
        }
        Ok(name)
    }

    fn filter(&self, step: &'a FilterStep) -> Result<(Span, Operation, SqlPlan)> {
        let placed = self.placed(&step.filter);
        let span = step.filter.span;
        let before = self.before(span)?;
        let said = step.on_plugin_failure.as_ref();
        let Some(call) = self.session.plugin_filter(placed, &self.relations)? else {
            if let Some(said) = said {
                let what = "`on_plugin_failure` in a filter is about a plugin's function that is the whole expression";
                let error = self.file.text().error(said.span, what.into());
                return Err(error.hint("for functions within other expressions set it at the plugin: plugins.NAME.on_plugin_failure"));
            }
            let plan = self.session.filter(placed, &self.relations)?;
            let operation = Operation::Sql { kind: "filter", text: step.filter.value.clone() };
            return Ok((span, operation, self.composed(plan, span)?));
        };
        let columns = self.relations.columns();
        let arguments = normalized(call.arguments, &self.session.time_zone, placed)?;
        let arguments = self.session.analyze(arguments).map_err(|e| placed.plan_error(e, &columns))?;
        let schema = crate::functions::plugin::arguments_schema(
            &arguments.schema().fields().iter().map(|f| (f.data_type().clone(), true)).collect::<Vec<_>>(),
        );
        let function =
            self.function(placed, &call.plugin, &call.function, FunctionKind::Scalar)?.with_policy(said);
        let plugin = &self.session.plugins[&call.plugin];
        let scalar = plugin
            .scalar(&call.function, schema)
            .map_err(|e| placed.error(format!("{function}(): {}", e.message())))?;
        let result = scalar.field();
        if *result.data_type() != DataType::Boolean {
            let what = format!(
                "a filter needs true or false, but {function}() gives {}",
                type_name(result.data_type())
            );
            return Err(placed.error(what));
        }
        let operation = Operation::PluginFilter { function, arguments: Box::new(arguments), scalar };
        Ok((span, operation, StreamNode::over(before, StreamOp::PluginFilter(self.done))))
    }

    fn select(&self, select: &'a SelectSpec) -> Result<(Span, Operation, SqlPlan)> {
        let mut items: Vec<(Placed<'_>, Option<&str>)> = Vec::new();
        let named = |columns: &'a crate::file::Columns| {
            columns.0.iter().map(|column| (self.placed(&column.text), Some(column.name.value.as_str())))
        };
        match select {
            SelectSpec::Named(columns) => items.extend(named(columns)),
            SelectSpec::One(text) => items.push((self.placed(text), None)),
            SelectSpec::Many(list) => {
                for item in list {
                    match item {
                        SelectItem::Named(columns) => items.extend(named(columns)),
                        SelectItem::Expression(text) => items.push((self.placed(text), None)),
                    }
                }
            }
        }
        let span = items.first().map(|(placed, _)| placed.span).unwrap_or_default();
        self.before(span)?;
        let plan = self.session.select(&items, &self.relations)?;
        let text = |(placed, name): &(Placed<'_>, Option<&str>)| match name {
            Some(name) => format!("{} AS {name}", placed.text),
            None => placed.text.to_owned(),
        };
        let text = items.iter().map(text).collect::<Vec<_>>().join(", ");
        Ok((span, Operation::Sql { kind: "select", text }, self.composed(plan, span)?))
    }

    fn transform(&self, step: &'a PluginStep) -> Result<(Span, Operation, SqlPlan)> {
        let placed = self.placed(&step.plugin);
        let input = self.before(step.plugin.span)?;
        let function = self.plugin_function(&step.plugin, FunctionKind::Transform)?;
        let function = function.with_policy(step.on_plugin_failure.as_ref());
        let rows = Arc::new(Schema::new(input.schema().fields().clone()));
        let transform = self.session.plugins[&function.plugin]
            .transform(&function.function, rows)
            .map_err(|e| placed.error(format!("{function}: {}", e.message())))?;
        let schema = normalize_schema(&transform.output_schema(), &self.session.time_zone)
            .map_err(|e| placed.error(format!("{function}: {}", e.message())))?;
        let schema = DFSchema::try_from(schema.as_ref().clone())
            .map_err(|e| placed.error(format!("{function}: {}", e.strip_backtrace())))?;
        let op = StreamOp::PluginTransform(self.done);
        let plan = StreamNode { op, input, schema: Arc::new(schema) }.plan();
        Ok((step.plugin.span, Operation::PluginTransform { function, transform }, plan))
    }
}

/// What a source or a table gives.
fn scan(name: &str, schema: &SchemaRef) -> Result<SqlPlan> {
    let table = provider_as_source(Arc::new(InputTable::new(schema.clone())));
    LogicalPlanBuilder::scan(name, table, None).and_then(LogicalPlanBuilder::build).map_err(|e| {
        Error::internal(format!("the table '{name}' cannot be planned: {}", e.strip_backtrace()))
    })
}

/// Puts a projection on top that drops table names and casts every column to a type that may leave a step.
fn normalized(plan: SqlPlan, time_zone: &str, at: Placed<'_>) -> Result<SqlPlan> {
    let schema = plan.schema().clone();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    if let Some(twice) =
        names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)).map(|(_, name)| *name)
    {
        return Err(at.error(format!(
            "two columns of the result are called '{twice}'; give one another name with AS"
        )));
    }
    // Counts of DataFusion's own functions, which Spark gives as longs.
    let counts = schema.fields().iter().map(|field| match field.data_type() {
        DataType::UInt64 => Arc::new(field.as_ref().clone().with_data_type(DataType::Int64)),
        _ => field.clone(),
    });
    let wanted = normalize_schema(&Schema::new(counts.collect::<Vec<_>>()), time_zone)
        .map_err(|e| at.error(e.message()).hint(e.hint_text().unwrap_or_default()))?;
    let unchanged = schema
        .iter()
        .zip(wanted.fields())
        .all(|((qualifier, field), wanted)| qualifier.is_none() && field.data_type() == wanted.data_type());
    if unchanged {
        return Ok(plan);
    }
    let column = |((qualifier, field), wanted): ((_, &Arc<_>), &Arc<datafusion::arrow::datatypes::Field>)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        let is_right = column.get_type(&schema).is_ok_and(|t| t == *wanted.data_type());
        let column = if is_right { column } else { cast(column, wanted.data_type().clone()) };
        column.alias(wanted.name())
    };
    let columns: Vec<Expr> = schema.iter().zip(wanted.fields()).map(column).collect();
    LogicalPlanBuilder::from(plan)
        .project(columns)
        .and_then(LogicalPlanBuilder::build)
        .map_err(|e| at.plan_error(e, schema.as_arrow()))
}
