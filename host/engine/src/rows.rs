//! Steps 3 to 5 of a micro-batch: blocks are read in order, decoded and processed many at a time on worker threads.
//!
//! Called by `micro_batch`. Without stateful operators the rows come out as one stream in the order of the blocks,
//! polled by the sink: at most `parallelism + 1` blocks are in memory at a time (one more than workers, so that none
//! waits for the sink to take the oldest), whatever the size of the input. With them the parts are gathered first, in
//! the same order, and the stream is what the operators gave. The result depends on the blocks and the state alone,
//! never on which worker was quicker. The first error in the order of the blocks wins.

use crate::clock::Stopwatch;
use crate::letters::Letters;
use crate::meters::Meters;
use crate::query::Input;
use crate::watermark::EventTimes;
use arrow::array::RecordBatch;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use pelton_checkpoint::SourceOffsets;
use pelton_core::failure::add_reports;
use pelton_core::sink::RowStream;
use pelton_core::source::BlockStream;
use pelton_core::{
    BatchId, BatchInfo, Block, Dataflow, Error, OffsetRange, OperatorReport, Part, PoisonReport, Result,
    StateStore,
};
use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// One input's part of a micro-batch.
pub(crate) struct InputRows {
    /// Which of the query's inputs.
    pub(crate) index: usize,
    /// Its name in the pipeline file.
    pub(crate) name: Arc<str>,
    /// Its blocks, in order.
    pub(crate) blocks: BlockStream,
}

/// All that is needed to make the rows of a micro-batch.
pub(crate) struct RowsOfBatch {
    pub(crate) info: Arc<BatchInfo>,
    /// One after the other.
    pub(crate) inputs: Vec<InputRows>,
    /// What every block goes through.
    pub(crate) dataflow: Arc<dyn Dataflow>,
    /// Blocks that are decoded and processed at a time.
    pub(crate) parallelism: usize,
    /// Durable before the stream ends, so before a sink can make the rows visible.
    pub(crate) dead_letters: Letters,
    /// The plugins whose failures are the failures of a version on probation, whatever their policies say.
    pub(crate) on_probation: BTreeSet<String>,
    /// Complete when the stream has ended.
    pub(crate) event_times: Arc<EventTimes>,
    pub(crate) meters: Arc<Meters>,
}

/// What stateful operators made of a micro-batch.
pub(crate) struct GatheredRows {
    /// For the sink.
    pub(crate) rows: RowStream,
    /// One an operator.
    pub(crate) operators: Vec<OperatorReport>,
    /// The store that was lent, with this micro-batch's changes.
    pub(crate) state: Box<dyn StateStore>,
}

/// Opens the ranges of a micro-batch, those that it reads something of.
pub(crate) async fn open_inputs(
    inputs: &[Input],
    ranges: &[SourceOffsets],
    batch_id: BatchId,
) -> Result<Vec<InputRows>> {
    let mut opened = Vec::with_capacity(inputs.len());
    let moved = inputs.iter().zip(ranges).enumerate().filter(|(_, (_, range))| range.start != range.end);
    for (index, (input, range)) in moved {
        let Some(end) = range.end.clone() else { continue };
        let range = OffsetRange { start: range.start.clone(), end };
        let blocks = input.source.read(batch_id, &range).await;
        let blocks = blocks.map_err(|failed| failed.context(format_args!("source '{}'", input.name)))?;
        opened.push(InputRows { index, name: input.name.as_str().into(), blocks });
    }
    Ok(opened)
}

impl RowsOfBatch {
    /// The rows of a query without stateful operators, united in the order of the inputs. They move when asked for.
    pub(crate) fn into_stream(self) -> RowStream {
        let (parts, end) = self.into_parts();
        Emit { parts, ready: VecDeque::new(), end }.into_stream()
    }

    /// Takes all parts, in the same order, through the stateful operators. The state is given back changed; after an
    /// error it is lost, and with it the query.
    pub(crate) async fn gather(self, mut state: Box<dyn StateStore>) -> Result<GatheredRows> {
        let threads = self.parallelism;
        let mut gather = Arc::clone(&self.dataflow).gather(Arc::clone(&self.info));
        let (mut parts, mut end) = self.into_parts();
        while let Some(mut part) = parts.try_next().await? {
            end.dead_letters.append(&std::mem::take(&mut part.dead_letters)).await?;
            end.found_poison(std::mem::take(&mut part.poison))?;
            gather.add(part)?;
        }
        let meters = Arc::clone(&end.meters);
        let (gathered, state) = on_worker(move || {
            let working = Stopwatch::start();
            let gathered = gather.finish(state.as_mut(), threads)?;
            meters.gathered(&gathered, working.nanos());
            Ok((gathered, state))
        })
        .await?;
        end.dead_letters.append(&gathered.dead_letters).await?;
        end.found_poison(gathered.poison)?;
        end.event_times.note(&gathered.event_times);
        let rows = Emit { parts: stream::empty().boxed(), ready: with_rows(gathered.rows).collect(), end };
        Ok(GatheredRows { rows: rows.into_stream(), operators: gathered.operators, state })
    }

