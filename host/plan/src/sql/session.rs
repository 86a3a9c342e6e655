//! The DataFusion session of a query: its settings, its functions, and the one table `input`.

use super::planner::{SparkPlanner, SparkTypes};
use crate::functions;
use crate::input::InputTable;
use crate::logical::FunctionRef;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion::logical_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF};
use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::SessionConfig;
use datafusion_spark::SessionStateBuilderSpark;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, FailurePolicy, FunctionKind, Plugin};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

type OptimizerRules = Vec<Arc<dyn OptimizerRule + Send + Sync>>;
type PhysicalRules = Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>;

/// The plugins by the name that they have in the pipeline file.
pub type Plugins = BTreeMap<String, Arc<dyn Plugin>>;

/// Name of the table that a step reads.
pub(crate) const INPUT: &str = "input";

/// The tables that a step may read, by name: `input` is the step before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Relations(Vec<(String, SchemaRef)>);

impl Relations {
    /// Adds a table, or replaces the one of that name.
    pub(crate) fn set(&mut self, name: &str, schema: SchemaRef) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(relation) => relation.1 = schema,
            None => self.0.push((name.to_owned(), schema)),
        }
    }

    /// The schema of a table.
    pub(crate) fn get(&self, name: &str) -> Option<&SchemaRef> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, schema)| schema)
    }

    /// The names of all tables.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// All columns of all tables, for messages; of columns with one name the first.
    pub(crate) fn columns(&self) -> Schema {
        let mut fields: Vec<FieldRef> = Vec::new();
        for field in self.0.iter().flat_map(|(_, schema)| schema.fields()) {
            if !fields.iter().any(|known| known.name() == field.name()) {
                fields.push(field.clone());
            }
        }
        Schema::new(fields)
    }
}

/// Plans and optimises for one query.
pub(crate) struct Session {
    state: SessionState,
    planners: Vec<Arc<dyn ExprPlanner>>,
    types: Arc<dyn TypePlanner>,
    functions: HashMap<String, Arc<ScalarUDF>>,
    aggregates: HashMap<String, Arc<AggregateUDF>>,
    higher_order: HashMap<String, Arc<HigherOrderUDF>>,
    pub(crate) plugins: Plugins,
    /// What follows when a call fails, by the plugin's name.
    pub(crate) policies: FailurePolicies,
    pub(crate) time_zone: Arc<str>,
}

/// What follows when a call of a plugin's function fails, by the plugin's name in the file.
pub(crate) type FailurePolicies = BTreeMap<String, FailurePolicy>;

impl Session {
    pub(crate) fn new(time_zone: &str, plugins: Plugins, policies: FailurePolicies) -> Self {
        let (rules, physical_rules) = rules_that_keep_the_order_of_filters();
        let state = SessionStateBuilder::new()
            .with_config(config(time_zone))
            .with_default_features()
            .with_spark_features()
            .with_optimizer_rules(rules)
            .with_physical_optimizer_rules(physical_rules)
            .build();
        let time_zone: Arc<str> = time_zone.into();
        let mut scalar = state.scalar_functions().clone();
        let names: Vec<Arc<ScalarUDF>> = scalar.values().cloned().collect();
        for function in names.iter().chain(&functions::all(&time_zone)) {
            for alias in function.aliases() {
                scalar.entry(alias.clone()).or_insert_with(|| function.clone());
            }
        }
        for function in functions::all(&time_zone) {
            for name in function.aliases().iter().map(String::as_str).chain([function.name()]) {
                scalar.insert(name.to_owned(), function.clone());
            }
        }
        let aggregates = aggregates(&state);
        let mut higher_order = state.higher_order_functions().clone();
        for (spark, ours) in functions::ALIASES {
            if let Some(function) = scalar.get(*ours).cloned() {
                scalar.entry((*spark).to_owned()).or_insert(function);
            }
            if let Some(function) = higher_order.get(*ours).cloned() {
                higher_order.entry((*spark).to_owned()).or_insert(function);
            }
        }
        let mut planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(SparkPlanner::new(&scalar))];
        planners.extend(state.expr_planners().iter().cloned());
        let types = Arc::new(SparkTypes { time_zone: time_zone.clone() });
        Self {
            state,
            planners,
            types,
            functions: scalar,
            aggregates,
            higher_order,
            plugins,
            policies,
            time_zone,
        }
    }

    pub(crate) fn state(&self) -> &SessionState {
        &self.state
    }

    /// A view of the session in which these tables exist.
    pub(crate) fn over<'a>(&'a self, relations: &'a Relations) -> Tables<'a> {
        Tables { session: self, relations }
    }

    /// The plugin and function that `name` (`plugin.function`) names, if it names a scalar function.
    fn plugin_function(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let (plugin_name, function) = name.split_once('.')?;
        let plugin = self.plugins.get(plugin_name)?;
        let known =
            plugin.manifest().functions.iter().any(|f| f.name == function && f.kind == FunctionKind::Scalar);
        let named = || FunctionRef {
            plugin: plugin_name.to_owned(),
            function: function.to_owned(),
            digest: plugin.digest().clone(),
            on_failure: self.policies.get(plugin_name).copied().unwrap_or_default(),
        };
        known.then(|| functions::plugin::udf(named(), plugin, &self.time_zone))
    }

    /// A scalar function by its name.
    pub(crate) fn scalar(&self, name: &str) -> Option<&Arc<ScalarUDF>> {
        self.functions.get(name)
    }

    /// Whether there is a function of this name that can stand in an expression.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
            || self.higher_order.contains_key(name)
            || self.aggregates.contains_key(name)
            || self.state.window_functions().contains_key(name)
            || self.plugin_function(name).is_some()
    }

    /// Names of all functions, for suggestions.
    pub(crate) fn function_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .functions
            .keys()
            .chain(self.aggregates.keys())
            .chain(self.higher_order.keys())
            .cloned()
            .collect();
        names.extend(["explode", "explode_outer", "posexplode", "posexplode_outer"].map(str::to_owned));
        for (plugin_name, plugin) in &self.plugins {
            let scalars = plugin.manifest().functions.iter().filter(|f| f.kind == FunctionKind::Scalar);
            names.extend(scalars.map(|f| format!("{plugin_name}.{}", f.name)));
        }
        names.sort();
        names
    }
}

