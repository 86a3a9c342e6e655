//! Compares the micro-batches that ran with what an `expect` step says, and tells what differs.

use super::expected::{Expected, ExpectedBatch, ExpectedError, What};
use super::normal;
use super::session::{Failure, MicroBatch};
use super::values;
use pelton_plan::file::{SourceText, Span};
use serde_json::Value;
use std::fmt::Display;

/// What is not as expected: one text a difference, empty if all is well.
pub(super) struct Differences<'a> {
    text: &'a SourceText,
    found: Vec<String>,
}

impl<'a> Differences<'a> {
    pub(super) fn new(text: &'a SourceText) -> Self {
        Self { text, found: Vec::new() }
    }

    pub(super) fn into_texts(self) -> Vec<String> {
        self.found
    }

    /// One more, with the line of the script that it belongs to.
    pub(super) fn add(&mut self, span: Span, what: &str, details: &[String]) {
        let place = self.text.located(span, what);
        let place = place.lines().next().unwrap_or_default();
        self.found.push(details.iter().fold(place.to_owned(), |text, line| text + "\n    " + line));
    }

    /// Compares one `expect` step at `span` with everything since the one before.
    pub(super) fn expect(
        &mut self,
        span: Span,
        expected: &[Expected],
        ran: &[MicroBatch],
        failure: Option<&Failure>,
        zone: &str,
    ) {
        let mut ran = ran.iter();
        let mut error = None;
        for item in expected {
            match &item.what {
                What::Error(expected) => error = Some((item.span, expected)),
                What::Batch(batch) => match next(&mut ran, batch) {
                    Some(found) => self.batch(item.span, batch, found, zone),
                    None => self.add(item.span, "no micro-batch ran where one was expected", &[]),
                },
            }
        }
        for unexpected in ran.filter(|batch| !batch.is_quiet()) {
            let what = format!("micro-batch {} ran and was not expected", unexpected.batch_id);
            self.add(span, &what, &unexpected.summary());
        }
        self.error(span, error, failure);
    }

    fn error(&mut self, span: Span, expected: Option<(Span, &ExpectedError)>, failure: Option<&Failure>) {
        match (expected, failure) {
            (None, None) => {}
            (Some((span, _)), None) => self.add(span, "the query was expected to fail, and did not", &[]),
            (None, Some(failure)) => self.add(span, "the query failed", &failure.lines()),
            (Some((span, expected)), Some(failure)) => {
                let kind = expected.kind.is_none_or(|kind| kind == failure.kind.into());
                let has = |words: &String| failure.message.to_lowercase().contains(&words.to_lowercase());
                if !kind || !expected.message.as_ref().is_none_or(has) {
                    self.add(span, "the query failed in another way than expected", &failure.lines());
                }
            }
        }
    }

    fn batch(&mut self, span: Span, expected: &ExpectedBatch, found: &MicroBatch, zone: &str) {
        let mut details = Vec::new();
        differs(&mut details, "batch_id", expected.batch_id, &found.batch_id);
        let watermark =
            |ms: Option<i64>| ms.map_or("null".to_owned(), |ms| values::timestamp(ms * 1000, true));
        let shown = found.watermark.clone().unwrap_or_else(|| "null".to_owned());
        differs(&mut details, "watermark", expected.watermark.map(watermark), &shown);
        differs(&mut details, "no_data", expected.no_data, &found.no_data);
        differs(&mut details, "late_rows", expected.late_rows, &found.late_rows);
        differs(&mut details, "state_rows", expected.state_rows, &found.state_rows);
        differs(&mut details, "dead_letters", expected.dead_letters, &found.dead_letters);
        if let Some(rows) = &expected.rows {
            let rows = rows.iter().map(|row| normal::row(row, found.schema.fields(), zone));
            match rows.collect::<Result<Vec<_>, _>>() {
                Ok(rows) => details.extend(rows_differ(&rows, &found.rows, expected)),
                Err(why) => details.push(format!("rows: {why}")),
            }
        }
        if !details.is_empty() {
            self.add(span, &format!("micro-batch {} is not as expected", found.batch_id), &details);
        }
    }
}

/// The micro-batch that an expectation means: one without data that gave nothing is passed over, unless the
/// expectation asks for one without data.
fn next<'a>(ran: &mut std::slice::Iter<'a, MicroBatch>, expected: &ExpectedBatch) -> Option<&'a MicroBatch> {
    ran.find(|batch| {
        !batch.is_quiet() || expected.no_data == Some(true) || expected.batch_id == Some(batch.batch_id)
    })
}

fn differs<T: PartialEq + Display>(details: &mut Vec<String>, what: &str, expected: Option<T>, found: &T) {
    if let Some(expected) = expected.filter(|expected| expected != found) {
        details.push(format!("{what}: expected {expected}, found {found}"));
    }
}

/// The lines of a diff: `-` is expected and missing, `+` is there and not expected.
fn rows_differ(expected: &[Value], found: &[Value], how: &ExpectedBatch) -> Vec<String> {
    let same = |expected: &Value, found: &Value| same(expected, found, how.tolerance.unwrap_or(0.0));
    let line = |sign: char, row: &Value| format!("  {sign} {row}");
    let mut left: Vec<Option<&Value>> = found.iter().map(Some).collect();
    let mut missing = Vec::new();
    for (at, row) in expected.iter().enumerate() {
        let is = |other: &Option<&Value>| other.is_some_and(|other| same(row, other));
        let place = match how.ordered {
            true => left.get(at).filter(|other| is(other)).map(|_| at),
            false => left.iter().position(is),
        };
        match place.and_then(|place| left.get_mut(place)) {
            Some(place) => *place = None,
            None => missing.push(line('-', row)),
        }
    }
    let extra: Vec<String> = left.iter().flatten().map(|row| line('+', row)).collect();
    if missing.is_empty() && extra.is_empty() {
        return Vec::new();
    }
    let order = if how.ordered { ", in this order" } else { "" };
    let head = format!(
        "rows ({} expected{order}, {} found; - is missing, + is too much):",
        expected.len(),
        found.len()
    );
    let equal = expected.len() - missing.len();
    let rest = (equal > 0).then(|| format!("    {equal} as expected"));
    [head].into_iter().chain(missing).chain(extra).chain(rest).collect()
}

/// Whether two values in normal form are the same; numbers with a fraction within the tolerance.
fn same(expected: &Value, found: &Value, tolerance: f64) -> bool {
    match (expected, found) {
        (Value::Number(e), Value::Number(f)) if e.is_f64() && f.is_f64() => {
            let (e, f) = (e.as_f64().unwrap_or(f64::NAN), f.as_f64().unwrap_or(f64::NAN));
            e == f || (e - f).abs() <= tolerance * e.abs()
        }
        (Value::Array(e), Value::Array(f)) => {
            e.len() == f.len() && e.iter().zip(f).all(|(e, f)| same(e, f, tolerance))
        }
        (Value::Object(e), Value::Object(f)) => {
            e.len() == f.len() && e.iter().all(|(key, e)| f.get(key).is_some_and(|f| same(e, f, tolerance)))
        }
        _ => expected == found,
    }
}
