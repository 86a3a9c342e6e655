//! Arrow IPC messages: schemas and record batches, read and written without the Arrow crates, so that a plugin
//! stays small.
//!
//! Called by the runtime and by the testing harness. What it reads came from the host; it checks all the same
//! and never indexes past a buffer. No dictionaries, no compression, no view types: the contract excludes them.

mod flat;
mod read;
mod schema;
mod write;

pub(crate) use read::read_batch;
pub(crate) use schema::{read_schema, write_schema};
pub use write::Encoder;

use crate::error::Error;

const CONTINUATION: [u8; 4] = [0xff; 4];
const VERSION_5: i16 = 4;
const HEADER_SCHEMA: u8 = 1;
const HEADER_RECORD_BATCH: u8 = 3;

/// Splits an encapsulated message into its metadata and its body.
fn split(message: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let (length_at, start) = match flat::bytes::<4>(message, 0) {
        Some(CONTINUATION) => (4, 8),
        _ => (0, 4),
    };
    let length = flat::bytes(message, length_at).map(|b| u32::from_le_bytes(b) as usize);
    let rest = message.get(start..);
    length
        .zip(rest)
        .and_then(|(length, rest)| rest.split_at_checked(length))
        .ok_or_else(|| malformed("it is cut short"))
}

/// The header table of a message of the expected kind.
fn header(metadata: &[u8], kind: u8) -> Result<flat::Table<'_>, Error> {
    let message = flat::Table::root(metadata).ok_or_else(|| malformed("its metadata cannot be read"))?;
    if message.u8(1, 0) != kind {
        return Err(malformed("it is of another kind than expected"));
    }
    message.table(2).ok_or_else(|| malformed("it has no header"))
}

fn malformed(what: &str) -> Error {
    Error::Failed(format!("the Arrow message is malformed: {what}"))
}
