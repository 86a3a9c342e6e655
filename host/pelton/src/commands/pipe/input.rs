//! Lines of stdin in chunks: as many as are there, so that a terminal or a slow writer sees answers soon, and a
//! file is read by the thousands. Used by `pipe`; it knows nothing of what the lines hold.

use pelton_core::{Error, Result};
use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// A chunk is handed on when nothing more has come for so long.
const PATIENCE: Duration = Duration::from_millis(20);
/// Bounds on a chunk; a single longer line is a chunk of its own.
const LINES_MAX: u64 = 8192;
const BYTES_MAX: usize = 4 << 20;
/// Reads may run ahead of the chain by so many pieces of [`PIECE_BYTES`].
const PIECES_AHEAD: usize = 8;
const PIECE_BYTES: usize = 256 << 10;

/// Whole lines that follow each other.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// The number of the first line, from 1.
    pub(super) first_line: u64,
    /// The lines, each with its end.
    pub(super) bytes: Vec<u8>,
    lines: u64,
}

impl Chunk {
    fn is_full(&self) -> bool {
        self.lines >= LINES_MAX || self.bytes.len() >= BYTES_MAX
    }
}

/// The lines of a reader that a thread of its own reads.
pub(super) struct Lines {
    pieces: Receiver<std::io::Result<Vec<u8>>>,
    next_line: u64,
}

impl Lines {
    /// Starts reading.
    pub(super) fn of(input: impl Read + Send + 'static) -> Self {
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        std::thread::spawn(move || read(input, &sender));
        Self { pieces, next_line: 1 }
    }

    /// The next chunk; `None` at the end.
    pub(super) fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        let mut chunk = Chunk { first_line: self.next_line, ..Chunk::default() };
        // For the first piece it waits as long as it takes.
        match self.pieces.recv() {
            Ok(piece) => chunk.add(piece)?,
            Err(_) => return Ok(None),
        }
        while !chunk.is_full() {
            match self.pieces.recv_timeout(PATIENCE) {
                Ok(piece) => chunk.add(piece)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        self.next_line += chunk.lines;
        Ok(Some(chunk))
    }
}

impl Chunk {
    fn add(&mut self, piece: std::io::Result<Vec<u8>>) -> Result<()> {
        let piece = piece.map_err(|why| Error::unavailable(format!("cannot read stdin: {why}")))?;
        let ends = piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.lines += ends + u64::from(!piece.ends_with(b"\n"));
        self.bytes.extend_from_slice(&piece);
        Ok(())
    }
}

/// Sends pieces of whole lines: what one read gave, and the rest of the line that it was cut in.
fn read(input: impl Read, pieces: &SyncSender<std::io::Result<Vec<u8>>>) {
    let mut input = BufReader::with_capacity(PIECE_BYTES, input);
    loop {
        let piece = next_piece(&mut input);
        let last = !matches!(&piece, Ok(piece) if !piece.is_empty());
        let wanted = match piece {
            Ok(piece) if piece.is_empty() => return,
            piece => pieces.send(piece).is_ok(),
        };
        if last || !wanted {
            return;
        }
    }
}

fn next_piece(input: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let there = input.fill_buf()?;
    let mut piece = there.to_vec();
    let read = there.len();
    input.consume(read);
    if !piece.is_empty() && !piece.ends_with(b"\n") {
        input.read_until(b'\n', &mut piece)?;
    }
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(text: &'static str) -> Vec<(u64, String)> {
        let mut lines = Lines::of(text.as_bytes());
        std::iter::from_fn(|| lines.next_chunk().ok().flatten())
            .map(|chunk| (chunk.first_line, String::from_utf8_lossy(&chunk.bytes).into_owned()))
            .collect()
    }

    #[test]
    fn lines_come_whole_and_numbered() {
        assert!(chunks("").is_empty());
        assert_eq!(chunks("a\nb"), [(1, "a\nb".to_owned())]);
        let long = "x\n".repeat(PIECE_BYTES);
        let leaked: &'static str = long.leak();
        let found = chunks(leaked);
        assert!(found.len() > 1);
        assert_eq!(found.iter().map(|(_, text)| text.as_str()).collect::<String>(), leaked);
        let mut line = 1;
        for (first, text) in found {
            assert_eq!(first, line);
            assert!(text.ends_with('\n'));
            line += text.lines().count() as u64;
        }
    }
}
