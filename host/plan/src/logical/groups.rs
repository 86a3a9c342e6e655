//! Steps that call a plugin's stateful function: what the file says of them, resolved.
//!
//! Called by the resolver for `plugin` steps. What output modes and watermarks allow is judged later, by `check`.

use super::{FunctionRef, Operation, Resolver};
use crate::file::{GroupOutputMode, PluginSpec, PluginStep, Span, SpannedText};
use crate::sql::Placed;
use crate::tree::{StreamNode, StreamOp};
use datafusion::arrow::datatypes::{DataType, Fields, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, LogicalPlan as SqlPlan, LogicalPlanBuilder, cast};
use pelton_core::types::{normalize_schema, type_name};
use pelton_core::{
    FunctionKind, GroupForm, OutputMode, Result, StateFact, StateVariable, StatefulFunction,
    StatefulSignature, VariableKind,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A plugin's stateful function over the groups of a step's input.
pub struct GroupState {
    /// Which function it is.
    pub function: FunctionRef,
    /// The function, opened for the rows of the step before.
    pub stateful: Arc<dyn StatefulFunction>,
    /// The columns that make groups, by position.
    pub keys: Vec<usize>,
    /// What its rows are: final ones, or in the place of earlier ones. A matter of [`GroupForm::FlatMapGroups`] alone.
    pub output_mode: OutputMode,
    /// The state that groups begin with.
    pub initial: Option<InitialState>,
    /// What the file's `config` of its plugin says, a fact each, by name.
    pub config: Vec<StateFact>,
}

/// A static table with the state that groups have before the first micro-batch.
pub struct InitialState {
    /// The table's name in the file.
    pub table: String,
    /// The key's columns and then the value's fields, of the types that the function has.
    pub(crate) rows: SqlPlan,
    /// The schema of these.
    pub schema: SchemaRef,
}

impl<'a> Resolver<'a> {
    /// Whether a step calls a stateful function, or says that it does.
    pub(super) fn is_stateful(&self, step: &PluginStep) -> bool {
        let function = step.plugin.value.split_once('.').and_then(|(plugin, name)| {
            let functions = &self.session.plugins.get(plugin)?.manifest().functions;
            functions.iter().find(|function| function.name == name)
        });
        let is_stateful = function.is_some_and(|function| function.kind == FunctionKind::Stateful);
        is_stateful || step.key.is_some() || step.output_mode.is_some() || step.initial_state.is_some()
    }

    pub(super) fn group_state(&self, step: &'a PluginStep) -> Result<(Span, Operation, SqlPlan)> {
        let placed = self.placed(&step.plugin);
        let input = self.before(step.plugin.span)?;
        let (plugin, name) = self.function_name(&step.plugin)?;
        let function = self.stateful_function(step, plugin, name)?;
        let keys = self.group_keys(step, input.schema())?;
        let rows = Arc::new(Schema::new(input.schema().fields().clone()));
        let failed = |e: pelton_core::Error| placed.error(format!("{function}: {}", e.message()));
        let key_schema = Arc::new(rows.project(&keys)?);
        let stateful =
            self.session.plugins[plugin].stateful(name, key_schema.clone(), rows).map_err(failed)?;
        if let Some(what) = misfit(stateful.signature()) {
            return Err(placed.error(format!("{function}: {what}")));
        }
        let schema = normalize_schema(&stateful.signature().output, &self.session.time_zone);
        let schema = DFSchema::try_from(schema.map_err(failed)?.as_ref().clone())
            .map_err(|e| placed.error(format!("{function}: {}", e.strip_backtrace())))?;
        let output_mode = self.group_output_mode(step, stateful.signature())?;
        let initial = step.initial_state.as_ref();
        let initial = initial.map(|table| self.initial_state(table, &key_schema, stateful.signature()));
        let function = function.with_policy(step.on_plugin_failure.as_ref());
        let (initial, config) = (initial.transpose()?, self.config_facts(plugin));
        let group = GroupState { function, stateful, keys, output_mode, initial, config };
        let op = StreamOp::GroupState(self.done);
        let plan = StreamNode { op, input, schema: Arc::new(schema) }.plan();
        Ok((step.plugin.span, Operation::GroupState(Box::new(group)), plan))
    }

    /// What is remembered of a plugin's `config` beside the state.
    fn config_facts(&self, plugin: &str) -> Vec<StateFact> {
        let options = self.file.plugins.get(plugin).map(PluginSpec::options);
        let config: BTreeMap<_, _> = options.iter().flat_map(|options| &options.config).collect();
        let fact =
            |(name, value)| StateFact::new(format!("`{name}` in the config of its plugin"), shown(value));
        config.into_iter().map(fact).collect()
    }

    fn stateful_function(&self, step: &'a PluginStep, plugin: &str, name: &str) -> Result<FunctionRef> {
        let placed = self.placed(&step.plugin);
        let transform = self.function(placed, plugin, name, FunctionKind::Transform);
        if transform.is_ok() {
            let said = [
                ("key", step.key.as_ref().map(|key| key.span)),
                ("output_mode", step.output_mode.as_ref().map(|mode| mode.span)),
                ("initial_state", step.initial_state.as_ref().map(|table| table.span)),
            ];
            let (what, span) =
                said.into_iter().find_map(|(what, span)| Some((what, span?))).unwrap_or_default();
            let what = format!(
                "'{plugin}.{name}' is a transform function: it has no groups, so `{what}` means nothing"
            );
            return Err(self.file.text().error(span, what).hint("leave it out, or call a stateful function"));
        }
        self.function(placed, plugin, name, FunctionKind::Stateful)
    }

    fn group_keys(&self, step: &'a PluginStep, schema: &DFSchema) -> Result<Vec<usize>> {
        let columns = step.key.as_ref().map(|key| key.value.as_slice()).unwrap_or_default();
        if columns.is_empty() {
            let span = step.key.as_ref().map_or(step.plugin.span, |key| key.span);
            let what =
                format!("'{}' is a stateful function: it needs the `key` of its groups", step.plugin.value);
            let error = self.file.text().error(span, what);
            return Err(error.hint("name the columns that make a group, for example key: [user]"));
        }
        let mut keys = Vec::with_capacity(columns.len());
        for column in columns {
            let at = self.placed(column);
            let key = self.column(at, schema)?;
            if keys.contains(&key) {
                return Err(at.error(format!("'{}' is among the key's columns already", column.value)));
            }
            keys.push(key);
        }
        Ok(keys)
    }

    fn group_output_mode(&self, step: &PluginStep, signature: &StatefulSignature) -> Result<OutputMode> {
        let of_query = OutputMode::from(self.file.output_mode.value);
        let Some(said) = &step.output_mode else {
            return Ok(match (signature.form, of_query) {
                (GroupForm::MapGroups, _) | (_, OutputMode::Update) => OutputMode::Update,
                _ => OutputMode::Append,
            });
        };
        if signature.form != GroupForm::FlatMapGroups {
            let what =
                format!("'{}' gives rows in one way only, so `output_mode` means nothing", step.plugin.value);
            return Err(self.file.text().error(said.span, what).hint("leave it out"));
        }
        Ok(match said.value {
            GroupOutputMode::Append => OutputMode::Append,
            GroupOutputMode::Update => OutputMode::Update,
        })
    }

    fn initial_state(
        &self,
        table: &'a SpannedText,
        key: &SchemaRef,
        signature: &StatefulSignature,
    ) -> Result<InitialState> {
        let at = self.placed(table);
        let known = self.meanings.get(&table.value).filter(|_| self.file.tables.contains_key(&table.value));
        let Some(plan) = known else {
            let names = self.file.tables.keys().map(String::as_str);
            let near = pelton_core::suggest::did_you_mean(&table.value, names);
            return Err(at.error(format!("there is no table '{}' under `tables`{near}", table.value)));
        };
        let [StateVariable { kind: VariableKind::Value, value, .. }] = signature.variables.as_slice() else {
            let what = "only the state of a function with exactly one value, and nothing else, can be given by a table";
            return Err(at.error(what).hint("leave initial_state out"));
        };
        if let Some(twice) = value.fields().iter().find(|field| key.field_with_name(field.name()).is_ok()) {
            let what = format!(
                "'{}' is a column of the key and a field of the state: a table cannot say which",
                twice.name()
            );
            return Err(at.error(what).hint("give the key's column another name in a select step before"));
        }
        let fields: Fields = key.fields().iter().chain(value.fields()).cloned().collect();
        let columns = fields.iter().map(|field| {
            let column = self.column(Placed { text: field.name(), ..at }, plan.schema())?;
            table_column(plan, column, field).ok_or_else(|| {
                let is = plan.schema().field(column).data_type();
                let (is, wanted) = (type_name(is), type_name(field.data_type()));
                at.error(format!(
                    "the column '{}' of the table is {is}, but it must be {wanted}",
                    field.name()
                ))
            })
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let rows =
            LogicalPlanBuilder::from(plan.clone()).project(columns).and_then(LogicalPlanBuilder::build);
        let rows = rows.map_err(|e| at.plan_error(e, plan.schema().as_arrow()))?;
        Ok(InitialState { table: table.value.clone(), rows, schema: Arc::new(Schema::new(fields)) })
    }
}

/// A column of a table as a field of this name and type; numbers may be widened.
fn table_column(
    plan: &SqlPlan,
    column: usize,
    wanted: &datafusion::arrow::datatypes::FieldRef,
) -> Option<Expr> {
    let (qualifier, field) = plan.schema().qualified_field(column);
    let expr = Expr::Column(datafusion::common::Column::from((qualifier, field)));
    let (is, wanted_type) = (field.data_type(), wanted.data_type());
    let expr = match () {
        () if is == wanted_type => expr,
        () if is_wider(wanted_type, is) => cast(expr, wanted_type.clone()),
        () if matches!((is, wanted_type), (DataType::Timestamp(..), DataType::Timestamp(..))) => {
            cast(expr, wanted_type.clone())
        }
        () => return None,
    };
    Some(expr.alias(wanted.name()))
}

/// Whether a type of numbers holds every number of another one.
fn is_wider(wide: &DataType, narrow: &DataType) -> bool {
    use DataType::{Decimal128, Float32, Float64, Int8, Int16, Int32, Int64};
    let digits = |integer: &DataType| match integer {
        Int8 => Some(3),
        Int16 => Some(5),
        Int32 => Some(10),
        Int64 => Some(19),
        _ => None,
    };
    match (wide, narrow) {
        (Int16 | Int32 | Int64, Int8) | (Int32 | Int64, Int16) | (Int64, Int32) => true,
        (Float64, Float32 | Int8 | Int16 | Int32) | (Float32, Int8 | Int16) => true,
        (Decimal128(wide, wide_scale), Decimal128(narrow, narrow_scale)) => {
            let whole = |precision: &u8, scale: &i8| i16::from(*precision) - i16::from(*scale);
            wide_scale >= narrow_scale && whole(wide, wide_scale) >= whole(narrow, narrow_scale)
        }
        (Decimal128(precision, scale), integer) => {
            digits(integer).is_some_and(|digits| i16::from(*precision) - i16::from(*scale) >= digits)
        }
        _ => false,
    }
}

/// What of a signature cannot be served.
fn misfit(signature: &StatefulSignature) -> Option<String> {
    let is_processor = signature.form == GroupForm::Processor;
    let plain = |variable: &StateVariable| variable.kind == VariableKind::Value && variable.ttl_ms.is_none();
    if !is_processor && (signature.variables.len() > 1 || !signature.variables.iter().all(plain)) {
        return Some(
            "a function over groups with a timeout keeps one value at most, without a time to live; lists, maps and \
             several variables are a processor's"
                .to_owned(),
        );
    }
    None
}

/// A value of a `config`, so that it can be told from another. A text may be a secret, which has no business in a checkpoint:
/// of it, and of what may hold one, there is a checksum.
fn shown(value: &Value) -> String {
    let kind = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => return value.to_string(),
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    format!("{kind} (checksum {:08x})", crc32fast::hash(sorted(value).to_string().as_bytes()))
}

/// The same whatever the order of its keys.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> =
                fields.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        value => value.clone(),
    }
}
