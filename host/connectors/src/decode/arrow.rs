//! Arrow's IPC format: files and streams, and records that come one by one, each a whole stream. Columns go by name and
//! types widen as those of Parquet do.

#[cfg(test)]
mod tests;

use super::fault::{FileFault, read_exactly};
use super::options::{Bag, OptionMap};
use super::parquet::fit;
use super::rows::{RowSettings, Rows};
use super::{BATCH_ROWS, Decoder, DecoderSettings, INPUT_BYTES_MAX, Input, check_size};
use arrow::array::RecordBatch;
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::compute::concat_batches;
use arrow::datatypes::{Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::{MessageHeader, RecordBatch as IpcBatch, root_as_message};
use pelton_core::types::normalize_schema;
use pelton_core::{Decoded, Result};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The format's name in messages.
pub(crate) const FORMAT: &str = "Arrow IPC";

/// What an IPC file begins with, padded to eight bytes; behind it comes what a stream has.
const FILE_MAGIC: [u8; 8] = *b"ARROW1\0\0";
const CONTINUATION: [u8; 4] = [0xFF; 4];
/// Bytes of a message without its body, at most.
const HEAD_BYTES_MAX: usize = 16 << 20;
/// Words of zeros behind a file's magic, at most.
const PADDING_WORDS_MAX: usize = 16;
/// Rows of a batch that has no bytes, at most.
const EMPTY_ROWS_MAX: usize = 1 << 16;

/// The options of format `arrow`: it has none.
pub(crate) fn check_arrow_options(map: &OptionMap) -> Result<()> {
    Bag::new("arrow", map).finish()
}

/// Reads the batches of a file or stream one by one.
pub(crate) struct IpcReader<R> {
    input: R,
    decoder: StreamDecoder,
    begun: bool,
    ended: bool,
}

impl<R: Read> IpcReader<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, decoder: StreamDecoder::new(), begun: false, ended: false }
    }

    /// The columns that it says to have, in Pelton's types.
    pub(crate) fn schema(&mut self, time_zone: &str) -> Result<Schema, FileFault> {
        while self.decoder.schema().is_none() {
            if self.message()?.is_none() && self.ended {
                return Err(FileFault::Damaged("it has no schema".into()));
            }
        }
        let schema = self.decoder.schema().ok_or_else(|| "it has no schema".to_owned())?;
        let schema = normalize_schema(&schema, time_zone).map_err(|e| e.message().to_owned())?;
        Ok(Schema::new(schema.fields().iter().map(super::column::nullable).collect::<Fields>()))
    }

    /// The next batch; nothing at the end.
    pub(crate) fn next(&mut self) -> Result<Option<RecordBatch>, FileFault> {
        while !self.ended {
            if let Some(batch) = self.message()? {
                return Ok(Some(batch));
            }
        }
        match self.decoder.schema() {
            Some(_) => Ok(None),
            None => Err(FileFault::Damaged("it has no schema".into())),
        }
    }

    /// Reads one message, which may be a batch.
    fn message(&mut self) -> Result<Option<RecordBatch>, FileFault> {
        let Some(head) = self.head()? else {
            self.ended = true;
            return Ok(None);
        };
        let body_bytes = {
            let message = root_as_message(&head).map_err(|e| e.to_string())?;
            let body = usize::try_from(message.bodyLength()).ok().filter(|len| *len <= INPUT_BYTES_MAX);
            body.ok_or_else(|| format!("a body of {} bytes is not possible", message.bodyLength()))?
        };
        let mut body = Vec::new();
        read_exactly(&mut self.input, body_bytes, &mut body)?;
        check(&head, &body)?;
        let head_bytes = u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut whole = MutableBuffer::with_capacity(12 + head.len() + body.len());
        // The decoder acts on a message without a body only when it sees what comes behind it.
        let first = if self.decoder.schema().is_none() { &CONTINUATION[..] } else { &[] };
        for piece in [first, &head_bytes, &head, &body, &CONTINUATION] {
            whole.extend_from_slice(piece);
        }
        self.decode(whole.into())
    }

    /// What stands before a message's body; nothing at the end.
    fn head(&mut self) -> Result<Option<Vec<u8>>, FileFault> {
        let mut length = [0; 4];
        let mut filled = fill(&mut self.input, &mut length)?;
        if !self.begun && filled == 4 && length == FILE_MAGIC[..4] {
            let mut rest = [0; 4];
            self.input.read_exact(&mut rest)?;
            if rest != FILE_MAGIC[4..] {
                return Err(FileFault::Damaged("it does not begin as an Arrow file does".into()));
            }
            // Some writers align what follows to more than eight bytes.
            for _ in 0..PADDING_WORDS_MAX {
                filled = fill(&mut self.input, &mut length)?;
                if length != [0; 4] || filled < 4 {
                    break;
                }
            }
        }
        self.begun = true;
        if filled == 4 && length == CONTINUATION {
            filled = fill(&mut self.input, &mut length)?;
        }
        match (filled, u32::from_le_bytes(length) as usize) {
            (0, _) | (4, 0) => Ok(None),
            (4, len) if len <= HEAD_BYTES_MAX => {
                let mut head = Vec::new();
                read_exactly(&mut self.input, len, &mut head)?;
                Ok(Some(head))
            }
            _ => Err(FileFault::Damaged("it is no stream of messages".into())),
        }
    }

    /// The crate's reader checks what it makes, but not every schema that it is asked for.
    fn decode(&mut self, mut message: Buffer) -> Result<Option<RecordBatch>, FileFault> {
        let decoder = &mut self.decoder;
        let all = || {
            let mut batch = None;
            while !message.is_empty() {
                batch = decoder.decode(&mut message)?.or(batch);
            }
            Ok::<_, ArrowError>(batch)
        };
        match catch_unwind(AssertUnwindSafe(all)) {
            Ok(Ok(batch)) => Ok(batch),
            Ok(Err(ArrowError::IpcError(why))) => Err(FileFault::Damaged(why)),
            Ok(Err(e)) => Err(FileFault::Damaged(e.to_string())),
            Err(_) => Err(FileFault::Damaged("a message makes no sense".into())),
        }
    }
}

