//! In what two runs of a micro-batch differ. Pure.

use arrow::array::RecordBatch;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use pelton_plan::json::{Nulls, row_json};
use serde_json::Value;
use std::collections::BTreeMap;

/// The differences between what was logged and what is given, in the order of the keys.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Differences {
    pub(super) logged: usize,
    pub(super) given: usize,
    pub(super) equal: usize,
    /// Rows with the same key.
    pub(super) changed: Vec<(Value, Value)>,
    pub(super) only_logged: Vec<Value>,
    pub(super) only_given: Vec<Value>,
}

impl Differences {
    /// Of rows, which belong together if they have the same values in the key columns; without any they are compared as
    /// a whole. How often a row is there counts, its place does not.
    pub(super) fn of_rows(logged: &[RecordBatch], given: &[RecordBatch], key: &[String]) -> Result<Self> {
        for batch in logged.iter().chain(given) {
            let schema = batch.schema();
            let names = || schema.fields().iter().map(|field| field.name().as_str());
            if let Some(unknown) = key.iter().find(|column| !names().any(|name| name == column.as_str())) {
                let near = did_you_mean(unknown, names());
                return Err(Error::invalid(format!("--key: the rows have no column '{unknown}'{near}"))
                    .hint(format!("the columns are {}", names().collect::<Vec<_>>().join(", "))));
            }
        }
        Ok(Self::of(&values(logged)?, &values(given)?, key))
    }

    /// Of values that are compared as a whole.
    pub(super) fn of_values(logged: &[Value], given: &[Value]) -> Self {
        Self::of(logged, given, &[])
    }

    fn of(logged: &[Value], given: &[Value], key: &[String]) -> Self {
        let mut by_key: BTreeMap<String, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for row in logged {
            by_key.entry(key_of(row, key)).or_default().0.push(row);
        }
        for row in given {
            by_key.entry(key_of(row, key)).or_default().1.push(row);
        }
        let mut found = Self { logged: logged.len(), given: given.len(), ..Self::default() };
        for (logged, mut given) in by_key.into_values() {
            let mut left = Vec::new();
            for row in logged {
                match given.iter().position(|other| *other == row) {
                    Some(same) => {
                        given.remove(same);
                        found.equal += 1;
                    }
                    None => left.push(row),
                }
            }
            let pairs = left.len().min(given.len());
            found.only_logged.extend(left.drain(pairs..).cloned());
            found.only_given.extend(given.drain(pairs..).cloned());
            found.changed.extend(left.into_iter().cloned().zip(given.into_iter().cloned()));
        }
        found
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.changed.len() + self.only_logged.len() + self.only_given.len()
    }
}

/// All rows as JSON.
pub(super) fn values(batches: &[RecordBatch]) -> Result<Vec<Value>> {
    let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    rows.map(|(batch, row)| row_json(batch, row, Nulls::Written)).collect()
}

fn key_of(row: &Value, key: &[String]) -> String {
    if key.is_empty() {
        return row.to_string();
    }
    Value::from(key.iter().map(|column| row[column].clone()).collect::<Vec<_>>()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(k: &str, n: i64) -> Value {
        json!({"k": k, "n": n})
    }

    #[test]
    fn rows_with_the_same_key_are_changed_others_are_on_one_side() {
        let logged = [row("a", 1), row("b", 2), row("c", 3), row("c", 3)];
        let given = [row("d", 4), row("c", 3), row("b", 20), row("a", 1)];
        let found = Differences::of(&logged, &given, &["k".to_owned()]);
        let expected = Differences {
            logged: 4,
            given: 4,
            equal: 2,
            changed: vec![(row("b", 2), row("b", 20))],
            only_logged: vec![row("c", 3)],
            only_given: vec![row("d", 4)],
        };
        assert_eq!(found, expected);
        assert_eq!(found.count(), 3);
    }

    #[test]
    fn without_a_key_rows_are_compared_as_a_whole_and_their_order_does_not_count() {
        let found = Differences::of_values(&[row("a", 1), row("b", 2)], &[row("b", 2), row("a", 2)]);
        assert_eq!((found.equal, &found.changed[..]), (1, &[][..]));
        assert_eq!((&found.only_logged[..], &found.only_given[..]), (&[row("a", 1)][..], &[row("a", 2)][..]));
    }
}
