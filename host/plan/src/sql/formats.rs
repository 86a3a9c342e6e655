//! Numbers where text is wanted, on the planned expressions: functions that take them without a cast print them as Rust does.

use super::casts::each_expression;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast};

/// Functions whose first argument is text whatever it is given.
const OF_TEXT: [&str; 4] = ["length", "character_length", "lpad", "rpad"];

/// Numbers become text where text is wanted, and doubles where `format_string` wants a number.
pub(super) fn numbers_as_text(plan: LogicalPlan) -> Result<LogicalPlan> {
    each_expression(plan, |expr, schema| {
        let Expr::ScalarFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
        let wanted = wanted(&call);
        let mut changed = false;
        for (arg, wanted) in call.args.iter_mut().zip(wanted) {
            let is = arg.get_type(schema).unwrap_or(DataType::Null);
            let Some(wanted) = wanted.filter(|wanted| is != *wanted) else { continue };
            if is.is_floating() || is.is_decimal() {
                *arg = cast(arg.clone(), wanted);
                changed = true;
            }
        }
        let call = Expr::ScalarFunction(call);
        Ok(if changed { Transformed::yes(call) } else { Transformed::no(call) })
    })
}

/// What each argument of a call should be, if something else would be printed otherwise.
fn wanted(call: &ScalarFunction) -> Vec<Option<DataType>> {
    let text = || Some(DataType::Utf8);
    if OF_TEXT.contains(&call.name()) {
        return vec![text()];
    }
    let format = match call.args.first() {
        Some(Expr::Literal(format, _)) if call.name() == "format_string" => format.try_as_str().flatten(),
        _ => None,
    };
    let conversions =
        conversions(format.unwrap_or_default()).into_iter().map(|conversion| match conversion {
            's' | 'S' => text(),
            'e' | 'E' | 'f' | 'g' | 'G' => Some(DataType::Float64),
            _ => None,
        });
    std::iter::once(None).chain(conversions).collect()
}

/// The letters of `%5.2f %s`, one for each argument; nothing of formats that number their arguments.
fn conversions(format: &str) -> Vec<char> {
    let mut found = Vec::new();
    let mut rest = format;
    while let Some((_, behind)) = rest.split_once('%') {
        let Some(at) = behind.find(|c: char| c.is_alphabetic() || c == '%') else { break };
        match behind[..at].contains('$') {
            true => return Vec::new(),
            false => found.extend(behind[at..].chars().next().filter(|c| !matches!(c, '%' | 'n'))),
        }
        rest = &behind[at + 1..];
    }
    found
}
