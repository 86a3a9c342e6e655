//! An expected row in the form in which rows are shown (see `values`), whatever way it is written in: a time with any
//! offset or none, a decimal as a number, a map as an object, a missing column for null. Used by `compare`.

use super::values;
use arrow::array::timezone::Tz;
use arrow::compute::kernels::cast_utils::{Parser, string_to_datetime};
use arrow::datatypes::{DataType, Date32Type, FieldRef, Fields};
use pelton_core::suggest::did_you_mean;
use pelton_core::types::type_name;
use serde_json::{Map, Value};

/// A row of these columns. The error says what cannot be a value of its column.
pub(super) fn row(row: &Map<String, Value>, columns: &Fields, zone: &str) -> Result<Value, String> {
    let zone: Tz = zone.parse().map_err(|_| format!("there is no time zone '{zone}'"))?;
    object(row, columns, zone)
}

fn object(row: &Map<String, Value>, columns: &Fields, zone: Tz) -> Result<Value, String> {
    let known = |name: &str| columns.iter().any(|column| column.name() == name);
    if let Some(unknown) = row.keys().find(|name| !known(name)) {
        let near = did_you_mean(unknown, columns.iter().map(|column| column.name().as_str()));
        return Err(format!("there is no column '{unknown}'{near}"));
    }
    let pair = |column: &FieldRef| {
        let value = row.get(column.name()).unwrap_or(&Value::Null);
        let value = normal(value, column.data_type(), zone)
            .map_err(|why| format!("column '{}': {why}", column.name()))?;
        Ok((column.name().clone(), value))
    };
    Ok(Value::Object(columns.iter().map(pair).collect::<Result<_, String>>()?))
}

fn normal(value: &Value, data_type: &DataType, zone: Tz) -> Result<Value, String> {
    let wrong = || format!("{value} is no {}", type_name(data_type));
    Ok(match (data_type, value) {
        (_, Value::Null) => Value::Null,
        (DataType::Float64, Value::Number(number)) => values::float(number.as_f64().ok_or_else(wrong)?),
        (DataType::Float32, Value::Number(number)) => {
            values::float32(number.as_f64().ok_or_else(wrong)? as f32)
        }
        (DataType::Decimal128(_, scale), Value::Number(_)) => {
            decimal(&value.to_string(), *scale).ok_or_else(wrong)?
        }
        (DataType::Decimal128(_, scale), Value::String(text)) => decimal(text, *scale).ok_or_else(wrong)?,
        (DataType::Timestamp(_, own), Value::String(text)) => {
            let zone = match own {
                Some(_) => zone,
                None => "UTC".parse().map_err(|_| wrong())?,
            };
            let time = string_to_datetime(&zone, text).map_err(|_| wrong())?;
            values::timestamp(time.timestamp_micros(), own.is_some()).into()
        }
        (DataType::Date32, Value::String(text)) => {
            values::date(Date32Type::parse(text).ok_or_else(wrong)?).into()
        }
        (DataType::List(item), Value::Array(items)) => Value::Array(
            items.iter().map(|each| normal(each, item.data_type(), zone)).collect::<Result<_, _>>()?,
        ),
        (DataType::Struct(fields), Value::Object(row)) => object(row, fields, zone)?,
        (DataType::Map(entries, _), _) => map(value, entries, zone)?.ok_or_else(wrong)?,
        (DataType::Boolean, Value::Bool(_))
        | (DataType::Utf8 | DataType::Binary | DataType::Float32 | DataType::Float64, Value::String(_)) => {
            value.clone()
        }
        (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64, Value::Number(number))
            if number.is_i64() =>
        {
            value.clone()
        }
        _ => return Err(wrong()),
    })
}

/// `{"map": [[key, value], …]}`, or an object if the keys are text.
fn map(value: &Value, entries: &FieldRef, zone: Tz) -> Result<Option<Value>, String> {
    let DataType::Struct(types) = entries.data_type() else { return Ok(None) };
    let Some(object) = value.as_object() else { return Ok(None) };
    let pairs: Vec<(Value, Value)> = match (object.get("map").and_then(Value::as_array), object.len()) {
        (Some(pairs), 1) => {
            let pair = |pair: &Value| Some((pair.get(0)?.clone(), pair.get(1)?.clone()));
            match pairs.iter().map(pair).collect() {
                Some(pairs) => pairs,
                None => return Ok(None),
            }
        }
        _ => object.iter().map(|(key, value)| (Value::from(key.as_str()), value.clone())).collect(),
    };
    let normal = pairs.iter().map(|(key, value)| {
        Ok(vec![normal(key, types[0].data_type(), zone)?, normal(value, types[1].data_type(), zone)?])
    });
    let mut pairs = normal.collect::<Result<Vec<_>, String>>()?;
    pairs.sort_by_cached_key(|pair| pair[0].to_string());
    Ok(Some(Value::Object(Map::from_iter([("map".to_owned(), Value::from(pairs))]))))
}

/// With exactly `scale` digits behind the point.
fn decimal(text: &str, scale: i8) -> Option<Value> {
    let scale = usize::try_from(scale).ok()?;
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = if fraction.len() > scale { fraction.trim_end_matches('0') } else { fraction };
    let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(fraction) || fraction.len() > scale {
        return None;
    }
    let point = if scale == 0 { "" } else { "." };
    Some(format!("{sign}{whole}{point}{fraction:0<scale$}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::types::parse_columns;

    fn normal_row(columns: &str, json: &str) -> Result<String, String> {
        let columns = parse_columns(columns, "Europe/Berlin").expect("columns");
        let Ok(Value::Object(values)) = serde_json::from_str(json) else { panic!("an object: {json}") };
        row(&values, &columns, "Europe/Berlin").map(|row| row.to_string())
    }

    #[test]
    fn what_is_meant_counts_and_not_how_it_is_written() {
        let columns =
            "t timestamp, d decimal(10,2), x double, m map<string, int>, s struct<a: long>, n string";
        let written = r#"{"t":"2026-01-01T01:00:00","d":1.5,"x":1,"m":{"b":1,"a":2},"s":{}}"#;
        let shown = r#"{"t":"2026-01-01T00:00:00.000Z","d":"1.50","x":1.0,"m":{"map":[["a",2],["b",1]]},"s":{"a":null},"n":null}"#;
        assert_eq!(normal_row(columns, written).as_deref(), Ok(shown));
        assert_eq!(normal_row(columns, shown).as_deref(), Ok(shown));
    }

    #[test]
    fn what_cannot_be_a_value_is_told() {
        assert_eq!(
            normal_row("carrier string", r#"{"carier":"AA"}"#).unwrap_err(),
            "there is no column 'carier'; did you mean 'carrier'?"
        );
        assert_eq!(normal_row("n long", r#"{"n":"1"}"#).unwrap_err(), "column 'n': \"1\" is no long");
        assert_eq!(
            normal_row("d decimal(4,1)", r#"{"d":"1.25"}"#).unwrap_err(),
            "column 'd': \"1.25\" is no decimal(4,1)"
        );
    }
}
