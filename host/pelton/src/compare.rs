//! In what two runs of a micro-batch differ: one as it was, with the plugins that ran or run, one with another version. Used
//! by `replay --compare` and by the shadow of a swap. Pure.
//!
//! Rows are compared as a multiset: how often a row is there counts, its place does not. Both runs mostly give the same
//! rows in the same order, so what came from both is compared as columns first, and only where that differs row by row; what
//! is kept is what has found no partner yet.

use arrow::array::RecordBatch;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use pelton_plan::json::{Nulls, row_json};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// Which of the two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// With the plugins as they were.
    Old,
    /// With another version.
    New,
}

/// The differences between two runs, in the order of the keys.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Differences {
    pub(crate) old: usize,
    pub(crate) new: usize,
    pub(crate) equal: usize,
    /// Rows with the same key.
    pub(crate) changed: Vec<(Value, Value)>,
    pub(crate) only_old: Vec<Value>,
    pub(crate) only_new: Vec<Value>,
}

/// A comparison under way.
pub(crate) struct Comparison {
    key: Vec<String>,
    /// What came from one side and not yet from the other, in the order in which it came.
    ahead: (VecDeque<RecordBatch>, VecDeque<RecordBatch>),
    /// Rows without a partner, by their keys and their whole text: so many more of them are old; if negative, new.
    alone: BTreeMap<(String, String), i64>,
    alone_rows: usize,
    /// Their text.
    alone_bytes: usize,
    found: Differences,
}

impl Differences {
    /// Of all rows; see [`Comparison`].
    pub(crate) fn of_rows(old: &[RecordBatch], new: &[RecordBatch], key: &[String]) -> Result<Self> {
        let mut comparison = Comparison::by(key);
        old.iter().try_for_each(|batch| comparison.add(Side::Old, batch.clone()))?;
        new.iter().try_for_each(|batch| comparison.add(Side::New, batch.clone()))?;
        comparison.finish()
    }

    /// Of dead letters, as they are written: that they name the version that was at work makes no difference.
    pub(crate) fn of_dead_letters(old: &[Value], new: &[Value]) -> Result<Self> {
        let mut comparison = Comparison::by(&[]);
        let anonymous = |letter: &Value| {
            let mut letter = letter.clone();
            letter.as_object_mut().and_then(|fields| fields.remove("plugin"));
            letter
        };
        old.iter().for_each(|letter| comparison.add_row(Side::Old, &anonymous(letter)));
        new.iter().for_each(|letter| comparison.add_row(Side::New, &anonymous(letter)));
        comparison.finish()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.changed.len() + self.only_old.len() + self.only_new.len()
    }
}

impl Comparison {
    /// Rows belong together if they have the same values in these columns; without any they are compared as a whole.
    pub(crate) fn by(key: &[String]) -> Self {
        Self {
            key: key.to_vec(),
            ahead: Default::default(),
            alone: BTreeMap::new(),
            alone_rows: 0,
            alone_bytes: 0,
            found: Differences::default(),
        }
    }

    /// Takes rows of one side. Both sides should come in turn: what one of them is ahead is kept.
    pub(crate) fn add(&mut self, side: Side, rows: RecordBatch) -> Result<()> {
        check_key(&self.key, &rows)?;
        match side {
            Side::Old => self.ahead.0.push_back(rows),
            Side::New => self.ahead.1.push_back(rows),
        }
        while !self.ahead.0.is_empty() && !self.ahead.1.is_empty() {
            let (Some(old), Some(new)) = (self.ahead.0.pop_front(), self.ahead.1.pop_front()) else { break };
            let rows = old.num_rows().min(new.num_rows());
            self.compare(&old.slice(0, rows), &new.slice(0, rows))?;
            put_back(&mut self.ahead.0, &old, rows);
            put_back(&mut self.ahead.1, &new, rows);
        }
        Ok(())
    }

    /// Rows that have found no partner so far.
    pub(crate) fn alone(&self) -> usize {
        let ahead = self.ahead.0.iter().chain(&self.ahead.1).map(RecordBatch::num_rows);
        self.alone_rows + ahead.sum::<usize>()
    }

