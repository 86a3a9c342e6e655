//! From SQL text to DataFusion's logical plan, in Spark's dialect.
//!
//! `resolve` calls it for every step that is SQL. Names are matched regardless of case, numbers and functions mean what
//! they mean in Spark, and every error points into the pipeline file.

mod casts;
mod constants;
mod decimals;
mod dialect;
mod errors;
mod formats;
mod generators;
mod grouping;
mod mismatch;
mod names;
mod planner;
mod rewrite;
mod session;
#[cfg(test)]
mod tests;
mod windows;

pub use errors::evaluation_error;
pub(crate) use errors::{Placed, planning_error};
pub use names::expression_name;
pub use session::Plugins;
pub(crate) use session::{INPUT, Relations, Session};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DfResult;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::planner::{NullOrdering, ParserOptions, SqlToRel};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, ObjectNamePart, Query, Select, SelectItem, SetExpr, SetOperator, Statement, Visit,
    Visitor,
};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;
use dialect::SparkDialect;
use pelton_core::suggest::did_you_mean;
use pelton_core::{FunctionKind, Result};
use std::ops::ControlFlow;

/// How deep expressions may be nested in each other.
const DEPTH_MAX: usize = 200;

impl Session {
    /// A whole SELECT over `input`.
    pub(crate) fn query(&self, sql: Placed<'_>, input: &Relations) -> Result<LogicalPlan> {
        let query = parse(sql, |parser| parser.parse_query())?;
        self.plan(*query, sql, input)
    }

