//! Reads files that are made of blocks from front to back: Avro's container files and Arrow's. A block is decoded on its
//! own, so a file of any size goes through a bounded amount of memory.

use super::cut::BLOCK_BYTES;
use super::partition::Constants;
use super::read::{Opening, reader};
use crate::avro::container::{Header, RawBlock};
use crate::decode::arrow::{self, ArrowDecoder, IpcReader};
use crate::decode::avro::{self, AvroDecoder, Plan};
use crate::decode::fault::damaged;
use ::arrow::array::RecordBatch;
use ::arrow::datatypes::Schema;
use pelton_core::{Block, Decoded, Error, Result};
use std::io::{BufReader, Read};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Blocks of one file that wait to be taken.
const BLOCKS_AHEAD: usize = 2;

type Sender = mpsc::Sender<Result<Box<dyn Block>>>;
type Input = BufReader<Box<dyn Read + Send>>;

/// Avro blocks that together are about as large as other formats' blocks.
struct AvroBlocks {
    decoder: Arc<AvroDecoder>,
    shown: Arc<str>,
    header: Arc<Header>,
    plan: Arc<Plan>,
    blocks: Vec<RawBlock>,
    constants: Arc<Constants>,
}

impl Block for AvroBlocks {
    fn input_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.size() as u64).sum()
    }
    fn decode(self: Box<Self>) -> Result<Decoded> {
        let decoded = self.decoder.decode_blocks(&self.shown, &self.header, &self.plan, &self.blocks)?;
        self.constants.add(decoded)
    }
}

/// A batch of an Arrow file.
struct ArrowBatch {
    decoder: Arc<ArrowDecoder>,
    shown: Arc<str>,
    batch: RecordBatch,
    constants: Arc<Constants>,
}

impl Block for ArrowBatch {
    fn input_bytes(&self) -> u64 {
        self.batch.get_array_memory_size() as u64
    }
    fn decode(self: Box<Self>) -> Result<Decoded> {
        self.constants.add(self.decoder.fit(&self.shown, &self.batch)?)
    }
}

/// The blocks of an Avro file, or the error at which reading stopped. Must be called within a tokio runtime.
pub(super) fn avro(
    file: Opening,
    decoder: Arc<AvroDecoder>,
    constants: Arc<Constants>,
) -> mpsc::Receiver<Result<Box<dyn Block>>> {
    blocks(move |sender| send_avro(&file, &decoder, &constants, sender))
}

/// The batches of an Arrow file, or the error at which reading stopped. Must be called within a tokio runtime.
pub(super) fn arrow(
    file: Opening,
    decoder: Arc<ArrowDecoder>,
    constants: Arc<Constants>,
) -> mpsc::Receiver<Result<Box<dyn Block>>> {
    blocks(move |sender| send_arrow(&file, &decoder, &constants, sender))
}

fn blocks(
    send: impl FnOnce(&Sender) -> Result<()> + Send + 'static,
) -> mpsc::Receiver<Result<Box<dyn Block>>> {
    let (sender, receiver) = mpsc::channel(BLOCKS_AHEAD);
    tokio::task::spawn_blocking(move || {
        if let Err(e) = send(&sender) {
            // A receiver that went does not want to know.
            let _ = sender.blocking_send(Err(e));
        }
    });
    receiver
}

fn input(file: &Opening) -> Result<Input> {
    Ok(BufReader::with_capacity(256 << 10, reader(file)?))
}

fn send_avro(
    file: &Opening,
    decoder: &Arc<AvroDecoder>,
    constants: &Arc<Constants>,
    sender: &Sender,
) -> Result<()> {
    let mut input = input(file)?;
    let header = Arc::new(Header::read(&mut input).map_err(|fault| fault.of(&file.shown, avro::FORMAT))?);
    let plan = decoder.plan(Arc::new(header.schema.clone()));
    let plan = Arc::new(plan.map_err(|why| damaged(&file.shown, avro::FORMAT, &why))?);
    let (mut blocks, mut bytes) = (Vec::new(), 0);
    loop {
        let next = header.next(&mut input).map_err(|fault| fault.of(&file.shown, avro::FORMAT))?;
        let at_end = next.is_none();
        bytes += next.as_ref().map_or(0, RawBlock::size);
        blocks.extend(next);
        if blocks.is_empty() || !(at_end || bytes >= BLOCK_BYTES) {
            if at_end {
                return Ok(());
            }
            continue;
        }
        bytes = 0;
        let block = AvroBlocks {
            decoder: decoder.clone(),
            shown: file.shown.clone(),
            header: header.clone(),
            plan: plan.clone(),
            blocks: std::mem::take(&mut blocks),
            constants: constants.clone(),
        };
        if sender.blocking_send(Ok(Box::new(block))).is_err() || at_end {
            return Ok(());
        }
    }
}

fn send_arrow(
    file: &Opening,
    decoder: &Arc<ArrowDecoder>,
    constants: &Arc<Constants>,
    sender: &Sender,
) -> Result<()> {
    let mut reader = IpcReader::new(input(file)?);
    while let Some(batch) = reader.next().map_err(|fault| fault.of(&file.shown, arrow::FORMAT))? {
        let block = ArrowBatch {
            decoder: decoder.clone(),
            shown: file.shown.clone(),
            batch,
            constants: constants.clone(),
        };
        if sender.blocking_send(Ok(Box::new(block))).is_err() {
            break;
        }
    }
    Ok(())
}

/// The header of an Avro file.
pub(super) async fn avro_header(file: Opening) -> Result<Header> {
    on_thread(move || Header::read(&mut input(&file)?).map_err(|fault| fault.of(&file.shown, avro::FORMAT)))
        .await
}

/// The columns of an Arrow file.
pub(super) async fn arrow_schema(file: Opening, time_zone: String) -> Result<Schema> {
    on_thread(move || {
        let schema = IpcReader::new(input(&file)?).schema(&time_zone);
        schema.map_err(|fault| fault.of(&file.shown, arrow::FORMAT))
    })
    .await
}

async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::internal(format!("reading failed: {e}")))?
}
