//! Measures aggregations over event time without any I/O: rows a second of both halves, over state in memory.
//!
//! `cargo run --example aggregate -p pelton-operators [-- WORD]` prints a line for each shape of query (with the word in
//! its name).

#![allow(clippy::print_stdout, reason = "it prints what it measured")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

mod halves;

use arrow::datatypes::SchemaRef;
use halves::Halves;
use pelton_core::{Dataflow, Result};
use pelton_operators::QueryDataflow;
use pelton_plan::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs};
use std::collections::BTreeMap;
use std::sync::Arc;

const BATCHES: usize = 8;

struct Shape {
    name: &'static str,
    sql: &'static str,
    keys: i64,
}

const SHAPES: [Shape; 7] = [
    Shape {
        name: "tumbling 10 s: count, sum, max by 100 keys",
        sql: "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n, sum(v) AS s, max(v) AS m FROM input GROUP BY 1, 2",
        keys: 100,
    },
    Shape {
        name: "tumbling 10 s: count, sum, max by 10 k keys",
        sql: "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n, sum(v) AS s, max(v) AS m FROM input GROUP BY 1, 2",
        keys: 10_000,
    },
    Shape {
        name: "tumbling 10 s: count, sum, max by 50 k keys",
        sql: "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n, sum(v) AS s, max(v) AS m FROM input GROUP BY 1, 2",
        keys: 50_000,
    },
    Shape {
        name: "tumbling 10 s: count, sum, max by 1 M keys",
        sql: "SELECT window(ts, '10 seconds') AS w, k, count(*) AS n, sum(v) AS s, max(v) AS m FROM input GROUP BY 1, 2",
        keys: 1_000_000,
    },
    Shape {
        name: "sliding 60 s / 10 s: count by 100 keys",
        sql: "SELECT window(ts, '60 seconds', '10 seconds') AS w, k, count(*) AS n FROM input GROUP BY 1, 2",
        keys: 100,
    },
    Shape {
        name: "sliding 60 s / 10 s: count by 10 k keys",
        sql: "SELECT window(ts, '60 seconds', '10 seconds') AS w, k, count(*) AS n FROM input GROUP BY 1, 2",
        keys: 10_000,
    },
    Shape {
        name: "session, gap 10 s: count by 10 k keys",
        sql: "SELECT session_window(ts, '10 seconds') AS w, k, count(*) AS n FROM input GROUP BY 1, 2",
        keys: 10_000,
    },
];

fn main() -> Result<()> {
    for shape in halves::chosen(&SHAPES, BATCHES, |shape: &Shape| shape.name) {
        let (flow, columns) = flow(shape.sql, &halves::rows_schema()?)?;
        let measured = Halves { batches: BATCHES, keys: shape.keys, noise_us: 200_000, columns };
        measured.measure(shape.name, &flow)?;
    }
    Ok(())
}

/// The query, and the columns that it reads.
fn flow(sql: &str, schema: &SchemaRef) -> Result<(Arc<dyn Dataflow>, Vec<usize>)> {
    let text = format!(
        "name: q\nsources: {{s: {{connector: rate, watermark: {{column: ts, delay: 3 seconds}}}}}}\n\
         output_mode: append\nsink: {{connector: memory}}\nsteps:\n- sql: \"{sql}\"\n"
    );
    let file = PipelineFile::read(&text, "measured", &[])?;
    let sources = BTreeMap::from([("s".to_owned(), schema.clone())]);
    let inputs = PlanInputs { sources, ..PlanInputs::default() };
    let plan = PhysicalPlan::build(&LogicalPlan::resolve(&file, &inputs)?)?;
    let columns = plan.inputs[0].required_columns.iter().map(|name| schema.index_of(name));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let flow = QueryDataflow::bind(&plan, &[Arc::new(schema.project(&columns)?)])?;
    Ok((flow, columns))
}
