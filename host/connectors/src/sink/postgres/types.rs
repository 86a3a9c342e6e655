//! Spark's types and PostgreSQL's: what a column of a new table gets, and which columns of an old one take it.

use arrow::datatypes::{DataType, TimeUnit};

/// The type of a column in a table that the sink makes.
pub(super) fn column_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "boolean".into(),
        DataType::Int8 | DataType::Int16 => "smallint".into(),
        DataType::Int32 => "integer".into(),
        DataType::Int64 => "bigint".into(),
        DataType::Float32 => "real".into(),
        DataType::Float64 => "double precision".into(),
        DataType::Decimal128(precision, scale) => format!("numeric({precision},{scale})"),
        DataType::Binary => "bytea".into(),
        DataType::Date32 => "date".into(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamp with time zone".into(),
        DataType::Timestamp(..) => "timestamp without time zone".into(),
        nested if nested.is_nested() => "jsonb".into(),
        _ => "text".into(),
    }
}

/// Whether a column of type `column` (as `format_type` writes it; of a domain, what it stands on) holds every value of
/// the Spark type, except where its own checks forbid.
pub(super) fn holds(column: &str, is_enum: bool, data_type: &DataType) -> bool {
    let (name, numbers) = split(column);
    let one_of = |names: &[&str]| names.contains(&name.as_str()) && numbers.is_empty();
    match data_type {
        DataType::Boolean => one_of(&["boolean"]),
        DataType::Int8 | DataType::Int16 => {
            one_of(&["smallint", "integer", "bigint", "real", "double precision"])
                || decimal(&name, &numbers, 5, 0)
        }
        DataType::Int32 => {
            one_of(&["integer", "bigint", "double precision"]) || decimal(&name, &numbers, 10, 0)
        }
        DataType::Int64 => one_of(&["bigint"]) || decimal(&name, &numbers, 19, 0),
        DataType::Float32 => one_of(&["real", "double precision"]),
        DataType::Float64 => one_of(&["double precision"]),
        DataType::Decimal128(precision, scale) => {
            decimal(&name, &numbers, i32::from(*precision), i32::from(*scale))
        }
        DataType::Binary => one_of(&["bytea"]),
        DataType::Date32 => one_of(&["date"]),
        DataType::Timestamp(_, Some(_)) => one_of(&["timestamp with time zone"]),
        DataType::Timestamp(_, None) => one_of(&["timestamp without time zone"]),
        nested if nested.is_nested() => one_of(&["jsonb", "json", "text"]),
        // Text that must have a form: a row that has it not fails its micro-batch.
        _ => {
            is_enum
                || ["text", "character varying", "citext", "uuid", "json", "jsonb"].contains(&name.as_str())
        }
    }
}

/// Whether a numeric column has room for so many digits, `scale` of them behind the point.
fn decimal(name: &str, numbers: &[i32], precision: i32, scale: i32) -> bool {
    name == "numeric"
        && match numbers {
            [] => true,
            [digits] => scale == 0 && *digits >= precision,
            [digits, behind, ..] => *behind >= scale && digits - behind >= precision - scale,
        }
}

/// `timestamp(3) with time zone` is `timestamp with time zone` and `[3]`.
fn split(column: &str) -> (String, Vec<i32>) {
    let Some((before, rest)) = column.split_once('(') else { return (column.to_owned(), Vec::new()) };
    let (inside, after) = rest.split_once(')').unwrap_or((rest, ""));
    let numbers = inside.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    (format!("{before}{after}"), numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::types::parse_type;

    fn check(spark: &str, takes: &[&str], refuses: &[&str]) {
        let data_type = parse_type(spark, "UTC").unwrap();
        assert!(
            holds(&column_type(&data_type), false, &data_type),
            "{spark} and {}",
            column_type(&data_type)
        );
        for column in takes {
            assert!(holds(column, false, &data_type), "{spark} into {column}");
        }
        for column in refuses {
            assert!(!holds(column, false, &data_type), "{spark} into {column}");
        }
    }

    #[test]
    fn every_type_has_a_column_and_fits_into_wider_ones() {
        check("boolean", &[], &["text", "smallint"]);
        check("byte", &["bigint", "numeric"], &["text"]);
        check(
            "int",
            &["bigint", "numeric(10,0)", "numeric(12,2)"],
            &["smallint", "real", "numeric(9,0)", "numeric(11,2)"],
        );
        check("long", &["numeric"], &["integer", "double precision"]);
        check("float", &["double precision"], &["numeric"]);
        check("double", &[], &["real", "numeric"]);
        check(
            "decimal(10,2)",
            &["numeric", "numeric(12,4)"],
            &["numeric(10,3)", "numeric(10,0)", "double precision"],
        );
        check("string", &["character varying(10)", "uuid", "jsonb"], &["integer", "bytea"]);
        check("binary", &[], &["text"]);
        check("date", &[], &["timestamp without time zone"]);
        check("timestamp", &[], &["timestamp without time zone", "timestamp(3) with time zone"]);
        check("timestamp_ntz", &[], &["timestamp with time zone"]);
        check("struct<a: array<long>>", &["json", "text"], &["character varying(10)", "hstore"]);
        check("map<string, int>", &[], &["bytea"]);
    }
}
