//! Source `kafka`: records of topics. Spark's Kafka source, option for option.
//!
//! An offset is Spark's `{"topic":{"0":23}}`: of each partition the offset of the next record. The checkpoint is what
//! remembers it; a consumer group is told, so that others see how far the query is, and never asked. Two clients talk to
//! the cluster: one asks where partitions begin and end (`cluster`), one fetches (`fetcher`) and is kept between
//! micro-batches.

mod admission;
mod block;
mod cluster;
mod columns;
mod fetcher;
mod offsets;
mod options;
mod reader;
mod records;
mod starting;

#[cfg(test)]
mod tests;

pub use offsets::{PartitionOffsets, TopicPartition};
pub use options::{Boundary, KafkaSourceOptions, Subscription};

use super::decoding::again;
use crate::kafka::{Context, Failure, Status, Waiting, client};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use block::{KafkaBlock, Layout};
use cluster::Cluster;
use futures::{StreamExt, stream};
use offsets::{from_offset, to_offset};
use parking_lot::Mutex as SyncMutex;
use pelton_core::{
    Backlog, BatchId, Block, BlockStream, Error, FileManager, Offset, OffsetRange, PartitionStatus,
    ReadLimit, Record, Result, Source,
};
use reader::{Reader, Reading, lost, spans};
use records::Records;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// How old what is known of the partitions may be.
const DISCOVERY_MS: i64 = 1_000;
/// The same if the cluster must be asked for all its topics.
const DISCOVERY_OF_ALL_MS: i64 = 10_000;
/// How often it is asked whether a partition is really gone.
const GONE_TRIES: u32 = 4;
const GONE_PAUSE: Duration = Duration::from_millis(500);
/// Blocks that wait to be taken.
const BLOCKS_AHEAD: usize = 2;

/// A Kafka source. Made with [`KafkaSource::new`], which connects to nothing; cut down to the columns that the plan
/// reads with [`KafkaSource::with_columns`].
pub struct KafkaSource {
    name: String,
    options: KafkaSourceOptions,
    full_schema: SchemaRef,
    layout: Layout,
    log: Arc<dyn FileManager>,
    status: Arc<Status>,
    /// Offsets that were gone before they were read, since somebody asked.
    lost: Arc<AtomicU64>,
    /// The timestamp of a record that was read lately.
    reached_ms: Arc<AtomicI64>,
    reader: Arc<SyncMutex<Reader>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cluster: Option<Arc<Cluster>>,
    /// Where the query began.
    initial: Option<PartitionOffsets>,
    /// Where the source ends, if it does.
    ending: Option<PartitionOffsets>,
    /// The partitions that are there, and when that was found out.
    known: BTreeSet<TopicPartition>,
    known_ms: Option<i64>,
    /// Where they end.
    ends: PartitionOffsets,
    /// Where partitions begin that were not there before.
    new_begins: PartitionOffsets,
    /// Partitions that were read and are certainly gone.
    gone: BTreeSet<TopicPartition>,
    /// What `available_now` may still read.
    frozen: bool,
    /// When the last micro-batch was taken.
    triggered_ms: Option<i64>,
    /// What was warned of.
    told: BTreeSet<String>,
}

