//! The support matrix: which query Spark accepts in which output mode. Accepted and refused must agree; what Spark
//! refuses only when it plans the first micro-batch is refused here before anything starts.

use super::compare::first_line;
use super::{case, run, translate};
use anyhow::{Context, Result, bail, ensure};
use pelton_tests::Pelton;
use serde_json::{Value, json};

/// Combinations in which Pelton means to differ: (query, output mode, why).
const KNOWN: &[(&str, &str, &str)] = &[
    ("window_aggregate_then_group_state_append", "append", PYTHON_ALONE),
    ("group_state_append_then_dedup", "append", PYTHON_FAULT),
    ("group_state_update_then_dedup", "update", PYTHON_FAULT),
];

const PYTHON_ALONE: &str = "only Spark's Python interface refuses it; its Scala interface runs it";
const PYTHON_FAULT: &str =
    "Spark's Python interface fails with a ClassCastException; its Scala interface runs it";

fn name(combination: &Value) -> String {
    let text = |key: &str| combination[key].as_str().unwrap_or_default();
    format!("{} in {} mode", text("query"), text("output_mode"))
}

/// The tables of the matrix have one row each; only their columns matter.
fn script(combination: &Value) -> Result<Value> {
    let mut pipeline = translate::pipeline(combination, combination, "matrix")?;
    pipeline["tables"] =
        json!({"d": {"schema": {"k": "string", "name": "string"}, "rows": [{"k": "a", "name": "A"}]}});
    Ok(json!({"pipeline": pipeline, "steps": ["start"]}))
}

#[test]
fn what_spark_accepts_is_accepted_and_what_it_refuses_is_refused() -> Result<()> {
    let matrix = case::read("matrix.json")?;
    let combinations = matrix["combinations"].as_array().context("no combinations")?;
    let scripts = combinations.iter().map(|combination| Ok((name(combination), script(combination)?)));
    let printed = run::scripts(&scripts.collect::<Result<Vec<_>>>()?)?;
    let mut wrong = Vec::new();
    for combination in combinations {
        let name = name(combination);
        let found = printed.get(&name).and_then(|lines| lines.iter().find(|line| line["batch_id"].is_null()));
        let known = KNOWN
            .iter()
            .any(|(query, mode, _)| combination["query"] == *query && combination["output_mode"] == *mode);
        let refused = combination["result"] == "refused";
        let agrees = match found {
            None => !refused,
            Some(line) => refused && line["error"]["kind"] == "invalid",
        };
        if agrees == known {
            let here = found.map_or("accepted".to_owned(), first_line);
            wrong.push(format!(
                "{name}: Spark {} {}, here {here}",
                combination["result"], combination["error"]["message"]
            ));
        }
    }
    ensure!(
        wrong.is_empty(),
        "{} of {} differ from Spark:\n{}",
        wrong.len(),
        combinations.len(),
        wrong.join("\n")
    );
    Ok(())
}

/// The sinks that both have, as Pelton calls them. Spark's `noop` is our `memory` without a look at it.
fn sink(name: &str) -> Result<Value> {
    Ok(match name {
        "json_files" => json!({"connector": "file", "path": "out", "format": "json"}),
        "parquet_files" => json!({"connector": "file", "path": "out", "format": "parquet"}),
        "memory" | "noop" => json!({"connector": "memory"}),
        "console" => json!({"connector": "console"}),
        other => bail!("the sink {other} is not translated"),
    })
}

#[test]
fn sinks_take_the_output_modes_that_spark_gives_them() -> Result<()> {
    let matrix = case::read("matrix.json")?;
    let combinations = matrix["combinations"].as_array().context("no combinations")?;
    let folder = tempfile::tempdir()?;
    // The sources' files need not be there, their folder must.
    std::fs::create_dir(folder.path().join("none"))?;
    let mut wrong = Vec::new();
    for (at, entry) in matrix["sinks"].as_array().context("no sinks")?.iter().enumerate() {
        let query = combinations.iter().find(|combination| combination["query"] == entry["query"]);
        let select = &combinations[0];
        let mut pipeline = match query {
            Some(query) => translate::pipeline(query, query, "sinks")?,
            None => translate::pipeline(select, &json!({"sql": "SELECT k, v FROM s"}), "sinks")?,
        };
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        pipeline["output_mode"] = entry["output_mode"].clone();
        pipeline["sink"] = sink(text("sink"))?;
        pipeline["checkpoint"] = json!("checkpoint");
        let path = folder.path().join(format!("{at}.json"));
        std::fs::write(&path, pipeline.to_string())?;
        let checked = Pelton::new(["check"])?.arg(&path).current_dir(folder.path()).output()?;
        if (checked.code == Some(0)) != (entry["result"] == "accepted") {
            let said = checked.stderr.lines().next().unwrap_or("accepted").to_owned();
            let [query, sink, mode] = ["query", "sink", "output_mode"].map(text);
            wrong.push(format!("{query} to {sink} in {mode} mode: Spark {}, here {said}", entry["result"]));
        }
    }
    ensure!(wrong.is_empty(), "{} differ from Spark:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
