//! Changes to parsed SQL before DataFusion plans it: names regardless of case, and what Spark writes another way.

use super::session::Relations;
use super::{generators, grouping, windows};
use crate::functions::SECOND_OF_MINUTE;
use datafusion::arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CaseWhen, CastKind, DataType as SqlType, DateTimeField, Expr, Function,
    FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart,
    Query, Select, SelectItem, Statement, Subscript, TableFactor, UnaryOperator, Value, Visit, VisitMut,
    Visitor, VisitorMut,
};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Finds the type of an expression over the tables of a SELECT; for `explode` of maps.
pub(super) type TypeOf<'a> = &'a dyn Fn(&Expr, &Select) -> Option<DataType>;

/// Rewrites a query in place. The error is a message and the expression's text that it is about.
pub(super) fn rewrite(
    query: &mut Query,
    relations: &Relations,
    type_of: TypeOf<'_>,
) -> Result<(), (String, Ident)> {
    let mut names = Names::default();
    let columns = relations.columns();
    columns.fields().iter().for_each(|field| names.add(field.name()));
    let mut tables = Names::default();
    relations.names().into_iter().for_each(|name| tables.add(name));
    windows::name_windows(query, &columns);
    grouping::name_groupings(query);
    let mut aliases = Aliases(&mut names);
    let _ = query.visit(&mut aliases);
    let mut rewriter = Rewriter { names, tables, type_of };
    match query.visit(&mut rewriter) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Names that exist, by their lower-case form; the first spelling wins.
#[derive(Default)]
struct Names {
    spellings: HashMap<String, Vec<String>>,
}

impl Names {
    fn add(&mut self, name: &str) {
        let spellings = self.spellings.entry(name.to_lowercase()).or_default();
        if !spellings.iter().any(|known| known == name) {
            spellings.push(name.to_owned());
        }
    }

    /// Gives an identifier the spelling under which the column is known.
    fn respell(&self, ident: &mut Ident) {
        if let Some(spellings) = self.spellings.get(&ident.value.to_lowercase())
            && !spellings.contains(&ident.value)
        {
            ident.value.clone_from(&spellings[0]);
        }
    }
}

/// Collects the names that a query gives itself.
struct Aliases<'a>(&'a mut Names);

impl VisitorMut for Aliases<'_> {
    type Break = Box<(String, Ident)>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.0.add(&cte.alias.name.value);
            cte.alias.columns.iter().for_each(|column| self.0.add(&column.name.value));
        }
        ControlFlow::Continue(())
    }
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        for item in &select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => self.0.add(&alias.value),
                SelectItem::ExprWithAliases { aliases, .. } => {
                    aliases.iter().for_each(|a| self.0.add(&a.value))
                }
                _ => {}
            }
        }
        for view in &select.lateral_views {
            view.lateral_col_alias.iter().for_each(|alias| self.0.add(&alias.value));
        }
        ControlFlow::Continue(())
    }
}

struct Rewriter<'a> {
    names: Names,
    tables: Names,
    type_of: TypeOf<'a>,
}

