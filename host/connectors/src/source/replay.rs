//! Dead letters that are fed back: a log of them beside the sources, and a source that gives its own once, after its rows.
//!
//! The command line writes entry `replays/<n>` into the checkpoint (`ReplayLog`): one log for all sources, so that no letter goes
//! back to two of them. The running query, or the next run, finds it and takes it into its next micro-batch (`ReplaySource`).
//! Which entries a micro-batch reads is part of the source's offset, so they come out exactly once like any other input.
//!
//! As long as nothing was ever fed back to a source, its offset is the source's own; then it is `{"$replays": n, "source": …}`.

use crate::decode::json::{JsonDecoder, JsonOptions};
use crate::decode::{Decoder, DecoderSettings};
use crate::source::decoding::again;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::{StreamExt, stream};
use pelton_core::{
    Backlog, BatchId, Block, BlockStream, Created, Error, FileManager, MalformedPolicy, Offset, OffsetRange,
    PartitionStatus, ReadLimit, Record, Result, Source,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

const VERSION: &str = "v2";
/// The key of an offset that counts entries.
const REPLAYS: &str = "$replays";
const SOURCE: &str = "source";
/// How often a running query looks for new entries, by the time of its micro-batches.
const LOOK_EVERY_MS: i64 = 10_000;
/// Letters that are decoded together.
const BLOCK_LETTERS: usize = 8192;

/// A dead letter that is fed back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayedLetter {
    /// The source that gives it again.
    pub source: String,
    /// The micro-batch that lost it.
    pub batch_id: BatchId,
    /// Its line in that micro-batch's dead letters, from 0.
    pub line: u64,
    /// It is a row as JSON, as it reached a step; otherwise it is what the source gave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_row: bool,
    /// Where it was in the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Its bytes, in base64.
    payload: String,
}

impl ReplayedLetter {
    /// Keeps the bytes as they are.
    pub fn new(
        source: &str,
        batch_id: BatchId,
        line: u64,
        is_row: bool,
        position: Option<String>,
        payload: &[u8],
    ) -> Self {
        let (source, payload) = (source.to_owned(), BASE64.encode(payload));
        Self { source, batch_id, line, is_row, position, payload }
    }

    fn id(&self) -> (BatchId, u64) {
        (self.batch_id, self.line)
    }

    fn record(&self) -> Result<Record> {
        let payload = BASE64.decode(&self.payload);
        let payload =
            payload.map_err(|e| Error::data(format!("a dead letter that is fed back is damaged: {e}")))?;
        let place =
            self.position.clone().unwrap_or_else(|| format!("dead letter {}:{}", self.batch_id, self.line));
        Ok(Record { payload: payload.into(), position: format!("{place} (again)") })
    }
}

/// The dead letters of a query that are fed back. Entries are numbered from 1 and never change.
#[derive(Debug, Clone)]
pub struct ReplayLog {
    files: Arc<dyn FileManager>,
}

impl ReplayLog {
    /// The log in `files`, the checkpoint's `replays`.
    pub fn new(files: Arc<dyn FileManager>) -> Self {
        Self { files }
    }

    /// The number of the last entry; 0 if there is none. None before it may be missing.
    pub async fn last(&self) -> Result<u64> {
        let files = self.files.list("").await?;
        let there: BTreeSet<u64> = files.iter().filter_map(|file| file.path.parse().ok()).collect();
        let last = there.last().copied().unwrap_or(0);
        match (1..=last).find(|number| !there.contains(number)) {
            Some(number) => Err(self.missing(number)),
            None => Ok(last),
        }
    }

    /// All letters that were ever fed back; to a query that stands at these offsets of its sources.
    pub async fn letters(&self, offsets: impl Iterator<Item = &Offset>) -> Result<Vec<ReplayedLetter>> {
        let read = offsets.map(|offset| split(Some(offset)).0).max().unwrap_or(0);
        let last = self.last().await?;
        if last < read {
            return Err(self.missing(last + 1));
        }
        let mut letters = Vec::new();
        for number in 1..=last {
            letters.extend(self.entry(number).await?);
        }
        Ok(letters)
    }

