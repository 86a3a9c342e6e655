//! The second half of a session window: the sessions of all parts meet the stored ones of one shard.

use super::SessionWindows;
use super::partial::Partial;
use super::value::{Stored, read, write};
use crate::stateful::ShardOutput;
use crate::stateful::aggregate::calls::pick;
use crate::stateful::aggregate::groups::common_keys;
use crate::stateful::aggregate::keys::time_at;
use crate::stateful::layout::{Arena, for_entries, sorted_order, sorted_removals, through_time};
use arrow::array::ArrayRef;
use arrow::compute::concat;
use bytes::Bytes;
use pelton_core::{Error, Result, StateOp, StateShard};
use pelton_state::ordered_i64;
use std::collections::BTreeMap;

/// One shard at work.
pub(super) struct Shard<'a> {
    pub(super) operator: &'a SessionWindows,
    /// The table of sessions by key.
    pub(super) sessions: String,
    /// The table of ends.
    pub(super) ends: String,
    pub(super) state: &'a mut dyn StateShard,
    pub(super) output: ShardOutput,
}

/// A session before it is known what touches it; its state is found by its position.
struct Loose {
    key: usize,
    start: i64,
    end: i64,
}

/// A session of a key.
struct Session {
    key: usize,
    start: i64,
    end: i64,
}

impl Shard<'_> {
    /// Takes new sessions in.
    pub(super) fn take(&mut self, partials: Vec<Partial>) -> Result<()> {
        let (keys, key_of) = common_keys(partials.iter().map(|partial| &partial.keys))?;
        let asked: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let values = self.state.get_many(&self.sessions, &asked)?;
        let mut loose = Vec::new();
        let mut stored_states = Vec::new();
        for (key, value) in values.iter().enumerate() {
            for Stored { start, end, state } in read(value.as_deref().unwrap_or_default())? {
                loose.push(Loose { key, start, end });
                stored_states.push(state);
            }
        }
        let stored = loose.len();
        for (partial, key_of) in partials.iter().zip(&key_of) {
            let sessions = partial.key_of.iter().zip(&partial.starts).zip(&partial.ends);
            loose.extend(sessions.map(|((key, start), end)| Loose {
                key: key_of[*key as usize],
                start: *start,
                end: *end,
            }));
        }
        let mut sources = Vec::with_capacity(partials.len() + 1);
        if !stored_states.is_empty() {
            sources.push(self.operator.calls.decode(stored_states)?);
        }
        sources.extend(partials.into_iter().map(|partial| partial.states));
        let (sessions, of_loose, order) = melted(&loose);
        let states = pick(&joined(&sources)?, order)?;
        let mut accumulators = self.operator.calls.accumulators()?;
        accumulators.merge(&states, &of_loose, sessions.len())?;
        self.write(&keys, &sessions, &loose[..stored], &accumulators.states()?)
    }

    /// Writes the sessions of the keys, which are all that the keys have; `before` are those that were stored.
    fn write(
        &mut self,
        keys: &[Bytes],
        sessions: &[Session],
        before: &[Loose],
        states: &[ArrayRef],
    ) -> Result<()> {
        let encoded = self.operator.calls.encode(states)?;
        let mut values = Arena::with_capacity(keys.len(), 64);
        let mut value = Vec::new();
        let mut gone = Arena::with_capacity(before.len(), 32);
        before.iter().for_each(|old| end_key(&keys[old.key], old.start, old.end, &mut gone));
        let mut come = Arena::with_capacity(sessions.len(), 32);
        for (at, session) in sessions.iter().enumerate() {
            let state = encoded.as_ref().map_or(&[][..], |encoded| encoded.get(at));
            write(Stored { start: session.start, end: session.end, state }, &mut value)?;
            end_key(&keys[session.key], session.start, session.end, &mut come);
            // Every key has a session, and the sessions of a key stand together.
            if sessions.get(at + 1).is_none_or(|next| next.key != session.key) {
                values.push(&[&value]);
                value.clear();
            }
        }
        self.output.updated += sessions.len() as u64;
        self.output.removed += before.len().saturating_sub(sessions.len()) as u64;
        let puts = keys.iter().zip(values.finish()).map(|(key, value)| StateOp::Put(key.clone(), value));
        self.state.apply(&self.sessions, puts.collect())?;
        let mut ends = sorted_removals(&gone.finish());
        let come = come.finish();
        let marks =
            sorted_order(&come).into_iter().map(|at| StateOp::Put(come[at as usize].clone(), Bytes::new()));
        ends.extend(marks);
        self.state.apply(&self.ends, ends)
    }

    /// Gives and removes the sessions that are over.
    pub(super) fn expire(&mut self, watermark_us: i64) -> Result<()> {
        let Self { operator, sessions, ends, state, output } = self;
        for_entries(&mut **state, ends, &[], &through_time(watermark_us), |state, entries| {
            let over = entries.iter().map(|(key, _)| Over::of(key)).collect::<Result<Vec<_>>>()?;
            let keys: BTreeMap<&[u8], ()> = over.iter().map(|over| (over.key, ())).collect();
            let keys: Vec<&[u8]> = keys.into_keys().collect();
            let values = state.get_many(sessions, &keys)?;
            let mut stored: BTreeMap<&[u8], Vec<Stored<'_>>> = BTreeMap::new();
            for (key, value) in keys.iter().zip(&values) {
                stored.insert(key, read(value.as_deref().unwrap_or_default())?);
            }
            let mut states = Vec::with_capacity(over.len());
            for over in &over {
                states.push(over.take(&mut stored)?);
            }
            let changes = stored.iter().map(|(key, rest)| left(key, rest)).collect::<Result<Vec<_>>>()?;
            let of: Vec<&[u8]> = over.iter().map(|over| over.key).collect();
            let (starts, ends_of): (Vec<i64>, Vec<i64>) =
                over.iter().map(|over| (over.start, over.end)).unzip();
            let states = operator.calls.decode(states)?;
            output.rows.push(operator.result(&of, &starts, &ends_of, &states)?);
            output.removed += over.len() as u64;
            state.apply(sessions, changes)?;
            state.apply(ends, entries.iter().map(|(key, _)| StateOp::Remove(key.clone())).collect())
        })
    }

    /// Gives all sessions.
    pub(super) fn give_all(&mut self) -> Result<()> {
        let Self { operator, sessions, state, output, .. } = self;
        // Key groups are less.
        for_entries(&mut **state, sessions, &[], &[u8::MAX], |_, entries| {
            let (mut keys, mut starts, mut ends, mut states) = (vec![], vec![], vec![], vec![]);
            for (key, value) in &entries {
                for session in read(value)? {
                    keys.push(key.as_ref());
                    starts.push(session.start);
                    ends.push(session.end);
                    states.push(session.state);
                }
            }
            let states = operator.calls.decode(states)?;
            output.rows.push(operator.result(&keys, &starts, &ends, &states)?);
            Ok(())
        })
    }
}

