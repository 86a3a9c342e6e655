//! Sources `socket` and `stdin`: lines from where nothing can be read twice. Spark's `TextSocketMicroBatchStream`.
//!
//! A thread reads lines ahead into memory, up to a bound; an offset is how many lines there were so far, or `"end"` for all there
//! will be. What a micro-batch has read is kept until it is committed. After a restart those lines are gone: a micro-batch that
//! would have to run again cannot, which is said at the start.

mod buffer;
#[cfg(test)]
mod tests;

use super::decoding::{LineOptions, again};
use crate::decode::{Decoder, Input};
use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use buffer::{Buffer, Piece};
use futures::{StreamExt, stream};
use pelton_core::{
    Backlog, BatchId, Block, BlockStream, Decoded, Error, Offset, OffsetRange, ReadLimit, Record, Result,
    Source,
};
use serde_json::Value;
use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::sync::OnceCell;

/// The column that `include_timestamp` adds.
const TIMESTAMP: &str = "timestamp";
/// The offset of everything there will be.
const END: &str = "end";

/// Where lines come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinesFrom {
    /// The process's own input.
    Stdin,
    /// A server that sends lines: `host:port`.
    Socket(String),
}

/// What the pipeline file says of such a source.
#[derive(Debug, Clone, PartialEq)]
pub struct LineSourceOptions {
    /// Where lines come from.
    pub from: LinesFrom,
    /// What they hold.
    pub lines: LineOptions,
    /// Adds a column `timestamp`: when a line was first seen. Spark's `includeTimestamp`.
    pub include_timestamp: bool,
    /// Rows in a micro-batch, at most.
    pub max_rows_per_trigger: Option<u64>,
}

/// A source of lines. Nothing is read before its first micro-batch.
pub struct LineSource {
    name: String,
    options: LineSourceOptions,
    decoder: Arc<dyn Decoder>,
    /// With the timestamp, if it is wanted.
    schema: SchemaRef,
    buffer: OnceCell<Arc<Buffer>>,
    until_end: AtomicBool,
}

impl LineSource {
    /// The source `name`.
    pub fn open(name: &str, options: &LineSourceOptions) -> Result<Self> {
        if options.max_rows_per_trigger == Some(0) {
            return Err(Error::invalid("max_rows_per_trigger must be at least 1"));
        }
        let decoder = options.lines.decoder(name, None, options.lines.on_malformed)?;
        if options.include_timestamp && decoder.schema().index_of(TIMESTAMP).is_ok() {
            return Err(Error::invalid("there is a column 'timestamp' already")
                .hint("give it another name, or leave out `include_timestamp`"));
        }
        let schema = with_timestamp(&decoder.schema(), options.include_timestamp, &options.lines.time_zone);
        Ok(Self {
            name: name.to_owned(),
            options: options.clone(),
            decoder,
            schema,
            buffer: OnceCell::new(),
            until_end: AtomicBool::new(false),
        })
    }

    /// The same source, decoding only these columns.
    pub fn with_columns(mut self, columns: &[String]) -> Result<Self> {
        let lines = &self.options.lines;
        let has_timestamp =
            self.options.include_timestamp && columns.iter().any(|column| column == TIMESTAMP);
        let is_decoded = |column: &&String| !(self.options.include_timestamp && *column == TIMESTAMP);
        let decoded = columns.iter().filter(is_decoded).cloned().collect();
        let decoder = lines.decoder(&self.name, Some(decoded), lines.on_malformed)?;
        self.schema = with_timestamp(&decoder.schema(), has_timestamp, &lines.time_zone);
        self.decoder = decoder;
        Ok(self)
    }

