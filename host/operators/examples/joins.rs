//! Measures deduplication and joins of two streams: rows a second through the operators and a store in memory, on one
//! thread, without any input or output. Prints a line for each micro-batch.
//!
//! `cargo run -p pelton-operators --example joins [WORD]`: those whose names have the word.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use pelton_core::types::parse_columns;
use pelton_core::{BatchId, BatchInfo, Dataflow, Error, OutputMode, QueryId, Result, StateStore, Trigger};
use pelton_operators::QueryDataflow;
use pelton_plan::file::WatermarkPolicySpec;
use pelton_plan::stateful::{
    Dedup, DedupExpiry, EventTimeColumn, JoinExpiry, JoinKey, JoinKind, JoinSide, Lane, Origin, StatefulNode,
    StatefulOperator, StreamJoin, Target,
};
use pelton_plan::{PhysicalInput, PhysicalPlan};
use pelton_state::MemoryStateStore;
use std::sync::Arc;
use std::time::Instant;

type Expr = Arc<dyn PhysicalExpr>;

/// Rows of a micro-batch, over all inputs.
const ROWS: usize = 250_000;
/// Rows of a record batch, and record batches of a part.
const BATCH_ROWS: usize = 8192;
const PART_BATCHES: usize = 16;
/// Event time moves by this much a row, and the watermark stays this much behind.
const STEP_US: i64 = 100;
const DELAY_MS: i64 = 3000;
const START_US: i64 = 1_767_225_600_000_000;

fn schema(columns: &str) -> Result<SchemaRef> {
    let columns = parse_columns(columns, "UTC").map_err(|e| Error::invalid(e.to_string()))?;
    Ok(Arc::new(Schema::new(columns)))
}

/// Spreads numbers over all longs.
fn spread(number: usize) -> u64 {
    (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Rows of a key, a text and a time, from their numbers.
fn rows(
    schema: &SchemaRef,
    numbers: std::ops::Range<usize>,
    key: impl Fn(usize) -> i64,
    time_us: impl Fn(i64) -> i64,
) -> Result<Vec<RecordBatch>> {
    let batch = |start: usize| {
        let numbers = start..numbers.end.min(start + BATCH_ROWS);
        let times = numbers.clone().map(|number| time_us(START_US + number as i64 * STEP_US));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(numbers.clone().map(&key))),
            Arc::new(StringArray::from_iter_values(numbers.map(|number| format!("value {number}")))),
            Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC")),
        ];
        Ok(RecordBatch::try_new(schema.clone(), columns)?)
    };
    numbers.clone().step_by(BATCH_ROWS).map(batch).collect()
}

/// A query of one stateful operator.
fn query(operator: StatefulOperator, inputs: &[SchemaRef], schema: &SchemaRef) -> Result<Arc<dyn Dataflow>> {
    let lane = |origin, target, schema: &SchemaRef| Lane {
        origin,
        steps: Vec::new(),
        target,
        schema: schema.clone(),
    };
    let into = |(port, schema)| lane(Origin::Source(port), Target::Port { node: 0, port }, schema);
    let mut lanes: Vec<Lane> = inputs.iter().enumerate().map(into).collect();
    lanes.push(lane(Origin::Node(0), Target::Sink, schema));
    let node = StatefulNode {
        name: "node".into(),
        operator,
        inputs: inputs.to_vec(),
        schema: schema.clone(),
        watermark_offset_ms: Some(0),
        keep_late_rows: false,
        layout: None,
    };
    let input = |schema: &SchemaRef| PhysicalInput {
        name: "source".into(),
        connector: "memory",
        schema: schema.clone(),
        required_columns: schema.fields().iter().map(|field| field.name().clone()).collect(),
    };
    let plan = PhysicalPlan {
        name: "measured".into(),
        inputs: inputs.iter().map(input).collect(),
        lanes,
        nodes: vec![node],
        watermarks: Vec::new(),
        watermark_policy: WatermarkPolicySpec::Min,
        schema: schema.clone(),
        output_mode: OutputMode::Append,
        trigger: Trigger::AvailableNow,
        sink: "memory",
        time_zone: "UTC".into(),
        warnings: Vec::new(),
    };
    let flow = QueryDataflow::bind(&plan, inputs)?;
    Ok(flow)
}