    /// That an entry is gone: what was fed back with it is no longer known.
    fn missing(&self, number: u64) -> Error {
        self.damaged(number, "it is missing")
    }

    fn damaged(&self, number: u64, why: impl std::fmt::Display) -> Error {
        Error::data(format!("{}/{number} cannot be used: {why}", self.files.url())).hint(format!(
            "restore it from a copy of the checkpoint; a file with the line {VERSION} alone in its place lets the query go on, \
             but the dead letters that were fed back with it are then as if they never were"
        ))
    }

    /// The letters of an entry.
    pub async fn entry(&self, number: u64) -> Result<Vec<ReplayedLetter>> {
        let damaged = |why: &str| self.damaged(number, why);
        let content = self.files.read(&number.to_string()).await?.ok_or_else(|| self.missing(number))?;
        let text = std::str::from_utf8(&content).map_err(|e| damaged(&e.to_string()))?;
        let (version, lines) = text.split_once('\n').unwrap_or((text, ""));
        if version != VERSION {
            return Err(damaged(&format!("its format is {version}, this Pelton reads {VERSION}")));
        }
        lines.lines().map(|line| serde_json::from_str(line).map_err(|e| damaged(&e.to_string()))).collect()
    }

    /// Feeds back those letters that were not fed back before, to whatever source, and says how many they are by source. Whoever
    /// does so at the same time contends for the next entry; the one who loses looks again.
    pub async fn append(&self, letters: &[ReplayedLetter]) -> Result<BTreeMap<String, usize>> {
        let (mut looked, mut before) = (0, HashSet::new());
        loop {
            let last = self.last().await?;
            for number in looked + 1..=last {
                before.extend(self.entry(number).await?.iter().map(ReplayedLetter::id));
            }
            looked = last;
            let fresh: Vec<&ReplayedLetter> =
                letters.iter().filter(|letter| !before.contains(&letter.id())).collect();
            if fresh.is_empty() || self.create(last + 1, &fresh).await? == Created::New {
                let mut counts = BTreeMap::new();
                fresh.iter().for_each(|letter| *counts.entry(letter.source.clone()).or_default() += 1);
                return Ok(counts);
            }
        }
    }

    async fn create(&self, number: u64, letters: &[&ReplayedLetter]) -> Result<Created> {
        let mut text = format!("{VERSION}\n");
        for letter in letters {
            let line = serde_json::to_string(letter)
                .map_err(|e| Error::internal(format!("a dead letter cannot be written: {e}")))?;
            text.push_str(&line);
            text.push('\n');
        }
        self.files.create(&number.to_string(), Bytes::from(text)).await
    }
}

/// A source, and the dead letters that are fed back to it.
pub struct ReplaySource {
    name: String,
    inner: Arc<dyn Source>,
    log: ReplayLog,
    /// Decodes letters that are rows.
    rows: Arc<dyn Decoder>,
    /// The log's last entry when it was last looked at.
    there: AtomicU64,
    /// The last entry that was looked into, and the last of them that has a letter of this source.
    seen: AtomicU64,
    last: AtomicU64,
    looked_ms: AtomicI64,
    frozen: AtomicBool,
}

impl ReplaySource {
    /// A source `name` with the letters of a log.
    pub fn new(name: &str, inner: Arc<dyn Source>, log: ReplayLog) -> Result<Self> {
        let settings = DecoderSettings {
            on_malformed: MalformedPolicy::DeadLetter,
            origin: name.to_owned(),
            ..DecoderSettings::new(inner.schema())
        };
        let rows = Arc::new(JsonDecoder::new(&settings, &JsonOptions::default())?);
        Ok(Self {
            name: name.to_owned(),
            inner,
            log,
            rows,
            there: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            last: AtomicU64::new(0),
            looked_ms: AtomicI64::new(i64::MIN),
            frozen: AtomicBool::new(false),
        })
    }

