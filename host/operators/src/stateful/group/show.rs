//! The state of groups as rows for a person. Changes nothing that is kept.

use super::entry::Entry;
use super::schemas::{Known, Variable};
use crate::stateful::event_time::{utc_field, utc_times};
use crate::stateful::layout::{NO_TIME, entries_while};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{FieldRef, Schema};
use bytes::Bytes;
use pelton_core::{Result, StateShard, StatefulFunction, VariableKind};
use pelton_state::RowCodec;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The keys of the groups.
pub(super) struct GroupKeys<'a> {
    pub(super) fields: &'a [FieldRef],
    pub(super) codec: &'a RowCodec,
}

impl<'a> GroupKeys<'a> {
    /// `[key group][key]` and what comes after.
    fn split<'b>(&self, key: &'b [u8]) -> Result<(&'b [u8], &'b [u8])> {
        self.codec.split(key.get(1..).unwrap_or_default())
    }

    /// As columns.
    pub(super) fn columns(&self, keys: &[&[u8]]) -> Result<Vec<ArrayRef>> {
        let keys = keys.iter().map(|key| self.split(key).map(|(key, _)| key));
        self.codec.decode(keys.collect::<Result<Vec<_>>>()?)
    }
}

/// A table of entries.
pub(super) struct Entries<'a> {
    pub(super) table: &'a str,
    /// None: entries have no value.
    pub(super) variable: Option<&'a Variable>,
    pub(super) function: &'a dyn StatefulFunction,
    /// What their times are.
    pub(super) time: Option<&'static str>,
}

/// Gives the entries of a table.
pub(super) fn show(
    keys: &GroupKeys<'_>,
    of: &Entries<'_>,
    state: &mut dyn StateShard,
    each: &mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut known = of.variable.map(|variable| variable.known(state)).transpose()?;
    entries_while(state, of.table, |state, entries| {
        let bytes: Vec<&[u8]> = entries.iter().map(|(key, _)| key.as_ref()).collect();
        let mut columns = keys.columns(&bytes)?;
        let mut fields = keys.fields.to_vec();
        let read = entries.iter().map(|(_, stored)| Entry::read(Some(stored), of.table));
        let read = read.collect::<Result<Vec<_>>>()?;
        if let (Some(variable), Some(known)) = (of.variable, &mut known) {
            let rests = bytes.iter().map(|key| keys.split(key).map(|(_, rest)| rest));
            let rests = rests.collect::<Result<Vec<_>>>()?;
            let shown = Shown { variable, function: of.function, known, state };
            let (of_variable, values) = shown.columns(&rests, &read)?;
            // A field that has the name of a key column is told apart by the variable's name.
            let name = &variable.declared.name;
            fields.extend(of_variable.into_iter().map(|field| {
                match keys.fields.iter().any(|key| key.name() == field.name()) {
                    true => Arc::new(field.as_ref().clone().with_name(format!("{name}.{}", field.name()))),
                    false => field,
                }
            }));
            columns.extend(values);
        }
        if let Some(name) = of.time {
            fields.push(Arc::new(utc_field(name)));
            columns
                .push(Arc::new(utc_times(read.iter().map(|entry| entry.time.unwrap_or(NO_TIME)).collect())));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(entries.len()));
        each(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    })
}

struct Shown<'a, 's> {
    variable: &'a Variable,
    function: &'a dyn StatefulFunction,
    known: &'a mut Known,
    state: &'s mut dyn StateShard,
}

impl Shown<'_, '_> {
    /// The map's keys, if it is one, and the values; NULL where an entry has none.
    fn columns(self, rests: &[&[u8]], entries: &[Entry]) -> Result<(Vec<FieldRef>, Vec<ArrayRef>)> {
        let declared = &self.variable.declared;
        let is_map = declared.kind == VariableKind::Map;
        let mut values: Vec<Bytes> = entries.iter().filter_map(|entry| entry.value.clone()).collect();
        let map_keys = if is_map { rests } else { &[] };
        self.variable.upgrade(self.known, self.function, map_keys, &mut values, self.state)?;
        let mut columns = if is_map { self.variable.keys.decode(rests.iter().copied())? } else { Vec::new() };
        let mut next = 0..values.len() as u32;
        let at = entries.iter().map(|entry| entry.value.as_ref().and_then(|_| next.next()));
        let at = UInt32Array::from_iter(at);
        for column in self.variable.decode(values.iter().map(AsRef::as_ref))? {
            columns.push(take(&column, &at, None)?);
        }
        let nullable = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
        Ok((declared.entries.fields().iter().map(nullable).collect(), columns))
    }
}
