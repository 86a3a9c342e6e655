//! Maps in the store: each entry under its own key.

use super::Shard;
use super::entries::{Changes, Entries};
use super::variable::Loaded;
use crate::stateful::group::call::Caller;
use crate::stateful::group::entry::{Entry, damaged, read_within};
use crate::stateful::group::schemas::Variable;
use crate::stateful::layout::prefix_end;
use arrow::array::ArrayRef;
use bytes::Bytes;
use pelton_core::types::type_name;
use pelton_core::{Error, GroupInput, Load, Result, StateAction, StateChanges, StateVariable};

/// How many entries are looked at in one go.
const SCAN_ENTRIES: usize = 8192;

/// See the module.
pub(super) struct Maps {
    entries: Entries,
    load: Load,
}

impl Maps {
    pub(super) fn new(entries: Entries, declared: &StateVariable, caller: &Caller) -> Result<Self> {
        if let Load::KeyedBy(columns) = &declared.load {
            let fields = declared.key.fields();
            let read = caller.rows_schema().fields();
            let alike = |(column, field): (&usize, &arrow::datatypes::FieldRef)| {
                read.get(*column)
                    .is_some_and(|read| type_name(read.data_type()) == type_name(field.data_type()))
            };
            if columns.len() != fields.len() || !columns.iter().zip(fields).all(alike) {
                return Err(Error::plugin(format!(
                    "the map '{}' is loaded by columns that are not of its key's types",
                    declared.name
                )));
            }
        }
        Ok(Self { entries, load: declared.load.clone() })
    }

    pub(super) fn table(&self) -> &str {
        &self.entries.table
    }

    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The entries of the first keys that a call is given, as many as come to so many bytes.
    pub(super) fn load(
        &self,
        shard: &Shard<'_, '_>,
        keys: &[Bytes],
        input: &GroupInput,
        schema: &Variable,
        bytes_max: usize,
    ) -> Result<Loaded> {
        let is_empty = shard.state.len(&self.entries.table) == 0;
        match &self.load {
            _ if is_empty => Ok(Loaded { counts: vec![0; keys.len()], ..Loaded::default() }),
            Load::Nothing => Ok(Loaded { counts: vec![0; keys.len()], ..Loaded::default() }),
            Load::KeyedBy(columns) => {
                let asked = self.asked(keys, input, columns, schema)?;
                self.load_keyed(shard, keys, asked, bytes_max)
            }
            Load::Everything | Load::Last(_) => self.load_all(shard, keys, bytes_max),
        }
    }

    fn load_all(&self, shard: &Shard<'_, '_>, keys: &[Bytes], bytes_max: usize) -> Result<Loaded> {
        let (mut loaded, mut bytes) = (Loaded::default(), 0);
        for key in keys {
            let all = self.all(shard, key)?;
            bytes += all.iter().map(|(entry, stored)| entry.len() + stored.len()).sum::<usize>();
            loaded.counts.push(all.len() as u32);
            for (entry, stored) in all {
                let value = Entry::read(Some(&stored), &self.entries.table)?.value;
                loaded.values.push(value.ok_or_else(|| damaged(&self.entries.table))?);
                loaded.keys.push(entry.slice(key.len()..));
            }
            if bytes > bytes_max {
                break;
            }
        }
        Ok(loaded)
    }

    /// The entries of a key.
    fn all(&self, shard: &Shard<'_, '_>, key: &[u8]) -> Result<Vec<(Bytes, Bytes)>> {
        let (mut from, end) = (key.to_vec(), prefix_end(key));
        let mut all = Vec::new();
        loop {
            let found = shard.state.scan(&self.entries.table, &from[..]..&end[..], SCAN_ENTRIES)?;
            let is_last = found.len() < SCAN_ENTRIES;
            if let Some((last, _)) = found.last() {
                from.clear();
                from.extend_from_slice(last);
                from.push(0);
            }
            all.extend(found);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// The keys of the entries that the rows of each group name, with the group's place.
    fn asked(
        &self,
        keys: &[Bytes],
        input: &GroupInput,
        columns: &[usize],
        schema: &Variable,
    ) -> Result<Vec<(usize, Bytes)>> {
        if input.rows.num_rows() == 0 {
            return Ok(Vec::new());
        }
        let columns: Vec<ArrayRef> =
            columns.iter().map(|column| input.rows.column(*column).clone()).collect();
        let map_keys = schema.keys.encode_keys(&columns)?;
        let mut asked: Vec<(usize, Bytes)> = Vec::new();
        for (group, key) in keys.iter().enumerate() {
            let rows = input.offsets[group] as usize..input.offsets[group + 1] as usize;
            let mut own: Vec<&[u8]> = rows.map(|row| map_keys.get(row)).collect();
            own.sort_unstable();
            own.dedup();
            asked.extend(own.into_iter().map(|map_key| (group, [key, map_key].concat().into())));
        }
        Ok(asked)
    }

    fn load_keyed(
        &self,
        shard: &Shard<'_, '_>,
        keys: &[Bytes],
        asked: Vec<(usize, Bytes)>,
        bytes_max: usize,
    ) -> Result<Loaded> {
        let places: Vec<Bytes> = asked.iter().map(|(_, key)| key.clone()).collect();
        let found = read_within(&*shard.state, &self.entries.table, &places, bytes_max)?;
        // The first group that is not there as a whole.
        let whole = asked.get(found.len()).map_or(keys.len(), |(group, _)| *group);
        let mut loaded = Loaded { counts: vec![0; whole], ..Loaded::default() };
        for ((group, key), entry) in asked.into_iter().zip(found).filter(|((group, _), _)| *group < whole) {
            if !entry.is_stored {
                continue;
            }
            loaded.values.push(entry.value.ok_or_else(|| damaged(&self.entries.table))?);
            loaded.keys.push(key.slice(keys[group].len()..));
            loaded.counts[group] += 1;
        }
        Ok(loaded)
    }

    pub(super) fn change(
        &self,
        shard: &mut Shard<'_, '_>,
        keys: &[Bytes],
        changes: &StateChanges,
        values: &[Bytes],
        schema: &Variable,
    ) -> Result<()> {
        let width = schema.declared.key.fields().len();
        let encoded = |rows: &arrow::array::RecordBatch| match rows.num_rows() {
            0 => Ok(pelton_state::EncodedRows::default()),
            _ => schema.keys.encode_keys(&rows.columns()[..width.min(rows.num_columns())]),
        };
        let (put, removed) = (encoded(&changes.put)?, encoded(&changes.remove)?);
        let (mut puts, mut removes) = (0, 0);
        let mut made = Changes::new();
        for (group, action) in changes.groups.iter().zip(&changes.actions) {
            let key = &keys[*group as usize];
            match action {
                StateAction::Put => {
                    let entry = [key.as_ref(), put.get(puts)].concat();
                    made.insert(entry.into(), values.get(puts).cloned());
                    puts += 1;
                }
                StateAction::Remove if removes < removed.len() => {
                    made.insert([key.as_ref(), removed.get(removes)].concat().into(), None);
                    removes += 1;
                }
                StateAction::Remove => {
                    return Err(shard.calls.wrong("removed entries without naming their keys".to_owned()));
                }
                StateAction::Clear => {
                    self.entries.write(shard, std::mem::take(&mut made))?;
                    let all = self.all(shard, key)?;
                    self.entries.write(shard, all.into_iter().map(|(entry, _)| (entry, None)).collect())?;
                }
            }
        }
        self.entries.write(shard, made)
    }
}
