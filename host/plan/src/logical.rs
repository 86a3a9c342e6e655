//! The resolved plan: every step with its name, its meaning and the schema of its result.
//!
//! The binary resolves a pipeline file once the source's schema and the plugins are known, then
//! [`crate::check()`]s the result and makes a [`crate::PhysicalPlan`] of it. Nothing here runs anything but `open` and
//! `bind` of plugins, which is how their schemas are found.

use crate::file::{
    FilterStep, PipelineFile, PluginStep, SelectItem, SelectSpec, Span, SpannedText, StepSpec,
};
use crate::sql::{Placed, Plugins, Session};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan as SqlPlan, LogicalPlanBuilder, cast};
use pelton_core::suggest::did_you_mean;
use pelton_core::types::{normalize_schema, type_name};
use pelton_core::{
    FunctionKind, OutputMode, PluginDigest, Result, ScalarFunction, TransformFunction, Trigger,
};
use std::collections::HashSet;
use std::sync::Arc;

/// What a plan stands on: the schema of the source's rows, and the plugins by their name in the file.
#[derive(Clone)]
pub struct PlanInputs {
    /// Schema of the source, with all of its columns.
    pub source_schema: SchemaRef,
    /// The loaded plugins.
    pub plugins: Plugins,
}

/// A pipeline whose names and types are known.
pub struct LogicalPlan {
    /// The query's name.
    pub name: String,
    /// The source's name in the file.
    pub source: String,
    /// The source's connector: `file`, `rate`.
    pub connector: &'static str,
    /// Schema of the source's rows.
    pub source_schema: SchemaRef,
    /// The steps in order.
    pub steps: Vec<LogicalStep>,
    /// What goes to the sink.
    pub output_mode: OutputMode,
    /// When micro-batches start.
    pub trigger: Trigger,
    /// The sink's connector.
    pub sink: &'static str,
    /// The session time zone.
    pub time_zone: String,
    pub(crate) file: Arc<crate::file::SourceText>,
    pub(crate) session: Arc<Session>,
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
}

/// What a step does.
pub enum Operation {
    /// Filter, projection or SELECT.
    Sql {
        /// The key in the file: `filter`, `select` or `sql`.
        kind: &'static str,
        /// The text that the user wrote.
        text: String,
        /// The plan over the table `input`.
        plan: Box<SqlPlan>,
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
}

/// A function of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionRef {
    /// The plugin's name in the file.
    pub plugin: String,
    /// The function's name in the plugin.
    pub function: String,
    /// The plugin's bytes.
    pub digest: PluginDigest,
}

impl std::fmt::Display for FunctionRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.plugin, self.function)
    }
}

impl LogicalPlan {
    /// Resolves names and types. Errors point into the pipeline file.
    pub fn resolve(file: &PipelineFile, inputs: &PlanInputs) -> Result<Self> {
        let (source, spec) = file.source()?;
        let session = Arc::new(Session::new(file.time_zone(), inputs.plugins.clone()));
        let mut resolver = Resolver { file, session: &session, names: HashSet::new() };
        let mut schema = inputs.source_schema.clone();
        let mut steps = Vec::with_capacity(file.steps.len());
        for step in &file.steps {
            let step = resolver.step(step, &schema)?;
            schema = step.schema.clone();
            steps.push(step);
        }
        Ok(Self {
            name: file.name.value.clone(),
            source: source.to_owned(),
            connector: spec.connector(),
            source_schema: inputs.source_schema.clone(),
            steps,
            output_mode: file.output_mode.into(),
            trigger: file.trigger.into(),
            sink: file.sink.connector(),
            time_zone: file.time_zone().to_owned(),
            file: file.text().clone(),
            session,
        })
    }

    /// Schema of the rows that reach the sink.
    pub fn schema(&self) -> &SchemaRef {
        self.steps.last().map_or(&self.source_schema, |step| &step.schema)
    }
}

struct Resolver<'a> {
    file: &'a PipelineFile,
    session: &'a Session,
    names: HashSet<String>,
}