/// Runs micro-batches whose rows `input` makes, from the number of the first row on.
fn measure(
    what: &str,
    flow: &Arc<dyn Dataflow>,
    input: impl Fn(usize) -> Result<Vec<Vec<RecordBatch>>>,
) -> Result<()> {
    if std::env::args().nth(1).is_some_and(|word| !what.contains(&word)) {
        return Ok(());
    }
    let mut store = MemoryStateStore::new();
    let mut late_ms = START_US / 1000 - DELAY_MS;
    for number in 0..6 {
        let input = input(number * ROWS)?;
        let count: usize = input.iter().flatten().map(RecordBatch::num_rows).sum();
        let moved_us = (number * count / input.len()) as i64 * STEP_US;
        let watermark_ms = (START_US + moved_us) / 1000 - DELAY_MS;
        let info = Arc::new(BatchInfo {
            query_id: QueryId("q".into()),
            batch_id: BatchId(number as u64),
            time_ms: 0,
            watermark_ms: Some(watermark_ms),
            late_watermark_ms: Some(late_ms),
        });
        late_ms = watermark_ms;
        let start = Instant::now();
        let mut gather = flow.clone().gather(info.clone());
        for (port, batches) in input.into_iter().enumerate() {
            for (partition, part) in batches.chunks(PART_BATCHES).enumerate() {
                gather.add(flow.part(&info, port, partition as u64, part.to_vec())?)?;
            }
        }
        let first = start.elapsed();
        let out = gather.finish(&mut store, 1)?;
        futures::executor::block_on(store.commit(info.batch_id))?;
        let all = start.elapsed();
        let given: usize = out.rows.iter().map(RecordBatch::num_rows).sum();
        println!(
            "{what:<27} {:>8.0} rows/s (first half {:>3.0} ns a row, second {:>4.0} ns), {given} rows given, {} in state",
            count as f64 / all.as_secs_f64(),
            first.as_nanos() as f64 / count as f64,
            (all - first).as_nanos() as f64 / count as f64,
            out.operators.first().map_or(0, |report| report.rows_total),
        );
    }
    Ok(())
}

fn measure_dedup(what: &str, keys: &[usize], expiry: DedupExpiry, copies: usize) -> Result<()> {
    let schema = schema("id long, value string, ts timestamp")?;
    let spec = Dedup { keys: keys.to_vec(), event_time: Some(EventTimeColumn { column: 2 }), expiry };
    let flow = query(StatefulOperator::Dedup(spec), std::slice::from_ref(&schema), &schema)?;
    measure(what, &flow, |from| {
        let key = |number| spread(number / copies).cast_signed();
        Ok(vec![rows(&schema, from..from + ROWS, key, |time| time)?])
    })
}

/// `rt >= lt AND rt <= lt + ms`.
fn in_range(ms: i64) -> Expr {
    let (lt, rt): (Expr, Expr) = (Arc::new(Column::new("lt", 2)), Arc::new(Column::new("rt", 5)));
    let binary =
        |left: Expr, operator, right: Expr| -> Expr { Arc::new(BinaryExpr::new(left, operator, right)) };
    let range: Expr = Arc::new(Literal::new(ScalarValue::new_interval_mdn(0, 0, ms * 1_000_000)));
    let latest = binary(lt.clone(), Operator::Plus, range);
    binary(binary(rt.clone(), Operator::GtEq, lt), Operator::And, binary(rt, Operator::LtEq, latest))
}

/// A join of two streams with 100,000 keys, by windows of 10 s or by a range of 1 s.
fn measure_join(what: &str, kind: JoinKind, by_window: bool) -> Result<()> {
    let (left, right) =
        (schema("k long, v string, lt timestamp")?, schema("k long, w string, rt timestamp")?);
    let key = |left, right, at| JoinKey {
        left: Arc::new(Column::new(left, at)),
        right: Arc::new(Column::new(right, at)),
        null_safe: false,
    };
    let column = EventTimeColumn { column: 2 };
    let side = |offset_ms| JoinSide {
        condition: None,
        event_time: Some(column),
        expiry: if by_window { JoinExpiry::Key(1) } else { JoinExpiry::Value { column, offset_ms } },
    };
    let join = StreamJoin {
        kind,
        keys: if by_window { vec![key("k", "k", 0), key("lt", "rt", 2)] } else { vec![key("k", "k", 0)] },
        condition: (!by_window).then(|| in_range(1000)),
        sides: [side(-1001), side(-1)],
    };
    let fields = left.fields().iter().chain(right.fields());
    let fields: Vec<Field> = fields.map(|field| field.as_ref().clone().with_nullable(true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let flow = query(StatefulOperator::Join(join), &[left.clone(), right.clone()], &schema)?;
    let window = |time: i64| if by_window { time.div_euclid(10_000_000) * 10_000_000 } else { time };
    measure(what, &flow, |from| {
        let numbers = from / 2..(from + ROWS) / 2;
        let key = |number| (spread(number) % 100_000).cast_signed();
        Ok(vec![rows(&left, numbers.clone(), key, window)?, rows(&right, numbers, key, window)?])
    })
}

fn main() -> Result<()> {
    measure_dedup("dedup, all keys new", &[0], DedupExpiry::Never, 1)?;
    measure_dedup("dedup, 50 % duplicates", &[0], DedupExpiry::Never, 2)?;
    measure_dedup("dedup by event time", &[0, 2], DedupExpiry::EventTime, 1)?;
    measure_dedup("dedup within the watermark", &[0], DedupExpiry::Within { delay_ms: DELAY_MS }, 1)?;
    measure_join("join by window", JoinKind::Inner, true)?;
    measure_join("join by range", JoinKind::Inner, false)?;
    measure_join("left outer join by range", JoinKind::LeftOuter, false)
}
