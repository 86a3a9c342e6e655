//! Tests of [`super`]: ownership, what is refused and how, where a run goes on, trimming.

use super::*;
use crate::log::{SinkCommit, SourceOffsets};
use futures::executor::block_on;
use pelton_core::{ErrorKind, MemoryFiles, Offset, StateCommit};
use std::collections::BTreeMap;

fn opening(name: &str) -> Opening {
    Opening {
        query_name: name.into(),
        new_query_id: QueryId("q-1".into()),
        run_id: RunId("r-1".into()),
        now_ms: 5,
        min_batches_to_retain: 3,
    }
}

async fn open(files: &MemoryFiles) -> Result<Checkpoint> {
    Checkpoint::open(Arc::new(files.clone()), opening("busy")).await
}

/// Micro-batch `id` reads one thing of one source.
fn offsets(id: u64) -> OffsetEntry {
    let at = |n: u64| Some(Offset(n.into()));
    let source = SourceOffsets { start: id.checked_sub(1).and_then(at), end: at(id) };
    OffsetEntry {
        batch_time_ms: id as i64,
        watermark_ms: None,
        late_watermark_ms: None,
        watermark_policy: None,
        partitions: BTreeMap::new(),
        tables: BTreeMap::new(),
        sources: BTreeMap::from([("s".to_owned(), source)]),
        plugins: BTreeMap::new(),
        swaps: BTreeMap::new(),
        rolled_back: Vec::new(),
        reset: Vec::new(),
        sink: None,
        run_id: RunId("r-1".into()),
    }
}

/// The state of micro-batch `id` is its number.
fn commit(id: u64) -> CommitEntry {
    CommitEntry {
        next_watermark_ms: Some(7),
        watermarks: BTreeMap::from([("w".to_owned(), 9)]),
        partitions: BTreeMap::new(),
        state: Some(StateCommit(id.into())),
        layout: None,
        sink: SinkCommit::default(),
        run_id: RunId("r-1".into()),
    }
}

async fn run_batches(checkpoint: &Checkpoint, upto: u64) {
    for id in 0..upto {
        checkpoint.write_offsets(BatchId(id), &offsets(id)).await.unwrap();
        checkpoint.write_commit(BatchId(id), &commit(id)).await.unwrap();
        checkpoint.trim(BatchId(id)).await.unwrap();
    }
}

#[test]
fn a_second_run_is_fenced_until_the_first_is_gone() {
    block_on(async {
        let files = MemoryFiles::new();
        let first = open(&files).await.unwrap();
        let refused = open(&files).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Fenced);
        assert!(refused.message().contains("another run owns the checkpoint memory:///"), "{refused}");
        assert!(refused.hint_text().unwrap().contains("stop the other run"), "{refused}");
        drop(first);
        let again = Checkpoint::open(
            Arc::new(files),
            Opening { new_query_id: QueryId("q-2".into()), ..opening("busy") },
        );
        assert_eq!(again.await.unwrap().metadata().query_id, QueryId("q-1".into()), "the id is for life");
    });
}