    fn into_parts(self) -> (BoxStream<'static, Result<Part>>, End) {
        let Self { info, inputs, dataflow, parallelism, dead_letters, on_probation, event_times, meters } =
            self;
        let work =
            Work { info, dataflow, event_times: Arc::clone(&event_times), meters: Arc::clone(&meters) };
        let blocks = stream::iter(inputs).flat_map(|InputRows { index, name, blocks }| {
            blocks.map_ok(move |block| (index, Arc::clone(&name), block))
        });
        let blocks = TimedRead { blocks: blocks.boxed(), waiting: None, meters: Arc::clone(&meters) };
        let parts = blocks
            .enumerate()
            .map(move |(partition, block)| {
                let work = work.clone();
                async move {
                    let (input, name, block) = block?;
                    on_worker(move || work.part((input, &name), block, partition as u64)).await
                }
            })
            .buffered(parallelism + 1);
        (parts.boxed(), End { dead_letters, poison: Vec::new(), on_probation, event_times, meters })
    }
}

fn with_rows(batches: Vec<RecordBatch>) -> impl Iterator<Item = RecordBatch> {
    batches.into_iter().filter(|batch| batch.num_rows() > 0)
}

/// What a worker needs beside the block.
#[derive(Clone)]
struct Work {
    info: Arc<BatchInfo>,
    dataflow: Arc<dyn Dataflow>,
    event_times: Arc<EventTimes>,
    meters: Arc<Meters>,
}

impl Work {
    /// `partition` counts the parts of the micro-batch; the partition of the source is the block's.
    fn part(&self, (input, name): (usize, &str), block: Box<dyn Block>, partition: u64) -> Result<Part> {
        let of_source = block.partition().to_owned();
        let input_bytes = block.input_bytes();
        let decoding = Stopwatch::start();
        let decoded = block.decode()?;
        let decode_nanos = decoding.nanos();
        self.meters.decoded(input, input_bytes, &decoded, decode_nanos);

        let processing = Stopwatch::start();
        let mut part = self.dataflow.part(&self.info, input, partition, decoded.batches)?;
        self.meters.processed(&part, processing.nanos());
        self.event_times.note_of(name, &of_source, &part.event_times);
        part.dead_letters.splice(..0, decoded.dead_letters);
        Ok(part)
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

/// What must be complete when the last row is given.
struct End {
    dead_letters: Letters,
    /// What functions were found to fail on so far.
    poison: Vec<PoisonReport>,
    on_probation: BTreeSet<String>,
    event_times: Arc<EventTimes>,
    meters: Arc<Meters>,
}

impl End {
    /// Adds what was found in a part: all parts together must be within the budgets. Called in the order of the parts.
    fn found_poison(&mut self, reports: Vec<PoisonReport>) -> Result<()> {
        if reports.is_empty() {
            return Ok(());
        }
        if let Some(report) = reports.iter().find(|report| self.on_probation.contains(&report.plugin)) {
            return Err(report.on_probation());
        }
        add_reports(&mut self.poison, reports);
        self.poison.iter().try_for_each(PoisonReport::check)
    }
}

/// The end of the pipe: dead letters to where they go, rows to the sink.
struct Emit {
    parts: BoxStream<'static, Result<Part>>,
    ready: VecDeque<RecordBatch>,
    end: End,
}

impl Emit {
    fn into_stream(self) -> RowStream {
        stream::try_unfold(self, Self::next).boxed()
    }

    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        let waiting = Stopwatch::start();
        loop {
            if let Some(batch) = self.ready.pop_front() {
                self.end.meters.emitted(waiting.nanos());
                return Ok(Some((batch, self)));
            }
            let Some(part) = self.parts.try_next().await? else { break };
            self.end.dead_letters.append(&part.dead_letters).await?;
            self.end.found_poison(part.poison)?;
            self.ready.extend(with_rows(part.rows));
        }
        self.end.dead_letters.finish().await?;
        self.end.meters.emitted(waiting.nanos());
        self.end.meters.end();
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
    use pelton_checkpoint::DeadLetterFile;
    use pelton_core::{Decoded, MemoryFiles, QueryId};
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
        let rows = RowsOfBatch {
            info: Arc::new(info),
            inputs: vec![InputRows { index: 0, name: "s".into(), blocks: source.boxed() }],
            dataflow: pass_through(int_schema()),
            parallelism,
            dead_letters: Letters::new(DeadLetterFile::new(Arc::new(MemoryFiles::new()), BatchId(0))),
            on_probation: BTreeSet::new(),
            event_times: Arc::default(),
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
