//! Compares what came back with what a case expects. The errors are written for the person who wrote the case.

use super::answer::{Answer, Returned, rows_of};
use super::cases::{Expect, ExpectedError, ExpectedLog, ExpectedRejection, Failure, Row};
use super::stateful::Kept;
use crate::json;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pelton_core::Rejected;
use pelton_core::types::{parse_columns, type_name};
use pelton_core::words::counted;
use serde_json::Value;
use std::fmt::Debug;

/// Everything that the case speaks of must be so.
pub(super) fn check(expect: &Expect, answer: &Answer) -> Result<(), String> {
    match (&expect.rows, &expect.column, &expect.error) {
        (Some(rows), None, None) => {
            let found = returned(answer)?;
            same_rows(rows, expect, found)?;
            same_kept(expect, found.kept.as_ref())?;
        }
        (None, Some(column), None) => same_column(column, expect, returned(answer)?)?,
        (None, None, Some(error)) => same_error(error, &answer.result)?,
        _ => return Err("a case expects exactly one of 'rows', 'column' and 'error'".to_owned()),
    }
    if let Some(counters) = &expect.counters {
        same("counters", counters, &answer.counters)?;
    }
    expect.logs.as_ref().map_or(Ok(()), |logs| same_logs(logs, &answer.logs))
}

fn returned(answer: &Answer) -> Result<&Returned, String> {
    answer.result.as_ref().map_err(|(_, message)| format!("it failed: {message}"))
}

fn same_rows(expected: &[Row], expect: &Expect, found: &Returned) -> Result<(), String> {
    same_schema(expect, &found.rows.schema())?;
    same_rejections(&expect.rejected, &found.rejected)?;
    let expected = lines(&rows_of(expected, &found.rows.schema())?)?;
    same_lines(&expected, &lines(&found.rows)?)
}

/// What a stateful function is, and what its groups have after the call.
fn same_kept(expect: &Expect, found: Option<&Kept>) -> Result<(), String> {
    let Some(found) = found else {
        return match (&expect.groups, &expect.signature) {
            (None, None) => Ok(()),
            _ => Err("only a stateful function has 'groups' and a 'signature'".to_owned()),
        };
    };
    if let Some(signature) = &expect.signature {
        same("signature", signature, &found.signature)?;
    }
    let (expected, groups) = match (&expect.groups, &found.groups) {
        (Some(expected), Some(groups)) => (expected, groups),
        (None, None) => return Ok(()),
        (None, Some(_)) => {
            return Err("of a stateful function a case expects 'groups', too: what they have after the call"
                .to_owned());
        }
        (Some(_), None) => return Err("after a migration there are no 'groups' to be compared".to_owned()),
    };
    same("number of groups", &expected.len(), &groups.len())?;
    for (at, (expected, found_group)) in expected.iter().zip(groups).enumerate() {
        let expected = found.expected(expected)?;
        same(&format!("state of group {at}"), &expected.state, &found_group.state)?;
        same(&format!("timeout of group {at}, in microseconds"), &expected.timeout, &found_group.timeout)?;
        same(&format!("timers of group {at}, in microseconds"), &expected.timers, &found_group.timers)?;
    }
    Ok(())
}

/// At a refused row any value will do.
fn same_column(expected: &[Value], expect: &Expect, found: &Returned) -> Result<(), String> {
    let schema = found.rows.schema();
    same_schema(expect, &schema)?;
    same_rejections(&expect.rejected, &found.rejected)?;
    let name = schema.field(0).name();
    let rows: Vec<Row> =
        expected.iter().map(|value| Row::from_iter([(name.clone(), value.clone())])).collect();
    let (mut expected, mut values) = (lines(&rows_of(&rows, &schema)?)?, lines(&found.rows)?);
    for refused in &found.rejected {
        for side in [&mut expected, &mut values] {
            if let Some(line) = side.get_mut(refused.row as usize) {
                "refused".clone_into(line);
            }
        }
    }
    same_lines(&expected, &values)
}

/// Rows as JSON: equal values have equal texts.
pub(super) fn lines(rows: &RecordBatch) -> Result<Vec<String>, String> {
    let text = json::lines_with_nulls(rows).map_err(|why| why.to_string())?;
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}