    /// The last entry with a letter of this source, given how many are behind.
    async fn look(&self, replays: u64, now_ms: i64) -> Result<u64> {
        let looked_ms = self.looked_ms.load(Relaxed);
        let is_time = looked_ms == i64::MIN || now_ms - looked_ms >= LOOK_EVERY_MS;
        if is_time && !self.frozen.load(Relaxed) {
            self.there.store(self.log.last().await?, Relaxed);
            self.looked_ms.store(now_ms, Relaxed);
        }
        let there = self.there.load(Relaxed);
        if there < replays {
            return Err(self.log.missing(there + 1));
        }
        for number in self.seen.load(Relaxed).max(replays) + 1..=there {
            if !self.letters(number).await?.is_empty() {
                self.last.store(number, Relaxed);
            }
            self.seen.store(number, Relaxed);
        }
        Ok(self.last.load(Relaxed).max(replays))
    }

    /// The letters of an entry that are this source's.
    async fn letters(&self, number: u64) -> Result<Vec<ReplayedLetter>> {
        let mut letters = self.log.entry(number).await?;
        letters.retain(|letter| letter.source == self.name);
        Ok(letters)
    }

    async fn blocks(&self, number: u64) -> Result<Vec<Box<dyn Block>>> {
        let letters = self.letters(number).await?;
        let mut blocks = Vec::new();
        for letters in letters.chunks(BLOCK_LETTERS) {
            let of = |is_row: bool| -> Result<Vec<Record>> {
                letters.iter().filter(|letter| letter.is_row == is_row).map(ReplayedLetter::record).collect()
            };
            let (records, rows) = (of(false)?, of(true)?);
            if !records.is_empty() {
                let block = self.inner.decode_again(records).ok_or_else(|| {
                    let what = self.inner.description();
                    Error::invalid(format!("the source `{what}` cannot take dead letters back"))
                })?;
                blocks.push(block);
            }
            if !rows.is_empty() {
                blocks.push(again(&self.rows, rows));
            }
        }
        Ok(blocks)
    }
}

/// How many entries of the log an offset has behind it, and the source's own offset.
pub fn split(offset: Option<&Offset>) -> (u64, Option<Offset>) {
    let Some(offset) = offset else { return (0, None) };
    match offset.0.get(REPLAYS).and_then(serde_json::Value::as_u64) {
        Some(replays) => {
            let source = offset.0.get(SOURCE).filter(|source| !source.is_null());
            (replays, source.cloned().map(Offset))
        }
        None => (0, Some(offset.clone())),
    }
}

fn join(replays: u64, source: Option<Offset>) -> Option<Offset> {
    match replays {
        0 => source,
        _ => Some(Offset(json!({REPLAYS: replays, SOURCE: source}))),
    }
}

#[async_trait]
impl Source for ReplaySource {
    fn description(&self) -> String {
        self.inner.description()
    }

    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    async fn prepare_for_available_now(&self) -> Result<()> {
        self.there.store(self.log.last().await?, Relaxed);
        self.frozen.store(true, Relaxed);
        self.inner.prepare_for_available_now().await
    }

    async fn latest_offset(
        &self,
        start: Option<&Offset>,
        limit: ReadLimit,
        now_ms: i64,
    ) -> Result<Option<Offset>> {
        let (replays, source) = split(start);
        let last = self.look(replays, now_ms).await?;
        let latest = self.inner.latest_offset(source.as_ref(), limit, now_ms).await?;
        let has_news = last > replays || latest.is_some();
        Ok(if has_news { join(last, latest.or(source)) } else { None })
    }

    async fn partitions(
        &self,
        start: Option<&Offset>,
        end: Option<&Offset>,
        now_ms: i64,
    ) -> Result<Vec<PartitionStatus>> {
        let ((_, start), (_, end)) = (split(start), split(end));
        self.inner.partitions(start.as_ref(), end.as_ref(), now_ms).await
    }

