//! Measures the state store: puts, gets, commits, recovery, in memory and with a budget that is a part of the state.
//!
//! `cargo run -p pelton-state --example store -- [KEYS [UPDATES [MIB]]]`; prints a table. With MIB only one line: small
//! entries, evenly spread, and so much memory for them. A command, not a test: it says what the store costs on this
//! machine, at this moment.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring command")]

use bytes::Bytes;
use pelton_core::files::{Created, FileInfo, FileManager, FileWriter, MemoryFiles};
use pelton_core::{BatchId, Error, Result, StateCommit, StateOp, StateShard, StateStore};
use pelton_state::{CheckpointedStateStore, StateOptions};
use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TABLE: &str = "operator/groups";
const BATCH: u64 = 100_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let mut number = |default| arguments.next().and_then(std::result::Result::ok).unwrap_or(default);
    let (keys, updates, mib) = (number(1_000_000), number(1_000_000), number(0));
    println!("{keys} keys, then {updates} updates; batches of {BATCH}; times for one key, in nanoseconds");
    println!(
        "{:<34} {:>6} {:>6} {:>6} {:>7} {:>8} {:>8} {:>8}",
        "", "put", "get", "update", "commit", "bytes", "memory", "peak MiB"
    );
    if mib > 0 {
        let workload =
            Workload { keys, updates, key: 16, value: 16, zipf: false, memory_bytes_max: mib << 20 };
        return measure(&format!("16-byte keys and values, {mib} MiB"), workload).map(drop);
    }
    let sizes = [("16-byte keys, 16-byte values", 16, 16), ("48-byte keys, 8-byte values", 48, 8)];
    for (name, key, value) in sizes {
        let whole = Workload { keys, updates, key, value, zipf: false, memory_bytes_max: u64::MAX };
        let memory = measure(name, whole)?;
        measure(&format!("{name}, Zipf"), Workload { zipf: true, ..whole })?;
        let fifth = Workload { memory_bytes_max: memory / 5, ..whole };
        measure(&format!("{name}, 1/5"), fifth)?;
        measure(&format!("{name}, 1/5, Zipf"), Workload { zipf: true, ..fifth })?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Workload {
    keys: u64,
    updates: u64,
    key: usize,
    value: usize,
    zipf: bool,
    memory_bytes_max: u64,
}

/// Times of parts of the work.
#[derive(Default)]
struct Times {
    put: Duration,
    get: Duration,
    update: Duration,
    commit: Duration,
}

/// Fills a store, changes it, opens it again; gives the bytes of memory that its entries took.
fn measure(name: &str, workload: Workload) -> Result<u64> {
    let files: Arc<dyn FileManager> = Arc::new(LocalFiles::new()?);
    let options = StateOptions { memory_bytes_max: workload.memory_bytes_max, ..StateOptions::default() };
    let open = |commit: Option<&StateCommit>| {
        let commit = commit.cloned();
        let (files, options) = (Arc::clone(&files), options.clone());
        futures::executor::block_on(CheckpointedStateStore::open_with(files, commit.as_ref(), options))
    };
    let mut store = open(None)?;
    let mut times = Times::default();
    let mut batch = 0;
    let before = memory_of_process("VmRSS:");
    // From here on the highest is meant.
    drop(std::fs::write("/proc/self/clear_refs", "5"));
    for first in (0..workload.keys).step_by(BATCH as usize) {
        let keys = (first..workload.keys.min(first + BATCH)).map(scatter);
        run(&mut store, workload, keys, batch, None, &mut times)?;
        batch += 1;
    }
    let filled = std::mem::take(&mut times.commit);
    let mut dice = 1_u64;
    let mut commit = None;
    for _ in (0..workload.updates).step_by(BATCH as usize) {
        let keys = (0..BATCH.min(workload.updates)).map(|_| workload.pick(&mut dice));
        let (get, mut reads) = (times.get, Times::default());
        commit = Some(run(&mut store, workload, keys, batch, Some(&mut reads), &mut times)?);
        times.get = get + reads.get;
        batch += 1;
    }
    let memory = store.memory_bytes();
    let peak = memory_of_process("VmHWM:").saturating_sub(before);
    let bytes = futures::executor::block_on(files.list(""))?.iter().map(|file| file.size_bytes).sum::<u64>();
    let each = |time: Duration, count: u64| time.as_nanos() as u64 / count.max(1);
    println!(
        "{name:<34} {:>6} {:>6} {:>6} {:>7} {:>8} {:>8} {:>8}",
        each(times.put, workload.keys),
        each(times.get, workload.updates),
        each(times.update, workload.updates),
        each(filled + times.commit, workload.keys + workload.updates),
        bytes / (workload.keys + workload.updates),
        memory / workload.keys,
        peak >> 20,
    );
    drop(store);
    let (start, busy) = (Instant::now(), processor_ms());
    let store = open(commit.as_ref())?;
    let (time, busy) = (start.elapsed().as_millis(), processor_ms().saturating_sub(busy));
    let entries = store.len(TABLE);
    println!("{:<34} {time} ms, {busy} ms of processors, for {entries} entries", "  opened again");
    Ok(memory)
}

/// One micro-batch: perhaps reads, then writes and commits.
fn run(
    store: &mut CheckpointedStateStore,
    workload: Workload,
    keys: impl Iterator<Item = u64>,
    batch: u64,
    reads: Option<&mut Times>,
    times: &mut Times,
) -> Result<StateCommit> {
    let mut shards: Vec<Vec<Bytes>> = vec![Vec::new(); pelton_core::SHARDS];
    for key in keys {
        shards[(key % 16) as usize].push(workload.key(key));
    }
    shards.iter_mut().for_each(|keys| keys.sort_unstable());
    let is_update = reads.is_some();
    if let Some(reads) = reads {
        reads.get.add_assign(timed(|| get(store.shards(), &shards))?);
    }
    let value = Bytes::from(vec![batch as u8; workload.value]);
    let written = timed(|| put(store.shards(), &shards, &value))?;
    if is_update {
        times.update += written
    } else {
        times.put += written
    }
    let start = Instant::now();
    let commit = futures::executor::block_on(store.commit(BatchId(batch)))?;
    times.commit += start.elapsed();
    Ok(commit)
}

fn get(shards: Vec<&mut dyn StateShard>, keys: &[Vec<Bytes>]) -> Result<()> {
    for (shard, keys) in shards.into_iter().zip(keys) {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        if shard.get_many(TABLE, &keys)?.iter().any(Option::is_none) {
            return Err(Error::internal("a key is not there"));
        }
    }
    Ok(())
}

fn put(shards: Vec<&mut dyn StateShard>, keys: &[Vec<Bytes>], value: &Bytes) -> Result<()> {
    for (shard, keys) in shards.into_iter().zip(keys) {
        shard.apply(TABLE, keys.iter().map(|key| StateOp::Put(key.clone(), value.clone())).collect())?;
    }
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

/// A number from a number, as good as by chance; different ones from different ones.
fn scatter(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Workload {
    /// A key that is there.
    fn pick(&self, dice: &mut u64) -> u64 {
        *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let even = (*dice >> 11) as f64 / (1_u64 << 53) as f64;
        // Zipf's law with exponent 1, nearly: the logarithm of the rank is even.
        let rank = if self.zipf { (self.keys as f64).powf(even) - 1.0 } else { even * self.keys as f64 };
        scatter((rank as u64).min(self.keys - 1))
    }

    fn key(&self, number: u64) -> Bytes {
        let mut key = vec![0; self.key];
        key[self.key - 8..].copy_from_slice(&number.to_be_bytes());
        key[2..8].copy_from_slice(&scatter(number ^ 1).to_le_bytes()[2..]);
        key.into()
    }
}

/// The bytes of memory that the process has or had.
fn memory_of_process(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// How long the process has had a processor, all threads together; clocks tick 100 times a second.
fn processor_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let numbers = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    numbers.skip(11).take(2).filter_map(|number| number.parse::<u64>().ok()).sum::<u64>() * 10
}

/// A directory on local disk, as plain as can be; deleted when it is dropped.
#[derive(Debug)]
struct LocalFiles(PathBuf);

impl LocalFiles {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pelton-state-example-{}", std::process::id()));
        std::fs::create_dir_all(path.join("deltas")).map_err(|e| Error::unavailable(e.to_string()))?;
        Ok(Self(path))
    }
}

impl Drop for LocalFiles {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn io<T>(result: std::io::Result<T>) -> Result<T> {
    result.map_err(|e| Error::unavailable(e.to_string()))
}

#[async_trait::async_trait]
impl FileManager for LocalFiles {
    fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }
    async fn read(&self, path: &str) -> Result<Option<Bytes>> {
        match std::fs::read(self.0.join(path)) {
            Ok(content) => Ok(Some(content.into())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => io(Err(e)),
        }
    }
    async fn create(&self, path: &str, content: Bytes) -> Result<Created> {
        self.replace(path, content).await.map(|()| Created::New)
    }
    async fn replace(&self, path: &str, content: Bytes) -> Result<()> {
        let mut file = io(std::fs::File::create(self.0.join(path)))?;
        io(std::io::Write::write_all(&mut file, &content))?;
        io(file.sync_all())
    }
    async fn writer(&self, path: &str) -> Result<Box<dyn FileWriter>> {
        MemoryFiles::new().writer(path).await
    }
    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        io(std::fs::rename(self.0.join(from), self.0.join(to)))
    }
    async fn list(&self, _: &str) -> Result<Vec<FileInfo>> {
        let entry = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry?;
            let path = format!("deltas/{}", entry.file_name().display());
            Ok(FileInfo { path, size_bytes: entry.metadata()?.len(), modified_ms: 0 })
        };
        io(std::fs::read_dir(self.0.join("deltas")).and_then(|entries| entries.map(entry).collect()))
    }
    async fn delete(&self, path: &str) -> Result<()> {
        io(std::fs::remove_file(self.0.join(path)))
    }
    async fn lock(&self, path: &str) -> Result<Box<dyn Send + Sync>> {
        MemoryFiles::new().lock(path).await
    }
    fn subtree(&self, dir: &str) -> Arc<dyn FileManager> {
        Arc::new(Self(self.0.join(dir)))
    }
}