    /// About how much memory they take.
    pub(crate) fn alone_bytes(&self) -> usize {
        let ahead = self.ahead.0.iter().chain(&self.ahead.1).map(RecordBatch::get_array_memory_size);
        self.alone_bytes + ahead.sum::<usize>()
    }

    /// All rows came.
    pub(crate) fn finish(mut self) -> Result<Differences> {
        let (old, new) = std::mem::take(&mut self.ahead);
        for (side, batches) in [(Side::Old, old), (Side::New, new)] {
            for batch in batches {
                (0..batch.num_rows()).try_for_each(|row| {
                    row_json(&batch, row, Nulls::Written).map(|row| self.add_row(side, &row))
                })?;
            }
        }
        let Self { key, alone, mut found, .. } = self;
        let mut alone = alone.into_iter().peekable();
        while let Some(((of, _), _)) = alone.peek() {
            let of = of.clone();
            let (mut old, mut new) = (Vec::new(), Vec::new());
            while let Some(((_, row), surplus)) = alone.next_if(|((key, _), _)| *key == of) {
                let row: Value = serde_json::from_str(&row)
                    .map_err(|why| Error::internal(format!("a row is no JSON: {why}")))?;
                let rows = std::iter::repeat_n(row, usize::try_from(surplus.unsigned_abs()).unwrap_or(0));
                if surplus > 0 { old.extend(rows) } else { new.extend(rows) }
            }
            let pairs = if key.is_empty() { 0 } else { old.len().min(new.len()) };
            found.only_old.extend(old.drain(pairs..));
            found.only_new.extend(new.drain(pairs..));
            found.changed.extend(old.into_iter().zip(new));
        }
        Ok(found)
    }

    /// Equally many rows of both.
    fn compare(&mut self, old: &RecordBatch, new: &RecordBatch) -> Result<()> {
        let rows = old.num_rows();
        if old.columns() == new.columns() {
            self.found.old += rows;
            self.found.new += rows;
            self.found.equal += rows;
            return Ok(());
        }
        for row in 0..rows {
            self.add_row(Side::Old, &row_json(old, row, Nulls::Written)?);
            self.add_row(Side::New, &row_json(new, row, Nulls::Written)?);
        }
        Ok(())
    }

    fn add_row(&mut self, side: Side, row: &Value) {
        let key = match self.key.is_empty() {
            true => String::new(),
            false => self.key.iter().map(|column| row[column].to_string() + "\n").collect(),
        };
        let (count, one) = match side {
            Side::Old => (&mut self.found.old, 1),
            Side::New => (&mut self.found.new, -1),
        };
        *count += 1;
        let row = (key, row.to_string());
        let bytes = row.0.len() + row.1.len();
        let surplus = self.alone.get(&row).copied().unwrap_or(0);
        if surplus * one < 0 {
            self.found.equal += 1;
            self.alone_rows -= 1;
            self.alone_bytes -= bytes;
        } else {
            self.alone_rows += 1;
            self.alone_bytes += bytes;
        }
        match surplus + one {
            0 => drop(self.alone.remove(&row)),
            surplus => drop(self.alone.insert(row, surplus)),
        }
    }
}

fn put_back(queue: &mut VecDeque<RecordBatch>, batch: &RecordBatch, taken: usize) {
    if taken < batch.num_rows() {
        queue.push_front(batch.slice(taken, batch.num_rows() - taken));
    }
}

fn check_key(key: &[String], rows: &RecordBatch) -> Result<()> {
    let schema = rows.schema();
    let names = || schema.fields().iter().map(|field| field.name().as_str());
    let Some(unknown) = key.iter().find(|column| !names().any(|name| name == column.as_str())) else {
        return Ok(());
    };
    let near = did_you_mean(unknown, names());
    Err(Error::invalid(format!("--key: the rows have no column '{unknown}'{near}"))
        .hint(format!("the columns are {}", names().collect::<Vec<_>>().join(", "))))
}