    async fn read(&self, batch_id: BatchId, range: &OffsetRange) -> Result<BlockStream> {
        let ((first, start), (last, end)) = (split(range.start.as_ref()), split(Some(&range.end)));
        let own = match end {
            Some(end) if Some(&end) != start.as_ref() => {
                self.inner.read(batch_id, &OffsetRange { start, end }).await?
            }
            _ => stream::empty().boxed(),
        };
        let mut letters = Vec::new();
        for number in first + 1..=last {
            letters.extend(self.blocks(number).await?);
        }
        Ok(own.chain(stream::iter(letters.into_iter().map(Ok))).boxed())
    }

    async fn commit(&self, end: &Offset) -> Result<()> {
        match split(Some(end)).1 {
            Some(end) => self.inner.commit(&end).await,
            None => Ok(()),
        }
    }

    fn is_at_end(&self, position: Option<&Offset>) -> bool {
        self.inner.is_at_end(split(position).1.as_ref())
    }

    fn decode_again(&self, records: Vec<Record>) -> Option<Box<dyn Block>> {
        self.inner.decode_again(records)
    }

    async fn backlog(&self, position: Option<&Offset>) -> Option<Backlog> {
        self.inner.backlog(split(position).1.as_ref()).await
    }

    fn waits_for(&self) -> Option<String> {
        self.inner.waits_for()
    }