impl KafkaSource {
    /// The source `name`, whose own log is in `log` (the checkpoint's `sources/<name>`).
    pub fn new(name: &str, options: &KafkaSourceOptions, log: Arc<dyn FileManager>) -> Result<Self> {
        options.check()?;
        let layout = Layout::new(name, options, None)?;
        let status = Arc::new(Status::new(options.client.place()?));
        let (lost, reached_ms) = (Arc::<AtomicU64>::default(), Arc::new(AtomicI64::new(-1)));
        let reading = Reading {
            config: options.client.config(
                &[
                    ("isolation.level", "read_committed"),
                    ("fetch.queue.backoff.ms", "10"),
                    ("fetch.error.backoff.ms", "100"),
                    ("reconnect.backoff.max.ms", "2000"),
                    ("socket.nagle.disable", "true"),
                ],
                &[
                    ("group.id", options.group_id.as_str()),
                    ("enable.auto.commit", "false"),
                    ("enable.auto.offset.store", "false"),
                    ("enable.partition.eof", "true"),
                    ("auto.offset.reset", "error"),
                ],
            )?,
            status: Arc::clone(&status),
            fail_on_data_loss: options.fail_on_data_loss,
            min_partitions: options.min_partitions,
            broker_timeout: options.client.broker_timeout,
            lost: Arc::clone(&lost),
            reached_ms: Arc::clone(&reached_ms),
        };
        let mut reader = Reader::new(reading);
        reader.with_headers = layout.has_headers();
        Ok(Self {
            name: name.to_owned(),
            options: options.clone(),
            full_schema: Arc::new(block::full_schema(options)?),
            layout,
            log,
            status,
            lost,
            reached_ms,
            reader: Arc::new(SyncMutex::new(reader)),
            state: Mutex::default(),
        })
    }

    /// The same source, giving only these columns, in the order of the schema. A column that is not there is an error of
    /// kind `Invalid`.
    pub fn with_columns(self, columns: &[String]) -> Result<Self> {
        let layout = Layout::new(&self.name, &self.options, Some(columns))?;
        self.reader.lock().with_headers = layout.has_headers();
        Ok(Self { layout, ..self })
    }

    /// All columns, whatever [`KafkaSource::with_columns`] left out.
    pub fn full_schema(&self) -> SchemaRef {
        self.full_schema.clone()
    }

    /// The client that asks, made when it is first needed.
    fn cluster(&self, state: &mut State) -> Result<Arc<Cluster>> {
        if let Some(cluster) = &state.cluster {
            return Ok(Arc::clone(cluster));
        }
        let config = self.options.client.config(
            &[
                ("isolation.level", "read_committed"),
                ("reconnect.backoff.max.ms", "2000"),
                ("socket.nagle.disable", "true"),
            ],
            &[("enable.auto.commit", "false")],
        )?;
        let asker = client(&config, Context::new(&self.status))?;
        let cluster = Arc::new(Cluster::new(asker, self.options.client.call()));
        state.cluster = Some(Arc::clone(&cluster));
        Ok(cluster)
    }

    /// How often new partitions are looked for; librdkafka's setting of that meaning counts.
    fn discovery_ms(&self) -> i64 {
        let setting = self.options.client.settings.get("topic.metadata.refresh.interval.ms");
        match (setting.and_then(|ms| ms.parse().ok()), &self.options.subscription) {
            (Some(ms), _) if ms > 0 => ms,
            (_, Subscription::Pattern(_)) => DISCOVERY_OF_ALL_MS,
            _ => DISCOVERY_MS,
        }
    }