impl<'a> Resolver<'a> {
    fn step(&mut self, step: &'a StepSpec, input: &SchemaRef) -> Result<LogicalStep> {
        let (given, default) = match step {
            StepSpec::Filter(step) => (&step.name, "filter"),
            StepSpec::Select(step) => (&step.name, "select"),
            StepSpec::Sql(step) => (&step.name, "sql"),
            StepSpec::Plugin(step) => (&step.name, step.plugin.value.as_str()),
        };
        let name = self.name(given.as_ref(), default)?;
        let (span, operation) = match step {
            StepSpec::Filter(step) => (step.filter.span, self.filter(step, input)?),
            StepSpec::Select(step) => {
                let (span, text, plan) = self.select(&step.select, input)?;
                (span, Operation::Sql { kind: "select", text, plan: Box::new(plan) })
            }
            StepSpec::Sql(step) => {
                let plan = self.session.query(self.placed(&step.sql), input)?;
                let text = step.sql.value.clone();
                (step.sql.span, Operation::Sql { kind: "sql", text, plan: Box::new(plan) })
            }
            StepSpec::Plugin(step) => (step.plugin.span, self.transform(step, input)?),
        };
        self.finish(name, span, operation, input)
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

    fn filter(&self, step: &'a FilterStep, input: &SchemaRef) -> Result<Operation> {
        let placed = self.placed(&step.filter);
        let Some(call) = self.session.plugin_filter(placed, input)? else {
            let plan = self.session.filter(placed, input)?;
            return Ok(Operation::Sql {
                kind: "filter",
                text: step.filter.value.clone(),
                plan: Box::new(plan),
            });
        };
        let arguments = normalized(call.arguments, &self.session.time_zone, placed)?;
        let arguments = self.session.analyze(arguments).map_err(|e| placed.plan_error(e, input))?;
        let schema = crate::functions::plugin::arguments_schema(
            &arguments.schema().fields().iter().map(|f| (f.data_type().clone(), true)).collect::<Vec<_>>(),
        );
        let function = self.function(placed, &call.plugin, &call.function, FunctionKind::Scalar)?;
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
        Ok(Operation::PluginFilter { function, arguments: Box::new(arguments), scalar })
    }

    fn select(&self, select: &'a SelectSpec, input: &SchemaRef) -> Result<(Span, String, SqlPlan)> {
        let mut items: Vec<(Placed<'_>, Option<&str>)> = Vec::new();
        let mut named = |columns: &'a crate::file::Columns| {
            for column in &columns.0 {
                items.push((self.placed(&column.text), Some(column.name.value.as_str())));
            }
        };
        match select {
            SelectSpec::Named(columns) => named(columns),
            SelectSpec::One(text) => items.push((self.placed(text), None)),
            SelectSpec::Many(list) => {
                for item in list {
                    match item {
                        SelectItem::Named(columns) => {
                            for column in &columns.0 {
                                items.push((self.placed(&column.text), Some(column.name.value.as_str())));
                            }
                        }
                        SelectItem::Expression(text) => items.push((self.placed(text), None)),
                    }
                }
            }
        }
        let plan = self.session.select(&items, input)?;
        let text = |(placed, name): &(Placed<'_>, Option<&str>)| match name {
            Some(name) => format!("{} AS {name}", placed.text),
            None => placed.text.to_owned(),
        };
        let span = items.first().map(|(placed, _)| placed.span).unwrap_or_default();
        Ok((span, items.iter().map(text).collect::<Vec<_>>().join(", "), plan))
    }

    fn transform(&self, step: &'a PluginStep, input: &SchemaRef) -> Result<Operation> {
        let placed = self.placed(&step.plugin);
        let Some((plugin, name)) = step.plugin.value.split_once('.') else {
            let what = format!("'{}' does not name a function; write plugin.function", step.plugin.value);
            return Err(placed.error(what));
        };
        let function = self.function(placed, plugin, name, FunctionKind::Transform)?;
        let transform = self.session.plugins[plugin]
            .transform(name, input.clone())
            .map_err(|e| placed.error(format!("{function}: {}", e.message())))?;
        Ok(Operation::PluginTransform { function, transform })
    }

    fn function(&self, at: Placed<'_>, plugin: &str, name: &str, kind: FunctionKind) -> Result<FunctionRef> {
        let Some(known) = self.session.plugins.get(plugin) else {
            let near = did_you_mean(plugin, self.session.plugins.keys().map(String::as_str));
            return Err(at.error(format!("there is no plugin '{plugin}' in this file{near}")));
        };
        let functions = &known.manifest().functions;
        let Some(found) = functions.iter().find(|f| f.name == name) else {
            let near = did_you_mean(name, functions.iter().map(|f| f.name.as_str()));
            return Err(at.error(format!("the plugin '{plugin}' has no function '{name}'{near}")));
        };
        if found.kind != kind {
            let what = match found.kind {
                FunctionKind::Scalar => format!(
                    "'{plugin}.{name}' is a scalar function; call it in a filter, select or sql step: {plugin}.{name}(column, …)"
                ),
                FunctionKind::Transform => {
                    format!("'{plugin}.{name}' is a transform function; use it as a step of its own")
                }
                _ => format!(
                    "'{plugin}.{name}' is of a kind that this version cannot run; it runs scalar and transform functions"
                ),
            };
            return Err(at.error(what));
        }
        Ok(FunctionRef {
            plugin: plugin.to_owned(),
            function: name.to_owned(),
            digest: known.digest().clone(),
        })
    }

    /// Cuts the result to the types that may leave a step, and finds its schema.
    fn finish(
        &self,
        name: String,
        span: Span,
        operation: Operation,
        input: &SchemaRef,
    ) -> Result<LogicalStep> {
        let at = Placed { text: "", span, file: self.file.text() };
        let (operation, schema) = match operation {
            Operation::Sql { kind, text, plan } => {
                let plan = normalized(*plan, &self.session.time_zone, at)?;
                let plan = self.session.analyze(plan).map_err(|e| at.plan_error(e, input))?;
                let schema = Arc::new(Schema::new(plan.schema().fields().clone()));
                (Operation::Sql { kind, text, plan: Box::new(plan) }, schema)
            }
            Operation::PluginTransform { function, transform } => {
                let schema = transform.output_schema();
                let normal = normalize_schema(&schema, &self.session.time_zone)
                    .map_err(|e| at.error(format!("{function}: {}", e.message())))?;
                (Operation::PluginTransform { function, transform }, normal)
            }
            filter @ Operation::PluginFilter { .. } => (filter, input.clone()),
        };
        Ok(LogicalStep { name, span, operation, schema })
    }
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
    let wanted = normalize_schema(schema.as_arrow(), time_zone)
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