    fn take_lost(&self) -> Option<u64> {
        self.inner.take_lost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::http::{HttpSource, HttpSourceOptions};
    use arrow::array::AsArray;
    use arrow::array::types::Int64Type;
    use arrow::datatypes::{DataType, Field, Schema};
    use pelton_core::MemoryFiles;

    fn source(files: &MemoryFiles) -> ReplaySource {
        let mut options = HttpSourceOptions::new("127.0.0.1:0");
        options.lines.schema = Some(Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)])));
        let inner = HttpSource::open("in", &options, files.subtree("sources/in")).unwrap();
        ReplaySource::new("in", Arc::new(inner), log(files)).unwrap()
    }

    fn log(files: &MemoryFiles) -> ReplayLog {
        ReplayLog::new(files.subtree("replays"))
    }

    async fn latest(source: &ReplaySource, start: Option<&Offset>, now_ms: i64) -> Option<Offset> {
        source.latest_offset(start, ReadLimit::Configured, now_ms).await.unwrap()
    }

    async fn rows(source: &ReplaySource, start: Option<Offset>, end: &Offset) -> Vec<i64> {
        let range = OffsetRange { start, end: end.clone() };
        let mut blocks = source.read(BatchId(0), &range).await.unwrap();
        let mut rows = Vec::new();
        while let Some(block) = blocks.next().await {
            for batch in block.unwrap().decode().unwrap().batches {
                rows.extend(batch.column(0).as_primitive::<Int64Type>().values().iter());
            }
        }
        rows
    }

    #[tokio::test]
    async fn letters_come_once_into_the_next_micro_batch() {
        let files = MemoryFiles::new();
        let letter =
            |line, is_row, payload: &[u8]| ReplayedLetter::new("in", BatchId(3), line, is_row, None, payload);
        let first = source(&files);
        assert_eq!(latest(&first, None, 0).await, None);
        let of_another = ReplayedLetter::new("other", BatchId(3), 5, false, None, b"{\"n\":6}");
        let letters = [letter(0, false, b"{\"n\":7}"), of_another, letter(4, true, b"{\"n\":8,\"m\":1}")];
        let counts = log(&files).append(&letters).await.unwrap();
        assert_eq!(counts, BTreeMap::from([("in".to_owned(), 2), ("other".to_owned(), 1)]));
        assert_eq!(latest(&first, None, LOOK_EVERY_MS - 1).await, None, "it does not look all the time");
        let end = latest(&first, None, LOOK_EVERY_MS).await.unwrap();
        assert_eq!(end, Offset(json!({"$replays": 1, "source": null})));
        assert_eq!(rows(&first, None, &end).await, [7, 8]);
        drop(first);

        let again = source(&files);
        assert_eq!(rows(&again, None, &end).await, [7, 8], "a rerun gives the same");
        assert_eq!(latest(&again, Some(&end), 0).await, None);
        again.prepare_for_available_now().await.unwrap();
        log(&files).append(&[letter(1, false, b"{\"n\":9}")]).await.unwrap();
        assert_eq!(
            latest(&again, Some(&end), 2 * LOOK_EVERY_MS).await,
            None,
            "what came later is for the next run"
        );
        let next = source(&files);
        let after = latest(&next, Some(&end), 0).await.unwrap();
        assert_eq!(rows(&next, Some(end), &after).await, [9]);
        assert_eq!(log(&files).letters([].iter()).await.unwrap().len(), 4);
        let elsewhere = ReplayedLetter::new("other", BatchId(3), 6, false, None, b"{\"n\":6}");
        log(&files).append(&[elsewhere]).await.unwrap();
        assert_eq!(
            latest(&source(&files), Some(&after), 0).await,
            None,
            "what goes to another source is no news here"
        );
    }

    #[tokio::test]
    async fn an_entry_that_is_gone_is_missed() {
        let files = MemoryFiles::new();
        let letter = |line| ReplayedLetter::new("in", BatchId(3), line, false, None, b"{\"n\":7}");
        for line in 0..2 {
            log(&files).append(&[letter(line)]).await.unwrap();
        }
        let at = |replays: u64| Offset(json!({"$replays": replays, "source": null}));
        let missed = |error: Error| error.message().ends_with("/1 cannot be used: it is missing");
        files.subtree("replays").delete("1").await.unwrap();
        let start = source(&files).latest_offset(Some(&at(2)), ReadLimit::Configured, 0).await;
        assert!(missed(start.unwrap_err()), "before others");
        files.subtree("replays").delete("2").await.unwrap();
        let start = source(&files).latest_offset(Some(&at(2)), ReadLimit::Configured, 0).await;
        assert!(missed(start.unwrap_err()), "at the end");
        assert!(
            missed(log(&files).letters([at(2), at(1)].iter()).await.unwrap_err()),
            "by those who feed back"
        );
        let available_now = source(&files);
        available_now.prepare_for_available_now().await.unwrap();
        let start = available_now.latest_offset(Some(&at(1)), ReadLimit::Configured, 0).await;
        assert!(missed(start.unwrap_err()), "by a run that takes what is there");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn letters_are_fed_back_once_however_many_do_so_at_the_same_time() {
        let files = MemoryFiles::new();
        let letters: Vec<_> =
            (0..200).map(|line| ReplayedLetter::new("in", BatchId(1), line, false, None, b"{}")).collect();
        // Some to another source: that is no other letter.
        let append = |(from, source): (usize, &str)| {
            let (log, mut letters) = (log(&files), letters[from..].to_vec());
            letters.iter_mut().for_each(|letter| letter.source = source.to_owned());
            tokio::spawn(async move { log.append(&letters).await.unwrap() })
        };
        let who = [(0, "in"), (50, "out"), (100, "in"), (0, "out"), (150, "in")];
        let all: Vec<_> = who.into_iter().map(append).collect();
        let mut fed_back = 0;
        for one in all {
            fed_back += one.await.unwrap().values().sum::<usize>();
        }
        let log = log(&files);
        assert_eq!((fed_back, log.letters([].iter()).await.unwrap().len()), (200, 200));
        assert_eq!(log.append(&letters).await.unwrap(), BTreeMap::new());
    }

    #[test]
    fn an_offset_stays_the_sources_own_until_something_is_fed_back() {
        let own = Offset(json!({"log_offset": 4}));
        assert_eq!(split(Some(&own)), (0, Some(own.clone())));
        assert_eq!(join(0, Some(own.clone())), Some(own.clone()));
        assert_eq!(split(join(2, Some(own.clone())).as_ref()), (2, Some(own)));
        assert_eq!(split(join(2, None).as_ref()), (2, None));
    }
}
