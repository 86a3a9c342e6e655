//! The second half of a session window: the sessions of all parts meet the stored ones of one shard.

use super::SessionWindows;
use super::partial::Partial;
use super::value::{Stored, read, write};
use crate::stateful::aggregate::calls::pick;
use crate::stateful::aggregate::groups::common_keys;
use crate::stateful::layout::{Arena, for_entries, prefix_end};
use crate::stateful::time_index::TimeIndex;
use crate::stateful::{NodeScope, ShardOutput};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat;
use bytes::Bytes;
use pelton_core::{AFTER_ALL_KEYS, Result, StateOp, StateShard};
use pelton_plan::ROWS_PER_BATCH_MAX;
use pelton_state::ordered_i64;

/// One shard at work.
pub(super) struct Shard<'a> {
    pub(super) operator: &'a SessionWindows,
    /// The table of sessions.
    pub(super) sessions: String,
    /// By which ends are found. A session that grew is in it several times.
    pub(super) ends: TimeIndex,
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
    /// The end that is stored for this start.
    stored_end: Option<i64>,
    /// Nothing came to the stored one.
    is_as_stored: bool,
}

/// Sessions that do not touch.
#[derive(Default)]
struct Melted {
    /// By key and start.
    sessions: Vec<Session>,
    /// The order in which states are to be added (by key, start, then position), by position, and the session of each.
    order: Vec<u32>,
    of_loose: Vec<usize>,
    /// Stored ones that became part of an earlier one, by position.
    gone: Vec<usize>,
}

impl Shard<'_> {
    /// Takes new sessions in.
    pub(super) fn take(&mut self, scope: &NodeScope<'_>, partials: Vec<Partial>) -> Result<()> {
        let (keys, key_of) = common_keys(partials.iter().map(|partial| &partial.keys))?;
        let stored = self.stored(&keys)?;
        let mut loose = Vec::new();
        let mut states = Vec::new();
        for (key, entry) in &stored {
            let Stored { start, end, state, .. } = read(entry)?;
            loose.push(Loose { key: *key, start, end });
            states.push(state);
        }
        for (partial, key_of) in partials.iter().zip(&key_of) {
            let sessions = partial.key_of.iter().zip(&partial.starts).zip(&partial.ends);
            loose.extend(sessions.map(|((key, start), end)| Loose {
                key: key_of[*key as usize],
                start: *start,
                end: *end,
            }));
        }
        let mut sources = Vec::with_capacity(partials.len() + 1);
        if !states.is_empty() {
            sources.push(self.operator.calls.decode(states)?);
        }
        sources.extend(partials.into_iter().map(|partial| partial.states));
        let mut melted = melted(&loose, stored.len());
        let states = pick(&joined(&sources)?, std::mem::take(&mut melted.order))?;
        let mut accumulators = self.operator.calls.accumulators()?;
        accumulators.merge(&states, &melted.of_loose, melted.sessions.len())?;
        self.output.updated += melted.sessions.len() as u64;
        self.output.removed += stored.len().saturating_sub(melted.sessions.len()) as u64;
        let gone = melted.gone.iter().map(|at| StateOp::Remove(stored[*at].1.0.clone())).collect();
        self.write(scope, &keys, &melted.sessions, gone, &accumulators.states()?)
    }

    /// The stored sessions of keys, with the position of the key, in order.
    fn stored(&mut self, keys: &[Bytes]) -> Result<Vec<(usize, (Bytes, Bytes))>> {
        let mut stored = Vec::new();
        if self.state.len(&self.sessions) == 0 {
            return Ok(stored);
        }
        for (at, key) in keys.iter().enumerate() {
            for_entries(self.state, &self.sessions, key, &prefix_end(key), |_, entries| {
                stored.extend(entries.into_iter().map(|entry| (at, entry)));
                Ok(())
            })?;
        }
        Ok(stored)
    }

    /// Writes the sessions that are not as they are stored.
    fn write(
        &mut self,
        scope: &NodeScope<'_>,
        keys: &[Bytes],
        sessions: &[Session],
        mut changes: Vec<StateOp>,
        states: &[ArrayRef],
    ) -> Result<()> {
        let encoded = self.operator.calls.encode(states)?;
        let changed: Vec<(usize, &Session)> =
            sessions.iter().enumerate().filter(|(_, session)| !session.is_as_stored).collect();
        let mut names = Arena::with_capacity(changed.len(), 32);
        let mut values = Arena::with_capacity(changed.len(), 32);
        for (at, session) in &changed {
            let state = encoded.as_ref().map_or(&[][..], |encoded| encoded.get(*at));
            names.push(&[&keys[session.key], &ordered_i64(session.start)]);
            write(session.end, state, &mut values);
        }
        let names = names.finish();
        if self.operator.expires {
            let moved = changed.iter().zip(&names);
            let moved = moved.filter(|((_, session), _)| session.stored_end != Some(session.end));
            let moved = moved.map(|((_, session), name)| (session.end, &name[..])).collect();
            self.ends.add(scope, self.state, moved)?;
        }
        changes.extend(names.into_iter().zip(values.finish()).map(|(name, value)| StateOp::Put(name, value)));
        self.state.apply(&self.sessions, changes)
    }

    /// Gives and removes the sessions that are over, by end, start and key.
    pub(super) fn expire(&mut self, watermark_us: i64) -> Result<()> {
        let Self { operator, sessions, ends, state, output } = self;
        let mut names = Vec::new();
        ends.expire(&mut **state, watermark_us, |_, some| {
            names.extend(some);
            Ok(())
        })?;
        names.sort_unstable();
        names.dedup();
        let asked: Vec<&[u8]> = names.iter().map(AsRef::as_ref).collect();
        let values = state.get_many(sessions, &asked)?;
        let entries = names.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?)));
        let entries: Vec<(Bytes, Bytes)> = entries.collect();
        let mut over = Vec::with_capacity(entries.len());
        let mut changes = Vec::with_capacity(entries.len());
        for entry in &entries {
            let stored = read(entry)?;
            if stored.end <= watermark_us {
                over.push(stored);
                changes.push(StateOp::Remove(entry.0.clone()));
            }
        }
        over.sort_unstable_by_key(|stored| (stored.end, stored.start, stored.key));
        for over in over.chunks(ROWS_PER_BATCH_MAX) {
            output.rows.push(operator.given(over)?);
        }
        output.removed += over.len() as u64;
        if changes.is_empty() { Ok(()) } else { state.apply(sessions, changes) }
    }

    /// Gives all sessions.
    pub(super) fn give_all(&mut self) -> Result<()> {
        let Self { operator, sessions, state, output, .. } = self;
        for_entries(&mut **state, sessions, &[], &AFTER_ALL_KEYS, |_, entries| {
            output.rows.push(operator.given_entries(&entries)?);
            Ok(())
        })
    }
}

