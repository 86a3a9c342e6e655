//! Lines that a thread has read ahead and that are not committed yet; bounded, so that a fast writer waits.

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use pelton_core::{Error, Result};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use tokio::sync::Notify;

/// Bytes that are read ahead.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of one read.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes of a line.
const LINE_BYTES_MAX: usize = 64 << 20;

/// Whole lines that came together.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// How many lines were before.
    pub(super) first_line: u64,
    pub(super) lines: u64,
    pub(super) bytes: Bytes,
    /// Nothing came before it in this run.
    pub(super) is_first: bool,
    /// When a micro-batch saw it first.
    pub(super) time_ms: Option<i64>,
}

/// What was read and is not committed.
pub(super) struct Buffer {
    state: Mutex<State>,
    /// There is room again.
    room: Condvar,
    /// There are more lines, or the end.
    more: Notify,
    socket: Option<TcpStream>,
}

struct State {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Lines read so far.
    lines: u64,
    has_read: bool,
    ended: bool,
    failed: Option<String>,
    closed: bool,
    /// The time of pieces that come, if it is fixed.
    stamp_ms: Option<i64>,
}

impl Buffer {
    /// Starts a thread that reads. Lines are counted from `start`.
    pub(super) fn fill_from(input: Box<dyn Read + Send>, socket: Option<TcpStream>, start: u64) -> Arc<Self> {
        let state = State {
            pieces: VecDeque::new(),
            bytes: 0,
            lines: start,
            has_read: false,
            ended: false,
            failed: None,
            closed: false,
            stamp_ms: None,
        };
        let (room, more) = (Condvar::new(), Notify::new());
        let buffer = Arc::new(Self { state: Mutex::new(state), room, more, socket });
        let filled = Arc::clone(&buffer);
        std::thread::spawn(move || filled.fill(input));
        buffer
    }

    fn fill(&self, input: Box<dyn Read + Send>) {
        let mut input = LineReader::new(input);
        let failed = loop {
            match input.next() {
                Ok(piece) => {
                    if piece.is_empty() || !self.push(piece) {
                        break None;
                    }
                }
                Err(e) => break Some(e.to_string()),
            }
        };
        let mut state = self.state.lock();
        (state.ended, state.failed) = (true, failed);
        self.more.notify_waiters();
    }

    /// Adds lines once there is room; whether to go on.
    fn push(&self, bytes: Vec<u8>) -> bool {
        let mut state = self.state.lock();
        while state.bytes >= BYTES_MAX && !state.closed {
            self.room.wait(&mut state);
        }
        let lines = memchr::memchr_iter(b'\n', &bytes).count() as u64 + u64::from(!bytes.ends_with(b"\n"));
        let (first_line, is_first, time_ms) = (state.lines, !state.has_read, state.stamp_ms);
        state.bytes += bytes.len();
        state.lines += lines;
        state.has_read = true;
        state.pieces.push_back(Piece { first_line, lines, bytes: bytes.into(), is_first, time_ms });
        self.more.notify_waiters();
        !state.closed
    }

    /// From now on pieces have this time.
    pub(super) fn stamp(&self, time_ms: Option<i64>) {
        let mut state = self.state.lock();
        state.stamp_ms = time_ms;
        state.pieces.iter_mut().for_each(|piece| piece.time_ms = piece.time_ms.or(time_ms));
    }

    /// How many lines there are; those that were not seen before get this time.
    pub(super) fn lines(&self, now_ms: i64) -> Result<u64> {
        let mut state = self.state.lock();
        if let (Some(why), true) = (&state.failed, state.pieces.is_empty()) {
            return Err(Error::unavailable(format!("cannot read on: {why}")));
        }
        state.pieces.iter_mut().for_each(|piece| piece.time_ms = piece.time_ms.or(Some(now_ms)));
        Ok(state.lines)
    }

    /// How many lines were read.
    pub(super) fn lines_so_far(&self) -> u64 {
        self.state.lock().lines
    }

    /// When a micro-batch first saw the line behind so many, if one has.
    pub(super) fn seen_ms(&self, lines: u64) -> Option<i64> {
        let state = self.state.lock();
        state.pieces.iter().find(|piece| piece.first_line + piece.lines > lines)?.time_ms
    }

