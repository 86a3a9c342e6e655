//! Reads the ranges of a micro-batch: partition by partition, in order, each record once, and sees when offsets have no
//! record.
//!
//! Offsets without a record are no loss: compaction has removed it, or it is the marker or the content of a transaction
//! that did not commit. A range has ended when a record behind it has come, when the client has passed its end (it does
//! so over markers), or when the partition's end was reached after the cluster has confirmed that it lies behind the
//! range. Lost are records that lie before the partition's beginning or behind its end.
//!
//! All of it blocks, on a thread of its own. Blocks are cut by the records alone, so that a rerun cuts the same.

use super::admission::cuts;
use super::cluster::Cluster;
use super::fetcher::{Begin, Fetcher, Step};
use super::offsets::{PartitionOffsets, TopicPartition};
use super::records::Records;
use crate::kafka::{Context, Failure, Status, limit};
use pelton_core::{Error, Interval, Result};
use rdkafka::ClientConfig;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

/// What one fetch may bring beyond what is asked for, all partitions together.
const AHEAD_KBYTES: usize = 64 << 10;
const AHEAD_KBYTES_MIN: usize = 1 << 10;
/// How long nothing comes after the end of a partition before that is taken for the end of the range.
const SILENCE: Duration = Duration::from_millis(300);
/// How long nothing comes before that is told.
const LONG_SILENCE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What of a partition a micro-batch reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Begin,
    pub(super) end: i64,
}

impl Span {
    fn is_empty(&self) -> bool {
        self.from.offset >= self.end
    }
}

/// What a micro-batch reads: all partitions, those too of which it reads nothing.
pub(super) type Spans = BTreeMap<TopicPartition, Span>;

/// The ranges between two offsets. A partition that was not there before begins at 0; one that ends before it began was
/// made anew, and is read from its beginning.
pub(super) fn spans(start: &PartitionOffsets, end: &PartitionOffsets) -> Spans {
    let span = |(at, end): (&TopicPartition, &i64)| {
        let start = start.get(at).copied().unwrap_or(0);
        let at_beginning = *end < start;
        let offset = if at_beginning { 0 } else { start };
        (at.clone(), Span { from: Begin { offset, at_beginning }, end: *end })
    };
    end.iter().map(span).collect()
}

/// How it is read.
pub(super) struct Reading {
    pub(super) config: ClientConfig,
    pub(super) status: Arc<Status>,
    pub(super) fail_on_data_loss: bool,
    pub(super) min_partitions: Option<u64>,
    pub(super) broker_timeout: Option<Interval>,
    /// Offsets that were gone before they were read, since somebody asked.
    pub(super) lost: Arc<AtomicU64>,
    /// The timestamp of a record that was given out lately, for those who ask while the reader is at work; negative: it has
    /// none.
    pub(super) reached_ms: Arc<AtomicI64>,
}

/// Reads micro-batches, one after the other.
pub(super) struct Reader {
    reading: Reading,
    pub(super) with_headers: bool,
    fetcher: Option<Fetcher>,
}

/// How it ended.
enum End {
    Reached,
    /// Nobody wants more.
    Unwanted,
}

/// How long nothing has come.
#[derive(Default)]
struct Silence {
    pause: Duration,
    since: Option<Instant>,
    /// The end of the partition was seen meanwhile.
    at_end: bool,
    /// And fetched again after the cluster had said that the range lies before it.
    confirmed: bool,
}

impl Silence {
    fn lasted(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn grow(&mut self) {
        self.since.get_or_insert_with(Instant::now);
        self.pause = (self.pause * 2).clamp(Duration::from_millis(1), LONGEST_PAUSE);
    }
}

impl Reader {
    pub(super) fn new(reading: Reading) -> Self {
        Self { reading, with_headers: false, fetcher: None }
    }

