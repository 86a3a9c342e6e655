//! The file sink in bad weather: every file operation fails in turn, runs die anywhere, two run at once.

use super::test_rows::{batch_info, context, numbers, stream};
use super::*;
use bytes::Bytes;
use pelton_core::files::{Fault, FaultyFiles, MemoryFiles};
use pelton_core::{BatchId, ErrorKind};
use std::collections::BTreeMap;

/// Enough for a round of pruning and a few micro-batches after it.
const BATCHES: u64 = 46;

fn rows(batch: u64) -> RowStream {
    let from = batch as i64 * 10;
    // Every fourth micro-batch is empty.
    let rows =
        if batch % 4 == 3 { vec![] } else { vec![numbers(from..from + 3), numbers(from + 3..from + 7)] };
    stream(rows)
}

fn sink(files: Arc<dyn FileManager>) -> FileSink {
    let options = FileSinkOptions {
        partition_by: vec!["key".into()],
        max_records_per_file: Some(2),
        ..FileSinkOptions::default()
    };
    FileSink::new(files, options)
}

/// Runs the query from what is committed to the end; `committed` moves on as the engine's commit log would.
async fn run(files: Arc<dyn FileManager>, committed: &mut Option<u64>) -> Result<()> {
    let sink = sink(files);
    sink.open(context(numbers(0..1).schema(), *committed)).await?;
    for batch in committed.map_or(0, |last| last + 1)..BATCHES {
        sink.write(&batch_info(batch), rows(batch)).await?;
        *committed = Some(batch);
    }
    Ok(())
}

async fn visible(files: &MemoryFiles) -> BTreeMap<String, Bytes> {
    let mut found = BTreeMap::new();
    for file in files.list("").await.unwrap() {
        if !file.path.starts_with("_pelton/") {
            found.insert(file.path.clone(), files.read(&file.path).await.unwrap().unwrap());
        }
    }
    found
}

async fn undisturbed() -> (BTreeMap<String, Bytes>, u64) {
    let files = MemoryFiles::new();
    let counted = FaultyFiles::new(Arc::new(files.clone()), None);
    run(Arc::new(counted.clone()), &mut None).await.unwrap();
    (visible(&files).await, counted.operations())
}

/// Every operation of the first micro-batches and of the last, which prune the log; those between are like the first.
fn interesting(operations: u64) -> impl Iterator<Item = u64> {
    (1..=60).chain(operations - 110..=operations)
}

async fn check_clean(files: &MemoryFiles, expected: &BTreeMap<String, Bytes>, what: &str) {
    assert_eq!(&visible(files).await, expected, "{what}");
    assert_eq!(files.list("_pelton/pending").await.unwrap(), [], "{what}");
    assert!(files.list("_pelton/log").await.unwrap().len() < 32, "{what}");
}

#[tokio::test]
async fn a_run_that_dies_at_any_operation_is_finished_by_the_next() {
    let (expected, operations) = undisturbed().await;
    for at in interesting(operations) {
        for after_effect in [false, true] {
            let fault = Fault { at, after_effect, crash: true };
            let files = MemoryFiles::new();
            let faulty = FaultyFiles::new(Arc::new(files.clone()), Some(fault));
            let mut committed = None;
            run(Arc::new(faulty), &mut committed).await.unwrap_err();
            let seen = visible(&files).await;
            assert!(seen.iter().all(|(path, content)| expected.get(path) == Some(content)), "{fault:?}");
            run(Arc::new(files.clone()), &mut committed).await.unwrap_or_else(|e| panic!("{fault:?}: {e}"));
            check_clean(&files, &expected, &format!("{fault:?}")).await;
        }
    }
}

#[tokio::test]
async fn a_recovery_that_dies_too_is_finished_by_the_next() {
    let (expected, operations) = undisturbed().await;
    for at in (1..=operations).step_by(41) {
        for second in 1..12 {
            let files = MemoryFiles::new();
            let mut committed = None;
            for fault in [
                Fault { at, after_effect: true, crash: true },
                Fault { at: second, after_effect: true, crash: true },
            ] {
                let faulty = FaultyFiles::new(Arc::new(files.clone()), Some(fault));
                let _ = run(Arc::new(faulty), &mut committed).await;
            }
            run(Arc::new(files.clone()), &mut committed).await.unwrap();
            check_clean(&files, &expected, &format!("{at}, then {second}")).await;
        }
    }
}

#[tokio::test]
async fn a_write_that_fails_once_can_be_tried_again_by_the_same_run() {
    let (expected, operations) = undisturbed().await;
    for at in interesting(operations) {
        for after_effect in [false, true] {
            let fault = Fault { at, after_effect, crash: false };
            let files = MemoryFiles::new();
            let sink = sink(Arc::new(FaultyFiles::new(Arc::new(files.clone()), Some(fault))));
            let open = || sink.open(context(numbers(0..1).schema(), None));
            if open().await.is_err() {
                open().await.unwrap();
            }
            for batch in 0..BATCHES {
                if sink.write(&batch_info(batch), rows(batch)).await.is_err() {
                    sink.write(&batch_info(batch), rows(batch))
                        .await
                        .unwrap_or_else(|e| panic!("{fault:?}: {e}"));
                }
            }
            check_clean(&files, &expected, &format!("{fault:?}")).await;
        }
    }
}

