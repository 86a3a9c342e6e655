//! Cuts a stream of bytes into blocks at record boundaries. Pure but for the reader that it is given.
//!
//! Where blocks end depends on the bytes alone: calls of user code are numbered by block, so a rerun must see
//! the same ones. `BLOCK_BYTES` is therefore part of the checkpoint's format.

use crate::decode::csv::split::{Quotes, Splitter};
use memchr::memmem::Finder;
use parking_lot::Mutex;
use std::io::{self, Read};
use std::sync::Arc;

/// Bytes of a block, before it is cut back to the last record boundary.
pub(super) const BLOCK_BYTES: usize = 4 << 20;
/// Bytes of one record, at most: memory stays bounded whatever a file holds.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// Bytes of a file that is one record.
const WHOLE_BYTES_MAX: usize = crate::decode::INPUT_BYTES_MAX;
/// Buffers that wait for their next block, at most.
const BUFFERS_KEPT: usize = 16;

/// What ends a record.
#[derive(Debug, Clone)]
pub(super) enum Boundary {
    LineFeed,
    Separator(Arc<Finder<'static>>),
    /// A line feed outside of quotes.
    Quoted(Splitter),
    /// Nothing: a file is a record.
    EndOfFile,
}

impl Boundary {
    /// Behind the last record that ends in `buffer`, which starts with a record.
    fn last_end(&self, buffer: &[u8]) -> Option<usize> {
        match self {
            Self::LineFeed => memchr::memrchr(b'\n', buffer).map(|at| at + 1),
            // From the front, as the decoder goes: separators may overlap with themselves.
            Self::Separator(finder) => finder.find_iter(buffer).last().map(|at| at + finder.needle().len()),
            Self::Quoted(splitter) => {
                let mut quotes = Quotes::new(*splitter);
                let mut last = None;
                for (at, byte) in buffer.iter().enumerate() {
                    if quotes.ends_record(*byte) {
                        last = Some(at + 1);
                    }
                }
                last
            }
            Self::EndOfFile => None,
        }
    }

    /// Lines in a block, as the decoder counts them.
    fn lines(&self, block: &[u8]) -> u64 {
        let lines = match self {
            Self::Separator(finder) => finder.find_iter(block).count(),
            _ => memchr::memchr_iter(b'\n', block).count(),
        };
        lines as u64
    }

    fn record_bytes_max(&self) -> usize {
        match self {
            Self::EndOfFile => WHOLE_BYTES_MAX,
            _ => RECORD_BYTES_MAX,
        }
    }
}

/// Buffers in use again and again: fresh memory of this size costs a page fault every 4 KiB.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Mutex<Vec<Vec<u8>>>,
}

/// A buffer that goes back to its pool.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    pool: Arc<Pool>,
}

impl Pool {
    fn take(self: &Arc<Self>) -> Buffer {
        let bytes = self.free.lock().pop().unwrap_or_else(|| Vec::with_capacity(BLOCK_BYTES + 4096));
        Buffer { bytes, pool: self.clone() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut free = self.pool.free.lock();
        if free.len() < BUFFERS_KEPT && bytes.capacity() <= 2 * BLOCK_BYTES {
            free.push(bytes);
        }
    }
}

/// A block as it was cut.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) buffer: Buffer,
    pub(super) first_line: u64,
    pub(super) starts_file: bool,
}

/// Why cutting ended early.
#[derive(Debug)]
pub(super) enum CutError {
    Io(io::Error),
    /// A record at this line is longer than this many bytes.
    TooLong(u64, usize),
}

impl CutError {
    fn at_line(self, line: u64) -> Self {
        match self {
            Self::TooLong(_, max) => Self::TooLong(line, max),
            io => io,
        }
    }
}

/// Reads `input` to its end and gives block after block to `emit`, until that returns false.
pub(super) fn cut(
    input: impl Read,
    boundary: &Boundary,
    pool: &Arc<Pool>,
    emit: impl FnMut(Piece) -> bool,
) -> Result<(), CutError> {
    cut_by(BLOCK_BYTES, input, boundary, pool, emit)
}

