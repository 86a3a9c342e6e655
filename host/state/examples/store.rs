//! Measures the state store: put, get, scan, commit, restore and memory, with as many keys as told (default 1000000).
//! `cargo run --example store -p pelton-state -- 10000000`. A key is a row of a long, a value one of two.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures, and tells a person")]

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use bytes::Bytes;
use futures::executor::block_on;
use pelton_core::files::MemoryFiles;
use pelton_core::{BatchId, FileManager, Result, StateCommit, StateOp, StateStore, shard_of};
use pelton_state::{CheckpointedStateStore, EncodedRows, RowCodec};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

const BATCH: usize = 100_000;

fn main() -> Result<()> {
    let keys = std::env::args().nth(1).and_then(|keys| keys.parse().ok()).unwrap_or(1_000_000);
    block_on(measure(keys))
}

async fn measure(keys: usize) -> Result<()> {
    let files = MemoryFiles::new();
    let mut store = CheckpointedStateStore::open(Arc::new(files.clone()), None).await?;
    let mut batch = 0;
    let before = resident_bytes();
    let (mut put, mut commit) = (0.0, 0.0);
    let mut last = StateCommit::default();
    for start in (0..keys).step_by(BATCH) {
        let rows = rows(start, BATCH.min(keys - start), 1)?;
        let clock = Clock::start();
        write(&mut store, &rows)?;
        put += clock.elapsed().as_secs_f64();
        let clock = Clock::start();
        last = commit_and_retain(&mut store, &mut batch).await?;
        commit += clock.elapsed().as_secs_f64();
    }
    let count = keys as f64;
    println!("{keys} keys, {} MB of state", store.bytes() >> 20);
    println!("put, new keys:     {:6.0} ns a key", put * 1e9 / count);
    println!("commit, new keys:  {:6.0} ns a key", commit * 1e9 / count);
    println!("files:             {:6} MB", size(&files).await? >> 20);
    let files_and_state = resident_bytes().saturating_sub(before);
    println!(
        "memory:            {:6} bytes a key",
        files_and_state.saturating_sub(size(&files).await?) / keys as u64
    );
    touch(&mut store, keys)?;
    for changed in [0, 100, 10_000] {
        last = small_batches(&mut store, &mut batch, keys, changed).await?.unwrap_or(last);
    }
    println!("files at the end:  {:6} MB, {}", size(&files).await? >> 20, files.list("").await?.len());
    drop(store);
    let clock = Clock::start();
    let store = CheckpointedStateStore::open(Arc::new(files), Some(&last)).await?;
    println!("restore:           {:6.0} ms, {} keys", clock.elapsed().as_secs_f64() * 1e3, store.len("t"));
    Ok(())
}

/// Time that this thread ran, to a few milliseconds: others on the machine do not count. Linux only.
struct Clock(Duration);

impl Clock {
    fn start() -> Self {
        Self(Self::now())
    }
    fn elapsed(&self) -> Duration {
        Self::now() - self.0
    }
    fn now() -> Duration {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
    }
}

/// Reads and scans.
fn touch(store: &mut CheckpointedStateStore, keys: usize) -> Result<()> {
    let wanted = rows(keys / 3, BATCH.min(keys / 3), 1)?.0;
    let mut by_shard = vec![Vec::new(); pelton_core::SHARDS];
    for row in 0..wanted.len() {
        by_shard[shard_of(wanted.key_group(row))].push(wanted.get(row));
    }
    let clock = Clock::start();
    for (shard, keys) in store.shards().iter().zip(&by_shard) {
        black_box(shard.get_many("t", keys)?);
    }
    println!("get:               {:6.0} ns a key", clock.elapsed().as_nanos() as f64 / wanted.len() as f64);
    let clock = Clock::start();
    let found = store.shards()[7].scan("t", &[0]..&[1], BATCH)?.len();
    println!("scan:              {:6.0} ns an entry", clock.elapsed().as_nanos() as f64 / found as f64);
    Ok(())
}

/// Micro-batches that change few keys, all over the state.
async fn small_batches(
    store: &mut CheckpointedStateStore,
    batch: &mut u64,
    keys: usize,
    changed: usize,
) -> Result<Option<StateCommit>> {
    let mut last = None;
    let mut total = 0.0;
    for turn in 0..100 {
        let step = (keys / changed.max(1)).max(1);
        let longs: Vec<i64> = (0..changed).map(|n| ((n * step + turn * 7919) % keys) as i64).collect();
        let rows = encode(longs, turn as i64 + 2)?;
        let clock = Clock::start();
        write(store, &rows)?;
        last = Some(commit_and_retain(store, batch).await?);
        total += clock.elapsed().as_secs_f64();
    }
    println!("batch of {changed:6}:   {:6.0} µs on average", total * 1e4);
    Ok(last)
}

async fn commit_and_retain(store: &mut CheckpointedStateStore, batch: &mut u64) -> Result<StateCommit> {
    let commit = store.commit(BatchId(*batch)).await?;
    store.retain(BatchId(*batch)).await?;
    *batch += 1;
    Ok(commit)
}

fn write(store: &mut CheckpointedStateStore, (keys, values): &(EncodedRows, EncodedRows)) -> Result<()> {
    let mut changes = vec![Vec::new(); pelton_core::SHARDS];
    for row in 0..keys.len() {
        let change =
            StateOp::Put(Bytes::copy_from_slice(keys.get(row)), Bytes::copy_from_slice(values.get(row)));
        changes[shard_of(keys.key_group(row))].push(change);
    }
    store.shards().into_iter().zip(changes).try_for_each(|(shard, changes)| shard.apply("t", changes))
}

/// Keys and values, the keys in no order.
fn rows(start: usize, count: usize, value: i64) -> Result<(EncodedRows, EncodedRows)> {
    encode((start..start + count).map(|n| n as i64).collect(), value)
}

fn encode(keys: Vec<i64>, value: i64) -> Result<(EncodedRows, EncodedRows)> {
    let spread = |n: &i64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed());
    let first: ArrayRef = Arc::new(Int64Array::from_iter_values(keys.iter().map(spread)));
    let second: ArrayRef = Arc::new(Int64Array::from_iter_values(keys.iter().map(|n| n + value)));
    let values = RowCodec::new(vec![DataType::Int64; 2])?.encode(&[Arc::clone(&second), second])?;
    Ok((RowCodec::new(vec![DataType::Int64])?.encode_keys(&[first])?, values))
}

async fn size(files: &MemoryFiles) -> Result<u64> {
    Ok(files.list("").await?.iter().map(|file| file.size_bytes).sum())
}

/// What the process holds in memory, where the system says so.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}