    fn kind(&self) -> &'static str {
        match self.options.from {
            LinesFrom::Stdin => "stdin",
            LinesFrom::Socket(_) => "socket",
        }
    }

    /// Starts to read; lines are counted from `start`.
    async fn started(&self, start: u64) -> Result<&Arc<Buffer>> {
        self.buffer
            .get_or_try_init(|| async {
                let kind = self.kind();
                tracing::warn!(
                    "source '{}' ({kind}) cannot read anything twice: what it gave to a micro-batch that is not committed is \
                     lost with the process",
                    self.name
                );
                let from = self.options.from.clone();
                let opened = tokio::task::spawn_blocking(move || connect(&from)).await;
                let (input, socket) =
                    opened.map_err(|e| Error::internal(format!("connecting did not end: {e}")))??;
                Ok(Buffer::fill_from(input, socket, start))
            })
            .await
    }

    fn is_end(offset: &Offset) -> bool {
        offset.0.as_str() == Some(END)
    }

    fn lines_of(&self, offset: Option<&Offset>) -> Result<u64> {
        match offset.map(|offset| &offset.0) {
            None => Ok(0),
            Some(Value::Number(number)) if number.is_u64() => Ok(number.as_u64().unwrap_or_default()),
            Some(other) => Err(Error::data(format!("{other} is not an offset of a {} source that goes on", self.kind()))
                .hint("the checkpoint belongs to another kind of source, or to a run over the whole input: start with a new one")),
        }
    }
}

/// The input, and the socket to hang up.
type Opened = (Box<dyn Read + Send>, Option<TcpStream>);

fn connect(from: &LinesFrom) -> Result<Opened> {
    let address = match from {
        LinesFrom::Stdin => return Ok((Box::new(std::io::stdin()), None)),
        LinesFrom::Socket(address) => address,
    };
    let failed = |e: std::io::Error| {
        Error::unavailable(format!("cannot connect to {address}: {e}"))
            .hint("the source connects to a server that sends lines; to try it: `nc -lk 9999`")
            .caused_by(e)
    };
    let socket = TcpStream::connect(address).map_err(failed)?;
    let reading = socket.try_clone().map_err(failed)?;
    Ok((Box::new(reading), Some(socket)))
}

fn with_timestamp(schema: &SchemaRef, wanted: bool, time_zone: &str) -> SchemaRef {
    if !wanted {
        return schema.clone();
    }
    let of = DataType::Timestamp(TimeUnit::Microsecond, Some(time_zone.into()));
    let timestamp = Arc::new(Field::new(TIMESTAMP, of, true));
    Arc::new(Schema::new(schema.fields().iter().cloned().chain([timestamp]).collect::<Vec<_>>()))
}

