//! The interface `stateful`. `process` has more parameters than can be flattened: they lie in one piece of memory.
//!
//! Sizes and offsets of that piece: the clock 0 (batch 0, time 8, whether there is a watermark 16, the watermark 24,
//! seed 32), the groups 40 (reason 40, then lists of 8 bytes from 44: keys, rows, offsets, state, fired, pending); 96 in
//! all. `entries` are 16 bytes, `timer` 24 (group 0, name 4, at 16), `variable` 64, `changes` 32, `timeout` 16,
//! `timer-change` 32; `result<signature, error>` is 36 bytes, `result<output, error>` 44.

use super::{Given, State, area, clock, fail, list_rejected, log_panics};
use crate::error::Error;
use crate::groups::session::{GroupSession, RawEntries, RawGroups};
use crate::groups::{GivenTimer, Load, Reason, Signature, TimerChange, VariableInfo};
use crate::ipc::write_schema;
use crate::runtime::Plugin;
use crate::types::Schema;

/// A `timer-change` as it lies in memory.
#[repr(C)]
pub(super) struct TimerRecord {
    group: u32,
    name: usize,
    name_bytes: usize,
    is_set: u64,
    at: i64,
}

/// A `variable` as it lies in memory.
#[repr(C)]
struct VariableRecord {
    name: [usize; 2],
    kind: u32,
    key: [usize; 2],
    value: [usize; 2],
    version: u32,
    has_ttl: u64,
    ttl_ms: u64,
    load: u32,
    load_value: [usize; 2],
}

const CALL_BYTES: usize = 96;
const ENTRIES_BYTES: usize = 16;
const TIMER_BYTES: usize = 24;

/// `open`: function, config, key and input, each a pointer and a length.
pub fn open(plugin: &'static Plugin, arguments: [usize; 8]) -> usize {
    log_panics();
    let [a, b, c, d, e, f, g, h] = arguments;
    let function = Given { at: a, bytes: b };
    let config = Given { at: c, bytes: d };
    let key = Given { at: e, bytes: f };
    let input = Given { at: g, bytes: h };
    let opened =
        GroupSession::open(plugin, function.as_str(), config.as_str(), key.as_slice(), input.as_slice());
    match opened {
        Ok(session) => {
            // The signature is told once on an instance: it stays for good.
            let words = signature_words(Box::leak(Box::new(session.signature().clone())), session.rows());
            super::STATE.with_borrow_mut(|state| state.groups = Some(session));
            area(&words)
        }
        Err(error) => fail(error),
    }
}

fn leak<T>(values: Vec<T>) -> [usize; 2] {
    let values = values.leak();
    [values.as_ptr() as usize, values.len()]
}

fn signature_words(signature: &'static Signature, rows: &Schema) -> [usize; 9] {
    let output = leak(write_schema(&signature.output));
    let reads = rows.fields.iter().map(|field| leak(field.name.clone().into_bytes()));
    let reads = leak(reads.collect::<Vec<_>>());
    let variables = leak(signature.variables.iter().map(variable).collect::<Vec<_>>());
    let modes = signature.form as usize | (signature.time_mode as usize) << 8;
    [0, modes, output[0], output[1], 1, reads[0], reads[1], variables[0], variables[1]]
}

fn variable(info: &'static VariableInfo) -> VariableRecord {
    let text = |text: &'static str| [text.as_ptr() as usize, text.len()];
    let schema = |fields: &[crate::types::Field]| leak(write_schema(&Schema::new(fields.to_vec())));
    let (load, load_value) = match &info.load {
        Load::Nothing => (0, [0, 0]),
        Load::Everything => (1, [0, 0]),
        Load::Last(count) => (2, [*count as usize, 0]),
        Load::KeyedBy(columns) => (3, leak(columns.iter().map(|column| text(column)).collect())),
    };
    VariableRecord {
        name: text(&info.name),
        kind: info.kind as u32,
        key: schema(&info.key),
        value: schema(&info.value),
        version: info.version,
        has_ttl: u64::from(info.ttl_ms.is_some()),
        ttl_ms: info.ttl_ms.unwrap_or_default(),
        load,
        load_value,
    }
}

impl Given {
    /// The list that is described at this place of this piece: `count` items of `item_bytes` each.
    fn list(&self, at: usize, item_bytes: usize) -> Self {
        Self { at: self.word(at), bytes: self.word(at + 4).wrapping_mul(item_bytes) }
    }
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.as_slice().get(at..).and_then(|rest| rest.first_chunk().copied()).unwrap_or([0; N])
    }
    fn word(&self, at: usize) -> usize {
        u32::from_le_bytes(self.array(at)) as usize
    }
    fn long(&self, at: usize) -> i64 {
        i64::from_le_bytes(self.array(at))
    }
    fn numbers(&self) -> &[[u8; 4]] {
        self.as_slice().as_chunks().0
    }
}

/// The lists that a call handed over; they are freed with it.
struct Call {
    head: Given,
    keys: Given,
    rows: Given,
    offsets: Given,
    /// Rows and offsets of each variable.
    state: Vec<(Given, Given)>,
    /// Held to be freed with the rest.
    _state_list: Given,
    timers: [Timers; 2],
}

struct Timers {
    list: Given,
    names: Vec<Given>,
}

