//! The interface `sink`. `result<_, error>` is 16 bytes.

use super::{FlatClock, Given, area, clock, fail, log_panics};
use crate::error::Error;
use crate::runtime::Plugin;
use crate::sink::{OutputMode, SinkSession};

/// `open`: function, config and input, each a pointer and a length; the output mode.
pub fn open(plugin: &'static Plugin, arguments: [usize; 6], mode: i32) -> usize {
    log_panics();
    let [a, b, c, d, e, f] = arguments;
    let function = Given { at: a, bytes: b };
    let config = Given { at: c, bytes: d };
    let input = Given { at: e, bytes: f };
    let mode = match mode {
        1 => OutputMode::Update,
        2 => OutputMode::Complete,
        _ => OutputMode::Append,
    };
    match SinkSession::open(plugin, function.as_str(), config.as_str(), input.as_slice(), mode) {
        Ok(session) => {
            super::STATE.with_borrow_mut(|state| state.sink = Some(session));
            area(&[0])
        }
        Err(error) => fail(error),
    }
}

/// `write`: the clock, the part (its number, whether it is the last), the rows.
pub fn write(flat: FlatClock, part: (i32, i32), rows: usize, rows_bytes: usize) -> usize {
    let rows = Given { at: rows, bytes: rows_bytes };
    let part = (part.0.cast_unsigned(), part.1 != 0);
    let outcome = super::STATE.with_borrow_mut(|state| match &mut state.sink {
        Some(session) => session.write(clock(flat), part, rows.as_slice()),
        None => Err(Error::Failed("no sink function is open on this instance".to_owned())),
    });
    match outcome {
        Ok(()) => area(&[0]),
        Err(error) => fail(error),
    }
}
