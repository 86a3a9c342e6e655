//! Text functions where Spark's meaning differs from DataFusion's: regular expressions, splitting, positions.

use super::function::{Function, Remembered, Returns, array, at, failed, text, texts};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int32Array, ListBuilder, StringArray, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ScalarFunctionArgs, ScalarUDF};
use pelton_core::types::list_of;
use regex::Regex;
use std::sync::Arc;

pub(super) fn all(zone: &Arc<str>) -> Vec<Arc<ScalarUDF>> {
    let utf8: Returns = |_, _, _| Ok(DataType::Utf8);
    let list: Returns = |_, _, _| Ok(list_of(DataType::Utf8));
    vec![
        Function::new("split", zone, |f, t| then_int(f, t, 2..=3), list, split).udf(),
        Function::new("regexp_extract", zone, |f, t| then_int(f, t, 2..=3), utf8, |_, args| extract(args))
            .udf(),
        Function::new(
            "regexp_extract_all",
            zone,
            |f, t| then_int(f, t, 2..=3),
            list,
            |_, args| extract_all(args),
        )
        .udf(),
        Function::new("regexp_replace", zone, three_texts, utf8, |_, args| replace(args)).udf(),
        Function::new("rlike", zone, two_texts, |_, _, _| Ok(DataType::Boolean), |_, args| matches(args))
            .also(&["regexp", "regexp_like"])
            .udf(),
        Function::new(
            "locate",
            zone,
            |f, t| then_int(f, t, 2..=3),
            |_, _, _| Ok(DataType::Int32),
            |_, args| locate(args),
        )
        .also(&["position", "charindex"])
        .udf(),
        Function::new("instr", zone, two_texts, |_, _, _| Ok(DataType::Int32), |_, args| instr(args)).udf(),
        Function::new(
            "initcap",
            zone,
            |f, t| f.arguments(t.len(), 1..=1).and_then(|()| texts(f, t)),
            utf8,
            |_, args| initcap(args),
        )
        .udf(),
    ]
}

fn two_texts(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 2..=2)?;
    texts(function, types)
}

fn three_texts(function: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    function.arguments(types.len(), 3..=3)?;
    texts(function, types)
}

/// Two texts and perhaps a whole number.
fn then_int(
    function: &Function,
    types: &[DataType],
    count: std::ops::RangeInclusive<usize>,
) -> Result<Vec<DataType>> {
    function.arguments(types.len(), count)?;
    Ok([DataType::Utf8, DataType::Utf8, DataType::Int32].into_iter().take(types.len()).collect())
}

fn regex(text: &str) -> Result<Regex> {
    Regex::new(text).map_err(|e| {
        let why = e.to_string();
        let last = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        DataFusionError::Execution(format!(
            "'{text}' is not a regular expression that can be used ({last}); look-around and back references do not exist here"
        ))
    })
}

fn int(args: &ScalarFunctionArgs, index: usize, default: i32) -> Result<Int32Array> {
    match args.args.len() > index {
        true => Ok(array(args, index)?.as_primitive::<Int32Type>().clone()),
        false => Ok(Int32Array::from(vec![default; args.number_rows])),
    }
}

/// As Java's `String.split`, but with empty strings at the end kept when the limit is -1 or 0, as Spark does.
fn split(_: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (values, patterns, limits) = (text(args, 0)?, text(args, 1)?, int(args, 2, -1)?);
    let mut known = Remembered::new();
    let mut out = ListBuilder::new(StringBuilder::new()).with_field(item());
    for row in 0..values.len() {
        let (Some(value), Some(pattern), true) = (at(&values, row), at(&patterns, row), limits.is_valid(row))
        else {
            out.append(false);
            continue;
        };
        let limit = usize::try_from(limits.value(row)).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        match pattern.len() == 1 && !"\\^$.|?*+()[]{}".contains(pattern) {
            true => value.splitn(limit, pattern).for_each(|part| out.values().append_value(part)),
            false => pieces(known.get(pattern, regex)?, value, limit, |part| out.values().append_value(part)),
        }
        out.append(true);
    }
    Ok(Arc::new(out.finish()))
}

/// A match of no width at the beginning gives no empty first piece, as in Java.
fn pieces(regex: &Regex, value: &str, limit: usize, mut take: impl FnMut(&str)) {
    let (mut start, mut count) = (0, 1);
    for found in regex.find_iter(value) {
        if count >= limit {
            break;
        }
        if found.end() == 0 || (found.is_empty() && found.start() == value.len() && value.is_empty()) {
            continue;
        }
        take(&value[start..found.start()]);
        start = found.end();
        count += 1;
    }
    take(&value[start..]);
}

fn item() -> datafusion::arrow::datatypes::FieldRef {
    match list_of(DataType::Utf8) {
        DataType::List(item) => item,
        _ => Arc::new(datafusion::arrow::datatypes::Field::new_list_field(DataType::Utf8, true)),
    }
}

fn group(regex: &Regex, index: i32) -> Result<usize> {
    match usize::try_from(index).ok().filter(|index| *index < regex.captures_len()) {
        Some(index) => Ok(index),
        None => failed(format!("the regular expression '{regex}' has no group {index}")),
    }
}

