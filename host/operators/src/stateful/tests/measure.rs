//! Local measurement.
use super::*;
use super::join::{operator, ranged, Spec};
use crate::stateful::dedup::Dedup;
use arrow::array::*;
use pelton_plan::stateful::{self as plan, *};
use std::time::Instant;

fn ts(values: Vec<i64>) -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC")) }

fn run_timed(op: &dyn Operator, store: &mut MemoryStateStore, n: u64, wm: i64, late: i64, ports: &[Vec<RecordBatch>]) -> (f64, f64, usize) {
    let info = Arc::new(BatchInfo { query_id: QueryId("q".into()), batch_id: BatchId(n), time_ms: 0, watermark_ms: Some(wm), late_watermark_ms: Some(late) });
    let scope = NodeScope { batch: &info, name: NODE, late_ms: Some(late), watermark_ms: Some(wm), keep_late_rows: false };
    let t = Instant::now();
    let empty = || (0..op.ports()).map(|_| Vec::new()).collect::<Vec<Vec<Piece>>>();
    let mut shards: Vec<_> = (0..SHARDS).map(|_| empty()).collect();
    for (port, part) in ports.iter().enumerate() {
        for part in part.chunks(16) {
            let prepared = op.prepare(&scope, port, part).unwrap();
            prepared.pieces.into_iter().for_each(|(s, p)| shards[s][port].push(p));
        }
    }
    let prep = t.elapsed().as_secs_f64();
    let t = Instant::now();
    let mut rows = 0;
    for ((shard, pieces), state) in shards.into_iter().enumerate().zip(store.shards()) {
        let out = op.run(&scope, shard, pieces, state).unwrap();
        rows += out.rows.iter().map(|r| r.num_rows()).sum::<usize>();
    }
    futures::executor::block_on(store.commit(info.batch_id)).unwrap();
    (prep, t.elapsed().as_secs_f64(), rows)
}

#[test]
#[ignore]
fn measure() {
    const N: usize = 250_000;
    let input = schema("id long, ts timestamp, name string");
    let rows = |from: usize, key: &dyn Fn(usize) -> i64| -> Vec<RecordBatch> {
        (from..from + N).step_by(8192).map(|s| {
            let e = (s + 8192).min(from + N);
            let cols: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_iter_values((s..e).map(key))),
                ts((s..e).map(|i| 100_000_000 + i as i64 * 100).collect()),
                Arc::new(StringArray::from_iter_values((s..e).map(|i| format!("name-{i}")))),
            ];
            RecordBatch::try_new(input.clone(), cols).unwrap()
        }).collect()
    };
    for (what, expiry, keys, dup) in [
        ("dedup never, new", DedupExpiry::Never, vec![0], false),
        ("dedup never, 50%", DedupExpiry::Never, vec![0], true),
        ("dedup time, new", DedupExpiry::EventTime, vec![0, 1], false),
        ("dedup within, new", DedupExpiry::Within { delay_ms: 3000 }, vec![0], false),
    ] {
        let spec = || plan::Dedup { keys: keys.clone(), event_time: Some(EventTimeColumn { column: 1 }), expiry };
        let op = Dedup::new(&spec(), &node(StatefulOperator::Dedup(spec()), &[&input], &input)).unwrap();
        let mut store = MemoryStateStore::new();
        let key: Box<dyn Fn(usize) -> i64> = if dup { Box::new(|i| (i as i64 / 2).wrapping_mul(0x9E3779B97F4A7C15u64 as i64)) } else { Box::new(|i| (i as i64).wrapping_mul(0x9E3779B97F4A7C15u64 as i64)) };
        for n in 0..4 {
            let wm = 100_000 + (n as i64 * N as i64) / 10 - 3000;
            let r = rows(n * N, &*key);
            let (p, q, out) = run_timed(&op, &mut store, n as u64, wm, wm - 25_000, &[r]);
            eprintln!("{what}: prepare {:.0} ns/row, run {:.0} ns/row, {out} rows, state {}", p * 1e9 / N as f64, q * 1e9 / N as f64, store.len("node/keys"));
        }
    }
    // joins
    let left = super::join::left_schema();
    let right = super::join::right_schema();
    let side = |schema: &SchemaRef, from: usize, count: usize, keys: usize, window: bool| -> Vec<RecordBatch> {
        (from..from + count).step_by(8192).map(|s| {
            let e = (s + 8192).min(from + count);
            let t = |i: usize| { let t = 100_000_000 + i as i64 * 100; if window { t / 10_000_000 * 10_000_000 } else { t } };
            let cols: Vec<ArrayRef> = vec![
                Arc::new(StringArray::from_iter_values((s..e).map(|i| format!("k{}", (i as u64).wrapping_mul(0x9E3779B97F4A7C15) % keys as u64)))),
                Arc::new(Int64Array::from_iter_values((s..e).map(|i| i as i64))),
                ts((s..e).map(t).collect()),
            ];
            RecordBatch::try_new(schema.clone(), cols).unwrap()
        }).collect()
    };
    for window in [true, false] {
        let kind = JoinKind::Inner;
        let spec = if window {
            Spec { joins_times: true, condition: None, expiry: [JoinExpiry::Key(1), JoinExpiry::Key(1)], ..ranged(kind, 0) }
        } else { ranged(kind, 1000) };
        let op = operator(&spec);
        let mut store = MemoryStateStore::new();
        for n in 0..6 {
            let half = N / 2;
            let wm = 100_000 + (n as i64 * half as i64) / 10 - 3000;
            let l = side(&left, n * half, half, 100_000, window);
            let r = side(&right, n * half, half, 100_000, window);
            let (p, q, out) = run_timed(&op, &mut store, n as u64, wm, wm - 12_500, &[l, r]);
            eprintln!("join window={window}: prepare {:.0} ns/row, run {:.0} ns/row, {out} rows, state {}", p * 1e9 / N as f64, q * 1e9 / N as f64, store.len("node/left") + store.len("node/right"));
        }
    }
}
