//! The stateless cases that real Spark answered.

use super::{batch, info, plan};
use crate::QueryDataflow;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use pelton_core::types::parse_type;
use pelton_plan::json::{Nulls, value_json};
use serde_json::{Map, Value, json};
use std::sync::Arc;

fn schema_of(case: &Value) -> SchemaRef {
    let columns = case["input"]["streams"]["s"]["schema"].as_array().expect("a schema");
    let field = |column: &Value| {
        let data_type = parse_type(column["type"].as_str().expect("a type"), "UTC").expect("a type");
        arrow::datatypes::Field::new(column["name"].as_str().expect("a name"), data_type, true)
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// The oracle writes some values another way than `to_json`.
fn oracle_value(values: &dyn Array, row: usize) -> Value {
    if values.is_null(row) {
        return Value::Null;
    }
    match values.data_type() {
        DataType::Decimal128(..) => {
            json!(values.as_primitive::<arrow::datatypes::Decimal128Type>().value_as_string(row))
        }
        DataType::Float32 => {
            let doubles = arrow::compute::cast(&values.slice(row, 1), &DataType::Float64).expect("a double");
            value_json(&doubles, 0, Nulls::Written).expect("JSON")
        }
        DataType::List(_) => {
            let items = values.as_list::<i32>().value(row);
            (0..items.len()).map(|at| oracle_value(&items, at)).collect()
        }
        DataType::Struct(fields) => {
            let columns = values.as_struct().columns().iter();
            let members = fields.iter().zip(columns).map(|(f, c)| (f.name().clone(), oracle_value(c, row)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        _ => value_json(values, row, Nulls::Written).expect("JSON"),
    }
}

pub(super) fn row(rows: &RecordBatch, at: usize) -> Value {
    let columns = rows
        .schema()
        .fields()
        .iter()
        .zip(rows.columns())
        .map(|(f, c)| (f.name().clone(), oracle_value(c, at)))
        .collect::<Map<_, _>>();
    Value::Object(columns)
}

/// JSON cannot write these; the oracle has them as text, and the test's reader wants numbers.
pub(super) fn input_row(row: &Value, schema: &Schema) -> Value {
    let mut row = row.clone();
    for field in schema.fields().iter().filter(|f| f.data_type().is_floating()) {
        if let Some(text) = row.get(field.name()).and_then(Value::as_str).map(str::to_owned) {
            row[field.name()] = Value::String(text.replace("Infinity", "inf"));
        }
        let _ = field;
    }
    // Spark's reader rounds to the scale half up; the test's reader cuts.
    if let Some(decimal) = row.get("dec").filter(|d| !d.is_null()).map(ToString::to_string) {
        let texts: arrow::array::ArrayRef = Arc::new(arrow::array::StringArray::from(vec![decimal]));
        let rounded = arrow::compute::cast(&texts, &DataType::Decimal128(10, 2)).expect("a decimal");
        row["dec"] = oracle_value(&rounded, 0);
    }
    if let Some(base64) = row.get("bin").and_then(Value::as_str) {
        let hex = match base64 {
            "aGk=" => "6869",
            "" => "",
            other => panic!("this test decodes no base64: {other}"),
        };
        row["bin"] = json!(hex);
    }
    row
}

fn steps(case: &Value) -> String {
    let sql = case["query"]["sql"].as_str().expect("a query").replace("FROM s", "FROM input");
    format!("- sql: |\n    {sql}\n")
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

fn replay(text: &str) {
    let case: Value = serde_json::from_str(text).expect("a case");
    let schema = schema_of(&case);
    let plan = plan(&steps(&case), &schema).unwrap_or_else(|e| panic!("{}: {e}", case["name"]));
    let segment = QueryDataflow::bind(&plan, std::slice::from_ref(&schema)).expect("a segment");
    let sorted_keys = |row: &Value| {
        let object = row.as_object().expect("an object");
        let mut keys: Vec<_> = object.iter().collect();
        keys.sort_by_key(|(key, _)| (*key).clone());
        format!("{keys:?}")
    };
    for (id, step) in case["batches"].as_array().expect("steps").iter().enumerate() {
        let rows: Vec<Value> =
            step["add"]["s"].as_array().expect("rows").iter().map(|row| input_row(row, &schema)).collect();
        let out = segment.part(&info(id as u64), 0, 0, vec![batch(&schema, &rows)]).expect("runs");
        let got = out
            .rows
            .iter()
            .flat_map(|rows| (0..rows.num_rows()).map(|at| sorted_keys(&row(rows, at))))
            .collect();
        let wanted = step["expect"][0]["rows"].as_array().expect("rows").iter().map(sorted_keys).collect();
        assert_eq!(sorted(got), sorted(wanted), "{} batch {id}", case["name"]);
    }
}

#[test]
fn explode_split() {
    replay(include_str!("../../../../tests/oracle/01_stateless/explode_split_flatmap.json"));
}

#[test]
fn from_json_permissive() {
    replay(include_str!("../../../../tests/oracle/01_stateless/from_json_malformed_permissive.json"));
}

#[test]
fn from_json_corrupt_record() {
    replay(include_str!("../../../../tests/oracle/01_stateless/from_json_corrupt_record.json"));
}

#[test]
fn try_functions() {
    replay(include_str!("../../../../tests/oracle/01_stateless/try_functions.json"));
}

#[test]
fn nested_types() {
    replay(include_str!("../../../../tests/oracle/01_stateless/nested_types_passthrough.json"));
}

#[test]
fn a_sorted_stream_is_refused_with_sparks_rule() {
    let case: Value =
        serde_json::from_str(include_str!("../../../../tests/oracle/01_stateless/sort_append_refused.json"))
            .expect("a case");
    assert!(case["error"]["message"].as_str().is_some_and(|m| m.starts_with("Sorting is not supported")));
    let error = plan(&steps(&case), &schema_of(&case)).err().expect("refused");
    assert!(error.message().contains("a stream cannot be sorted"), "{error}");
}