fn fill(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, FileFault> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(filled)
}

/// Refuses what takes more memory than its bytes warrant.
fn check(head: &[u8], body: &[u8]) -> Result<(), String> {
    let message = root_as_message(head).map_err(|e| e.to_string())?;
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|batch| batch.data()),
        _ => None,
    };
    batch.map_or(Ok(()), |batch| check_batch(&batch, body))
}

fn check_batch(batch: &IpcBatch<'_>, body: &[u8]) -> Result<(), String> {
    let mut bytes = body.len();
    if batch.compression().is_some() {
        // Each compressed buffer says first how long it will be; -1: it is not compressed after all.
        for buffer in batch.buffers().into_iter().flatten() {
            let at = usize::try_from(buffer.offset()).ok();
            let prefix = at.and_then(|at| body.get(at..)?.first_chunk::<8>());
            let len = prefix.map_or(0, |prefix| i64::from_le_bytes(*prefix).max(0));
            bytes = bytes.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
        }
    }
    let rows = usize::try_from(batch.length()).unwrap_or(usize::MAX);
    match bytes <= INPUT_BYTES_MAX && rows <= bytes.saturating_mul(8).saturating_add(EMPTY_ROWS_MAX) {
        true => Ok(()),
        false => Err(format!("a batch of {} rows in {bytes} bytes is not possible", batch.length())),
    }
}

/// Decodes Arrow IPC to rows.
#[derive(Debug)]
pub struct ArrowDecoder {
    rows: RowSettings,
}

impl ArrowDecoder {
    /// A decoder of files and records that have (some of) the columns of `settings.schema`.
    pub fn new(settings: &DecoderSettings) -> Result<Self> {
        Ok(Self { rows: RowSettings::new(settings, "")? })
    }

    /// A batch of a file as rows.
    pub(crate) fn fit(&self, name: &str, batch: &RecordBatch) -> Result<Decoded> {
        let position = |_: u64| name.to_owned();
        let mut rows = Rows::new(&self.rows, &position)?;
        rows.arrays(&fit(&self.rows.schema, name, batch)?, &[])?;
        rows.finish()
    }

    /// All rows of a record.
    fn record(&self, record: &[u8], position: &str) -> Result<Vec<RecordBatch>, String> {
        let mut reader = IpcReader::new(record);
        let mut batches = Vec::new();
        loop {
            match reader.next() {
                Ok(None) => return Ok(batches),
                Ok(Some(batch)) => batches
                    .push(fit(&self.rows.schema, position, &batch).map_err(|e| e.message().to_owned())?),
                Err(fault) => return Err(fault.of(position, FORMAT).message().to_owned()),
            }
        }
    }
}

impl Decoder for ArrowDecoder {
    fn schema(&self) -> SchemaRef {
        self.rows.schema.clone()
    }

    /// The piece is a whole file.
    fn decode(&self, input: &Input<'_>) -> Result<Decoded> {
        check_size(input.bytes.len(), input.file)?;
        let mut reader = IpcReader::new(input.bytes);
        let mut decoded = Decoded::default();
        while let Some(batch) = reader.next().map_err(|fault| fault.of(input.file, FORMAT))? {
            decoded.batches.extend(self.fit(input.file, &batch)?.batches);
        }
        Ok(decoded)
    }

    fn decode_records(&self, records: &[&[u8]], position: &dyn Fn(u64) -> String) -> Result<Decoded> {
        let mut rows = Rows::new(&self.rows, position)?;
        let mut waiting = Waiting::default();
        for (n, record) in records.iter().enumerate() {
            let name = position(n as u64);
            check_size(record.len(), &name)?;
            match self.record(record, &name) {
                Ok(batches) => batches.into_iter().for_each(|batch| waiting.push(batch, n)),
                Err(why) => {
                    waiting.flush(&mut rows)?;
                    rows.begin_record(n);
                    rows.malformed(n as u64, record, 0, why)?;
                }
            }
            if waiting.records.len() >= BATCH_ROWS {
                waiting.flush(&mut rows)?;
            }
        }
        waiting.flush(&mut rows)?;
        rows.finish()
    }
}

/// Batches that become one, for records of a few rows each.
#[derive(Default)]
struct Waiting {
    batches: Vec<RecordBatch>,
    records: Vec<u32>,
}

impl Waiting {
    fn push(&mut self, batch: RecordBatch, record: usize) {
        let record = u32::try_from(record).unwrap_or(u32::MAX);
        self.records.extend(std::iter::repeat_n(record, batch.num_rows()));
        self.batches.push(batch);
    }

    fn flush(&mut self, rows: &mut Rows<'_>) -> Result<()> {
        let Some(first) = self.batches.first() else { return Ok(()) };
        rows.arrays(&concat_batches(&first.schema(), &self.batches)?, &self.records)?;
        self.batches.clear();
        self.records.clear();
        Ok(())
    }
}