    /// Asks the cluster, waiting while it does not answer.
    async fn ask<T: Send + 'static>(
        &self,
        state: &mut State,
        question: impl Fn(&Cluster) -> Result<T, Failure> + Clone + Send + 'static,
    ) -> Result<T> {
        let cluster = self.cluster(state)?;
        let mut waiting = Waiting::new(&self.status, self.options.client.broker_timeout);
        loop {
            let (cluster, question) = (Arc::clone(&cluster), question.clone());
            match waiting.call(move || question(&cluster)).await? {
                Ok(answer) => {
                    self.status.back();
                    return Ok(answer);
                }
                Err(failure) => waiting.after(failure).await?,
            }
        }
    }

    /// Where the query began; it begins now if it has not.
    async fn initial(&self, state: &mut State) -> Result<PartitionOffsets> {
        if let Some(initial) = &state.initial {
            return Ok(initial.clone());
        }
        let initial = match starting::recorded(&self.name, self.log.as_ref()).await? {
            Some(initial) => initial,
            None => {
                let options = &self.options;
                let (wanted, boundary) = (options.subscription.clone(), options.starting.clone());
                let no_record_is_latest = options.no_record_is_latest;
                let begins = self.ask(state, move |cluster| {
                    let (there, missing) = cluster.partitions(&wanted)?;
                    match missing.is_empty() {
                        true => starting::starting(cluster, &boundary, no_record_is_latest, &there),
                        false => Err(cluster.no_topic(&missing)?.into()),
                    }
                });
                starting::record(&self.name, self.log.as_ref(), &begins.await?).await?
            }
        };
        state.initial = Some(initial.clone());
        Ok(initial)
    }

    /// Finds out where the partitions end, and from time to time which there are.
    async fn look(&self, state: &mut State, start: &PartitionOffsets, now_ms: Option<i64>) -> Result<()> {
        if state.frozen {
            return Ok(());
        }
        let wanted = self.options.subscription.clone();
        let interval_ms = self.discovery_ms();
        let fresh = |(known, now): (i64, i64)| (0..interval_ms).contains(&now.saturating_sub(known));
        let discover = !state.known_ms.zip(now_ms).is_some_and(fresh);
        let (known, ending) =
            (state.known.clone(), self.options.ending.clone().filter(|_| state.ending.is_none()));
        let look = move |cluster: &Cluster| {
            let anew = |cluster: &Cluster| {
                let (there, missing) = cluster.partitions(&wanted)?;
                let ends = cluster.ends(&there)?;
                Ok::<_, Failure>((there, missing, ends))
            };
            let (there, missing, ends) = match discover {
                true => anew(cluster)?,
                false => match cluster.ends(&known) {
                    Ok(ends) => (known.clone(), Vec::new(), ends),
                    // A topic may have gone.
                    Err(_) => anew(cluster)?,
                },
            };
            let ending =
                ending.as_ref().map(|ending| starting::ending(cluster, ending, &there)).transpose()?;
            Ok((there, missing, ends, ending))
        };
        let mut tries = 0;
        let (known, missing, ends, ending) = loop {
            let seen = self.ask(state, look.clone()).await?;
            tries += 1;
            // A broker that has just come back may not know all yet.
            let gone: Vec<_> = start.keys().filter(|at| !seen.2.contains_key(*at)).cloned().collect();
            if tries == GONE_TRIES || gone.iter().all(|at| state.gone.contains(at)) {
                state.gone.extend(gone);
                break seen;
            }
            tokio::time::sleep(GONE_PAUSE).await;
        };
        (state.known, state.ends) = (known, ends);
        if discover {
            state.known_ms = now_ms;
        }
        if ending.is_some() {
            state.ending = ending;
        }
        self.miss(state, start, missing).await
    }

    /// A topic that was never read must be there; one that was, and is gone, is a loss, of which the offsets tell.
    async fn miss(&self, state: &mut State, start: &PartitionOffsets, missing: Vec<String>) -> Result<()> {
        let read = |name: &String| start.keys().any(|at| *at.topic == **name || at.to_string() == *name);
        let unread: Vec<String> = missing.into_iter().filter(|name| !read(name)).collect();
        if unread.is_empty() {
            return Ok(());
        }
        if self.options.fail_on_data_loss {
            return Err(self.ask(state, move |cluster| cluster.no_topic(&unread)).await?);
        }
        for name in unread {
            if state.told.insert(name.clone()) {
                tracing::warn!(
                    "there is no topic '{name}' at {}; the query goes on without it",
                    self.status.place()
                );
            }
        }
        Ok(())
    }

    /// Where each partition that is there goes on. Sees what is lost.
    async fn begins(&self, state: &mut State, start: &PartitionOffsets) -> Result<PartitionOffsets> {
        let anew: BTreeSet<TopicPartition> = state
            .ends
            .iter()
            .filter(|(at, end)| {
                start.get(*at).is_none_or(|start| start > *end) && !state.new_begins.contains_key(*at)
            })
            .map(|(at, _)| at.clone())
            .collect();
        if !anew.is_empty() {
            let begins = self.ask(state, move |cluster| cluster.begins(&anew)).await?;
            state.new_begins.extend(begins);
        }
        let mut begins = PartitionOffsets::new();
        for (at, end) in &state.ends {
            let begin = match start.get(at) {
                Some(start) if start <= end => {
                    state.new_begins.remove(at);
                    *start
                }
                Some(start) => {
                    let why = format!("the partition ends at {end}");
                    self.lose(&mut state.told, at, Some((*end, *start)), &why)?;
                    state.new_begins.get(at).copied().unwrap_or(0)
                }
                None => {
                    let begin = state.new_begins.get(at).copied().unwrap_or(0);
                    if begin > 0 {
                        let why = format!("the partition is new to the query and begins at {begin}");
                        self.lose(&mut state.told, at, Some((0, begin)), &why)?;
                    }
                    begin
                }
            };
            begins.insert(at.clone(), begin);
        }
        for at in start.keys().filter(|at| !state.ends.contains_key(*at)) {
            let why = format!("there is no such partition at {}", self.status.place());
            self.lose(&mut state.told, at, None, &why)?;
        }
        Ok(begins)
    }

    fn lose(
        &self,
        told: &mut BTreeSet<String>,
        at: &TopicPartition,
        offsets: Option<(i64, i64)>,
        why: &str,
    ) -> Result<()> {
        let lost = lost(at, offsets, why);
        if self.options.fail_on_data_loss {
            return Err(lost);
        }
        if told.insert(lost.message().to_owned()) {
            let count = offsets.map_or(0, |(from, to)| (to - from).max(0).unsigned_abs());
            self.lost.fetch_add(count, Relaxed);
            tracing::warn!("{}; the query goes on with what is left", lost.message());
        }
        Ok(())
    }

    /// How far the next micro-batch reads; `None`: it waits.
    fn admit(
        &self,
        state: &mut State,
        begins: &PartitionOffsets,
        limit: ReadLimit,
        now_ms: i64,
    ) -> Option<PartitionOffsets> {
        let bounded = |(at, end): (&TopicPartition, &i64)| {
            let begin = begins.get(at).copied().unwrap_or(0);
            let ending = state.ending.as_ref().and_then(|ending| ending.get(at)).unwrap_or(end);
            (at.clone(), (*end).min(*ending).max(begin))
        };
        let ends: PartitionOffsets = state.ends.iter().map(bounded).collect();
        let new = admission::total(begins, &ends);
        if new == 0 {
            return None;
        }
        if limit == ReadLimit::All {
            return Some(ends);
        }
        let options = &self.options;
        let min = options.min_offsets_per_trigger.filter(|_| !state.frozen);
        let delay_ms = options.max_trigger_delay.as_millis();
        if min.is_some_and(|min| admission::is_delayed((min, delay_ms), new, state.triggered_ms, now_ms)) {
            return None;
        }
        state.triggered_ms = Some(now_ms);
        Some(match options.max_offsets_per_trigger {
            Some(max) => admission::rate_limit(max, begins, &ends),
            None => ends,
        })
    }

    async fn start_of(&self, state: &mut State, start: Option<&Offset>) -> Result<PartitionOffsets> {
        match start {
            Some(offset) => from_offset(&self.name, offset),
            None => self.initial(state).await,
        }
    }
}

