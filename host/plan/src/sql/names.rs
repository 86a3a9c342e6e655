//! DataFusion's names of expressions as Spark writes them, for people who look at what a query keeps.

use super::mismatch::of_type;
use regex::{Captures, Regex};
use std::sync::LazyLock;

/// A constant with its type, a column with its table (or a plugin's function, which keeps its plugin), the type of a cast.
static PARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let constant = r#"\b(?:U?Int(?:8|16|32|64)|Float(?:32|64)|Boolean|Utf8|Date32)\((?:"(?<text>[^"]*)"|(?<number>[^()"]*))\)"#;
    let column = r"\b[A-Za-z_]\w*\.(?<column>[A-Za-z_]\w*)(?<call>\(?)";
    let of_cast = r"\bAS (?<type>[A-Z][a-z]\w*(?:\([^()]*\))?)";
    Regex::new(&format!("{constant}|{column}|{of_cast}")).ok()
});

/// `count(1)` for `count(Int64(1))`, `sum(amount)` for `sum(input.amount)`.
pub fn expression_name(name: &str) -> String {
    let Some(parts) = PARTS.as_ref() else { return name.to_owned() };
    let spoken = |found: &Captures<'_>| {
        let part = |name: &str| found.name(name).map(|part| part.as_str());
        let whole = found.get(0).map(|whole| whole.as_str()).unwrap_or_default();
        match (part("text"), part("number"), part("column"), part("type")) {
            (Some(text), ..) => format!("'{text}'"),
            (_, Some(number), ..) => number.to_owned(),
            (_, _, Some(column), _) if part("call") == Some("") => column.to_owned(),
            (.., Some(data_type)) => format!("AS {}", of_type(data_type)),
            _ => whole.to_owned(),
        }
    };
    parts.replace_all(name, spoken).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_people_write_them() {
        for (name, wanted) in [
            ("count(Int64(1))", "count(1)"),
            ("sum(input.id + Int64(1))", "sum(id + 1)"),
            ("max(upper(input.name))", "max(upper(name))"),
            ("sum(CAST(input.id AS Int64))", "sum(CAST(id AS long))"),
            (
                "count(CASE WHEN input.name = Utf8(\"a.b\") THEN Int64(1) END)",
                "count(CASE WHEN name = 'a.b' THEN 1 END)",
            ),
            ("max(flights.speed(input.air_time))", "max(flights.speed(air_time))"),
            ("total", "total"),
            ("1.5 AS x", "1.5 AS x"),
        ] {
            assert_eq!(expression_name(name), wanted);
        }
    }
}
