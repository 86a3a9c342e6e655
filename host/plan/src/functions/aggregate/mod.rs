//! Aggregate functions with Spark's meaning where DataFusion's differ, and Spark's names for those that do not.
//!
//! `sql::session` registers them over the others. All of them have states that can be merged: an aggregation over a
//! stream keeps the state of each group and merges into it what each micro-batch brings.

mod average;
mod extreme;
mod extreme_by;
mod mode;
mod sum;

use datafusion::logical_expr::AggregateUDF;
use std::sync::Arc;

/// All of them.
pub(crate) fn all() -> Vec<Arc<AggregateUDF>> {
    vec![
        Arc::new(AggregateUDF::new_from_impl(sum::Sum::new())),
        Arc::new(AggregateUDF::new_from_impl(average::Average::new())),
        Arc::new(AggregateUDF::new_from_impl(extreme::Extreme::max())),
        Arc::new(AggregateUDF::new_from_impl(extreme::Extreme::min())),
        Arc::new(AggregateUDF::new_from_impl(mode::Mode::new())),
        Arc::new(AggregateUDF::new_from_impl(extreme_by::ExtremeBy::max())),
        Arc::new(AggregateUDF::new_from_impl(extreme_by::ExtremeBy::min())),
    ]
}

/// Spark's names of functions that DataFusion has under another.
pub(crate) const ALIASES: &[(&str, &str)] = &[
    ("approx_count_distinct", "approx_distinct"),
    ("percentile", "percentile_cont"),
    ("first", "first_value"),
    ("last", "last_value"),
    ("every", "bool_and"),
    ("some", "bool_or"),
    ("any", "bool_or"),
    ("std", "stddev"),
    ("mean", "avg"),
    ("variance", "var_samp"),
    ("listagg", "string_agg"),
];