impl VisitorMut for Rewriter<'_> {
    type Break = Box<(String, Ident)>;

    /// Before the children, so that a column's name is the text that the user wrote.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        generators::expand(select, self.type_of)?;
        for item in &mut select.projection {
            name_item(item);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        if let TableFactor::Table { sample: Some(_), name, .. } = table {
            let what = "TABLESAMPLE is not possible on a stream; filter by a hash of a column instead";
            return ControlFlow::Break(Box::new((what.to_owned(), Ident::new(name.to_string()))));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<Self::Break> {
        if let [ObjectNamePart::Identifier(ident)] = relation.0.as_mut_slice() {
            self.tables.respell(ident);
            if !self.tables.spellings.contains_key(&ident.value.to_lowercase()) {
                self.names.respell(ident);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Identifier(ident) => self.names.respell(ident),
            Expr::CompoundIdentifier(parts) => parts.iter_mut().for_each(|part| self.respell_part(part)),
            Expr::Function(function) => {
                if let Some(name) = generators::name_of(function) {
                    let what = format!(
                        "{}() stands alone in the SELECT list or in LATERAL VIEW, not inside another expression",
                        name.value
                    );
                    return ControlFlow::Break(Box::new((what, name.clone())));
                }
                spark_function(function);
            }
            _ => {}
        }
        if let Some(other) = other_form(expr) {
            *expr = other;
        }
        ControlFlow::Continue(())
    }
}

impl Rewriter<'_> {
    fn respell_part(&self, part: &mut Ident) {
        self.names.respell(part);
        self.tables.respell(part);
    }
}

/// Gives a column without a name the name that Spark gives it, or close to it: the expression's text.
fn name_item(item: &mut SelectItem) {
    let SelectItem::UnnamedExpr(expr) = item else { return };
    let name = match &*expr {
        Expr::Identifier(ident) => ident.value.clone(),
        Expr::CompoundIdentifier(parts) => parts.last().map(|part| part.value.clone()).unwrap_or_default(),
        Expr::Function(function) if windows::window_name(function).is_some() => {
            windows::window_name(function).unwrap_or_default().to_owned()
        }
        // `window.start`, which has become an access to the window's column.
        Expr::CompoundFieldAccess { root, access_chain } => match (root.as_ref(), access_chain.as_slice()) {
            (
                Expr::Function(function),
                [AccessExpr::Subscript(Subscript::Index { index: Expr::Value(field) })],
            ) if windows::window_name(function).is_some() => {
                field.value.clone().into_string().unwrap_or_default()
            }
            _ => expr.to_string(),
        },
        other => other.to_string(),
    };
    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('`', name) };
}

fn arguments(function: &mut Function) -> Option<&mut Vec<FunctionArg>> {
    match &mut function.args {
        FunctionArguments::List(list) => Some(&mut list.args),
        _ => None,
    }
}

/// Functions that DataFusion has in another form.
fn spark_function(function: &mut Function) {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return };
    let name = name.value.to_lowercase();
    let part = match name.as_str() {
        "year" | "quarter" | "month" | "dayofweek" => name.as_str(),
        "day" | "dayofmonth" => "day",
        "dayofyear" => "doy",
        "weekofyear" => "week",
        "from_json" => return flatten_options(function),
        "date_add" | "dateadd" | "date_sub" | "add_months" => return int_argument(function, 1),
        _ => return,
    };
    let part = unnamed(Expr::value(Value::SingleQuotedString(part.to_owned())));
    if let Some(args) = arguments(function) {
        if let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(text)))] = args.as_slice()
            && matches!(text.value, Value::SingleQuotedString(_) | Value::DoubleQuotedString(_))
        {
            *args = vec![unnamed(cast(text.value.clone(), SqlType::Date))];
        }
        args.insert(0, part);
        rename(function, "date_part");
    }
}

/// DataFusion's literals are `long` where these take `int`.
fn int_argument(function: &mut Function, index: usize) {
    let Some(args) = arguments(function) else { return };
    if let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) = args.get_mut(index) {
        *expr = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(expr.clone()),
            data_type: SqlType::Int(None),
            array: false,
            format: None,
        };
    }
}

fn rename(function: &mut Function, name: &str) {
    if let [ObjectNamePart::Identifier(ident)] = function.name.0.as_mut_slice() {
        ident.value = name.to_owned();
    }
}

/// `from_json(j, s, map('mode', 'X'))` has its options as further arguments, where they are constants.
fn flatten_options(function: &mut Function) {
    let Some(args) = arguments(function) else { return };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(map)))) = args.get_mut(2) else {
        return;
    };
    if !map.name.to_string().eq_ignore_ascii_case("map") {
        return;
    }
    if let Some(options) = arguments(map).cloned() {
        args.truncate(2);
        args.extend(options);
    }
}

