//! Compares the micro-batches that ran with those of Spark: `batch_id`, `no_data`, `watermark` and `rows` always, the
//! numbers of late rows and of rows of state where they mean the same here as there.

use super::case::Case;
use serde_json::Value;

/// How far Spark's statistics may be from ours: it adds in another order.
const STATISTICS_TOLERANCE: f64 = 1e-12;

/// What differs, a sentence each.
pub(super) fn differences(case: &Case, printed: &[Value]) -> Vec<String> {
    let mut expected: Vec<&Value> =
        case.steps().flat_map(|step| step["expect"].as_array().into_iter().flatten()).collect();
    let mut found: Vec<&Value> = printed.iter().filter(|line| line["batch_id"].is_u64()).collect();
    // One that ran again did the same again: that it did not would be seen, for then both are here.
    found.dedup_by(|again, first| again == first);
    expected.dedup_by(|again, first| again["batch_id"] == first["batch_id"]);
    let how = How::of(case);
    let mut differences = failure_differs(case, printed);
    let is_refused = found.is_empty() && printed.iter().any(|line| line["error"]["kind"] == "invalid");
    if is_refused && case.is_refused_from_the_start() {
        // What Spark finds when it plans the first micro-batch is refused here before the query starts.
        return differences;
    }
    for at in 0..expected.len().max(found.len()) {
        match (expected.get(at), found.get(at)) {
            (Some(expected), Some(found)) => {
                let id = &expected["batch_id"];
                differences
                    .extend(how.batch(expected, found).into_iter().map(|why| format!("batch {id}: {why}")));
            }
            (Some(expected), None) => {
                let why = printed.iter().rfind(|line| line["batch_id"].is_null()).map(first_line);
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                differences.push(format!("batch {} did not run{why}", expected["batch_id"]));
            }
            (None, Some(found)) => differences.push(format!("Spark runs no batch {}", found["batch_id"])),
            (None, None) => {}
        }
    }
    differences
}

/// A case that ends in an error must do so here, in the same phase or an earlier one.
fn failure_differs(case: &Case, printed: &[Value]) -> Vec<String> {
    let meant = |line: &&Value| !first_line(line).contains("the script makes the sink fail");
    let failure = printed.iter().filter(|line| line["batch_id"].is_null()).find(meant);
    match (case.value["error"].is_object(), failure) {
        (false, Some(line)) => vec![format!("it fails: {}", first_line(line))],
        (true, None) => vec![format!("Spark refuses it: {}", case.value["error"]["message"])],
        (true, Some(line)) if line["error"]["kind"] == "internal" => {
            vec![format!("it fails by a fault: {line}")]
        }
        _ => Vec::new(),
    }
}

/// An error's message without the line of the script that it shows.
pub(super) fn first_line(line: &Value) -> String {
    let message = line["error"]["message"].as_str().map_or_else(|| line.to_string(), str::to_owned);
    message.lines().next().unwrap_or_default().to_owned()
}

/// What counts in a case.
struct How {
    tolerance: f64,
    /// Columns of type `float` are there: their shortest text is another double than Spark's.
    has_floats: bool,
    ordered: bool,
    /// One row of state a group, key or session, as in Spark.
    state_rows: bool,
    /// Late rows are counted as here.
    late_rows: LateRows,
}

#[derive(PartialEq)]
enum LateRows {
    Exactly,
    /// Spark counts groups after it has combined rows; only whether there are any can be compared.
    Whether,
}

impl How {
    fn of(case: &Case) -> Self {
        let query = case.query_text();
        let statistics = ["stddev", "var_", "variance"].iter().any(|word| query.contains(word));
        let aggregates = case.has("aggregate") || query.contains("GROUP BY");
        Self {
            tolerance: if statistics { STATISTICS_TOLERANCE } else { 0.0 },
            has_floats: case.value["query"]["output_schema"].to_string().contains("float"),
            ordered: case.value["query"]["ordered"] == true,
            // Spark runs a sorted query's state twice and adds up what it counts.
            state_rows: !case.has("join") && !case.has("sort") && !query.contains(" JOIN "),
            late_rows: if aggregates { LateRows::Whether } else { LateRows::Exactly },
        }
    }

    fn batch(&self, expected: &Value, found: &Value) -> Vec<String> {
        let mut differences = Vec::new();
        let mut same = |what: &str, expected: &Value, found: &Value| {
            if expected != found {
                differences.push(format!("{what}: Spark {expected}, here {found}"));
            }
        };
        for what in ["batch_id", "no_data", "watermark"] {
            same(what, &expected[what], &found[what]);
        }
        if self.state_rows {
            same("state rows", &expected["state_rows"], &found["state_rows"]);
        }
        let late = |rows: &Value| match self.late_rows {
            LateRows::Exactly => rows.clone(),
            LateRows::Whether => Value::from(rows.as_u64() != Some(0)),
        };
        same("late rows", &late(&expected["dropped_by_watermark"]), &late(&found["late_rows"]));
        differences.extend(self.rows(&expected["rows"], &found["rows"]));
        differences
    }

    fn rows(&self, expected: &Value, found: &Value) -> Option<String> {
        let rows = |rows: &Value| rows.as_array().cloned().unwrap_or_default();
        let (expected, mut found) = (rows(expected), rows(found));
        if self.ordered {
            let same =
                expected.len() == found.len() && expected.iter().zip(&found).all(|(e, f)| self.same(e, f));
            return (!same).then(|| {
                format!("rows in order: Spark {}, here {}", Value::from(expected), Value::from(found))
            });
        }
        let mut missing = Vec::new();
        for row in expected {
            match found.iter().position(|candidate| self.same(&row, candidate)) {
                Some(at) => drop(found.swap_remove(at)),
                None => missing.push(row),
            }
        }
        let all_there = missing.is_empty() && found.is_empty();
        (!all_there)
            .then(|| format!("rows: only Spark {}, only here {}", Value::from(missing), Value::from(found)))
    }

    fn same(&self, expected: &Value, found: &Value) -> bool {
        match (expected, found) {
            (Value::Object(e), Value::Object(f)) => {
                e.len() == f.len() && e.iter().all(|(key, e)| f.get(key).is_some_and(|f| self.same(e, f)))
            }
            (Value::Array(e), Value::Array(f)) => {
                e.len() == f.len() && e.iter().zip(f).all(|(e, f)| self.same(e, f))
            }
            (Value::Number(e), Value::Number(f)) if e.is_f64() || f.is_f64() => {
                let (e, f) = (e.as_f64().unwrap_or(f64::NAN), f.as_f64().unwrap_or(f64::NAN));
                let near = (e - f).abs() <= self.tolerance * e.abs();
                e == f || (self.tolerance > 0.0 && near) || (self.has_floats && e as f32 == f as f32)
            }
            _ => expected == found,
        }
    }
}