/// A session that is over, from its key in the table of ends.
struct Over<'a> {
    key: &'a [u8],
    start: i64,
    end: i64,
}

impl<'a> Over<'a> {
    fn of(entry: &'a [u8]) -> Result<Self> {
        let (end, start) = (time_at(entry, 0)?, time_at(entry, 8)?);
        Ok(Self { key: &entry[16..], start, end })
    }

    /// Takes its state out of the stored sessions.
    fn take<'s>(&self, stored: &mut BTreeMap<&[u8], Vec<Stored<'s>>>) -> Result<&'s [u8]> {
        let sessions = stored.get_mut(self.key);
        let found = sessions.and_then(|sessions| {
            let at =
                sessions.iter().position(|session| (session.start, session.end) == (self.start, self.end))?;
            Some(sessions.remove(at).state)
        });
        found.ok_or_else(|| {
            Error::data("a session is in the table of ends but not stored: the state is damaged")
        })
    }
}

/// What to store for a key that has these sessions.
fn left(key: &[u8], sessions: &[Stored<'_>]) -> Result<StateOp> {
    let key = Bytes::copy_from_slice(key);
    if sessions.is_empty() {
        return Ok(StateOp::Remove(key));
    }
    let mut value = Vec::new();
    sessions.iter().try_for_each(|session| write(*session, &mut value))?;
    Ok(StateOp::Put(key, Bytes::from(value)))
}

fn end_key(key: &[u8], start: i64, end: i64, into: &mut Arena) {
    into.push(&[&ordered_i64(end), &ordered_i64(start), key]);
}

/// Brings sessions that touch together. Gives the sessions by key and start, then in the order in which states are to
/// be added (by key, start, then position) the session of each and its position.
fn melted(loose: &[Loose]) -> (Vec<Session>, Vec<usize>, Vec<u32>) {
    let mut order: Vec<u32> = (0..loose.len() as u32).collect();
    order.sort_unstable_by_key(|at| {
        let loose = &loose[*at as usize];
        (loose.key, loose.start, *at)
    });
    let mut sessions: Vec<Session> = Vec::new();
    let mut of_loose = Vec::with_capacity(loose.len());
    for at in &order {
        let Loose { key, start, end } = loose[*at as usize];
        match sessions.last_mut() {
            Some(last) if last.key == key && start <= last.end => last.end = last.end.max(end),
            _ => sessions.push(Session { key, start, end }),
        }
        of_loose.push(sessions.len() - 1);
    }
    (sessions, of_loose, order)
}

/// The rows of several states in one.
fn joined(sources: &[Vec<ArrayRef>]) -> Result<Vec<ArrayRef>> {
    let width = sources.first().map_or(0, Vec::len);
    let column = |at: usize| {
        let parts: Vec<_> = sources.iter().map(|source| source[at].as_ref()).collect();
        concat(&parts).map_err(Into::into)
    };
    (0..width).map(column).collect()
}