    /// Sends the records of the spans in order.
    pub(super) fn read(
        &mut self,
        cluster: &Cluster,
        spans: &Spans,
        to: &Sender<Result<Records>>,
    ) -> Result<()> {
        self.assign(spans)?;
        let total = spans.values().map(|span| (span.end - span.from.offset).max(0)).sum();
        for (at, span) in spans.iter().filter(|(_, span)| !span.is_empty()) {
            let parts = self.reading.min_partitions.unwrap_or(1);
            let mut records = Records::new(at, self.with_headers);
            for end in cuts(span.from.offset, span.end, total, parts) {
                let ended = self.read_to(cluster, at, end, &mut records, to)?;
                let sent = records.is_empty() || self.give(&mut records, to);
                if !sent || matches!(ended, End::Unwanted) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Tells the consumer group how far the query is.
    pub(super) fn mirror(&self, offsets: &PartitionOffsets) {
        if let Some(Err(failed)) = self.fetcher.as_ref().map(|fetcher| fetcher.mirror(offsets)) {
            tracing::debug!(%failed, "the consumer group was not told how far the query is");
        }
    }

    /// The timestamp of the oldest record that comes next in its partition, of those that are fetched already.
    pub(super) fn next_ms(&mut self) -> Option<i64> {
        let positions = &mut self.fetcher.as_mut()?.positions;
        positions.iter_mut().filter_map(|(at, position)| position.next_ms(at, self.with_headers)).min()
    }

    /// Makes a consumer that goes on where the spans begin, unless there is one.
    fn assign(&mut self, spans: &Spans) -> Result<()> {
        let wanted: BTreeMap<_, _> = spans.iter().map(|(at, span)| (at.clone(), span.from)).collect();
        match &self.fetcher {
            Some(fetcher) if fetcher.from() == wanted => {
                fetcher.serve();
                Ok(())
            }
            _ => self.fetch_from(&wanted),
        }
    }

    fn fetch_from(&mut self, wanted: &BTreeMap<TopicPartition, Begin>) -> Result<()> {
        self.fetcher = None;
        let mut config = self.reading.config.clone();
        if config.get("queued.max.messages.kbytes").is_none() {
            let each = (AHEAD_KBYTES / wanted.len().max(1)).max(AHEAD_KBYTES_MIN);
            config.set("queued.max.messages.kbytes", each.to_string());
        }
        self.fetcher = Some(Fetcher::new(&config, Context::new(&self.reading.status), wanted)?);
        Ok(())
    }

    fn fetcher(&mut self) -> Result<&mut Fetcher> {
        self.fetcher.as_mut().ok_or_else(|| Error::internal("records are read without a consumer"))
    }

    /// Reads a partition up to `end`, sending what fills a block.
    fn read_to(
        &mut self,
        cluster: &Cluster,
        at: &TopicPartition,
        end: i64,
        records: &mut Records,
        to: &Sender<Result<Records>>,
    ) -> Result<End> {
        let mut silence = Silence::default();
        loop {
            let position = self.fetcher()?.positions.get_mut(at);
            let position = position.ok_or_else(|| Error::internal(format!("{at} is not fetched")))?;
            if position.from.offset >= end {
                return Ok(End::Reached);
            }
            match position.step(at, end, records, silence.pause) {
                Step::Record => {
                    if silence.since.is_some() {
                        self.reading.status.back();
                    }
                    silence = Silence::default();
                    if records.is_full() && !self.give(records, to) {
                        return Ok(End::Unwanted);
                    }
                }
                Step::Beyond => position.passed(end),
                Step::EndOfPartition => silence.at_end = true,
                Step::Nothing => {
                    if to.is_closed() {
                        return Ok(End::Unwanted);
                    }
                    self.wait(cluster, at, end, &mut silence)?;
                }
                Step::OutOfRange => self.out_of_range(cluster, at, end)?,
                Step::Failed(failure) => self.told(failure)?,
            }
        }
    }

    /// Gives out what was read; whether somebody wants it.
    fn give(&self, records: &mut Records, to: &Sender<Result<Records>>) -> bool {
        let first = records.records.first();
        self.reading.reached_ms.store(first.map_or(-1, |record| record.timestamp_ms), Relaxed);
        to.blocking_send(Ok(records.take())).is_ok()
    }

    /// Nothing has come: perhaps there is nothing more before the end.
    fn wait(
        &mut self,
        cluster: &Cluster,
        at: &TopicPartition,
        end: i64,
        silence: &mut Silence,
    ) -> Result<()> {
        if self.fetcher()?.taken(at).is_some_and(|taken| taken >= end) {
            self.passed(at, end)?;
            return Ok(());
        }
        silence.grow();
        if let Some(failure) = self.fetcher()?.serve() {
            self.told(failure)?;
        }
        if silence.at_end && silence.lasted() >= SILENCE {
            return self.confirm(cluster, at, end, silence);
        }
        if silence.lasted() >= LONG_SILENCE {
            self.reading.status.away(&format!("no records of {at} come"));
        }
        if limit(self.reading.broker_timeout).is_some_and(|limit| silence.lasted() >= limit) {
            let place = self.reading.status.place();
            return Err(Error::unavailable(format!(
                "no records of {at} came from {place} within broker_timeout"
            ))
            .hint("a new start goes on where this one stood"));
        }
        Ok(())
    }

    /// The end of the partition was seen before the range's. If the cluster says that the partition goes on behind the
    /// range, and its end is then seen once more, there is nothing in between: an end that is seen after an answer cannot
    /// lie before it.
    fn confirm(
        &mut self,
        cluster: &Cluster,
        at: &TopicPartition,
        end: i64,
        silence: &mut Silence,
    ) -> Result<()> {
        if silence.confirmed {
            return self.passed(at, end);
        }
        let (_, high) = match cluster.bounds(at) {
            Ok(bounds) => bounds,
            Err(Failure::Permanent(_)) => (0, 0),
            Err(failure) => return self.told(failure),
        };
        if high < end {
            return self.truncated(at, high, end);
        }
        self.restart()?;
        *silence = Silence { confirmed: true, ..Silence::default() };
        Ok(())
    }

    fn out_of_range(&mut self, cluster: &Cluster, at: &TopicPartition, end: i64) -> Result<()> {
        let (low, high) = match cluster.bounds(at) {
            Ok(bounds) => bounds,
            Err(Failure::Permanent(_)) => {
                let next = self.next(at)?;
                self.lose(at, (next, end), "the partition is not there")?;
                return self.passed(at, end);
            }
            Err(failure) => {
                std::thread::sleep(LONGEST_PAUSE);
                self.told(failure)?;
                // The consumer tells it once: a new one tells it again.
                return self.restart();
            }
        };
        let next = self.next(at)?;
        if low > next {
            let to = low.min(end);
            self.lose(at, (next, to), &format!("the partition begins at {low}"))?;
            self.passed(at, to)?;
        } else if high < end {
            return self.truncated(at, high, end);
        }
        self.restart()
    }

    /// The partition ends before the range does.
    fn truncated(&mut self, at: &TopicPartition, high: i64, end: i64) -> Result<()> {
        let next = self.next(at)?;
        self.lose(at, (next.max(high), end), &format!("the partition ends at {high}"))?;
        self.passed(at, end)
    }

    fn next(&mut self, at: &TopicPartition) -> Result<i64> {
        Ok(self.fetcher()?.positions.get(at).map_or(0, |position| position.from.offset))
    }

    fn passed(&mut self, at: &TopicPartition, offset: i64) -> Result<()> {
        if let Some(position) = self.fetcher()?.positions.get_mut(at) {
            position.passed(offset);
        }
        Ok(())
    }

    /// A new consumer, where this one is.
    fn restart(&mut self) -> Result<()> {
        let from = self.fetcher()?.from();
        self.fetch_from(&from)
    }

    fn lose(&mut self, at: &TopicPartition, (from, to): (i64, i64), why: &str) -> Result<()> {
        if self.reading.fail_on_data_loss {
            return Err(lost(at, Some((from, to)), why));
        }
        self.reading.lost.fetch_add((to - from).max(0).unsigned_abs(), Relaxed);
        tracing::warn!(
            "{at}: the offsets {from} to {} are gone ({why}); the query goes on without them",
            to - 1
        );
        Ok(())
    }

    fn told(&self, failure: Failure) -> Result<()> {
        match failure {
            Failure::Permanent(error) => Err(error),
            Failure::Unavailable(why) | Failure::Producer(why) => {
                self.reading.status.away(&why);
                Ok(())
            }
        }
    }
}

/// That records are gone before they were read.
pub(super) fn lost(at: &TopicPartition, offsets: Option<(i64, i64)>, why: &str) -> Error {
    let what = match offsets {
        Some((from, to)) => {
            format!("{at}: the offsets {from} to {} are gone before they were read: {why}", to - 1)
        }
        None => format!("{at} is gone: {why}"),
    };
    Error::data(what).hint(
        "its retention has removed them, or the topic was made anew; `fail_on_data_loss: false` goes on with what is left",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(of: &[(i32, i64)]) -> PartitionOffsets {
        of.iter().map(|(n, offset)| (TopicPartition::new("t", *n), *offset)).collect()
    }

    #[test]
    fn ranges_follow_from_two_offsets() {
        let spans = spans(
            &offsets(&[(0, 5), (1, 5), (3, 100), (4, 9)]),
            &offsets(&[(0, 5), (1, 7), (2, 4), (3, 50)]),
        );
        let shown: Vec<_> =
            spans.iter().map(|(at, s)| (at.partition, s.from.offset, s.from.at_beginning, s.end)).collect();
        assert_eq!(shown, [(0, 5, false, 5), (1, 5, false, 7), (2, 0, false, 4), (3, 0, true, 50)]);
        assert!(spans[&TopicPartition::new("t", 0)].is_empty());
    }

    #[test]
    fn a_loss_names_the_range_and_the_way_out() {
        let told =
            lost(&TopicPartition::new("orders", 2), Some((5, 20)), "the partition begins at 20").to_string();
        assert!(told.starts_with("orders-2: the offsets 5 to 19 are gone before they were read"), "{told}");
        assert!(told.contains("fail_on_data_loss: false"), "{told}");
    }
}