#[async_trait]
impl Source for KafkaSource {
    fn description(&self) -> String {
        format!("kafka {}", self.options.subscription.describe())
    }

    fn schema(&self) -> SchemaRef {
        self.layout.schema.clone()
    }

    async fn prepare_for_available_now(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        let initial = self.initial(&mut state).await?;
        self.look(&mut state, &initial, None).await?;
        state.frozen = true;
        Ok(())
    }

    async fn latest_offset(
        &self,
        start: Option<&Offset>,
        limit: ReadLimit,
        now_ms: i64,
    ) -> Result<Option<Offset>> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let start = self.start_of(state, start).await?;
        self.look(state, &start, Some(now_ms)).await?;
        let begins = self.begins(state, &start).await?;
        Ok(self.admit(state, &begins, limit, now_ms).map(|ends| to_offset(&ends)))
    }

    async fn partitions(
        &self,
        start: Option<&Offset>,
        end: Option<&Offset>,
        _now_ms: i64,
    ) -> Result<Vec<PartitionStatus>> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let start = self.start_of(state, start).await?;
        let end = match end {
            Some(end) => from_offset(&self.name, end)?,
            None => start.clone(),
        };
        let status = |(at, there): (&TopicPartition, &i64)| {
            let begin = start.get(at).copied().unwrap_or(0);
            let end = end.get(at).copied().unwrap_or(begin);
            let is_last =
                state.ending.as_ref().and_then(|ending| ending.get(at)).is_some_and(|last| end >= *last);
            let caught_up = is_last || (end >= *there && !state.frozen);
            PartitionStatus { name: at.to_string(), has_data: end != begin, caught_up }
        };
        Ok(state.ends.iter().map(status).collect())
    }

    async fn read(&self, _batch_id: BatchId, range: &OffsetRange) -> Result<BlockStream> {
        let mut state = self.state.lock().await;
        let start = self.start_of(&mut state, range.start.as_ref()).await?;
        let cluster = self.cluster(&mut state)?;
        drop(state);
        let spans = spans(&start, &from_offset(&self.name, &range.end)?);
        let (sender, mut receiver) = mpsc::channel::<Result<Records>>(BLOCKS_AHEAD);
        let reader = Arc::clone(&self.reader);
        tokio::task::spawn_blocking(move || {
            if let Err(failed) = reader.lock().read(&cluster, &spans, &sender) {
                // A receiver that went does not want to know.
                let _ = sender.blocking_send(Err(failed));
            }
        });
        let layout = self.layout.clone();
        let records = stream::poll_fn(move |cx| receiver.poll_recv(cx));
        let blocks = records.then(move |records| {
            let layout = layout.clone();
            async move {
                let records = records?;
                if let Some(decoder) = &layout.decoder {
                    decoder.prepare(&records.values().0).await?;
                }
                let partition = records.at.to_string();
                Ok::<_, Error>(Box::new(KafkaBlock { records, layout, partition }) as Box<dyn Block>)
            }
        });
        Ok(blocks.boxed())
    }

    /// Shows a consumer group how far the query is. Whether that succeeds does not matter to the query.
    async fn commit(&self, end: &Offset) -> Result<()> {
        let offsets = from_offset(&self.name, end)?;
        if let Some(reader) = self.reader.try_lock() {
            reader.mirror(&offsets);
        }
        Ok(())
    }

    /// Not with Kafka's own columns: a record alone does not say what they were.
    fn decode_again(&self, records: Vec<Record>) -> Option<Box<dyn Block>> {
        self.layout.alone().map(|decoder| again(decoder, records))
    }

    /// What was there beyond when partitions were last looked at; the oldest of what was fetched ahead, or what is read
    /// at the moment. (Spark's `avgOffsetsBehindLatest` is a mean of it.)
    async fn backlog(&self, position: Option<&Offset>) -> Option<Backlog> {
        let state = self.state.lock().await;
        let position = match position {
            Some(position) => from_offset(&self.name, position).ok()?,
            None => state.initial.clone()?,
        };
        let behind = |(at, end): (&TopicPartition, &i64)| {
            position.get(at).map_or(0, |reached| u64::try_from(end.saturating_sub(*reached)).unwrap_or(0))
        };
        let records = state.ends.iter().map(behind).sum();
        // Never waited for: it may be at work until somebody takes what it has read.
        let oldest_ms = match self.reader.try_lock() {
            Some(mut reader) => reader.next_ms(),
            None => Some(self.reached_ms.load(Relaxed)).filter(|ms| *ms >= 0),
        };
        Some(Backlog { records: Some(records), oldest_ms, ..Backlog::default() })
    }

    fn waits_for(&self) -> Option<String> {
        self.status.waits_for()
    }

    /// With `fail_on_data_loss: true` the first one ends the query.
    fn take_lost(&self) -> Option<u64> {
        (!self.options.fail_on_data_loss).then(|| self.lost.swap(0, Relaxed))
    }
}
