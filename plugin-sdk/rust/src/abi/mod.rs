//! The canonical ABI by hand, in Wasm only: arguments flattened into numbers, results in a return area.
//!
//! The exports that [`crate::plugin!`] makes call it; it is the one module with `unsafe`. What makes it sound:
//! the host passes only memory that it got from [`realloc`], each piece once, with the length that it asked
//! for; and a Wasm instance has one thread, so the statics are never used twice at a time.
//!
//! Sizes and offsets: `list` and `string` are (pointer, length); `manifest` is 28 bytes, `function` 20,
//! `rejected` 12; `result<list<u8>, error>` 16 bytes, `result<output, error>` 20. `stateful` has its own.
#![allow(unsafe_code)]

pub(crate) mod http;
pub mod sink;
pub mod stateful;

use crate::context::Clock;
use crate::error::Error;
use crate::function::{Kind, Rejected};
use crate::groups::session::GroupSession;
use crate::host::Level;
use crate::runtime::{Plugin, Session};
use crate::sink::SinkSession;
use crate::values::Timestamp;
use std::alloc::{Layout, alloc, dealloc, realloc as reallocate};
use std::cell::RefCell;

/// Whatever the host asks for is aligned for every Arrow buffer.
const ALIGN: usize = 16;

#[link(wasm_import_module = "pelton:plugin/host@0.1.0")]
unsafe extern "C" {
    #[link_name = "log"]
    fn host_log(level: i32, message: *const u8, bytes: usize);
    #[link_name = "count"]
    fn host_count(name: *const u8, bytes: usize, by: i64);
}

pub(crate) fn log(level: Level, message: &str) {
    // SAFETY: pointer and length are those of a live string; the host only reads them.
    unsafe { host_log(level as i32, message.as_ptr(), message.len()) }
}

pub(crate) fn count(name: &str, by: u64) {
    // SAFETY: as in `log`.
    unsafe { host_count(name.as_ptr(), name.len(), by.cast_signed()) }
}

#[derive(Default)]
struct State {
    session: Option<Session>,
    groups: Option<GroupSession>,
    sink: Option<SinkSession>,
    /// What the last return area points to, where it is not the session's own.
    bytes: Vec<u8>,
    error: String,
    rejected: Vec<[usize; 3]>,
    changes: Vec<[usize; 8]>,
    timers: Vec<stateful::TimerRecord>,
    area: Box<[usize; 11]>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// `cabi_realloc`. Zero bytes lie at an address that is in memory and never read.
pub fn realloc(old: usize, old_bytes: usize, _align: usize, bytes: usize) -> usize {
    if bytes == 0 {
        return ALIGN;
    }
    let (Ok(layout), Ok(old_layout)) =
        (Layout::from_size_align(bytes, ALIGN), Layout::from_size_align(old_bytes, ALIGN))
    else {
        return out_of_memory();
    };
    // SAFETY: the sizes are not zero; `old` came from here with `old_bytes`.
    let place =
        unsafe { if old_bytes == 0 { alloc(layout) } else { reallocate(old as *mut u8, old_layout, bytes) } };
    if place.is_null() { out_of_memory() } else { place as usize }
}

#[cold]
fn out_of_memory() -> usize {
    core::arch::wasm32::unreachable()
}

/// A list that the host handed over.
struct Given {
    at: usize,
    bytes: usize,
}

impl Given {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: the host filled this piece of memory, which nothing else refers to.
        unsafe { core::slice::from_raw_parts(self.at as *const u8, self.bytes) }
    }
    fn as_str(&self) -> &str {
        // The canonical ABI guarantees UTF-8; what is not reads as a name that no function has.
        core::str::from_utf8(self.as_slice()).unwrap_or_default()
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if self.bytes != 0 {
            // SAFETY: it came from `realloc` with this size and alignment.
            unsafe { dealloc(self.at as *mut u8, Layout::from_size_align_unchecked(self.bytes, ALIGN)) }
        }
    }
}