fn cut_by(
    block_bytes: usize,
    mut input: impl Read,
    boundary: &Boundary,
    pool: &Arc<Pool>,
    mut emit: impl FnMut(Piece) -> bool,
) -> Result<(), CutError> {
    let mut carry: Vec<u8> = Vec::new();
    let mut first_line = 1;
    let mut starts_file = true;
    loop {
        let mut buffer = pool.take();
        buffer.bytes.append(&mut carry);
        let (end, at_end) =
            fill(&mut input, boundary, &mut buffer.bytes, block_bytes).map_err(|e| e.at_line(first_line))?;
        carry.extend_from_slice(&buffer.bytes[end..]);
        buffer.bytes.truncate(end);
        let lines = boundary.lines(&buffer.bytes);
        let whole_file = matches!(boundary, Boundary::EndOfFile);
        let wanted = !buffer.bytes.is_empty() || whole_file;
        if wanted && !emit(Piece { buffer, first_line, starts_file }) {
            return Ok(());
        }
        if at_end {
            return Ok(());
        }
        first_line += lines;
        starts_file = false;
    }
}

/// Fills the buffer until it holds a block; where that ends, and whether the input ends too.
fn fill(
    input: &mut impl Read,
    boundary: &Boundary,
    buffer: &mut Vec<u8>,
    block_bytes: usize,
) -> Result<(usize, bool), CutError> {
    let mut target = block_bytes;
    loop {
        let wanted = target.saturating_sub(buffer.len());
        let read = input.by_ref().take(wanted as u64).read_to_end(buffer).map_err(CutError::Io)?;
        if read < wanted {
            return Ok((buffer.len(), true));
        }
        if let Some(end) = boundary.last_end(buffer) {
            return Ok((end, false));
        }
        if buffer.len() >= boundary.record_bytes_max() {
            return Err(CutError::TooLong(0, boundary.record_bytes_max()));
        }
        // Twice as much each time: looking for the boundary again and again must not cost the square.
        target = (buffer.len() * 2).min(boundary.record_bytes_max());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::csv::{CsvDecoder, CsvOptions};
    use crate::decode::json::{JsonDecoder, JsonOptions};
    use crate::decode::text::{TextDecoder, TextOptions, text_schema};
    use crate::decode::{Decoder, DecoderSettings, Input};
    use arrow::array::Array;
    use arrow::array::cast::AsArray;
    use pelton_core::MalformedPolicy;
    use pelton_core::types::parse_columns;
    use proptest::prelude::*;

    fn pieces(text: &[u8], boundary: &Boundary) -> Vec<(Vec<u8>, u64)> {
        let mut pieces = Vec::new();
        let emit = |piece: Piece| {
            pieces.push((piece.buffer.bytes.clone(), piece.first_line));
            true
        };
        cut(text, boundary, &Arc::default(), emit).unwrap();
        pieces
    }

    #[test]
    fn blocks_end_with_records_and_lose_nothing() {
        let line = "x".repeat(999) + "\n";
        let text = line.repeat(10_000) + "the end";
        let pieces = pieces(text.as_bytes(), &Boundary::LineFeed);
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces.iter().flat_map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>(), text.as_bytes());
        assert!(pieces[..2].iter().all(|(bytes, _)| bytes.ends_with(b"\n") && bytes.len() <= BLOCK_BYTES));
        assert_eq!(pieces[1].1, 4195);
    }

    #[test]
    fn a_record_longer_than_a_block_makes_a_longer_block() {
        let text = format!("a\n{}\nb\n", "x".repeat(BLOCK_BYTES * 3));
        let pieces = pieces(text.as_bytes(), &Boundary::LineFeed);
        assert_eq!(pieces.iter().map(|(bytes, _)| bytes.len()).sum::<usize>(), text.len());
        assert_eq!(pieces.iter().map(|p| p.1).collect::<Vec<_>>(), [1, 2, 3][..pieces.len()]);
    }

    #[test]
    fn a_record_without_end_is_refused() {
        let endless = io::repeat(b'x');
        let error = cut(endless, &Boundary::LineFeed, &Arc::default(), |_| true).unwrap_err();
        assert!(matches!(error, CutError::TooLong(1, RECORD_BYTES_MAX)));
    }

    #[test]
    fn whole_files_are_one_piece_even_if_empty() {
        assert_eq!(pieces(b"", &Boundary::EndOfFile), [(vec![], 1)]);
        assert!(pieces(b"", &Boundary::LineFeed).is_empty());
        assert_eq!(pieces(b"a\nb", &Boundary::EndOfFile).len(), 1);
    }

    #[test]
    fn buffers_come_back() {
        let pool = Arc::<Pool>::default();
        cut(&b"a\n"[..], &Boundary::LineFeed, &pool, |_| true).unwrap();
        assert_eq!(pool.free.lock().len(), 1);
    }

    /// All rows as text with the lines that malformed records were found at, however the blocks are cut.
    fn decoded(decoder: &dyn Decoder, text: &str, boundary: &Boundary, block_bytes: usize) -> Vec<String> {
        let mut rows = Vec::new();
        let emit = |piece: Piece| {
            let (first_line, starts_file) = (piece.first_line, piece.starts_file);
            let input = Input { bytes: &piece.buffer.bytes, file: "f", first_line, starts_file };
            let decoded = decoder.decode(&input).unwrap();
            for batch in decoded.batches {
                let columns: Vec<_> = batch.columns().iter().map(|c| c.as_string::<i32>()).collect();
                let row =
                    |i: usize| columns.iter().map(|c| c.is_valid(i).then(|| c.value(i))).collect::<Vec<_>>();
                rows.extend((0..batch.num_rows()).map(|i| format!("{:?}", row(i))));
            }
            rows.extend(decoded.dead_letters.iter().map(|letter| format!("{letter:?}")));
            true
        };
        cut_by(block_bytes, text.as_bytes(), boundary, &Arc::default(), emit).unwrap();
        rows.sort();
        rows
    }

    fn settings(columns: &str) -> DecoderSettings {
        let schema = Arc::new(arrow::datatypes::Schema::new(parse_columns(columns, "UTC").unwrap()));
        DecoderSettings { on_malformed: MalformedPolicy::DeadLetter, ..DecoderSettings::new(schema) }
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_rows(
            json in "(\\{\"a\": ?(\"[xyü]{0,9}\"|[0-9]{1,9})(, \"b\":null)?\\}|[xü{ ]{0,4})?(\r?\n(\\{\"a\":\"[x]{0,9}\"\\}|[{x ]{0,3})){0,9}\n?",
            csv in "([ab\",\\\\ü]{0,9}\r?\n){0,12}[ab,]{0,9}",
            block_bytes in 1_usize..40,
        ) {
            let whole = usize::MAX / 4;
            let decoder = JsonDecoder::new(&settings("a: string, b: string"), &JsonOptions::default()).unwrap();
            let expected = decoded(&decoder, &json, &Boundary::LineFeed, whole);
            prop_assert_eq!(decoded(&decoder, &json, &Boundary::LineFeed, block_bytes), expected);
            for multi_line in [false, true] {
                let options = CsvOptions { multi_line, header: true, comment: Some(b'b'), ..CsvOptions::default() };
                let decoder = CsvDecoder::new(&settings("a: string, b: string"), &options).unwrap();
                let boundary = if multi_line { Boundary::Quoted(options.splitter()) } else { Boundary::LineFeed };
                // A block that holds but blank lines before the header would hide it from the next one.
                let csv = format!("a,b\n{csv}");
                let expected = decoded(&decoder, &csv, &boundary, whole);
                prop_assert_eq!(decoded(&decoder, &csv, &boundary, block_bytes.max(5)), expected, "{}", csv);
            }
            let options = TextOptions { line_sep: Some("bb".into()), ..TextOptions::default() };
            let decoder = TextDecoder::new(&DecoderSettings::new(text_schema()), &options).unwrap();
            let boundary = Boundary::Separator(Arc::new(Finder::new("bb").into_owned()));
            let expected = decoded(&decoder, &csv, &boundary, whole);
            prop_assert_eq!(decoded(&decoder, &csv, &boundary, block_bytes), expected);
        }
    }
}
