//! Stateful operators over hand-made nodes and a store in memory, micro-batch by micro-batch.

mod dedup;
pub(crate) mod group_functions;
mod groups;
mod groups_model;
mod join;
mod join_model;
mod limit_and_sort;

use super::{NodeScope, Operator, Piece};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use pelton_core::types::parse_columns;
use pelton_core::{BatchId, BatchInfo, DeadLetter, QueryId, Result, SHARDS, StateStore};
use pelton_plan::json::{Nulls, row_json};
use pelton_plan::stateful::{StatefulNode, StatefulOperator};
use pelton_state::MemoryStateStore;
use serde_json::Value;
use std::sync::Arc;

const NODE: &str = "node";

/// A schema in Spark's words.
fn schema(columns: &str) -> SchemaRef {
    Arc::new(Schema::new(parse_columns(columns, "UTC").expect("columns")))
}

/// Rows from JSON.
fn batch(schema: &SchemaRef, rows: &[Value]) -> RecordBatch {
    let mut decoder = arrow_json::ReaderBuilder::new(schema.clone()).build_decoder().expect("a decoder");
    decoder.serialize(rows).expect("rows");
    decoder.flush().expect("decodes").unwrap_or_else(|| RecordBatch::new_empty(schema.clone()))
}

/// A node as the planner makes them.
fn node(operator: StatefulOperator, inputs: &[&SchemaRef], schema: &SchemaRef) -> StatefulNode {
    StatefulNode {
        name: NODE.to_owned(),
        operator,
        inputs: inputs.iter().map(|input| (*input).clone()).collect(),
        schema: schema.clone(),
        watermark_offset_ms: Some(0),
        keep_late_rows: true,
        layout: None,
    }
}

/// An operator with its state.
struct Running {
    operator: Box<dyn Operator>,
    store: MemoryStateStore,
    batches: u64,
    late_ms: Option<i64>,
    time_ms: i64,
}

/// What a micro-batch made.
#[derive(Default)]
struct Ran {
    rows: Vec<Value>,
    late_rows: u64,
    letters: Vec<DeadLetter>,
    state_rows: u64,
    updated: u64,
    removed: u64,
}

impl Running {
    fn new(operator: impl Operator + 'static) -> Self {
        Self {
            operator: Box::new(operator),
            store: MemoryStateStore::new(),
            batches: 0,
            late_ms: None,
            time_ms: 1_767_225_600_000,
        }
    }

    /// Runs a micro-batch. `ports`: the parts of each input, each of some batches.
    fn run(&mut self, watermark_ms: Option<i64>, ports: &[Vec<Vec<RecordBatch>>]) -> Ran {
        self.try_run(watermark_ms, ports).expect("runs")
    }

    fn try_run(&mut self, watermark_ms: Option<i64>, ports: &[Vec<Vec<RecordBatch>>]) -> Result<Ran> {
        let info = BatchInfo {
            query_id: QueryId("q".into()),
            batch_id: BatchId(self.batches),
            time_ms: self.time_ms,
            watermark_ms,
            late_watermark_ms: self.late_ms.or(watermark_ms),
        };
        let info = Arc::new(info);
        let scope = NodeScope {
            batch: &info,
            name: NODE,
            late_ms: info.late_watermark_ms,
            watermark_ms,
            keep_late_rows: true,
        };
        let mut ran = Ran::default();
        let empty = || (0..self.operator.ports()).map(|_| Vec::new()).collect::<Vec<Vec<Piece>>>();
        let mut shards: Vec<_> = (0..SHARDS).map(|_| empty()).collect();
        for (port, parts) in ports.iter().enumerate() {
            for part in parts {
                let prepared = self.operator.prepare(&scope, port, part).expect("prepares");
                ran.late_rows += prepared.late_rows;
                ran.letters.extend(prepared.dead_letters);
                assert!(prepared.pieces.windows(2).all(|pair| pair[0].0 < pair[1].0));
                prepared.pieces.into_iter().for_each(|(shard, piece)| shards[shard][port].push(piece));
            }
        }
        for ((shard, pieces), state) in shards.into_iter().enumerate().zip(self.store.shards()) {
            let out = self.operator.run(&scope, shard, pieces, state)?;
            ran.updated += out.updated;
            ran.removed += out.removed;
            ran.letters.extend(out.dead_letters);
            for rows in &out.rows {
                ran.rows.extend(
                    (0..rows.num_rows()).map(|row| row_json(rows, row, Nulls::Written).expect("JSON")),
                );
            }
        }
        futures::executor::block_on(self.store.commit(info.batch_id)).expect("commits");
        ran.state_rows = self.operator.counted_tables(NODE).iter().map(|table| self.store.len(table)).sum();
        self.batches += 1;
        self.late_ms = watermark_ms;
        Ok(ran)
    }

    /// The same with one part of one batch for each input.
    fn rows(&mut self, watermark_ms: Option<i64>, ports: &[RecordBatch]) -> Ran {
        self.run(watermark_ms, &ports.iter().map(|rows| vec![vec![rows.clone()]]).collect::<Vec<_>>())
    }
}

/// Rows as text, without their order.
fn sorted(rows: &[Value]) -> Vec<String> {
    let mut rows: Vec<String> = rows
        .iter()
        .map(|row| {
            let mut members: Vec<_> = row.as_object().expect("a row").iter().collect();
            members.sort_by_key(|(key, _)| (*key).clone());
            format!("{members:?}")
        })
        .collect();
    rows.sort();
    rows
}

/// Milliseconds since the epoch of `2026-01-01T…Z`.
fn millis(text: &str) -> i64 {
    let nanos = arrow::compute::kernels::cast_utils::string_to_timestamp_nanos(text);
    nanos.expect("a time").div_euclid(1_000_000)
}

/// The rows of a step of a case that real Spark answered.
fn added(step: &Value, stream: &str, schema: &SchemaRef) -> Vec<Vec<RecordBatch>> {
    match step["add"][stream].as_array() {
        Some(rows) if !rows.is_empty() => vec![vec![batch(schema, rows)]],
        _ => Vec::new(),
    }
}

/// Replays a case: rows, late rows and (if wanted) rows of state of every micro-batch.
fn replay(case: &Value, running: &mut Running, inputs: &[(&str, &SchemaRef)], with_state: bool) {
    for step in case["batches"].as_array().expect("steps") {
        for expected in step["expect"].as_array().expect("micro-batches") {
            let is_without_data = expected["no_data"] == true;
            let ports: Vec<_> = inputs
                .iter()
                .map(|(stream, schema)| match is_without_data {
                    true => Vec::new(),
                    false => added(step, stream, schema),
                })
                .collect();
            let ran = running.run(expected["watermark"].as_str().map(millis), &ports);
            let at = format!("{} micro-batch {}", case["name"], expected["batch_id"]);
            assert_eq!(sorted(&ran.rows), sorted(expected["rows"].as_array().expect("rows")), "{at}");
            assert_eq!(ran.late_rows, expected["dropped_by_watermark"].as_u64().expect("a number"), "{at}");
            assert_eq!(ran.letters.len() as u64, ran.late_rows, "{at}");
            if with_state {
                assert_eq!(ran.state_rows, expected["state_rows"].as_u64().expect("a number"), "{at}");
            }
        }
    }
}
