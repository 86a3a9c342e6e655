//! The functions that Pelton adds to DataFusion's and `datafusion-spark`'s, because Spark's meaning differs, because
//! they are missing there, or because their value must come from the micro-batch.
//!
//! `sql::session` registers them over the others; nothing here plans.

pub(crate) mod access;
pub(crate) mod aggregate;
pub(crate) mod arithmetic;
pub(crate) mod arrays;
mod clock;
pub(crate) mod decimal;
mod from_json;
mod function;
mod json_text;
mod number_text;
mod parts;
mod pattern;
pub(crate) mod plugin;
mod text;
mod times;
pub(crate) mod timestamp;
pub(crate) mod window;

use datafusion::logical_expr::ScalarUDF;
use std::sync::Arc;

/// All of them, for a session time zone.
pub(crate) fn all(time_zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    let mut functions = vec![from_json::udf(time_zone)];
    functions.extend(clock::all(time_zone));
    functions.extend(times::all(time_zone));
    functions.extend(parts::all(time_zone));
    functions.extend(window::all(time_zone));
    functions.extend(text::all(time_zone));
    functions.extend(number_text::all(time_zone));
    functions.extend(arithmetic::all(time_zone));
    functions.extend(decimal::all(time_zone));
    functions.extend(access::all(time_zone));
    functions.extend(arrays::all(time_zone));
    functions.extend(json_text::all(time_zone));
    functions
}

/// Whether a function of this name is of this crate: what it says of its arguments is for users.
pub(crate) fn is_ours(name: &str) -> bool {
    let zone: Arc<str> = "UTC".into();
    let named = |function: &Arc<ScalarUDF>| function.name() == name;
    all(&zone).iter().any(named) || aggregate::all().iter().any(|function| function.name() == name)
}

pub(crate) use number_text::{FLOAT_TEXT, NESTED_TEXT};
pub(crate) use times::{FRACTIONAL_SECONDS, SECOND_OF_MINUTE, TIMESTAMP_TEXT};

/// Spark's names for functions that exist under another name: (Spark's, ours).
pub(crate) const ALIASES: &[(&str, &str)] = &[
    ("ucase", "upper"),
    ("lcase", "lower"),
    ("char_length", "length"),
    ("character_length", "length"),
    ("len", "length"),
    ("startswith", "starts_with"),
    ("endswith", "ends_with"),
    ("substr", "substring"),
    ("mid", "substring"),
    ("printf", "format_string"),
    ("sha", "sha1"),
    ("ceiling", "ceil"),
    ("power", "pow"),
    ("sign", "signum"),
    ("mod", "modulus"),
    ("datediff", "date_diff"),
    ("dateadd", "date_add"),
    ("array_join", "array_to_string"),
    ("arrays_overlap", "array_has_any"),
    ("transform", "array_transform"),
    ("filter", "array_filter"),
    ("exists", "array_any_match"),
    ("sequence", "generate_series"),
    ("day", "dayofmonth"),
];

/// Functions whose value changes from call to call although their arguments do not, and that are right all the same:
/// their value comes from the scope of the micro-batch.
pub(crate) const SCOPED: &[&str] =
    &["now", "localtimestamp", "current_date", "current_timezone", "rand", "randn", "uuid", "unix_timestamp"];