impl SessionWindows {
    /// The sessions of entries as they would be given now.
    pub(super) fn given_entries(&self, entries: &[(Bytes, Bytes)]) -> Result<RecordBatch> {
        self.given(&entries.iter().map(read).collect::<Result<Vec<_>>>()?)
    }

    fn given(&self, sessions: &[Stored<'_>]) -> Result<RecordBatch> {
        let keys: Vec<&[u8]> = sessions.iter().map(|session| session.key).collect();
        let (starts, ends): (Vec<i64>, Vec<i64>) =
            sessions.iter().map(|session| (session.start, session.end)).unzip();
        let states = self.calls.decode(sessions.iter().map(|session| session.state))?;
        self.result(&keys, &starts, &ends, &states)
    }
}

/// Brings sessions that touch together; the first ones are stored, and those of a key have different starts.
fn melted(loose: &[Loose], stored: usize) -> Melted {
    let mut order: Vec<u32> = (0..loose.len() as u32).collect();
    order.sort_unstable_by_key(|at| {
        let loose = &loose[*at as usize];
        (loose.key, loose.start, *at)
    });
    let mut melted = Melted::default();
    for at in order.iter().map(|at| *at as usize) {
        let Loose { key, start, end } = loose[at];
        let is_stored = at < stored;
        match melted.sessions.last_mut() {
            Some(last) if last.key == key && start <= last.end => {
                last.end = last.end.max(end);
                last.is_as_stored = false;
                melted.gone.extend(is_stored.then_some(at));
            }
            _ => {
                let stored_end = is_stored.then_some(end);
                melted.sessions.push(Session { key, start, end, stored_end, is_as_stored: is_stored });
            }
        }
        melted.of_loose.push(melted.sessions.len() - 1);
    }
    Melted { order, ..melted }
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
