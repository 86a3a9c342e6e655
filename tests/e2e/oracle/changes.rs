//! Queries that were changed while they were down: what Spark's checkpoint lets through, and what comes of it.

use super::case::{self, Case};
use super::translate::{self, Disturbance};
use super::{all_answer_as_spark, compare, run};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// A change that Spark lets through because types are all that it compares. Here it is refused.
struct Refused {
    /// The entry of the matrix.
    name: &'static str,
    /// What the refusal says was changed.
    says: &'static str,
    /// Who can go on all the same if the pipeline file says that it is meant, as it then does with Spark's rows; or why
    /// nobody can.
    operator: Result<&'static str, &'static str>,
}

const REFUSED: &[Refused] = &[
    Refused {
        name: "key_expression_same_name_and_type",
        says: "key 1 was s.k and is upper(s.k)",
        operator: Ok("sql.aggregate"),
    },
    Refused {
        name: "aggregate_sum_to_max_same_type",
        says: "aggregate 1 was sum(s.v) and is max(s.v)",
        operator: Ok("sql.aggregate"),
    },
    Refused {
        name: "aggregate_sum_to_count",
        says: "aggregate 1 was sum(s.v) and is count(s.v)",
        operator: Ok("sql.aggregate"),
    },
    Refused {
        name: "aggregate_sum_other_column",
        says: "aggregate 1 was sum(s.v) and is sum(s.n)",
        operator: Ok("sql.aggregate"),
    },
    Refused {
        name: "watermark_other_column",
        says: "key 2 was a window of s.ts over 10 minutes and is a window of s.ts2 over 10 minutes",
        operator: Ok("sql.aggregate"),
    },
    Refused {
        name: "window_size_changed",
        says: "key 2 was a window of s.ts over 10 minutes and is a window of s.ts over 5 minutes",
        operator: Ok("sql.aggregate"),
    },
    Refused {
        name: "window_tumbling_to_sliding",
        says: "key 2 was a window of s.ts over 10 minutes and is a window of s.ts over 10 minutes every 5 minutes",
        operator: Ok("sql.aggregate"),
    },
    Refused {
        name: "dedup_other_column_same_type",
        says: "key 1 was s.k and is s.k2",
        operator: Ok("dedup"),
    },
    Refused {
        name: "state_schema_check_off_sum_to_double",
        says: "its value 1 was `sum(s.v): long` and would now be `sum(s.d): double`",
        operator: Err("Spark then reads the bits of a bigint as a double"),
    },
];

/// An entry of the matrix as a case: its restart brings the changed pipeline. `accepted`: the operator whose changed
/// state that pipeline accepts.
fn case(entry: &Value, accepted: Option<&str>) -> Result<Case> {
    let name = entry["name"].as_str().context("an entry without a name")?;
    let after = &entry["streams_after"];
    let streams = if after.is_object() { after } else { &entry["streams"] };
    let changed = json!({"streams": streams, "conf": entry["set_conf_at_restart"]});
    let mut pipeline = translate::pipeline(&changed, &entry["after"], name)?;
    if let Some(operator) = accepted {
        pipeline["accept_changed_state"] = json!([operator]);
    }
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

/// The same case, with an end at the restart that is refused.
fn ends_at_its_restart(mut case: Case) -> Result<Case> {
    let mut steps = case.value["batches"].as_array().context("no steps")?.clone();
    let at = steps.iter().position(|step| step["restart"] == true).context("no restart")?;
    steps.truncate(at + 1);
    steps[at]["expect"] = json!([]);
    case.value["batches"] = Value::from(steps);
    case.value["error"] = json!({"message": "(here, not there)"});
    Ok(case)
}

fn entries() -> Result<Vec<Value>> {
    let matrix = case::read("restart_matrix.json")?;
    matrix["entries"].as_array().context("no entries").cloned()
}

/// The entry that a row of [`REFUSED`] is about. Spark must take it.
fn entry(refused: &Refused) -> Result<Value> {
    let entry = entries()?.into_iter().find(|entry| entry["name"] == refused.name);
    let entry = entry.with_context(|| format!("no entry {}", refused.name))?;
    ensure!(entry["result"] == "accepted", "{} is refused by Spark, too", refused.name);
    Ok(entry)
}

#[test]
fn a_changed_query_goes_on_as_in_spark_or_is_refused_as_there() -> Result<()> {
    let meant = |entry: &Value| REFUSED.iter().any(|refused| entry["name"] == refused.name);
    let cases = entries()?.into_iter().filter(|entry| !meant(entry)).map(|entry| case(&entry, None));
    all_answer_as_spark(&cases.collect::<Result<Vec<_>>>()?, Disturbance::None)
}

#[test]
fn a_change_that_makes_nonsense_of_the_state_is_refused() -> Result<()> {
    let mut cases = Vec::new();
    for refused in REFUSED {
        cases.push((refused, ends_at_its_restart(case(&entry(refused)?, None)?)?));
        if refused.operator.is_err() {
            let willing = case(&entry(refused)?, Some("sql.aggregate"))?;
            let id = format!("{} (accepted)", willing.id);
            cases.push((refused, ends_at_its_restart(Case { id, ..willing })?));
        }
    }
    let scripts =
        cases.iter().map(|(_, case)| Ok((case.id.clone(), translate::script(case, Disturbance::None)?)));
    let printed = run::scripts(&scripts.collect::<Result<Vec<_>>>()?)?;
    for (refused, case) in &cases {
        let found = printed.get(&case.id).context("a script that did not run")?;
        let differences = compare::differences(case, found);
        ensure!(differences.is_empty(), "{}: {}", case.id, differences.join("\n"));
        let said = found.iter().find(|line| line["error"]["kind"] == "invalid").context("no refusal")?;
        let message = said["error"]["message"].as_str().unwrap_or_default();
        ensure!(message.contains(refused.says), "{} is refused with other words: {message}", case.id);
    }
    Ok(())
}

#[test]
fn and_gives_what_spark_gives_if_the_file_says_that_it_is_meant() -> Result<()> {
    let cases = REFUSED.iter().filter_map(|refused| {
        let operator = refused.operator.ok()?;
        Some(entry(refused).and_then(|entry| case(&entry, Some(operator))))
    });
    all_answer_as_spark(&cases.collect::<Result<Vec<_>>>()?, Disturbance::None)
}