fn extract(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (values, patterns, groups) = (text(args, 0)?, text(args, 1)?, int(args, 2, 1)?);
    let mut known = Remembered::new();
    let mut read = |row: usize| -> Result<Option<String>> {
        let (Some(value), Some(pattern), true) = (at(&values, row), at(&patterns, row), groups.is_valid(row))
        else {
            return Ok(None);
        };
        let regex = known.get(pattern, regex)?;
        let index = group(regex, groups.value(row))?;
        let found = regex.captures(value).and_then(|c| c.get(index)).map_or("", |m| m.as_str());
        Ok(Some(found.to_owned()))
    };
    Ok(Arc::new((0..values.len()).map(&mut read).collect::<Result<StringArray>>()?))
}

fn extract_all(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (values, patterns, groups) = (text(args, 0)?, text(args, 1)?, int(args, 2, 1)?);
    let mut known = Remembered::new();
    let mut out = ListBuilder::new(StringBuilder::new()).with_field(item());
    for row in 0..values.len() {
        let (Some(value), Some(pattern), true) = (at(&values, row), at(&patterns, row), groups.is_valid(row))
        else {
            out.append(false);
            continue;
        };
        let regex = known.get(pattern, regex)?;
        let index = group(regex, groups.value(row))?;
        for found in regex.captures_iter(value) {
            out.values().append_value(found.get(index).map_or("", |m| m.as_str()));
        }
        out.append(true);
    }
    Ok(Arc::new(out.finish()))
}

/// Every match is replaced; `$1` is the first group, as in Java (`\$` is a dollar).
fn replace(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (values, patterns, by) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    let (mut known, mut template) = (Remembered::new(), Remembered::new());
    let mut read = |row: usize| -> Result<Option<String>> {
        let (Some(value), Some(pattern), Some(by)) = (at(&values, row), at(&patterns, row), at(&by, row))
        else {
            return Ok(None);
        };
        let template: &String = template.get(by, |text| Ok(replacement(text)))?;
        Ok(Some(known.get(pattern, regex)?.replace_all(value, template.as_str()).into_owned()))
    };
    Ok(Arc::new((0..values.len()).map(&mut read).collect::<Result<StringArray>>()?))
}

/// From Java's replacement text to the regex crate's.
fn replacement(java: &str) -> String {
    let mut out = String::with_capacity(java.len());
    let mut chars = java.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('$') => out.push_str("$$"),
                Some(c) => out.push(c),
                None => {}
            },
            '$' => {
                let mut digits = String::new();
                while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                    digits.push(digit);
                }
                out.push_str(&if digits.is_empty() { "$$".to_owned() } else { format!("${{{digits}}}") });
            }
            c => out.push(c),
        }
    }
    out
}

fn matches(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (values, patterns) = (text(args, 0)?, text(args, 1)?);
    let mut known = Remembered::new();
    let mut read = |row: usize| -> Result<Option<bool>> {
        let (Some(value), Some(pattern)) = (at(&values, row), at(&patterns, row)) else { return Ok(None) };
        Ok(Some(known.get(pattern, regex)?.is_match(value)))
    };
    Ok(Arc::new((0..values.len()).map(&mut read).collect::<Result<BooleanArray>>()?))
}

/// Character position from 1 at which `wanted` stands in `value` at or after `from`; 0 if nowhere.
fn position(value: &str, wanted: &str, from: i32) -> i32 {
    let Some(skip) = from.checked_sub(1).and_then(|skip| usize::try_from(skip).ok()) else { return 0 };
    let Some((start, _)) = value.char_indices().chain([(value.len(), ' ')]).nth(skip) else { return 0 };
    match value[start..].find(wanted) {
        Some(found) => i32::try_from(value[..start + found].chars().count() + 1).unwrap_or(0),
        None => 0,
    }
}

fn locate(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (wanted, values, from) = (text(args, 0)?, text(args, 1)?, int(args, 2, 1)?);
    let read = |row| match (at(&wanted, row), at(&values, row)) {
        (Some(wanted), Some(value)) => {
            Some(if from.is_valid(row) { position(value, wanted, from.value(row)) } else { 0 })
        }
        _ => None,
    };
    Ok(Arc::new((0..values.len()).map(read).collect::<Int32Array>()))
}

fn instr(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let (values, wanted) = (text(args, 0)?, text(args, 1)?);
    let read = |row| Some(position(at(&values, row)?, at(&wanted, row)?, 1));
    Ok(Arc::new((0..values.len()).map(read).collect::<Int32Array>()))
}

/// Only white space separates words, as in Spark: `o'neil-smith` stays one word.
fn initcap(args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let values = text(args, 0)?;
    let read = |row| {
        let mut first = true;
        let mut out = String::new();
        for c in at(&values, row)?.chars() {
            match first {
                true => out.extend(c.to_uppercase()),
                false => out.extend(c.to_lowercase()),
            }
            first = c.is_whitespace();
        }
        Some(out)
    };
    Ok(Arc::new((0..values.len()).map(read).collect::<StringArray>()))
}