/// `describe`: the strings are the program's own; what is built here stays for good.
pub fn describe(plugin: &'static Plugin) -> usize {
    let function = |entry: &crate::function::Entry| {
        let (name, doc) = (entry.name, entry.doc);
        [name.as_ptr() as usize, name.len(), entry.kind as usize, doc.as_ptr() as usize, doc.len()]
    };
    let functions: Vec<[usize; 5]> = plugin.functions.iter().map(function).collect();
    let functions = functions.leak();
    let (name, version) = (plugin.name, plugin.version);
    let name = [name.as_ptr() as usize, name.len()];
    let version = [version.as_ptr() as usize, version.len()];
    const ARROW: usize = 0;
    area(&[name[0], name[1], version[0], version[1], ARROW, functions.as_ptr() as usize, functions.len()])
}

/// `scalar.bind`.
pub fn bind(plugin: &'static Plugin, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
    start(plugin, Kind::Scalar, [a, b, c, d, e, f])
}

/// `transform.open`.
pub fn open(plugin: &'static Plugin, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> usize {
    start(plugin, Kind::Transform, [a, b, c, d, e, f])
}

fn start(plugin: &Plugin, kind: Kind, arguments: [usize; 6]) -> usize {
    log_panics();
    let [a, b, c, d, e, f] = arguments;
    let function = Given { at: a, bytes: b };
    let config = Given { at: c, bytes: d };
    let input = Given { at: e, bytes: f };
    match Session::open(plugin, kind, function.as_str(), config.as_str(), input.as_slice()) {
        Ok((session, schema)) => {
            let words = STATE.with_borrow_mut(|state| {
                state.session = Some(session);
                state.bytes = schema;
                [0, state.bytes.as_ptr() as usize, state.bytes.len(), 0]
            });
            area(&words)
        }
        Err(error) => fail(error),
    }
}

/// `scalar.evaluate` and `transform.process`, which look the same in the canonical ABI: the clock's fields
/// (an option is a flag and a value), then the rows.
pub fn run(
    batch_id: i64,
    processing_time: i64,
    has_watermark: i32,
    watermark: i64,
    seed: i64,
    rows: usize,
    rows_bytes: usize,
) -> usize {
    let rows = Given { at: rows, bytes: rows_bytes };
    let clock = clock((batch_id, processing_time, has_watermark, watermark, seed));
    let outcome = STATE.with_borrow_mut(|state| {
        let State { session: Some(session), rejected, .. } = state else {
            return Err(Error::Failed("no function is open on this instance".to_owned()));
        };
        session.run(clock, rows.as_slice())?;
        list_rejected(session.rejected(), rejected);
        let message = session.message();
        Ok([0, message.as_ptr() as usize, message.len(), rejected.as_ptr() as usize, rejected.len()])
    });
    match outcome {
        Ok(words) => area(&words),
        Err(error) => fail(error),
    }
}

/// A clock as it is flattened: batch, time, whether there is a watermark, the watermark, seed.
pub type FlatClock = (i64, i64, i32, i64, i64);

fn clock((batch_id, processing_time, has_watermark, watermark, seed): FlatClock) -> Clock {
    Clock {
        batch_id: batch_id.cast_unsigned(),
        processing_time: Timestamp(processing_time),
        watermark: (has_watermark != 0).then_some(Timestamp(watermark)),
        seed: seed.cast_unsigned(),
    }
}

fn list_rejected(rejected: &[Rejected], list: &mut Vec<[usize; 3]>) {
    let words =
        |refused: &Rejected| [refused.row as usize, refused.reason.as_ptr() as usize, refused.reason.len()];
    list.clear();
    list.extend(rejected.iter().map(words));
}

/// The return area of `Err(error)`; the same words suit both results.
fn fail(error: Error) -> usize {
    let (case, message) = match error {
        Error::Unsuitable(message) => (0, message),
        Error::Failed(message) => (1, message),
    };
    let words = STATE.with_borrow_mut(|state| {
        state.error = message;
        [1, case, state.error.as_ptr() as usize, state.error.len(), 0]
    });
    area(&words)
}

/// Fills the return area, which lives until the next call. Every case number is followed by padding, so whole
/// words serve for them.
fn area(words: &[usize]) -> usize {
    STATE.with_borrow_mut(|state| {
        state.area[..words.len()].copy_from_slice(words);
        state.area.as_ptr() as usize
    })
}

/// A panic becomes a trap, which says nothing; so its message goes to the log first.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| log(Level::Error, &panic.to_string())));
}
