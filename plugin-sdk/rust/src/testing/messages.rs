//! The input of a call over groups as the messages that the host would send. `groups` makes one for every call.

use super::groups::{Called, Open};
use super::rows::{append_row, builders, message, one_row};
use super::store::Group;
use crate::array::Array;
use crate::error::Error;
use crate::groups::session::{RawEntries, RawGroups};
use crate::groups::{GivenTimer, Load, Reason, VariableInfo};
use crate::ipc;
use crate::types::Schema;

/// A call's input as messages.
pub(super) struct Messages {
    keys: Vec<u8>,
    rows: Vec<u8>,
    offsets: Vec<[u8; 4]>,
    state: Vec<(Vec<u8>, Vec<[u8; 4]>)>,
    /// The place in the micro-batch of each row of the call.
    pub(super) row_numbers: Vec<usize>,
}

impl Messages {
    pub(super) fn new(
        open: &Open,
        called: &Called,
        rows: Option<&[u8]>,
        groups: &[&Group],
    ) -> Result<Self, Error> {
        let mut keys = builders(&open.key);
        for key in &called.keys {
            append_row(key, &open.key, &mut keys)?;
        }
        let row_numbers: Vec<usize> = called.rows.concat();
        let read = open.session.rows();
        let mut columns = builders(read);
        let given = rows.map(|rows| ipc::read_batch(rows, &open.input)).transpose()?;
        if let Some(given) = &given {
            for (to, field) in columns.iter_mut().zip(&read.fields) {
                let from = open.input.index_of(&field.name).unwrap_or_default();
                row_numbers.iter().for_each(|row| to.push_from(&given.columns()[from], *row));
            }
        }
        let variables = &open.session.signature().variables;
        let state = variables.iter().map(|info| entries(open, info, called, given.as_ref(), groups));
        Ok(Self {
            keys: message(&keys, called.keys.len(), &open.key),
            rows: message(&columns, row_numbers.len(), read),
            offsets: offsets(called.rows.iter().map(Vec::len)),
            state: state.collect::<Result<_, Error>>()?,
            row_numbers,
        })
    }

    pub(super) fn raw<'a>(
        &'a self,
        reason: Reason,
        called: &'a Called,
        groups: &[&'a Group],
    ) -> RawGroups<'a> {
        let fired = |(group, (name, at)): (usize, &'a (String, i64))| GivenTimer {
            group: group as u32,
            name,
            at: *at,
        };
        let pending = groups.iter().enumerate().flat_map(|(group, kept)| {
            let mut timers: Vec<_> = kept.timers.iter().map(|(name, at)| (*at, name.as_str())).collect();
            timers.sort_unstable();
            timers.into_iter().map(move |(at, name)| GivenTimer { group: group as u32, name, at })
        });
        RawGroups {
            reason,
            keys: &self.keys,
            rows: &self.rows,
            offsets: &self.offsets,
            state: self.state.iter().map(|(rows, offsets)| RawEntries { rows, offsets }).collect(),
            fired: called.fired.iter().enumerate().map(fired).collect(),
            pending: pending.collect(),
        }
    }
}

fn offsets(counts: impl Iterator<Item = usize>) -> Vec<[u8; 4]> {
    let mut end = 0_u32;
    let ends = counts.map(|count| {
        end += count as u32;
        end.to_le_bytes()
    });
    std::iter::once([0; 4]).chain(ends).collect()
}

/// The entries of a variable for the groups of a call.
fn entries(
    open: &Open,
    info: &VariableInfo,
    called: &Called,
    given: Option<&Array<'_>>,
    groups: &[&Group],
) -> Result<(Vec<u8>, Vec<[u8; 4]>), Error> {
    let schema = info.entries();
    let mut columns = builders(&schema);
    let mut counts = Vec::with_capacity(groups.len());
    for (group, rows) in groups.iter().zip(&called.rows) {
        let wanted = wanted(open, info, rows, given);
        let stored = group.variables.get(&info.name);
        counts.push(stored.map_or(Ok(0), |stored| stored.load(info, &wanted, &mut columns))?);
    }
    let count = counts.iter().sum();
    Ok((message(&columns, count, &schema), offsets(counts.into_iter())))
}

/// The keys of a map that a group's rows name.
fn wanted(open: &Open, info: &VariableInfo, rows: &[usize], given: Option<&Array<'_>>) -> Vec<Vec<u8>> {
    let (Load::KeyedBy(names), Some(given)) = (&info.load, given) else { return Vec::new() };
    let places = names.iter().filter_map(|name| open.input.index_of(name));
    let columns: Vec<Array<'_>> = places.map(|at| given.columns()[at].clone()).collect();
    let schema = Schema::new(info.key.clone());
    rows.iter().map(|row| one_row(&columns, *row, &schema)).collect()
}