    /// Whether nothing will ever come after so many lines.
    pub(super) fn ends_at(&self, lines: u64) -> bool {
        let state = self.state.lock();
        state.ended && state.failed.is_none() && state.lines <= lines
    }

    /// Returns when there are more lines, or the input has ended.
    pub(super) async fn wait_for_more(&self, lines: u64) {
        loop {
            let notified = self.more.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let state = self.state.lock();
                if state.ended || state.lines > lines {
                    return;
                }
            }
            notified.await;
        }
    }

    /// Takes the first piece, waiting for it; `None` at the end of the input. It is not kept.
    pub(super) async fn take(&self) -> Result<Option<Piece>> {
        loop {
            let seen = {
                let mut state = self.state.lock();
                if let Some(piece) = state.pieces.pop_front() {
                    state.bytes -= piece.bytes.len();
                    self.room.notify_all();
                    return Ok(Some(piece));
                }
                if let Some(why) = &state.failed {
                    return Err(Error::unavailable(format!("cannot read on: {why}")));
                }
                if state.ended {
                    return Ok(None);
                }
                state.lines
            };
            self.wait_for_more(seen).await;
        }
    }

    /// The lines of a range, kept until they are forgotten.
    pub(super) fn pieces(&self, start: u64, end: u64) -> Vec<Piece> {
        let state = self.state.lock();
        state.pieces.iter().filter_map(|piece| piece.part(start, end)).collect()
    }

    /// Forgets the lines before.
    pub(super) fn forget(&self, end: u64) {
        let mut state = self.state.lock();
        while let Some(first) = state.pieces.pop_front() {
            state.bytes -= first.bytes.len();
            if let Some(rest) = first.part(end, u64::MAX) {
                state.bytes += rest.bytes.len();
                state.pieces.push_front(rest);
                break;
            }
        }
        self.room.notify_all();
    }

    /// Lets the thread end as soon as it can.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.room.notify_all();
        if let Some(socket) = &self.socket {
            // Whether the other side is still there does not matter any more.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Piece {
    /// The lines from `start` to `end`, if there are any.
    fn part(&self, start: u64, end: u64) -> Option<Self> {
        let (from, to) = (start.max(self.first_line), end.min(self.first_line + self.lines));
        if from >= to {
            return None;
        }
        let (skip, take) = (from - self.first_line, to - from);
        let at = |line: u64| match line {
            0 => 0,
            line if line >= self.lines => self.bytes.len(),
            line => memchr::memchr_iter(b'\n', &self.bytes)
                .nth(line as usize - 1)
                .map_or(self.bytes.len(), |at| at + 1),
        };
        let bytes = self.bytes.slice(at(skip)..at(skip + take));
        let (is_first, time_ms) = (self.is_first && skip == 0, self.time_ms);
        Some(Self { first_line: from, lines: take, bytes, is_first, time_ms })
    }
}

/// Cuts what is read into whole lines.
struct LineReader {
    input: Box<dyn Read + Send>,
    /// The beginning of a line.
    rest: Vec<u8>,
    room: Vec<u8>,
}

impl LineReader {
    fn new(input: Box<dyn Read + Send>) -> Self {
        Self { input, rest: Vec::new(), room: vec![0; PIECE_BYTES] }
    }

    /// The lines that have come, the last one whole unless it is the input's last. Empty at the end.
    fn next(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let read = match self.input.read(&mut self.room) {
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // A server that hangs up the hard way has said all it had to say.
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => 0,
                Err(e) => return Err(e),
            };
            if read == 0 {
                return Ok(std::mem::take(&mut self.rest));
            }
            let read = &self.room[..read];
            if let Some(end) = memchr::memrchr(b'\n', read) {
                let mut lines = std::mem::take(&mut self.rest);
                lines.extend_from_slice(&read[..=end]);
                self.rest.extend_from_slice(&read[end + 1..]);
                return Ok(lines);
            }
            self.rest.extend_from_slice(read);
            if self.rest.len() > LINE_BYTES_MAX {
                return Err(io::Error::other(format!("a line is longer than {LINE_BYTES_MAX} bytes")));
            }
        }
    }
}