#[async_trait]
impl Source for LineSource {
    fn description(&self) -> String {
        match &self.options.from {
            LinesFrom::Stdin => "stdin".into(),
            LinesFrom::Socket(address) => format!("socket {address}"),
        }
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Everything up to the end of the input counts as there.
    async fn prepare_for_available_now(&self) -> Result<()> {
        self.until_end.store(true, Relaxed);
        Ok(())
    }

    async fn latest_offset(
        &self,
        start: Option<&Offset>,
        limit: ReadLimit,
        now_ms: i64,
    ) -> Result<Option<Offset>> {
        if start.is_some_and(Self::is_end) {
            return Ok(None);
        }
        let start = self.lines_of(start)?;
        let buffer = self.started(start).await?;
        if limit == ReadLimit::All {
            // However much it is, it goes through memory piece by piece.
            buffer.stamp(Some(now_ms));
            return Ok(Some(Offset(END.into())));
        }
        if self.until_end.load(Relaxed) {
            buffer.wait_for_more(start).await;
        }
        let there = buffer.lines(now_ms)?;
        let max = self.options.max_rows_per_trigger.unwrap_or(u64::MAX);
        let end = there.min(start.saturating_add(max));
        Ok((end > start).then(|| Offset(end.into())))
    }

    fn is_at_end(&self, position: Option<&Offset>) -> bool {
        let position = match position {
            Some(offset) if Self::is_end(offset) => return true,
            position => position.and_then(|offset| offset.0.as_u64()).unwrap_or(0),
        };
        self.buffer.get().is_some_and(|buffer| buffer.ends_at(position))
    }

    async fn read(&self, _batch_id: BatchId, range: &OffsetRange) -> Result<BlockStream> {
        let start = self.lines_of(range.start.as_ref())?;
        let Some(buffer) = self.buffer.get().cloned() else {
            return Err(Error::data(format!("what {} gave to the run before cannot be read again", self.description()))
                .hint("rows of its last micro-batch are lost: start with a new checkpoint, and use a source that keeps its rows"));
        };
        let block =
            Reader { decoder: self.decoder.clone(), schema: self.schema.clone(), file: self.kind().into() };
        if Self::is_end(&range.end) {
            let pieces = stream::unfold(buffer, |buffer| async move {
                let piece = buffer.take().await.transpose()?;
                Some((piece, buffer))
            });
            return Ok(pieces.map(move |piece| piece.map(|piece| block.block(piece))).boxed());
        }
        let pieces = buffer.pieces(start, self.lines_of(Some(&range.end))?);
        Ok(stream::iter(pieces).map(move |piece| Ok(block.block(piece))).boxed())
    }

    async fn commit(&self, end: &Offset) -> Result<()> {
        if let (Some(buffer), false) = (self.buffer.get(), Self::is_end(end)) {
            buffer.forget(self.lines_of(Some(end))?);
        }
        Ok(())
    }

    fn decode_again(&self, records: Vec<Record>) -> Option<Box<dyn Block>> {
        // When they were first seen is not known any more.
        (self.schema == self.decoder.schema()).then(|| again(&self.decoder, records))
    }

    async fn backlog(&self, position: Option<&Offset>) -> Option<Backlog> {
        let position = position.and_then(|position| position.0.as_u64()).unwrap_or(0);
        let buffer = self.buffer.get()?;
        let records = buffer.lines_so_far().saturating_sub(position);
        Some(Backlog { records: Some(records), oldest_ms: buffer.seen_ms(position), ..Backlog::default() })
    }
}

impl Drop for LineSource {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.get() {
            buffer.close();
        }
    }
}

/// What makes rows of lines.
struct Reader {
    decoder: Arc<dyn Decoder>,
    schema: SchemaRef,
    file: Arc<str>,
}

impl Reader {
    fn block(&self, piece: Piece) -> Box<dyn Block> {
        let (decoder, schema, file) = (self.decoder.clone(), self.schema.clone(), self.file.clone());
        Box::new(Lines { piece, decoder, schema, file })
    }
}

/// Lines that came at the same time.
struct Lines {
    piece: Piece,
    decoder: Arc<dyn Decoder>,
    schema: SchemaRef,
    file: Arc<str>,
}

impl Block for Lines {
    fn input_bytes(&self) -> u64 {
        self.piece.bytes.len() as u64
    }

    fn decode(self: Box<Self>) -> Result<Decoded> {
        let Piece { bytes, first_line, is_first, time_ms, .. } = &self.piece;
        let input = Input { bytes, file: &self.file, first_line: first_line + 1, starts_file: *is_first };
        let mut decoded = self.decoder.decode(&input)?;
        let fields = self.schema.fields();
        if fields.len() > self.decoder.schema().fields().len() {
            let zone = match fields[fields.len() - 1].data_type() {
                DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            };
            let micros = time_ms.unwrap_or_default() * 1000;
            for batch in &mut decoded.batches {
                let times = TimestampMicrosecondArray::from_value(micros, batch.num_rows());
                let times: ArrayRef = Arc::new(times.with_timezone_opt(zone.clone()));
                let columns = batch.columns().iter().cloned().chain([times]).collect();
                *batch = RecordBatch::try_new(self.schema.clone(), columns)?;
            }
        }
        Ok(decoded)
    }
}