impl Call {
    fn new(at: usize) -> Self {
        let head = Given { at, bytes: CALL_BYTES };
        let state_list = head.list(68, ENTRIES_BYTES);
        let places = (0..state_list.bytes / ENTRIES_BYTES).map(|i| i * ENTRIES_BYTES);
        let state = places.map(|at| (state_list.list(at, 1), state_list.list(at + 8, 4))).collect();
        Self {
            keys: head.list(44, 1),
            rows: head.list(52, 1),
            offsets: head.list(60, 4),
            state,
            _state_list: state_list,
            timers: [Timers::new(head.list(76, TIMER_BYTES)), Timers::new(head.list(84, TIMER_BYTES))],
            head,
        }
    }

    fn groups(&self) -> RawGroups<'_> {
        RawGroups {
            reason: match self.head.array::<1>(40) {
                [1] => Reason::Timeout,
                [2] => Reason::Timer,
                _ => Reason::Data,
            },
            keys: self.keys.as_slice(),
            rows: self.rows.as_slice(),
            offsets: self.offsets.numbers(),
            state: self.state.iter().map(raw_entries).collect(),
            fired: self.timers[0].given(),
            pending: self.timers[1].given(),
        }
    }
}

fn raw_entries((rows, offsets): &(Given, Given)) -> RawEntries<'_> {
    RawEntries { rows: rows.as_slice(), offsets: offsets.numbers() }
}

impl Timers {
    fn new(list: Given) -> Self {
        let places = (0..list.bytes / TIMER_BYTES).map(|i| i * TIMER_BYTES);
        let names = places.map(|at| list.list(at + 4, 1)).collect();
        Self { list, names }
    }
    fn given(&self) -> Vec<GivenTimer<'_>> {
        let timers = self.names.iter().enumerate();
        timers.map(|(i, name)| self.timer(i, name)).collect()
    }
    fn timer<'a>(&'a self, i: usize, name: &'a Given) -> GivenTimer<'a> {
        GivenTimer {
            group: self.list.word(i * TIMER_BYTES) as u32,
            name: core::str::from_utf8(name.as_slice()).unwrap_or_default(),
            at: self.list.long(i * TIMER_BYTES + 16),
        }
    }
}

/// `process`.
pub fn process(at: usize) -> usize {
    let call = Call::new(at);
    let head = &call.head;
    let clock =
        clock((head.long(0), head.long(8), i32::from(head.array::<1>(16)[0]), head.long(24), head.long(32)));
    let outcome = super::STATE.with_borrow_mut(|state| {
        let State { groups: Some(session), rejected, changes, timers, .. } = state else {
            return Err(Error::Failed("no stateful function is open on this instance".to_owned()));
        };
        session.run(clock, &call.groups())?;
        let reply = session.reply();
        list_rejected(&reply.rejected, rejected);
        changes.clear();
        changes.extend(reply.changes.iter().map(|change| {
            let put = if change.puts > 0 { change.put.message() } else { &[] };
            let remove = if change.removes > 0 { change.remove.message() } else { &[] };
            let (groups, actions) = (&change.groups, &change.actions);
            let [groups_at, actions_at] = [groups.as_ptr() as usize, actions.as_ptr() as usize];
            let [put_at, remove_at] = [put, remove].map(|message| message.as_ptr() as usize);
            [groups_at, groups.len(), actions_at, actions.len(), put_at, put.len(), remove_at, remove.len()]
        }));
        timers.clear();
        timers.extend(reply.timers.iter().map(timer_record));
        let rows = reply.rows.message();
        let lists = [
            [rows.as_ptr() as usize, rows.len()],
            [rejected.as_ptr() as usize, rejected.len()],
            [changes.as_ptr() as usize, changes.len()],
            [reply.timeouts.as_ptr() as usize, reply.timeouts.len()],
            [timers.as_ptr() as usize, timers.len()],
        ];
        let mut words = [0; 11];
        words[1..].copy_from_slice(lists.as_flattened());
        Ok(words)
    });
    match outcome {
        Ok(words) => area(&words),
        Err(error) => fail(error),
    }
}

fn timer_record(change: &TimerChange) -> TimerRecord {
    TimerRecord {
        group: change.group,
        name: change.name.as_ptr() as usize,
        name_bytes: change.name.len(),
        is_set: u64::from(change.at.is_some()),
        at: change.at.unwrap_or_default(),
    }
}

/// `migrate`: variable, old schema and entries, each a pointer and a length.
pub fn migrate(from: i32, arguments: [usize; 6]) -> usize {
    let [a, b, c, d, e, f] = arguments;
    let variable = Given { at: a, bytes: b };
    let old = Given { at: c, bytes: d };
    let entries = Given { at: e, bytes: f };
    let outcome = super::STATE.with_borrow_mut(|state| {
        let Some(session) = &mut state.groups else {
            return Err(Error::Failed("no stateful function is open on this instance".to_owned()));
        };
        let from = from.cast_unsigned();
        let message = session.migrate(variable.as_str(), from, old.as_slice(), entries.as_slice())?;
        Ok([0, message.as_ptr() as usize, message.len(), 0])
    });
    match outcome {
        Ok(words) => area(&words),
        Err(error) => fail(error),
    }
}