#[tokio::test]
async fn a_stream_that_fails_makes_nothing_visible() {
    use futures::StreamExt;
    let files = MemoryFiles::new();
    let sink = sink(Arc::new(files.clone()));
    sink.open(context(numbers(0..1).schema(), None)).await.unwrap();
    let broken = futures::stream::iter([Ok(numbers(0..7)), Err(Error::data("line 8 is bad"))]).boxed();
    let error = sink.write(&batch_info(0), broken).await.unwrap_err();
    assert_eq!(error.message(), "line 8 is bad");
    assert_eq!(visible(&files).await, BTreeMap::new());
    assert!(sink.write(&batch_info(0), rows(0)).await.unwrap().rows == 7);
    assert_eq!(files.list("_pelton/pending").await.unwrap(), []);
}

/// A tree without locks, as on an object store.
async fn two_runs() -> (MemoryFiles, FileSink, FileSink) {
    let files = MemoryFiles::new();
    let (one, other) =
        (sink(Arc::new(NoLocks(Arc::new(files.clone())))), sink(Arc::new(NoLocks(Arc::new(files.clone())))));
    one.open(context(numbers(0..1).schema(), None)).await.unwrap();
    other.open(context(numbers(0..1).schema(), None)).await.unwrap();
    (files, one, other)
}

#[tokio::test]
async fn of_two_runs_only_one_commits_a_micro_batch() {
    let (files, one, other) = two_runs().await;
    one.write(&batch_info(0), rows(0)).await.unwrap();
    let before = visible(&files).await;
    let refused = other.write(&batch_info(0), rows(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    assert!(refused.message().contains("another run of this query"), "{refused}");
    assert_eq!(visible(&files).await, before);
}

#[tokio::test]
async fn a_run_that_slept_through_the_pruning_of_its_entry_is_found_out() {
    let (files, one, other) = two_runs().await;
    for batch in 0..BATCHES {
        one.write(&batch_info(batch), rows(batch)).await.unwrap();
    }
    assert!(files.read("_pelton/log/0").await.unwrap().is_none(), "pruned");
    let before = visible(&files).await;
    let refused = other.write(&batch_info(0), rows(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    assert_eq!(visible(&files).await, before);
    assert!(files.read("_pelton/log/0").await.unwrap().is_none());
}

#[tokio::test]
async fn a_second_run_leaves_the_pending_files_of_a_living_one_alone() {
    let files = MemoryFiles::new();
    let living = sink(Arc::new(NoLocks(Arc::new(files.clone()))));
    living.open(context(numbers(0..1).schema(), None)).await.unwrap();
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let slow =
        futures::StreamExt::boxed(futures::stream::unfold((0, Some(receiver)), |(n, receiver)| async move {
            match (n, receiver) {
                (0, receiver) => Some((Ok(numbers(0..7)), (1, receiver))),
                (1, Some(receiver)) => receiver.await.ok().map(|()| (Ok(numbers(7..9)), (2, None))),
                _ => None,
            }
        }));
    let info = batch_info(0);
    let write = living.write(&info, slow);
    let second = async {
        while files.list("_pelton/pending").await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let second = sink(Arc::new(NoLocks(Arc::new(files.clone()))));
        second.open(context(numbers(0..1).schema(), None)).await.unwrap();
        sender.send(()).unwrap();
    };
    let (written, ()) = futures::join!(write, second);
    assert_eq!(written.unwrap().rows, 9);
    assert_eq!(committed_files(&files).await.unwrap().iter().filter_map(|file| file.rows).sum::<u64>(), 9);
}

#[tokio::test]
async fn a_reader_finds_committed_files_wherever_a_dead_run_left_them() {
    let (_, operations) = undisturbed().await;
    let mut waiting = 0;
    for at in 1..60.min(operations) {
        let files = MemoryFiles::new();
        let fault = Fault { at, after_effect: true, crash: true };
        let faulty = FaultyFiles::new(Arc::new(files.clone()), Some(fault));
        run(Arc::new(faulty), &mut None).await.unwrap_err();
        for file in committed_files(&files).await.unwrap() {
            let place = file.pending.as_ref().unwrap_or(&file.path);
            let content = files.read(place).await.unwrap();
            assert_eq!(
                content.map(|content| content.len() as u64),
                Some(file.size_bytes),
                "{fault:?} {place}"
            );
            waiting += u32::from(file.pending.is_some());
            assert!(file.batch_id < BatchId(BATCHES));
        }
    }
    assert!(waiting > 0, "no crash fell between decision and move");
}

/// A tree whose lock everybody gets.
#[derive(Debug, Clone)]
struct NoLocks(Arc<dyn FileManager>);

#[async_trait]
impl FileManager for NoLocks {
    fn url(&self) -> String {
        self.0.url()
    }
    async fn read(&self, path: &str) -> Result<Option<Bytes>> {
        self.0.read(path).await
    }
    async fn create(&self, path: &str, content: Bytes) -> Result<pelton_core::Created> {
        self.0.create(path, content).await
    }
    async fn replace(&self, path: &str, content: Bytes) -> Result<()> {
        self.0.replace(path, content).await
    }
    async fn writer(&self, path: &str) -> Result<Box<dyn pelton_core::FileWriter>> {
        self.0.writer(path).await
    }
    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to).await
    }
    async fn list(&self, dir: &str) -> Result<Vec<pelton_core::FileInfo>> {
        self.0.list(dir).await
    }
    async fn delete(&self, path: &str) -> Result<()> {
        self.0.delete(path).await
    }
    async fn lock(&self, _path: &str) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }
    fn subtree(&self, dir: &str) -> Arc<dyn FileManager> {
        Arc::new(Self(self.0.subtree(dir)))
    }
}