/// Expressions that DataFusion has in another form.
fn other_form(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::RLike { negated, expr, pattern, .. } => {
            let call = call("rlike", vec![expr.as_ref().clone(), pattern.as_ref().clone()]);
            Some(if *negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(call) } } else { call })
        }
        Expr::UnaryOp { op: UnaryOperator::BangNot, expr } => {
            Some(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(expr.clone())) })
        }
        // 10L and 1e3: a long and a double, whatever the size.
        Expr::Value(value) => match &value.value {
            Value::Number(text, true) => {
                Some(cast(Value::Number(text.clone(), false), SqlType::BigInt(None)))
            }
            Value::Number(text, false) if text.contains(['e', 'E']) => {
                let text = Value::SingleQuotedString(text.clone());
                Some(cast(text, SqlType::Double(datafusion::sql::sqlparser::ast::ExactNumberInfo::None)))
            }
            _ => None,
        },
        Expr::Extract { field: DateTimeField::Second | DateTimeField::Seconds, expr, .. } => {
            Some(call(SECOND_OF_MINUTE, vec![expr.as_ref().clone()]))
        }
        Expr::Function(function) => as_expression(function),
        Expr::CompoundFieldAccess { root, access_chain } => {
            let by_name = |access: &AccessExpr| match access {
                AccessExpr::Dot(Expr::Identifier(name)) => {
                    let index = Expr::value(Value::SingleQuotedString(name.value.clone()));
                    AccessExpr::Subscript(Subscript::Index { index })
                }
                other => other.clone(),
            };
            let access_chain = access_chain.iter().map(by_name).collect();
            Some(Expr::CompoundFieldAccess { root: root.clone(), access_chain })
        }
        Expr::Struct { values, fields } if fields.is_empty() => Some(named_struct(values)),
        _ => None,
    }
}

/// Functions that are no more than an expression: `isnull(x)` is `x IS NULL`.
fn as_expression(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let argument = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let args: Vec<Expr> = list.args.iter().map(argument).collect::<Option<_>>()?;
    let nested = |expr: &Expr| Box::new(Expr::Nested(Box::new(expr.clone())));
    let zero = || Expr::value(Value::Number("0".into(), false));
    let text = |text: &str| Expr::value(Value::SingleQuotedString(text.to_owned()));
    let binary = |left, op, right| Expr::BinaryOp { left, op, right };
    Some(match (function.name.to_string().to_lowercase().as_str(), args.as_slice()) {
        ("isnull", [x]) => Expr::IsNull(nested(x)),
        ("isnotnull", [x]) => Expr::IsNotNull(nested(x)),
        ("equal_null", [a, b]) => binary(nested(a), BinaryOperator::Spaceship, nested(b)),
        ("nullifzero", [x]) => call("nullif", vec![x.clone(), zero()]),
        ("zeroifnull", [x]) => call("coalesce", vec![x.clone(), zero()]),
        ("nvl2", [x, known, unknown]) => {
            either(Expr::IsNotNull(nested(x)), known.clone(), Some(unknown.clone()))
        }
        ("date_part" | "datepart", [Expr::Value(part), x]) if is_second(&part.value) => {
            call(SECOND_OF_MINUTE, vec![x.clone()])
        }
        ("count_if", [x]) => counted_if(function, x),
        ("positive", [x]) => Expr::Nested(Box::new(x.clone())),
        ("dayname", [x]) => call("date_format", vec![x.clone(), text("EEE")]),
        ("regexp_substr", [x, pattern]) => {
            let found = call("regexp_extract", vec![x.clone(), pattern.clone(), zero()]);
            call("nullif", vec![found, text("")])
        }
        ("log2", [x]) => call("log", vec![Expr::value(Value::Number("2".into(), false)), x.clone()]),
        ("nvl" | "ifnull", [x, other]) => call("coalesce", vec![x.clone(), other.clone()]),
        ("date_from_unix_date", [days]) => call(
            "date_add",
            vec![cast(Value::SingleQuotedString("1970-01-01".into()), SqlType::Date), days.clone()],
        ),
        (name, [x]) if CASTS.contains(&name) => Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(x.clone()),
            data_type: SqlType::Custom(ObjectName::from(Ident::new(name)), Vec::new()),
            array: false,
            format: None,
        },
        _ => return None,
    })
}

/// Types whose names are casts as functions: `int(x)` is `CAST(x AS int)`. (`date(x)` is `to_date(x)`.)
pub(super) const CASTS: &[&str] = &[
    "bigint",
    "binary",
    "boolean",
    "decimal",
    "double",
    "float",
    "int",
    "smallint",
    "string",
    "timestamp",
    "tinyint",
];

