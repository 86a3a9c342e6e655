//! Variables of a processor in the store.
//!
//! | kind | tables |
//! |---|---|
//! | value | `state/NAME`: `[key group][key]` → the value |
//! | list | `state/NAME`: `[key group][key]` → first and next position; `state/NAME/items`: `[key group][key][position]` → the value |
//! | map | `state/NAME`: `[key group][key][map's key]` → the value |
//!
//! All values are [`super::super::entry::Entry`]s of `[schema number][row]`. Encoded keys are no beginnings of one
//! another (each says where it ends), so the entries of one key are exactly those that begin with it. Expiries are
//! indexed in `expiry/NAME`.

use super::Shard;
use super::entries::{Changes, Entries};
use super::lists::Lists;
use super::maps::Maps;
use crate::stateful::Shown;
use crate::stateful::group::call::{self, Caller};
use crate::stateful::group::initial::OfShard;
use crate::stateful::group::schemas::{Known, Variable};
use crate::stateful::group::show::{self, GroupKeys};
use arrow::array::ArrayRef;
use bytes::Bytes;
use pelton_core::{
    GroupInput, Result, StateAction, StateChanges, StateEntries, StateShard, StateVariable, StatefulFunction,
    VariableKind,
};
use std::sync::Arc;

/// See the module.
pub(super) struct Stored {
    pub(super) schema: Variable,
    function: Arc<dyn StatefulFunction>,
    kind: Kind,
}

enum Kind {
    Value(Entries),
    List(Lists),
    Map(Maps),
}

/// Entries of the groups of a call, as they are read: the values, for maps the encoded keys, and whose they are.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) keys: Vec<Bytes>,
    pub(super) values: Vec<Bytes>,
    /// How many entries each group has.
    pub(super) counts: Vec<u32>,
}

impl Loaded {
    /// Without the groups of whose entries some were not read.
    pub(super) fn whole_groups(mut self) -> Self {
        let (mut whole, mut entries) = (0, 0);
        for count in &self.counts {
            let end = entries + *count as usize;
            if end > self.values.len() {
                break;
            }
            (whole, entries) = (whole + 1, end);
        }
        self.counts.truncate(whole);
        self.values.truncate(entries);
        self
    }
}

impl Stored {
    pub(super) fn new(
        position: usize,
        declared: &StateVariable,
        operator: &str,
        caller: &Caller,
    ) -> Result<Self> {
        let entries = Entries::new(operator, &declared.name, declared.ttl_ms);
        let schema = Variable::new(position, declared, operator)?;
        let kind = match declared.kind {
            VariableKind::Value => Kind::Value(entries),
            VariableKind::List => Kind::List(Lists::new(entries, &declared.load)),
            VariableKind::Map => Kind::Map(Maps::new(entries, declared, caller)?),
        };
        Ok(Self { schema, function: caller.stateful().clone(), kind })
    }

    /// Its rows of state: a value, a list, an entry of a map each.
    pub(super) fn counted_table(&self) -> &str {
        match &self.kind {
            Kind::Value(entries) => &entries.table,
            Kind::List(lists) => lists.table(),
            Kind::Map(maps) => maps.table(),
        }
    }

    /// Its entries, under its name.
    pub(super) fn show(
        &self,
        keys: &GroupKeys<'_>,
        state: &mut dyn StateShard,
        each: &mut Shown<'_>,
    ) -> Result<()> {
        let table = match &self.kind {
            Kind::Value(entries) => &entries.table,
            Kind::List(lists) => lists.items(),
            Kind::Map(maps) => &maps.entries().table,
        };
        let of = show::Entries {
            table,
            variable: Some(&self.schema),
            function: self.function.as_ref(),
            time: self.schema.declared.ttl_ms.map(|_| "expires"),
        };
        show::show(keys, &of, state, &mut |rows| each(&self.schema.declared.name, rows))
    }

    pub(super) fn known(&self, state: &dyn StateShard) -> Result<Known> {
        self.schema.known(state)
    }

    /// Takes away what has outlived its time.
    pub(super) fn expire(&self, shard: &mut Shard<'_, '_>) -> Result<()> {
        match &self.kind {
            Kind::Value(entries) => entries.expire(shard),
            Kind::List(lists) => lists.expire(shard),
            Kind::Map(maps) => maps.entries().expire(shard),
        }
    }

