//! The support matrix: which query Spark accepts in which output mode. Accepted and refused must agree; what Spark
//! refuses only when it plans the first micro-batch is refused here before anything starts.

use super::compare::first_line;
use super::{case, run, translate};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Operators over arbitrary state: they need stateful plugin functions.
const NOT_YET: [&str; 4] = [
    "\"group_state\"",
    "\"map_groups_with_state\"",
    "\"flat_map_groups_with_state\"",
    "\"transform_with_state\"",
];

/// Combinations in which Pelton means to differ: (query, output mode, why).
const KNOWN: &[(&str, &str, &str)] = &[];

/// It cannot be asked here yet.
pub(super) fn needs_stateful_functions(combination: &Value) -> bool {
    let plan = combination["plan"].to_string();
    NOT_YET.iter().any(|op| plan.contains(op))
}

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
    let combinations: Vec<&Value> =
        combinations.iter().filter(|combination| !needs_stateful_functions(combination)).collect();
    let scripts = combinations.iter().map(|combination| Ok((name(combination), script(combination)?)));
    let printed = run::scripts(&scripts.collect::<Result<Vec<_>>>()?)?;
    let mut wrong = Vec::new();
    for combination in &combinations {
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
