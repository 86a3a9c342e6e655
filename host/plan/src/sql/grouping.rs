//! `grouping_id()` and `grouping(x)` as Spark has them: `grouping_id()` is about all keys, both are numbers of Spark's
//! types.

use super::rewrite::call;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    GroupByExpr, ObjectNamePart, Query, Select, SetExpr, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// Replaces the functions in every SELECT that groups.
pub(super) fn name_groupings(query: &mut Query) {
    struct Selects;
    impl VisitorMut for Selects {
        type Break = ();
        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            let keys = match query.body.as_ref() {
                SetExpr::Select(select) => keys(select),
                _ => Vec::new(),
            };
            if let SetExpr::Select(select) = query.body.as_mut()
                && !keys.is_empty()
            {
                let mut calls = Calls(&keys);
                let _ = VisitMut::visit(&mut select.projection, &mut calls);
                let _ = VisitMut::visit(&mut select.having, &mut calls);
            }
            ControlFlow::Continue(())
        }
    }
    let _ = VisitMut::visit(query, &mut Selects);
}

/// The keys of a GROUP BY, those of ROLLUP and the like among them, once each.
fn keys(select: &Select) -> Vec<Expr> {
    let GroupByExpr::Expressions(exprs, _) = &select.group_by else { return Vec::new() };
    let mut keys: Vec<Expr> = Vec::new();
    let mut add = |key: &Expr| {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    };
    for expr in exprs {
        match expr {
            Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                sets.iter().flatten().for_each(&mut add)
            }
            key => add(key),
        }
    }
    keys
}

struct Calls<'a>(&'a [Expr]);

impl VisitorMut for Calls<'_> {
    type Break = ();
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && is_grouping_id(function)
        {
            let given = arguments(function);
            let keys = if given.is_empty() { self.0.to_vec() } else { given };
            *expr = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(call("grouping", keys)),
                data_type: SqlType::BigInt(None),
                array: false,
                format: None,
            };
        }
        ControlFlow::Continue(())
    }
}

fn is_grouping_id(function: &Function) -> bool {
    matches!(function.name.0.as_slice(), [ObjectNamePart::Identifier(name)] if name.value.eq_ignore_ascii_case(GROUPING_ID))
}

/// Spark's name.
pub(super) const GROUPING_ID: &str = "grouping_id";

fn arguments(function: &Function) -> Vec<Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    let plain = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().filter_map(plain).collect()
}