    /// Values that groups begin with.
    pub(super) fn begin(&self, shard: &mut Shard<'_, '_>, begins_with: &OfShard) -> Result<()> {
        let values = self.encode(shard, &begins_with.values)?;
        let changes = begins_with.keys.iter().cloned().zip(values.into_iter().map(Some)).collect();
        match &self.kind {
            Kind::Value(entries) => entries.write(shard, changes),
            Kind::List(_) | Kind::Map(_) => Ok(()),
        }
    }

    /// The entries that a call of these groups is given; of the first alone if those come to more bytes, perhaps of
    /// none. Gives the bytes, too.
    pub(super) fn load(
        &self,
        shard: &mut Shard<'_, '_>,
        keys: &[Bytes],
        input: &GroupInput,
        bytes_max: usize,
    ) -> Result<(StateEntries, usize)> {
        let mut loaded = match &self.kind {
            Kind::Value(entries) => {
                let mut loaded = Loaded::default();
                for entry in entries.read(shard, keys, bytes_max)? {
                    loaded.counts.push(u32::from(entry.value.is_some()));
                    loaded.values.extend(entry.value);
                }
                loaded
            }
            Kind::List(lists) => lists.load(shard, keys, bytes_max)?,
            Kind::Map(maps) => maps.load(shard, keys, input, &self.schema, bytes_max)?,
        };
        let bytes = loaded.keys.iter().chain(&loaded.values).map(Bytes::len).sum();
        let map_keys: Vec<&[u8]> = loaded.keys.iter().map(|key| key.as_ref()).collect();
        let known = &mut shard.known[self.schema.position];
        let function = self.function.as_ref();
        self.schema.upgrade(known, function, &map_keys, &mut loaded.values, shard.state)?;
        let mut columns: Vec<ArrayRef> = match self.schema.declared.kind {
            VariableKind::Map => self.schema.keys.decode(map_keys)?,
            VariableKind::Value | VariableKind::List => Vec::new(),
        };
        columns.extend(self.schema.decode(loaded.values.iter().map(|value| value.as_ref()))?);
        let mut offsets = Vec::with_capacity(loaded.counts.len() + 1);
        let mut at = 0;
        offsets.push(at);
        for count in loaded.counts {
            at += count;
            offsets.push(at);
        }
        let rows = call::batch(&self.schema.declared.entries, columns, at as usize)?;
        Ok((StateEntries { rows, offsets }, bytes))
    }

    /// Makes the changes of a call.
    pub(super) fn change(
        &self,
        shard: &mut Shard<'_, '_>,
        keys: &[Bytes],
        changes: &StateChanges,
    ) -> Result<()> {
        if changes.groups.is_empty() {
            return Ok(());
        }
        let puts = changes.actions.iter().filter(|action| **action == StateAction::Put).count();
        if puts > changes.put.num_rows() || changes.actions.len() != changes.groups.len() {
            let given = changes.put.num_rows();
            return Err(shard.calls.wrong(format!("put {puts} entries, but gave {given} rows for them")));
        }
        let values = match changes.put.num_rows() {
            0 => Vec::new(),
            _ => {
                let columns = changes.put.columns();
                self.encode(shard, &columns[self.schema.declared.key.fields().len().min(columns.len())..])?
            }
        };
        match &self.kind {
            Kind::Value(entries) => entries.write(shard, last_values(keys, changes, &values)),
            Kind::List(lists) => lists.change(shard, keys, changes, &values),
            Kind::Map(maps) => maps.change(shard, keys, changes, &values, &self.schema),
        }
    }

    /// `[schema number][row]` of rows of values.
    fn encode(&self, shard: &mut Shard<'_, '_>, columns: &[ArrayRef]) -> Result<Vec<Bytes>> {
        let number = self.schema.number(&mut shard.known[self.schema.position], shard.state)?;
        let rows = self.schema.encode(columns)?;
        let mut arena = crate::stateful::layout::Arena::with_capacity(rows.len(), 18);
        rows.iter().for_each(|row| arena.push(&[&number, row]));
        Ok(arena.finish())
    }
}

/// Of several changes of a value the last one counts.
fn last_values(keys: &[Bytes], changes: &StateChanges, values: &[Bytes]) -> Changes {
    let mut puts = values.iter();
    let changes = changes.groups.iter().zip(&changes.actions).map(|(group, action)| {
        let value = match action {
            StateAction::Put => puts.next().cloned(),
            StateAction::Remove | StateAction::Clear => None,
        };
        (keys[*group as usize].clone(), value)
    });
    changes.collect()
}