fn same_lines(expected: &[String], found: &[String]) -> Result<(), String> {
    let at = expected.iter().zip(found).position(|(expected, found)| expected != found);
    match at {
        Some(at) => Err(format!("row {at} is {}\n expected {}", found[at], expected[at])),
        None if expected.len() != found.len() => {
            let all = found.join("\n  ");
            Err(format!("{} instead of {}:\n  {all}", counted(found.len() as u64, "row"), expected.len()))
        }
        None => Ok(()),
    }
}

/// Names, order and types; nullability may differ.
fn same_schema(expect: &Expect, found: &SchemaRef) -> Result<(), String> {
    let Some(ddl) = &expect.schema else { return Ok(()) };
    let expected = parse_columns(ddl, "UTC").map_err(|why| format!("expect.schema: {why}"))?;
    let shown = |fields: &arrow::datatypes::Fields| -> Vec<String> {
        fields.iter().map(|field| format!("{}: {}", field.name(), type_name(field.data_type()))).collect()
    };
    same("schema", &shown(&expected), &shown(found.fields()))
}

fn same_rejections(expected: &[ExpectedRejection], found: &[Rejected]) -> Result<(), String> {
    let alike = |expected: &ExpectedRejection, found: &Rejected| {
        expected.row == found.row && expected.reason.as_ref().is_none_or(|reason| *reason == found.reason)
    };
    if expected.len() == found.len() && expected.iter().zip(found).all(|(e, f)| alike(e, f)) {
        return Ok(());
    }
    let shown = |row: u32, reason: &str| format!("row {row}: {reason}");
    let found: Vec<String> = found.iter().map(|f| shown(f.row, &f.reason)).collect();
    let expected: Vec<String> =
        expected.iter().map(|e| shown(e.row, e.reason.as_deref().unwrap_or("any reason"))).collect();
    Err(differ("refused rows", &expected, &found))
}

fn same_error(expected: &ExpectedError, found: &Result<Returned, (Failure, String)>) -> Result<(), String> {
    match found {
        Ok(_) => Err(format!("it did not fail; expected {:?}", expected.kind)),
        Err((kind, message)) if *kind != expected.kind => {
            Err(format!("it failed as {kind:?} instead of {:?}: {message}", expected.kind))
        }
        Err((_, message)) => match &expected.message {
            Some(words) if !message.contains(words.as_str()) => {
                Err(format!("its message lacks '{words}': {message}"))
            }
            _ => Ok(()),
        },
    }
}

fn same_logs(expected: &[ExpectedLog], found: &[super::capture::Line]) -> Result<(), String> {
    let alike = |expected: &ExpectedLog, (level, text): &super::capture::Line| {
        expected.level == *level && expected.message.as_ref().is_none_or(|message| message == text)
    };
    if expected.len() == found.len() && expected.iter().zip(found).all(|(e, f)| alike(e, f)) {
        return Ok(());
    }
    let expected: Vec<_> = expected.iter().map(|log| (&log.level, log.message.as_deref())).collect();
    Err(differ("logs", &expected, &found))
}

fn same<T: PartialEq + Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(differ(what, expected, found)) }
}

fn differ(what: &str, expected: &dyn Debug, found: &dyn Debug) -> String {
    format!("{what}: {found:?}\n expected {expected:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(row: u32, reason: &str) -> Rejected {
        Rejected { row, reason: reason.to_owned() }
    }

    #[test]
    fn refused_rows_are_compared_by_row_and_by_reason_if_one_is_given() {
        let any = |row| ExpectedRejection { row, reason: None };
        assert!(same_rejections(&[any(1)], &[rejected(1, "x")]).is_ok());
        assert!(same_rejections(&[any(2)], &[rejected(1, "x")]).is_err());
        assert!(same_rejections(&[], &[rejected(1, "x")]).is_err());
        let exact = ExpectedRejection { row: 1, reason: Some("y".to_owned()) };
        assert!(same_rejections(&[exact], &[rejected(1, "x")]).is_err());
    }

    #[test]
    fn lines_that_differ_are_shown() {
        let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert!(same_lines(&lines(&["a"]), &lines(&["a"])).is_ok());
        assert!(
            same_lines(&lines(&["a", "b"]), &lines(&["a", "c"])).is_err_and(|e| e.contains("row 1 is c"))
        );
        assert!(same_lines(&lines(&["a"]), &lines(&[])).is_err_and(|e| e.contains("0 rows instead of 1")));
    }
}
