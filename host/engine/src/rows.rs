//! Steps 3 and 4 of a micro-batch: blocks are read in order, decoded and processed many at a time on worker
//! threads, and come out as one stream of rows in the order of the blocks.
//!
//! Called by `micro_batch`; polled by the sink. At most `parallelism + 1` blocks are in memory at a time (one more
//! than workers, so that none waits for the sink to take the oldest), whatever the size of the input. The result
//! depends on the blocks alone, never on which worker was quicker. The first error in the order of the blocks wins.

use crate::clock::Stopwatch;
use crate::meters::Meters;
use arrow::array::RecordBatch;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use pelton_checkpoint::DeadLetterFile;
use pelton_core::sink::RowStream;
use pelton_core::source::BlockStream;
use pelton_core::{BatchInfo, Block, DeadLetter, Error, Result, Segment};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// One input's part of a micro-batch.
pub(crate) struct InputRows {
    /// Which of the query's inputs.
    pub(crate) index: usize,
    /// Its blocks, in order.
    pub(crate) blocks: BlockStream,
    /// What every block goes through.
    pub(crate) segment: Arc<dyn Segment>,
}

/// All that is needed to make the rows of a micro-batch.
pub(crate) struct RowsOfBatch {
    pub(crate) info: Arc<BatchInfo>,
    /// One after the other.
    pub(crate) inputs: Vec<InputRows>,
    /// Blocks that are decoded and processed at a time.
    pub(crate) parallelism: usize,
    /// Durable before the stream ends, so before a sink can make the rows visible.
    pub(crate) dead_letters: DeadLetterFile,
    pub(crate) meters: Arc<Meters>,
}

impl RowsOfBatch {
    /// The rows, united in the order of the inputs.
    pub(crate) fn into_stream(self) -> RowStream {
        let Self { info, inputs, parallelism, dead_letters, meters } = self;
        let work = Work { info, meters: Arc::clone(&meters) };
        let blocks = stream::iter(inputs).flat_map(|input| {
            let (index, segment) = (input.index, input.segment);
            input.blocks.map_ok(move |block| (index, Arc::clone(&segment), block))
        });
        let blocks = TimedRead { blocks: blocks.boxed(), waiting: None, meters: Arc::clone(&meters) };
        let parts = blocks
            .enumerate()
            .map(move |(partition, block)| {
                let work = work.clone();
                async move {
                    let (input, segment, block) = block?;
                    on_worker(move || work.part(input, segment.as_ref(), block, partition as u64)).await
                }
            })
            .buffered(parallelism + 1);
        let state = Emit { parts: parts.boxed(), ready: VecDeque::new(), dead_letters, meters };
        stream::try_unfold(state, Emit::next).boxed()
    }
}

/// What a worker needs beside the block.
#[derive(Clone)]
struct Work {
    info: Arc<BatchInfo>,
    meters: Arc<Meters>,
}

/// What a worker made of a block.
struct Part {
    batches: Vec<RecordBatch>,
    dead_letters: Vec<DeadLetter>,
}

impl Work {
    fn part(
        &self,
        input: usize,
        segment: &dyn Segment,
        block: Box<dyn Block>,
        partition: u64,
    ) -> Result<Part> {
        let input_bytes = block.input_bytes();
        let decoding = Stopwatch::start();
        let decoded = block.decode()?;
        let decode_nanos = decoding.nanos();
        self.meters.decoded(input, input_bytes, &decoded, decode_nanos);

        let processing = Stopwatch::start();
        let output = segment.process(&self.info, partition, decoded.batches)?;
        self.meters.processed(&output, processing.nanos());

        let mut dead_letters = decoded.dead_letters;
        dead_letters.extend(output.dead_letters);
        Ok(Part { batches: output.batches, dead_letters })
    }
}

/// Runs it on a thread that may block. A panic there is a fault of ours in one micro-batch, not the process's end.
async fn on_worker<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(failed) => Err(Error::internal(match failed.try_into_panic() {
            Ok(panic) => format!("a worker panicked: {}", panic_text(panic.as_ref())),
            Err(cancelled) => format!("a worker was cancelled: {cancelled}"),
        })),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// The end of the pipe: dead letters to their file, rows to the sink.
struct Emit {
    parts: BoxStream<'static, Result<Part>>,
    ready: VecDeque<RecordBatch>,
    dead_letters: DeadLetterFile,
    meters: Arc<Meters>,
}

impl Emit {
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        let waiting = Stopwatch::start();
        loop {
            if let Some(batch) = self.ready.pop_front() {
                self.meters.emitted(waiting.nanos());
                return Ok(Some((batch, self)));
            }
            let Some(part) = self.parts.try_next().await? else { break };
            self.dead_letters.append(&part.dead_letters).await?;
            self.ready.extend(part.batches.into_iter().filter(|batch| batch.num_rows() > 0));
        }
        self.dead_letters.finish().await?;
        self.meters.emitted(waiting.nanos());
        self.meters.end();
        Ok(None)
    }
}

/// Measures how long the source lets the micro-batch wait for blocks.
struct TimedRead<T> {
    blocks: BoxStream<'static, T>,
    waiting: Option<Stopwatch>,
    meters: Arc<Meters>,
}

impl<T> Stream for TimedRead<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let since = *self.waiting.get_or_insert_with(Stopwatch::start);
        let polled = self.blocks.as_mut().poll_next(cx);
        if polled.is_ready() {
            self.waiting = None;
            self.meters.read(since.nanos());
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{int_rows, int_schema, pass_through, rows_text};
    use pelton_core::{BatchId, Decoded, MemoryFiles, QueryId};
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    struct Counted(i64);
    impl Block for Counted {
        fn input_bytes(&self) -> u64 {
            8
        }
        fn decode(self: Box<Self>) -> Result<Decoded> {
            Ok(Decoded { batches: int_rows([self.0]), ..Decoded::default() })
        }
    }

    /// `blocks` blocks, and how many of them were read so far.
    fn counted(blocks: i64, parallelism: usize) -> (RowsOfBatch, Arc<AtomicU64>) {
        let read = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&read);
        let source = stream::iter(0..blocks).map(move |n| {
            counter.fetch_add(1, SeqCst);
            Ok(Box::new(Counted(n)) as Box<dyn Block>)
        });
        let info = BatchInfo {
            query_id: QueryId("q".into()),
            batch_id: BatchId(0),
            time_ms: 0,
            watermark_ms: None,
            late_watermark_ms: None,
        };
        let input = InputRows { index: 0, blocks: source.boxed(), segment: pass_through(int_schema()) };
        let rows = RowsOfBatch {
            info: Arc::new(info),
            inputs: vec![input],
            parallelism,
            dead_letters: DeadLetterFile::new(Arc::new(MemoryFiles::new()), BatchId(0)),
            meters: Arc::new(Meters::new(1)),
        };
        (rows, read)
    }

    #[tokio::test]
    async fn a_slow_sink_holds_the_source_back() {
        for parallelism in [1, 3] {
            let (rows, read) = counted(50, parallelism);
            let mut stream = rows.into_stream();
            for taken in 1..=50 {
                let batch = stream.try_next().await.unwrap().unwrap();
                assert_eq!(rows_text(&[batch]).unwrap(), [(taken - 1).to_string()]);
                let ahead = read.load(SeqCst) - taken;
                assert!(ahead <= parallelism as u64 + 1, "{ahead} blocks ahead of the sink");
            }
            assert!(stream.try_next().await.unwrap().is_none());
        }
    }
}