/// DataFusion's aggregate functions, with ours over them and Spark's names beside theirs.
fn aggregates(state: &SessionState) -> HashMap<String, Arc<AggregateUDF>> {
    let mut all = state.aggregate_functions().clone();
    for function in functions::aggregate::all() {
        all.insert(function.name().to_owned(), function);
    }
    for (spark, ours) in functions::aggregate::ALIASES {
        if let Some(function) = all.get(*ours).cloned() {
            all.insert((*spark).to_owned(), function);
        }
    }
    all
}

/// DataFusion's rules without those that move or merge filters: a filter guards what comes after it (`x <> 0`, then
/// `100 / x > 5`), as in Spark, so it must stay where the user put it. The source takes no filters anyway.
fn rules_that_keep_the_order_of_filters() -> (OptimizerRules, PhysicalRules) {
    let moves_filters = |name: &str| name == "push_down_filter" || name.starts_with("FilterPushdown");
    let rules = Optimizer::new().rules.into_iter().filter(|rule| !moves_filters(rule.name()));
    let physical = PhysicalOptimizer::new().rules.into_iter().filter(|rule| !moves_filters(rule.name()));
    (rules.collect(), physical.collect())
}

fn config(time_zone: &str) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(crate::ROWS_PER_BATCH_MAX)
        .with_coalesce_batches(false)
        .with_repartition_joins(false)
        .with_information_schema(false);
    let options = config.options_mut();
    options.execution.time_zone = Some(time_zone.to_owned());
    options.execution.enable_ansi_mode = true;
    options.execution.collect_statistics = false;
    options.sql_parser.enable_ident_normalization = false;
    options.sql_parser.enable_subquery_sort_elimination = false;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.sql_parser.parse_float_as_decimal = true;
    options.optimizer.repartition_file_scans = false;
    options.optimizer.enable_round_robin_repartition = false;
    config
}

/// What names mean while one step is planned.
pub(crate) struct Tables<'a> {
    session: &'a Session,
    relations: &'a Relations,
}

impl ContextProvider for Tables<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        match self.relations.get(name.table()).filter(|_| name.schema().is_none()) {
            Some(schema) => Ok(provider_as_source(Arc::new(InputTable::new(schema.clone())))),
            None => {
                let known = self.relations.names();
                let near = did_you_mean(name.table(), known.iter().copied());
                let what = format!("there is no table '{name}'{near}; here are {}", known.join(", "));
                Err(DataFusionError::External(Box::new(Error::invalid(what))))
            }
        }
    }
    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.session.planners
    }
    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(self.session.types.clone())
    }
    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let found =
            self.session.functions.get(name).or_else(|| self.session.functions.get(&name.to_lowercase()));
        found.cloned().or_else(|| self.session.plugin_function(name))
    }
    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.session.higher_order.get(name).cloned()
    }
    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.session.aggregates.get(name).cloned()
    }
    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.session.state.window_functions().get(name).cloned()
    }
    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }
    fn options(&self) -> &ConfigOptions {
        self.session.state.config_options()
    }
    fn udf_names(&self) -> Vec<String> {
        self.session.functions.keys().cloned().collect()
    }
    fn higher_order_function_names(&self) -> Vec<String> {
        self.session.higher_order.keys().cloned().collect()
    }
    fn udaf_names(&self) -> Vec<String> {
        self.session.aggregates.keys().cloned().collect()
    }
    fn udwf_names(&self) -> Vec<String> {
        self.session.state.window_functions().keys().cloned().collect()
    }
}
