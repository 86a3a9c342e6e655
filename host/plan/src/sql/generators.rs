//! `explode` and its kin, in the SELECT list and in LATERAL VIEW, as DataFusion's `unnest`.
//!
//! `explode(array)` gives one column, `explode(map)` two, `posexplode` one more in front; the `_outer` forms keep rows
//! whose array or map is empty or NULL.

use super::rewrite::{TypeOf, call};
use crate::functions::access::POSITIONS;
use datafusion::arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, LateralView, ObjectNamePart,
    Query, Select, SelectItem, SetExpr, TableAlias, TableFactor, TableWithJoins,
};
use datafusion::sql::sqlparser::ast::{GroupByExpr, SelectFlavor, WildcardAdditionalOptions};
use std::ops::ControlFlow;

type Broken = Box<(String, Ident)>;

struct Generator {
    with_position: bool,
    outer: bool,
}

/// The function's name, if it is one of the generators.
pub(super) fn name_of(function: &Function) -> Option<&Ident> {
    match function.name.0.as_slice() {
        [ObjectNamePart::Identifier(ident)] => generator(ident).map(|_| ident),
        _ => None,
    }
}

fn generator(name: &Ident) -> Option<Generator> {
    let (with_position, outer) = match name.value.to_lowercase().as_str() {
        "explode" => (false, false),
        "explode_outer" => (false, true),
        "posexplode" => (true, false),
        "posexplode_outer" => (true, true),
        _ => return None,
    };
    Some(Generator { with_position, outer })
}

/// Replaces the generators of a SELECT.
pub(super) fn expand(select: &mut Select, type_of: TypeOf<'_>) -> ControlFlow<Broken> {
    for view in std::mem::take(&mut select.lateral_views) {
        lateral_view(select, view, type_of)?;
    }
    let mut items = Vec::with_capacity(select.projection.len());
    for item in std::mem::take(&mut select.projection) {
        let (expr, names) = match &item {
            SelectItem::UnnamedExpr(expr) => (expr, Vec::new()),
            SelectItem::ExprWithAlias { expr, alias } => (expr, vec![alias.clone()]),
            SelectItem::ExprWithAliases { expr, aliases } => (expr, aliases.clone()),
            _ => {
                items.push(item);
                continue;
            }
        };
        match expr {
            Expr::Function(function) if name_of(function).is_some() => {
                items.extend(columns(function, names, false, select, type_of)?);
            }
            _ => items.push(item),
        }
    }
    select.projection = items;
    ControlFlow::Continue(())
}

/// The columns that a generator stands for.
fn columns(
    function: &Function,
    names: Vec<Ident>,
    outer: bool,
    select: &Select,
    type_of: TypeOf<'_>,
) -> ControlFlow<Broken, Vec<SelectItem>> {
    let Some((name, generator)) = name_of(function).and_then(|name| Some((name, generator(name)?))) else {
        return ControlFlow::Continue(Vec::new());
    };
    let broken = |what: String| ControlFlow::Break(Box::new((what, name.clone())));
    let argument = match &function.args {
        FunctionArguments::List(list) => match list.args.as_slice() {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))] => expr.clone(),
            _ => return broken(format!("{}() takes one array or map", name.value)),
        },
        _ => return broken(format!("{}() takes one array or map", name.value)),
    };
    let unnest = if generator.outer || outer { "unnest_outer" } else { "unnest" };
    let is_map = matches!(type_of(&argument, select), Some(DataType::Map(..)));
    let mut parts = Vec::new();
    if generator.with_position {
        parts.push(("pos", call(unnest, vec![call(POSITIONS, vec![argument.clone()])])));
    }
    match is_map {
        true => {
            parts.push(("key", call(unnest, vec![call("map_keys", vec![argument.clone()])])));
            parts.push(("value", call(unnest, vec![call("map_values", vec![argument])])));
        }
        false => parts.push(("col", call(unnest, vec![argument]))),
    }
    if !names.is_empty() && names.len() != parts.len() {
        return broken(format!("{}() gives {} column(s) here, not {}", name.value, parts.len(), names.len()));
    }
    let named = |(index, (default, expr)): (usize, (&str, Expr))| SelectItem::ExprWithAlias {
        expr,
        alias: names.get(index).cloned().unwrap_or_else(|| Ident::with_quote('`', default)),
    };
    ControlFlow::Continue(parts.into_iter().enumerate().map(named).collect())
}

/// `FROM t LATERAL VIEW explode(a) v AS c` is `FROM (SELECT *, explode(a) AS c FROM t)`; what was qualified with `t` or
/// `v` loses its qualifier.
fn lateral_view(select: &mut Select, view: LateralView, type_of: TypeOf<'_>) -> ControlFlow<Broken> {
    let Expr::Function(function) = &view.lateral_view else {
        let name = Ident::new(view.lateral_view.to_string());
        return ControlFlow::Break(Box::new(("LATERAL VIEW takes explode() or one of its kin".into(), name)));
    };
    if name_of(function).is_none() {
        let name = Ident::new(function.name.to_string());
        return ControlFlow::Break(Box::new((
            format!("LATERAL VIEW takes explode() or one of its kin, not {name}()"),
            name,
        )));
    }
    let mut qualifiers: Vec<String> = select.from.iter().flat_map(table_names).collect();
    qualifiers.extend(view.lateral_view_name.0.last().map(ToString::to_string));
    let scope =
        Select { projection: Vec::new(), selection: None, lateral_views: Vec::new(), ..select.clone() };
    let generated = columns(function, view.lateral_col_alias, view.outer, &scope, type_of)?;
    let mut projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
    projection.extend(generated);
    let inner = Select {
        projection,
        distinct: None,
        selection: None,
        having: None,
        qualify: None,
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        sort_by: Vec::new(),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        flavor: SelectFlavor::Standard,
        ..scope
    };
    let derived = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query_of(inner)),
        alias: None::<TableAlias>,
        sample: None,
    };
    select.from = vec![TableWithJoins { relation: derived, joins: Vec::new() }];
    strip_qualifiers(select, &qualifiers);
    ControlFlow::Continue(())
}

fn table_names(table: &TableWithJoins) -> Vec<String> {
    match &table.relation {
        TableFactor::Table { name, alias, .. } => {
            let alias = alias.as_ref().map(|alias| alias.name.value.clone());
            vec![alias.unwrap_or_else(|| name.to_string())]
        }
        TableFactor::Derived { alias: Some(alias), .. } => vec![alias.name.value.clone()],
        _ => Vec::new(),
    }
}

fn strip_qualifiers(select: &mut Select, qualifiers: &[String]) {
    use datafusion::sql::sqlparser::ast::{VisitMut, VisitorMut};
    struct Strip<'a>(&'a [String]);
    impl VisitorMut for Strip<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(parts) = expr
                && parts.len() > 1
                && self.0.iter().any(|name| name.eq_ignore_ascii_case(&parts[0].value))
            {
                parts.remove(0);
                if let [only] = parts.as_slice() {
                    *expr = Expr::Identifier(only.clone());
                }
            }
            ControlFlow::Continue(())
        }
    }
    let from = std::mem::take(&mut select.from);
    let _ = select.visit(&mut Strip(qualifiers));
    select.from = from;
}

/// A query that is this SELECT and nothing else.
pub(super) fn query_of(select: Select) -> Query {
    Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}