/// Functions that become `date_part`.
pub(super) const DATE_PARTS: &[&str] =
    &["year", "quarter", "month", "day", "dayofmonth", "dayofweek", "dayofyear", "weekofyear"];

/// `CASE WHEN condition THEN result ELSE other END`.
fn either(condition: Expr, result: Expr, other: Option<Expr>) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition, result }],
        else_result: other.map(Box::new),
    }
}

/// Spark's names of the part that has a fraction.
fn is_second(part: &Value) -> bool {
    let text = match part {
        Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => text.to_lowercase(),
        _ => return false,
    };
    ["second", "seconds", "sec", "secs", "s"].contains(&text.as_str())
}

/// `count(CASE WHEN x THEN 1 END)`, with the FILTER of the call.
fn counted_if(function: &Function, condition: &Expr) -> Expr {
    let case = either(condition.clone(), Expr::value(Value::Number("1".into(), false)), None);
    match call("count", vec![case]) {
        Expr::Function(counted) => Expr::Function(Function { filter: function.filter.clone(), ..counted }),
        other => other,
    }
}

/// Names that [`as_expression`] knows beside the [`CASTS`].
pub(super) const REPLACED: &[&str] = &[
    "isnull",
    "isnotnull",
    "equal_null",
    "nullifzero",
    "zeroifnull",
    "positive",
    "ifnull",
    "nvl2",
    "count_if",
    "dayname",
    "regexp_substr",
    "date_from_unix_date",
];

/// How many arguments a function takes that is replaced, and how many it has, if these are others.
pub(super) fn wrong_count(name: &str, function: &Function) -> Option<(usize, usize)> {
    let wanted = match name {
        "equal_null" | "ifnull" | "regexp_substr" => 2,
        "nvl2" => 3,
        name if [CASTS, REPLACED, DATE_PARTS].iter().any(|names| names.contains(&name)) => 1,
        _ => return None,
    };
    let found = match &function.args {
        FunctionArguments::List(list) => list.args.len(),
        _ => 0,
    };
    (found != wanted).then_some((wanted, found))
}

/// Whether there is a lambda: its parameters' types are fixed while it is planned, so literals must have theirs before.
pub(super) fn has_lambda(statement: &Statement) -> bool {
    struct Lambdas;
    impl Visitor for Lambdas {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if matches!(expr, Expr::Lambda(_)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    statement.visit(&mut Lambdas).is_break()
}

/// Makes every whole number that fits a `CAST(… AS INT)`.
pub(super) fn int_literals(statement: &mut Statement) {
    struct Literals;
    impl VisitorMut for Literals {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::Value(value) = expr
                && let Value::Number(text, false) = &value.value
                && text.parse::<i32>().is_ok()
            {
                *expr = cast(value.value.clone(), SqlType::Int(None));
            }
            ControlFlow::Continue(())
        }
    }
    let _ = statement.visit(&mut Literals);
}

/// `struct(a, b AS c, 1)` has the fields `a`, `c` and `col3`.
fn named_struct(values: &[Expr]) -> Expr {
    let pair = |(index, value): (usize, &Expr)| {
        let (name, value) = match value {
            Expr::Named { expr, name } => (name.value.clone(), expr.as_ref().clone()),
            Expr::Identifier(ident) => (ident.value.clone(), value.clone()),
            Expr::CompoundIdentifier(parts) => {
                (parts.last().map(|part| part.value.clone()).unwrap_or_default(), value.clone())
            }
            _ => (format!("col{}", index + 1), value.clone()),
        };
        [Expr::value(Value::SingleQuotedString(name)), value]
    };
    call("named_struct", values.iter().enumerate().flat_map(pair).collect())
}

fn cast(value: Value, data_type: SqlType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::value(value)),
        data_type,
        array: false,
        format: None,
    }
}

fn unnamed(expr: Expr) -> FunctionArg {
    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
}

/// A call of a function.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let list = FunctionArgumentList {
        duplicate_treatment: None,
        args: args.into_iter().map(unnamed).collect(),
        clauses: Vec::new(),
    };
    Expr::Function(Function {
        name: ObjectName::from(Ident::new(name)),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