#[test]
fn another_querys_checkpoint_is_refused_with_the_way_out() {
    block_on(async {
        let files = MemoryFiles::new();
        drop(open(&files).await.unwrap());
        let refused = Checkpoint::open(Arc::new(files), opening("idle")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(refused.message(), "the checkpoint memory:/// belongs to the query 'busy', not to 'idle'");
        assert!(refused.hint_text().unwrap().contains("name: busy"), "{refused}");
    });
}

#[test]
fn a_checkpoint_of_spark_and_one_without_metadata_are_refused() {
    block_on(async {
        let files = MemoryFiles::new();
        files.replace("metadata", Bytes::from_static(br#"{"id":"3441f391"}"#)).await.unwrap();
        let refused = open(&files).await.unwrap_err();
        assert!(refused.message().contains("was not written by Pelton"), "{refused}");

        let files = MemoryFiles::new();
        run_batches(&open(&files).await.unwrap(), 1).await;
        files.delete("metadata").await.unwrap();
        let refused = open(&files).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Data);
        assert!(refused.message().contains("`metadata` is missing"), "{refused}");
    });
}

#[test]
fn goes_on_fresh_again_and_next() {
    block_on(async {
        let files = MemoryFiles::new();
        let checkpoint = open(&files).await.unwrap();
        assert_eq!(checkpoint.resume().await.unwrap(), Resume::Fresh);
        run_batches(&checkpoint, 2).await;
        let next = Resume::Next { batch_id: BatchId(2), last: offsets(1), commit: commit(1) };
        assert_eq!(checkpoint.resume().await.unwrap(), next);
        checkpoint.write_offsets(BatchId(2), &offsets(2)).await.unwrap();
        let again = checkpoint.resume().await.unwrap();
        let before = Some(commit(1));
        let rerun = Resume::Rerun { batch_id: BatchId(2), entry: offsets(2), before, commits_lost: false };
        assert_eq!(again, rerun);
        assert_eq!(again.last_committed(), Some(BatchId(1)));
        assert_eq!(again.last_commit(), Some(&commit(1)));
    });
}

#[test]
fn a_commit_that_was_deleted_makes_its_micro_batch_run_again_on_the_state_before_it() {
    block_on(async {
        let files = MemoryFiles::new();
        let checkpoint = open(&files).await.unwrap();
        run_batches(&checkpoint, 3).await;
        files.delete("commits/2").await.unwrap();
        let again = checkpoint.resume().await.unwrap();
        assert_eq!(again.last_commit().and_then(|commit| commit.state.clone()), Some(StateCommit(1.into())));

        files.delete("commits/1").await.unwrap();
        let lost = checkpoint.resume().await.unwrap();
        let rerun =
            Resume::Rerun { batch_id: BatchId(2), entry: offsets(2), before: None, commits_lost: true };
        assert_eq!(lost, rerun);
    });
}

#[test]
fn entries_say_nothing_of_time_and_state_where_there_is_none() {
    block_on(async {
        let files = MemoryFiles::new();
        let checkpoint = open(&files).await.unwrap();
        let plain = CommitEntry { watermarks: BTreeMap::new(), state: None, ..commit(0) };
        checkpoint.write_offsets(BatchId(0), &offsets(0)).await.unwrap();
        checkpoint.write_commit(BatchId(0), &plain).await.unwrap();
        let absent = [
            ("offsets/0", &["late_watermark_ms", "watermark_policy", "partitions", "tables", "sink"][..]),
            ("commits/0", &["watermarks", "partitions", "state", "already_committed"]),
        ];
        for (path, words) in absent {
            let text = files.read(path).await.unwrap().unwrap();
            let text = std::str::from_utf8(&text).unwrap();
            assert!(words.iter().all(|word| !text.contains(&format!("\"{word}\""))), "{text}");
        }
        let next = Resume::Next { batch_id: BatchId(1), last: offsets(0), commit: plain };
        assert_eq!(checkpoint.resume().await.unwrap(), next);
    });
}

#[test]
fn logs_that_do_not_join_are_damage() {
    block_on(async {
        let files = MemoryFiles::new();
        let checkpoint = open(&files).await.unwrap();
        checkpoint.write_offsets(BatchId(0), &offsets(0)).await.unwrap();
        checkpoint.write_offsets(BatchId(1), &offsets(5)).await.unwrap();
        let refused = checkpoint.resume().await.unwrap_err();
        assert!(refused.message().contains("offsets/1 does not begin where offsets/0 ends"), "{refused}");
        files.delete("offsets/0").await.unwrap();
        let refused = checkpoint.resume().await.unwrap_err();
        assert!(refused.message().contains("offsets/0 is missing"), "{refused}");
    });
}

#[test]
fn the_logs_stay_short_and_a_long_past_goes_piece_by_piece() {
    block_on(async {
        let files = MemoryFiles::new();
        let checkpoint = open(&files).await.unwrap();
        run_batches(&checkpoint, 20).await;
        let kept = [16, 17, 18, 19].map(BatchId);
        assert_eq!(checkpoint.offsets.ids().await.unwrap(), kept);
        assert_eq!(checkpoint.commits.ids().await.unwrap(), kept);

        let retained = Opening { min_batches_to_retain: 100, ..opening("busy") };
        let files = MemoryFiles::new();
        let long = Checkpoint::open(Arc::new(files.clone()), retained).await.unwrap();
        run_batches(&long, 50).await;
        drop(long);
        let checkpoint = open(&files).await.unwrap();
        checkpoint.resume().await.unwrap();
        checkpoint.trim(BatchId(49)).await.unwrap();
        assert_eq!(checkpoint.offsets.ids().await.unwrap().first(), Some(&BatchId(TRIM_ENTRIES_MAX)));
    });
}
