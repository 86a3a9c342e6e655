//! The state of a function under test: what the host would keep. `groups` fills it and hands it out. Rows are kept as
//! messages of one row, so that it knows no types.

use super::rows::{append_row, one_row};
use crate::error::Error;
use crate::groups::written::Changes;
use crate::groups::{Load, VariableInfo, VariableKind};
use crate::ipc;
use crate::output::AnyBuilder;
use crate::types::Schema;
use std::collections::BTreeMap;

/// What is kept of a group.
#[derive(Default)]
pub(super) struct Group {
    /// Entries by variable's name.
    pub(super) variables: BTreeMap<String, Stored>,
    pub(super) timeout: Option<i64>,
    pub(super) timers: BTreeMap<String, i64>,
}

/// The entries of a variable, with the schema and the version that they were written with.
#[derive(Default)]
pub(super) struct Stored {
    pub(super) version: u32,
    pub(super) schema: Schema,
    pub(super) entries: Vec<Entry>,
}

/// An entry: a message of the key's fields, one of all, and when it is gone.
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) row: Vec<u8>,
    expires_at: Option<i64>,
}

impl Group {
    pub(super) fn is_empty(&self) -> bool {
        self.timeout.is_none()
            && self.timers.is_empty()
            && self.variables.values().all(|stored| stored.entries.is_empty())
    }
    /// Takes away what has outlived its time.
    pub(super) fn expire(&mut self, now: i64) {
        for stored in self.variables.values_mut() {
            stored.entries.retain(|entry| entry.expires_at.is_none_or(|at| at > now));
        }
    }
}

impl Stored {
    /// Appends the entries that a call is given; `wanted` are the keys that its rows name.
    pub(super) fn load(
        &self,
        info: &VariableInfo,
        wanted: &[Vec<u8>],
        columns: &mut [AnyBuilder],
    ) -> Result<usize, Error> {
        let count = self.entries.len();
        let from = match info.load {
            Load::Last(last) => count.saturating_sub(last as usize),
            Load::Nothing => count,
            _ => 0,
        };
        let by_key = matches!(info.load, Load::KeyedBy(_));
        let mut loaded = 0;
        for entry in self.entries[from..].iter().filter(|entry| !by_key || wanted.contains(&entry.key)) {
            append_row(&entry.row, &self.schema, columns)?;
            loaded += 1;
        }
        Ok(loaded)
    }

    fn put(&mut self, kind: VariableKind, entry: Entry) {
        match kind {
            VariableKind::Value => self.entries = vec![entry],
            VariableKind::List => self.entries.push(entry),
            VariableKind::Map => match self.entries.binary_search_by(|other| other.key.cmp(&entry.key)) {
                Ok(at) => self.entries[at] = entry,
                Err(at) => self.entries.insert(at, entry),
            },
        }
    }
}

/// Applies the changes of a variable to the groups of a call.
pub(super) fn apply(
    changes: &Changes,
    info: &VariableInfo,
    now: i64,
    groups: &mut [&mut Group],
) -> Result<(), Error> {
    let schema = info.entries();
    let key_schema = Schema::new(info.key.clone());
    let put = (changes.puts > 0).then(|| ipc::read_batch(changes.put.message(), &schema)).transpose()?;
    let removed =
        (changes.removes > 0).then(|| ipc::read_batch(changes.remove.message(), &key_schema)).transpose()?;
    let (mut puts, mut removes) = (0, 0);
    let expires_at =
        info.ttl_ms.map(|ttl| now.saturating_add(i64::try_from(ttl).unwrap_or(i64::MAX / 1000) * 1000));
    for (group, action) in changes.groups.iter().zip(&changes.actions) {
        let stored = groups[*group as usize].variables.entry(info.name.clone()).or_default();
        (stored.version, stored.schema) = (info.version, schema.clone());
        match (action, &put, &removed) {
            (0, Some(rows), _) => {
                let key = one_row(&rows.columns()[..info.key.len()], puts, &key_schema);
                let row = one_row(rows.columns(), puts, &schema);
                stored.put(info.kind, Entry { key, row, expires_at });
                puts += 1;
            }
            (1, _, Some(keys)) => {
                let key = one_row(keys.columns(), removes, &key_schema);
                stored.entries.retain(|entry| entry.key != key);
                removes += 1;
            }
            _ => stored.entries.clear(),
        }
    }
    Ok(())
}
