//! Queries that were changed while they were down: what Spark's checkpoint lets through, and what comes of it.

use super::all_answer_as_spark;
use super::case::{self, Case};
use super::translate::{self, Disturbance};
use anyhow::{Context, Result};
use serde_json::{Value, json};

/// An entry of the matrix as a case: its restart brings the changed pipeline.
fn case(entry: &Value) -> Result<Case> {
    let name = entry["name"].as_str().context("an entry without a name")?;
    let after = &entry["streams_after"];
    let streams = if after.is_object() { after } else { &entry["streams"] };
    let changed = json!({"streams": streams, "conf": entry["set_conf_at_restart"]});
    let pipeline = translate::pipeline(&changed, &entry["after"], name)?;
    let steps = entry["steps"].as_array().context("no steps")?.iter().map(|step| {
        let mut step = step.clone();
        if step["restart"] == true {
            step["pipeline"] = pipeline.clone();
        }
        step
    });
    let mut query = entry["before"].clone();
    query["after"] = entry["after"].clone();
    let value = json!({
        "name": name,
        "conf": {},
        "input": {"streams": entry["streams"]},
        "query": query,
        "batches": steps.collect::<Vec<_>>(),
        "error": entry["error"],
    });
    Ok(Case { id: format!("restart/{name}"), value })
}

#[test]
fn a_changed_query_goes_on_as_in_spark_or_is_refused_as_there() -> Result<()> {
    let matrix = case::read("restart_matrix.json")?;
    let entries = matrix["entries"].as_array().context("no entries")?.iter();
    let entries = entries.filter(|entry| !case::is_for_later(&entry["before"]));
    all_answer_as_spark(&entries.map(case).collect::<Result<Vec<_>>>()?, Disturbance::None)
}
