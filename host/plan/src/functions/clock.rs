//! Time and randomness, both the micro-batch's: `now()` is its time, as in Spark; `rand()` and `uuid()` are drawn
//! from a generator seeded by query, micro-batch, operator, part and call.

use super::function::{Function, array};
use crate::scope;
use chrono::{DateTime, Datelike, NaiveDate, Utc};
use chrono_tz::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Date32Array, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::Result;
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::sync::Arc;

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    let none = |f: &Function, types: &[DataType]| f.arguments(types.len(), 0..=0).map(|()| Vec::new());
    vec![
        Function::new(
            "now",
            zone,
            none,
            |f, _, _| Ok(timestamp(f)),
            |f, args| {
                let now = TimestampMicrosecondArray::from(vec![now_ms("now()")? * 1000; args.number_rows]);
                Ok(Arc::new(now.with_timezone(f.time_zone.clone())))
            },
        )
        .also(&["current_timestamp"])
        .per_batch()
        .udf(),
        Function::new(
            "localtimestamp",
            zone,
            none,
            |_, _, _| Ok(local_type()),
            |f, args| {
                let now = local(f, "localtimestamp()")?;
                Ok(Arc::new(TimestampMicrosecondArray::from(vec![
                    now.and_utc().timestamp_micros();
                    args.number_rows
                ])))
            },
        )
        .per_batch()
        .udf(),
        Function::new(
            "current_date",
            zone,
            none,
            |_, _, _| Ok(DataType::Date32),
            |f, args| {
                let today = local(f, "current_date()")?.date();
                Ok(Arc::new(Date32Array::from(vec![days(today); args.number_rows])))
            },
        )
        .also(&["curdate", "today"])
        .per_batch()
        .udf(),
        Function::new(
            "current_timezone",
            zone,
            none,
            |_, _, _| Ok(DataType::Utf8),
            |f, args| Ok(Arc::new(StringArray::from(vec![f.time_zone.as_ref(); args.number_rows]))),
        )
        .per_batch()
        .udf(),
        Function::new("rand", zone, seed, |_, _, _| Ok(DataType::Float64), |_, args| uniform(args))
            .also(&["random"])
            .per_batch()
            .udf(),
        Function::new("randn", zone, seed, |_, _, _| Ok(DataType::Float64), |_, args| normal(args))
            .per_batch()
            .udf(),
        Function::new("uuid", zone, none, |_, _, _| Ok(DataType::Utf8), |_, args| uuids(args))
            .per_batch()
            .udf(),
    ]
}

/// The micro-batch's time in milliseconds.
pub(super) fn now_ms(what: &str) -> Result<i64> {
    scope::call(what, |scope| Ok(scope.batch.time_ms))
}

/// Days since the epoch.
pub(super) fn days(date: NaiveDate) -> i32 {
    date.num_days_from_ce() - 719_163
}

fn timestamp(function: &Function) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(function.time_zone.clone()))
}

fn local_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn local(function: &Function, what: &str) -> Result<chrono::NaiveDateTime> {
    let zone: Tz = function.time_zone.parse().unwrap_or(Tz::UTC);
    let now = DateTime::<Utc>::from_timestamp_millis(now_ms(what)?).unwrap_or_default();
    Ok(now.with_timezone(&zone).naive_local())
}

fn seed(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 0..=1)?;
    Ok(vec![DataType::Int64; types.len()])
}

/// A generator for this call; a seed that the user gives is mixed in.
fn generator(args: &ScalarFunctionArgs) -> Result<ChaCha8Rng> {
    let given = match args.args.is_empty() {
        true => 0,
        false => {
            let values = array(args, 0)?;
            let values: &Int64Array = values.as_primitive::<Int64Type>();
            if values.is_empty() || values.is_null(0) { 0 } else { values.value(0) }
        }
    };
    let seed = scope::call("rand()", |scope| Ok(scope.seed()))?;
    Ok(ChaCha8Rng::seed_from_u64(seed ^ (given as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// In [0, 1), with all 53 bits of a double.
fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

fn uniform(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let mut rng = generator(args)?;
    Ok(Arc::new(Float64Array::from_iter_values((0..args.number_rows).map(|_| unit(&mut rng)))))
}

/// Box and Muller's method.
fn normal(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let mut rng = generator(args)?;
    let draw = |_| {
        let (radius, angle) = (1.0 - unit(&mut rng), unit(&mut rng));
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    };
    Ok(Arc::new(Float64Array::from_iter_values((0..args.number_rows).map(draw))))
}

/// Version 4.
fn uuids(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let seed = scope::call("uuid()", |scope| Ok(scope.seed()))?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let draw = |_| {
        let bits = (u128::from(rng.next_u64()) << 64) | u128::from(rng.next_u64());
        let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    };
    Ok(Arc::new(StringArray::from_iter_values((0..args.number_rows).map(draw))))
}
