//! `window` and `session_window` as names: Spark calls the column of `GROUP BY window(ts, '1 hour')` so, and lets the
//! SELECT list, HAVING and ORDER BY use the name.

use datafusion::arrow::datatypes::Schema;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, Ident, ObjectNamePart, Query, Select, SetExpr, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

use crate::functions::window::{SESSION_WINDOW, WINDOW};

/// Replaces the bare name of a window by the expression that it names, in every SELECT that groups by one.
pub(super) fn name_windows(query: &mut Query, columns: &Schema) {
    struct Selects<'a>(&'a Schema);
    impl VisitorMut for Selects<'_> {
        type Break = ();
        fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
            let named = match query.body.as_mut() {
                SetExpr::Select(select) => name_in_select(select, self.0),
                _ => Vec::new(),
            };
            if !named.is_empty() {
                let _ = VisitMut::visit(&mut query.order_by, &mut Names(&named));
            }
            ControlFlow::Continue(())
        }
    }
    let _ = VisitMut::visit(query, &mut Selects(columns));
}

/// The windows of the GROUP BY by their names.
fn name_in_select(select: &mut Select, columns: &Schema) -> Vec<(&'static str, Expr)> {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return Vec::new() };
    let mut named: Vec<(&'static str, Expr)> = Vec::new();
    for key in keys {
        if let Expr::Function(function) = key
            && let Some(name) = window_name(function)
            && columns.column_with_name(name).is_none()
        {
            named.push((name, key.clone()));
        }
    }
    if !named.is_empty() {
        let mut names = Names(&named);
        let _ = VisitMut::visit(&mut select.projection, &mut names);
        let _ = VisitMut::visit(&mut select.having, &mut names);
    }
    named
}

/// Spark's name of the column that a window function makes.
pub(super) fn window_name(function: &Function) -> Option<&'static str> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    [WINDOW, SESSION_WINDOW].into_iter().find(|known| name.value.eq_ignore_ascii_case(known))
}

struct Names<'a>(&'a [(&'static str, Expr)]);

impl Names<'_> {
    fn find(&self, ident: &Ident) -> Option<&Expr> {
        self.0.iter().find(|(name, _)| ident.value.eq_ignore_ascii_case(name)).map(|(_, expr)| expr)
    }
}

impl VisitorMut for Names<'_> {
    type Break = ();
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        use datafusion::sql::sqlparser::ast::{AccessExpr, Subscript, Value};
        let replacement = match &*expr {
            Expr::Identifier(ident) => self.find(ident).cloned(),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [window, field] => self.find(window).map(|window| Expr::CompoundFieldAccess {
                    root: Box::new(window.clone()),
                    access_chain: vec![AccessExpr::Subscript(Subscript::Index {
                        index: Expr::value(Value::SingleQuotedString(field.value.clone())),
                    })],
                }),
                _ => None,
            },
            _ => None,
        };
        if let Some(replacement) = replacement {
            *expr = replacement;
        }
        ControlFlow::Continue(())
    }
}
