//! A static table's rows by their keys.

use crate::stateful::keyed::Keys;
use arrow::array::{BooleanArray, RecordBatch};
use datafusion::common::HashMap;
use pelton_core::{Error, Result};
use pelton_plan::stateful::VersionedRows;

/// Ends a chain.
const END: u32 = u32::MAX;

/// A version of a table. Rows of a key are chained in their order.
pub(super) struct Index {
    pub(super) version: u64,
    pub(super) rows: RecordBatch,
    first: HashMap<Box<[u8]>, u32>,
    next: Vec<u32>,
    /// Rows with a NULL among the keys that do not match NULL.
    with_null: Vec<u32>,
}

/// Rows of a table.
pub(super) enum Candidates<'a> {
    Chain(&'a [u32], u32),
    Rows(std::ops::Range<u32>),
    Both(Box<Candidates<'a>>, std::slice::Iter<'a, u32>),
}

impl Index {
    /// `nulls`: the rows with a NULL among the keys that do not match NULL.
    pub(super) fn new(table: VersionedRows, keys: &Keys, nulls: Option<&BooleanArray>) -> Result<Self> {
        let count = u32::try_from(table.rows.num_rows()).ok().filter(|count| *count < END);
        let count =
            count.ok_or_else(|| Error::data(format!("more than {END} rows cannot be joined with")))?;
        let mut first: HashMap<Box<[u8]>, u32> = HashMap::with_capacity(count as usize);
        let mut next = vec![END; count as usize];
        let mut with_null = Vec::new();
        for row in (0..count).rev() {
            if nulls.is_some_and(|nulls| nulls.value(row as usize)) {
                with_null.push(row);
                continue;
            }
            let key = keys.get(row as usize);
            match first.get_mut(key) {
                Some(head) => next[row as usize] = std::mem::replace(head, row),
                None => {
                    first.insert(key.into(), row);
                }
            }
        }
        with_null.reverse();
        Ok(Self { version: table.version, rows: table.rows, first, next, with_null })
    }

    /// The rows that may match a key, in their order. `null_aware`: those of which it is not known that they do not,
    /// because there is a NULL on one of the sides.
    pub(super) fn candidates(&self, key: &[u8], is_null: bool, null_aware: bool) -> Candidates<'_> {
        match (is_null, null_aware) {
            (true, true) => Candidates::Rows(0..self.next.len() as u32),
            (true, false) => Candidates::Rows(0..0),
            (false, null_aware) => {
                let chain = Candidates::Chain(&self.next, self.first.get(key).copied().unwrap_or(END));
                match null_aware {
                    true => Candidates::Both(Box::new(chain), self.with_null.iter()),
                    false => chain,
                }
            }
        }
    }
}

impl Iterator for Candidates<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            Self::Chain(next, at) => {
                let row = *at;
                *at = *next.get(row as usize)?;
                Some(row)
            }
            Self::Rows(rows) => rows.next(),
            Self::Both(chain, nulls) => chain.next().or_else(|| nulls.next().copied()),
        }
    }
}