/// All rows as JSON.
pub(crate) fn values(batches: &[RecordBatch]) -> Result<Vec<Value>> {
    let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    rows.map(|(batch, row)| row_json(batch, row, Nulls::Written)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};
    use serde_json::json;
    use std::sync::Arc;

    fn row(k: &str, n: i64) -> Value {
        json!({"k": k, "n": n})
    }

    fn batch(rows: &[(&str, i64)]) -> RecordBatch {
        let keys: StringArray = rows.iter().map(|(key, _)| Some(*key)).collect();
        let numbers: Int64Array = rows.iter().map(|(_, number)| *number).collect();
        RecordBatch::try_from_iter([("k", Arc::new(keys) as _), ("n", Arc::new(numbers) as _)]).unwrap()
    }

    fn differences(old: &[&[(&str, i64)]], new: &[&[(&str, i64)]], key: &[&str]) -> Differences {
        let batches = |all: &[&[(&str, i64)]]| all.iter().map(|rows| batch(rows)).collect::<Vec<_>>();
        let key: Vec<String> = key.iter().map(|column| (*column).to_owned()).collect();
        Differences::of_rows(&batches(old), &batches(new), &key).unwrap()
    }

    #[test]
    fn rows_with_the_same_key_are_changed_others_are_on_one_side() {
        let old = [&[("a", 1), ("b", 2)][..], &[("c", 3), ("c", 3)]];
        let new = [&[("d", 4), ("c", 3), ("b", 20)][..], &[("a", 1)]];
        let expected = Differences {
            old: 4,
            new: 4,
            equal: 2,
            changed: vec![(row("b", 2), row("b", 20))],
            only_old: vec![row("c", 3)],
            only_new: vec![row("d", 4)],
        };
        let found = differences(&old, &new, &["k"]);
        assert_eq!(found, expected);
        assert_eq!(found.count(), 3);
    }

    #[test]
    fn without_a_key_rows_are_compared_as_a_whole_and_their_order_does_not_count() {
        let found = differences(&[&[("a", 1), ("b", 2)]], &[&[("b", 2), ("a", 2)]], &[]);
        assert_eq!((found.equal, &found.changed[..]), (1, &[][..]));
        assert_eq!((&found.only_old[..], &found.only_new[..]), (&[row("a", 1)][..], &[row("a", 2)][..]));
    }

    #[test]
    fn where_batches_end_does_not_count_and_what_is_ahead_finds_its_partner() {
        let rows: Vec<(&str, i64)> = (0..100).map(|n| (["a", "b", "c"][n as usize % 3], n)).collect();
        let cut = |at: usize| rows.chunks(at).collect::<Vec<_>>();
        let found = differences(&cut(7), &cut(11), &["k"]);
        assert_eq!((found.old, found.new, found.equal, found.count()), (100, 100, 100, 0));
        // One row more in front of all others.
        let more = [&[("z", 0)][..], &rows[..]].concat();
        let found = differences(&cut(9), &more.chunks(9).collect::<Vec<_>>(), &[]);
        assert_eq!(
            (found.old, found.new, found.equal, &found.only_new[..]),
            (100, 101, 100, &[row("z", 0)][..])
        );
        let mut comparison = Comparison::by(&[]);
        comparison.add(Side::Old, batch(&rows[..50])).unwrap();
        comparison.add(Side::New, batch(&rows[1..51])).unwrap();
        assert_eq!(comparison.alone(), 2, "the first and the last");
    }

    #[test]
    fn that_dead_letters_name_another_version_makes_no_difference() {
        let letter =
            |plugin: &str, reason: &str| json!({"kind": "refused", "plugin": plugin, "reason": reason});
        let found =
            Differences::of_dead_letters(&[letter("a", "odd"), letter("a", "x")], &[letter("b", "odd")])
                .unwrap();
        assert_eq!((found.old, found.new, found.equal), (2, 1, 1));
        assert_eq!(found.only_old, [json!({"kind": "refused", "reason": "x"})]);
    }
}