    /// Whether there is an INTERSECT or EXCEPT in a query; DataFusion plans them as joins, Spark refuses them.
    pub(crate) fn set_operation(&self, sql: Placed<'_>) -> Result<Option<&'static str>> {
        struct Operations(Option<&'static str>);
        impl Visitor for Operations {
            type Break = ();
            fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
                if let SetExpr::SetOperation { op, .. } = query.body.as_ref() {
                    self.0 = match op {
                        SetOperator::Intersect => Some("INTERSECT"),
                        SetOperator::Except | SetOperator::Minus => Some("EXCEPT"),
                        SetOperator::Union => self.0,
                    };
                }
                ControlFlow::Continue(())
            }
        }
        let mut operations = Operations(None);
        let _ = parse(sql, |parser| parser.parse_query())?.visit(&mut operations);
        Ok(operations.0)
    }

    /// `SELECT * FROM input WHERE …`
    pub(crate) fn filter(&self, sql: Placed<'_>, input: &Relations) -> Result<LogicalPlan> {
        let condition = parse(sql, |parser| parser.parse_expr())?;
        let mut select = all_of_input(sql)?;
        select.selection = Some(condition);
        self.plan(generators::query_of(select), sql, input)
    }

    /// `SELECT … FROM input`; an item may have a name beside its text.
    pub(crate) fn select(
        &self,
        items: &[(Placed<'_>, Option<&str>)],
        input: &Relations,
    ) -> Result<LogicalPlan> {
        let Some((first, _)) = items.first() else {
            return Err(pelton_core::Error::invalid("a select step needs at least one column"));
        };
        let mut projection = Vec::new();
        for (text, name) in items {
            match name {
                None => projection.extend(parse(*text, |parser| parser.parse_projection())?),
                Some(name) => projection.push(SelectItem::ExprWithAlias {
                    expr: parse(*text, |parser| parser.parse_expr())?,
                    alias: Ident::with_quote('`', *name),
                }),
            }
        }
        let mut select = all_of_input(*first)?;
        // Each item is tried alone first, so that an error points to the right one.
        if items.len() > 1 {
            for (text, name) in items {
                self.select(&[(*text, *name)], input)?;
            }
        }
        select.projection = projection;
        self.plan(generators::query_of(select), *first, input)
    }

    /// The plugin's scalar function that is the whole of a boolean expression, with its arguments as columns.
    pub(crate) fn plugin_filter(
        &self,
        sql: Placed<'_>,
        input: &Relations,
    ) -> Result<Option<PluginFilterCall>> {
        let mut condition = parse(sql, |parser| parser.parse_expr())?;
        while let Expr::Nested(inner) = condition {
            condition = *inner;
        }
        let Expr::Function(function) = condition else { return Ok(None) };
        let [plugin, name] = function.name.0.as_slice() else { return Ok(None) };
        let (Some(plugin), Some(name)) = (plugin.as_ident(), name.as_ident()) else { return Ok(None) };
        let (plugin, name) = (plugin.value.clone(), name.value.clone());
        let Some(known) = self.plugins.get(&plugin) else { return Ok(None) };
        let is_scalar = |f: &pelton_core::FunctionInfo| f.name == name && f.kind == FunctionKind::Scalar;
        if !known.manifest().functions.iter().any(is_scalar) {
            return Ok(None);
        }
        let Some(arguments) = plain_arguments(&function) else { return Ok(None) };
        if arguments.is_empty() {
            return Ok(None);
        }
        let mut select = all_of_input(sql)?;
        let item =
            |(index, expr)| SelectItem::ExprWithAlias { expr, alias: Ident::new(format!("arg{index}")) };
        select.projection = arguments.into_iter().enumerate().map(item).collect();
        let arguments = self.plan(generators::query_of(select), sql, input)?;
        Ok(Some(PluginFilterCall { plugin, function: name, arguments }))
    }

    fn plan(&self, mut query: Query, sql: Placed<'_>, input: &Relations) -> Result<LogicalPlan> {
        self.check_functions(&query, sql)?;
        let type_of = |expr: &Expr, select: &Select| self.type_of(expr, select, input);
        rewrite::rewrite(&mut query, input, &type_of)
            .map_err(|(what, name)| sql.error_at_name(&name.value, what))?;
        let mut statement = Statement::Query(Box::new(query));
        if rewrite::has_lambda(&statement) {
            rewrite::int_literals(&mut statement);
        }
        let planned = self.statement(&statement, input).and_then(casts::doubles_over_decimals);
        let planned = planned.and_then(formats::numbers_as_text);
        let first = planned.and_then(|plan| {
            let spark = casts::spark_literals(plan.clone())
                .and_then(|plan| decimals::spark_decimals(plan, self))
                .and_then(|plan| self.analyze(plan));
            // A function that insists on DataFusion's own literal types.
            spark.or_else(|error| match errors::is_own(&error) {
                true => Err(error),
                false => decimals::spark_decimals(plan, self).and_then(|plan| self.analyze(plan)),
            })
        });
        let analyzed = match first {
            Ok(analyzed) => analyzed,
            Err(error) if errors::is_own(&error) => return Err(sql.plan_error(error, &input.columns())),
            // A function that takes nothing but `int` where DataFusion's literals are `long`, or a lambda.
            Err(error) => {
                let mut typed = statement;
                rewrite::int_literals(&mut typed);
                let second = self
                    .statement(&typed, input)
                    .and_then(casts::doubles_over_decimals)
                    .and_then(|plan| decimals::spark_decimals(plan, self))
                    .and_then(|plan| self.analyze(plan));
                second.map_err(|_| sql.plan_error(error, &input.columns()))?
            }
        };
        let plan_error = |e| sql.plan_error(e, &input.columns());
        let plan = casts::spark_casts(analyzed, self).map_err(plan_error)?;
        match constants::failing(&plan, self).map_err(plan_error)? {
            Some(failed) => Err(sql.constant_error(&failed)),
            None => Ok(plan),
        }
    }

    fn statement(&self, statement: &Statement, input: &Relations) -> DfResult<LogicalPlan> {
        let tables = self.over(input);
        SqlToRel::new_with_options(&tables, options()).sql_statement_to_plan(statement.clone())
    }

    pub(crate) fn analyze(&self, plan: LogicalPlan) -> DfResult<LogicalPlan> {
        self.state().analyzer().execute_and_check(plan, self.state().config_options(), |_, _| {})
    }

    fn type_of(&self, expr: &Expr, select: &Select, input: &Relations) -> Option<DataType> {
        let item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::new("x") };
        let select = Select {
            projection: vec![item],
            selection: None,
            lateral_views: Vec::new(),
            distinct: None,
            ..select.clone()
        };
        let mut query = generators::query_of(select);
        rewrite::rewrite(&mut query, input, &|_, _| None).ok()?;
        let plan = self.statement(&Statement::Query(Box::new(query)), input).ok()?;
        Some(plan.schema().field(0).data_type().clone())
    }

    /// Unknown functions are found before planning, with the nearest right name.
    fn check_functions(&self, query: &Query, sql: Placed<'_>) -> Result<()> {
        struct Calls<'a>(&'a dyn Fn(&Function) -> Option<(String, String)>);
        impl Visitor for Calls<'_> {
            type Break = (String, String);
            fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
                match expr {
                    Expr::Function(function) => match (self.0)(function) {
                        Some(broken) => ControlFlow::Break(broken),
                        None => ControlFlow::Continue(()),
                    },
                    _ => ControlFlow::Continue(()),
                }
            }
        }
        let judge = |function: &Function| self.unknown(function);
        match query.visit(&mut Calls(&judge)) {
            ControlFlow::Break((name, what)) => Err(sql.error_at_name(&name, what)),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    /// The name to point at and what is wrong with it.
    fn unknown(&self, function: &Function) -> Option<(String, String)> {
        if generators::name_of(function).is_some() {
            return None;
        }
        let parts: Vec<&str> =
            function.name.0.iter().filter_map(ObjectNamePart::as_ident).map(|i| i.value.as_str()).collect();
        if let [plugin, name] = parts.as_slice()
            && let Some(known) = self.plugins.get(*plugin)
        {
            let functions = &known.manifest().functions;
            return match functions.iter().find(|f| f.name == *name) {
                Some(f) if f.kind == FunctionKind::Scalar => None,
                Some(_) => Some((
                    (*name).to_owned(),
                    format!(
                        "'{plugin}.{name}' is not a scalar function; use it as a step: - plugin: {plugin}.{name}"
                    ),
                )),
                None => {
                    let near = did_you_mean(name, functions.iter().map(|f| f.name.as_str()));
                    Some((
                        (*name).to_owned(),
                        format!("the plugin '{plugin}' has no function '{name}'{near}"),
                    ))
                }
            };
        }
        if let [plugin, _] = parts.as_slice() {
            let near = did_you_mean(plugin, self.plugins.keys().map(String::as_str));
            let near = if self.plugins.is_empty() { "; name it under plugins:" } else { near.as_str() };
            return Some(((*plugin).to_owned(), format!("there is no plugin '{plugin}'{near}")));
        }
        let name = parts.join(".");
        let lower = name.to_lowercase();
        if let Some((wanted, found)) = rewrite::wrong_count(&lower, function) {
            let what = format!(
                "{name}() takes {wanted} argument{}, not {found}",
                if wanted == 1 { "" } else { "s" }
            );
            return Some((name, what));
        }
        if self.has_function(&lower) || KNOWN_OTHERWISE.iter().copied().flatten().any(|known| *known == lower)
        {
            return None;
        }
        let point_at = parts.last().copied().unwrap_or_default().to_owned();
        let names = self.function_names();
        let near = pelton_core::suggest::nearest(&lower, names.iter().map(String::as_str));
        let near = near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
        Some((point_at, format!("there is no function '{name}'{near}")))
    }
}

/// Functions that the planner knows without looking them up.
const PLANNED_BY_PARSER: &[&str] =
    &["unnest", "unnest_outer", "map", "make_map", "struct", "grouping", grouping::GROUPING_ID];

/// Names of functions that are not looked up.
const KNOWN_OTHERWISE: [&[&str]; 4] =
    [PLANNED_BY_PARSER, rewrite::REPLACED, rewrite::CASTS, rewrite::DATE_PARTS];

/// A filter that is one call of a plugin's scalar function.
pub(crate) struct PluginFilterCall {
    pub(crate) plugin: String,
    pub(crate) function: String,
    /// A projection of the input to the arguments.
    pub(crate) arguments: LogicalPlan,
}

fn options() -> ParserOptions {
    ParserOptions::new()
        .with_enable_ident_normalization(false)
        .with_parse_float_as_decimal(true)
        .with_default_null_ordering(NullOrdering::NullsMin)
        .with_map_string_types_to_utf8view(false)
}

/// Parses the whole text; anything behind what was wanted is an error.
fn parse<T>(
    sql: Placed<'_>,
    read: impl FnOnce(&mut Parser<'_>) -> std::result::Result<T, datafusion::sql::sqlparser::parser::ParserError>,
) -> Result<T> {
    let broken = |e: datafusion::sql::sqlparser::parser::ParserError| sql.parse_error(&e.to_string());
    let mut parser =
        Parser::new(&SparkDialect).with_recursion_limit(DEPTH_MAX).try_with_sql(sql.text).map_err(broken)?;
    let parsed = read(&mut parser).map_err(broken)?;
    let _ = parser.consume_token(&Token::SemiColon);
    let rest = parser.peek_token();
    match rest.token {
        Token::EOF => Ok(parsed),
        other => {
            let place = rest.span.start;
            Err(sql.parse_error(&format!(
                "Expected: the end, found: {other} at Line: {}, Column: {}",
                place.line, place.column
            )))
        }
    }
}

/// `SELECT * FROM input`
fn all_of_input(sql: Placed<'_>) -> Result<Select> {
    let text = format!("SELECT * FROM {INPUT}");
    let query = parse(Placed { text: &text, ..sql }, |parser| parser.parse_query())?;
    match *query.body {
        SetExpr::Select(select) => Ok(*select),
        _ => Err(sql.error("SELECT * FROM input is not a SELECT")),
    }
}

/// The arguments of an ordinary call, without FILTER, OVER, DISTINCT and the like.
fn plain_arguments(function: &Function) -> Option<Vec<Expr>> {
    use datafusion::sql::sqlparser::ast::{FunctionArg, FunctionArgExpr, FunctionArguments};
    let FunctionArguments::List(list) = &function.args else { return None };
    if function.filter.is_some() || function.over.is_some() || list.duplicate_treatment.is_some() {
        return None;
    }
    let one = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(one).collect()
}
