//! State against a plain map: through restarts, crashes at every file operation, damage and deletions; in memory and
//! mostly on disk.

mod damage;

use super::*;
use futures::executor::block_on;
use pelton_core::files::{Fault, FaultyFiles, MemoryFiles};
use pelton_core::{ErrorKind, SHARDS, StateOp};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Model = BTreeMap<(usize, String, Vec<u8>), Vec<u8>>;
/// A shard, a table, a key, and a value or its removal.
type Change = (usize, &'static str, u8, Option<(u8, usize)>);

/// A query: its checkpoint, what it committed last, and what its state must be then.
#[derive(Default)]
struct Query {
    files: MemoryFiles,
    batch: u64,
    commit: Option<StateCommit>,
    model: Model,
    options: StateOptions,
}

impl Query {
    async fn open(&self) -> Result<CheckpointedStateStore> {
        let files = Arc::new(self.files.clone());
        CheckpointedStateStore::open_with(files, self.commit.as_ref(), self.options.clone()).await
    }

    /// One whose state has no room in memory between its micro-batches, or only a part of it.
    fn within(memory_bytes_max: u64) -> Self {
        Self { options: StateOptions { memory_bytes_max, ..StateOptions::default() }, ..Self::default() }
    }

    /// Runs a micro-batch; what it wrote counts if it gives no error.
    async fn run(&mut self, store: &mut CheckpointedStateStore, changes: &[Change]) -> Result<()> {
        let mut model = self.model.clone();
        apply(store, &mut model, changes)?;
        let commit = store.commit(BatchId(self.batch)).await?;
        (self.commit, self.model) = (Some(commit), model);
        self.batch += 1;
        Ok(())
    }

    /// A state of about 60 KB, so that a sweep takes many small micro-batches.
    async fn large() -> (Self, CheckpointedStateStore) {
        let mut query = Self::default();
        let mut store = query.open().await.unwrap();
        let all: Vec<Change> =
            (0..200).map(|key| (usize::from(key) % SHARDS, "large", key, Some((0, 300)))).collect();
        query.run(&mut store, &all).await.unwrap();
        (query, store)
    }

    /// The path of a micro-batch's file.
    async fn file(&self, batch: u64) -> String {
        let all = self.files.list("").await.unwrap();
        let of_batch = all.into_iter().filter(|info| file::batch_of(&info.path) == Some(BatchId(batch)));
        let paths: Vec<String> = of_batch.map(|info| info.path).collect();
        assert_eq!(paths.len(), 1, "{paths:?}");
        paths[0].clone()
    }

    async fn run_many(&mut self, store: &mut CheckpointedStateStore, batches: u8) {
        for n in 0..batches {
            let fill = self.batch as u8;
            self.run(
                store,
                &[(3, "small", n, Some((fill, 10))), (15, "large", 255 - n % 8, Some((fill, 200)))],
            )
            .await
            .unwrap();
        }
    }
}

fn apply(store: &mut CheckpointedStateStore, model: &mut Model, changes: &[Change]) -> Result<()> {
    let mut shards = store.shards();
    for (shard, table, key, value) in changes {
        let name = (*shard, (*table).to_owned(), vec![*key]);
        let key = Bytes::from(vec![*key]);
        let change = match value {
            Some((fill, length)) => {
                let value = vec![*fill; *length];
                model.insert(name, value.clone());
                StateOp::Put(key, value.into())
            }
            None => {
                model.remove(&name);
                StateOp::Remove(key)
            }
        };
        shards[*shard].apply(table, vec![change])?;
    }
    Ok(())
}

fn contents(store: &CheckpointedStateStore) -> Model {
    let mut model = Model::new();
    for (number, shard) in store.tables.shards.iter().enumerate() {
        for (name, table) in &shard.tables {
            let before = model.len();
            table
                .walk(Bound::Unbounded, None, |key, value| {
                    model.insert((number, name.clone(), key.to_vec()), value.to_vec());
                    true
                })
                .unwrap();
            assert_eq!(table.len(), (model.len() - before) as u64);
        }
    }
    let bytes: usize = model.iter().map(|((_, _, key), value)| key.len() + value.len()).sum();
    assert_eq!(store.bytes(), bytes as u64);
    model
}

/// Every way to read gives what the model has.
fn check_reads(store: &mut CheckpointedStateStore, model: &Model, limit: usize) {
    for table in ["large", "small"] {
        for (number, shard) in store.shards().into_iter().enumerate() {
            let all: Vec<_> = (0..12_u8).map(|key| vec![key]).collect();
            let keys: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let wanted = |key: &Vec<u8>| model.get(&(number, table.to_owned(), key.clone())).cloned();
            let found = shard.get_many(table, &keys).unwrap();
            assert!(found.into_iter().map(|value| value.map(Vec::from)).eq(all.iter().map(wanted)));
            let range = all[3..9].iter().filter_map(|key| Some((key.clone(), wanted(key)?)));
            let found = shard.scan(table, keys[3]..keys[9], limit).unwrap();
            assert!(
                found.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).eq(range.take(limit))
            );
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let table = prop::sample::select(vec!["large", "small"]);
    let value = prop::option::weighted(0.8, (any::<u8>(), prop::sample::select(vec![0, 3, 900])));
    (0..SHARDS, table, 0_u8..12, value)
}

fn batches() -> impl Strategy<Value = Vec<Vec<Change>>> {
    prop::collection::vec(prop::collection::vec(change(), 0..6), 1..12)
}

/// Runs all micro-batches; after an error, as after a crash, from the last commit on. Gives the file operations.
fn run_with(fault: Option<Fault>, batches: &[Vec<Change>]) -> u64 {
    block_on(async {
        let (mut query, _) = Query::large().await;
        let faulty = FaultyFiles::new(Arc::new(query.files.clone()), fault);
        let mut files: Arc<dyn FileManager> = Arc::new(faulty.clone());
        let mut store = None;
        let mut left = batches;
        while let Some((changes, rest)) = left.split_first() {
            let committed = query.batch;
            let step = async {
                if store.is_none() {
                    store =
                        Some(CheckpointedStateStore::open(Arc::clone(&files), query.commit.as_ref()).await?);
                }
                let store = store.as_mut().unwrap();
                query.run(store, changes).await?;
                store.retain(BatchId(query.batch.saturating_sub(3))).await
            };
            if let Err(error) = step.await {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                files = Arc::new(query.files.clone());
                store = None;
                assert_eq!(contents(&query.open().await.unwrap()), query.model);
            }
            if query.batch > committed {
                left = rest;
            }
        }
        assert_eq!(contents(&query.open().await.unwrap()), query.model);
        faulty.operations()
    })
}

#[test]
fn pieces_of_a_sweep_are_small_as_long_as_that_takes_not_too_many_files() {
    assert_eq!(sweep_bytes(0, 0), SWEEP_BYTES_MIN);
    assert_eq!(sweep_bytes(8 << 20, 0), (8 << 20) / SWEEP_FILES);
    assert_eq!(sweep_bytes(32 << 20, 0), SWEEP_BYTES);
    assert_eq!(sweep_bytes(1 << 30, 0), (1 << 30) / SWEEP_FILES_MAX);
    assert_eq!(sweep_bytes(1 << 30, 1 << 20), 1 << 20, "what changed pays for as much");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_file_operation_fails_the_state_is_that_of_the_last_commit(batches in batches()) {
        for at in 1..=run_with(None, &batches) {
            for (after_effect, crash) in [(false, false), (false, true), (true, false), (true, true)] {
                run_with(Some(Fault { at, after_effect, crash }), &batches);
            }
        }
    }

    #[test]
    fn a_rollback_forgets_and_a_restart_remembers(
        steps in prop::collection::vec((prop::collection::vec(change(), 0..8), 0..3_u8), 1..30),
    ) {
        block_on(async {
            let (mut query, mut store) = Query::large().await;
            for (changes, then) in steps {
                if then == 0 {
                    apply(&mut store, &mut query.model.clone(), &changes).unwrap();
                    store.rollback().unwrap();
                } else {
                    query.run(&mut store, &changes).await.unwrap();
                }
                if then == 1 {
                    store = query.open().await.unwrap();
                }
                assert_eq!(contents(&store), query.model);
                let large = query.model.keys().filter(|(_, table, _)| table == "large").count();
                assert_eq!(store.len("large"), large as u64);
            }
        });
    }
}

proptest! {
    // Each case makes some working copies on disk.
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn state_on_disk_is_as_state_in_memory(
        memory_bytes_max in prop::sample::select(vec![1_u64, 20_000, 60_000]),
        steps in prop::collection::vec((prop::collection::vec(change(), 0..30), 0..5_u8, 0_usize..5), 1..30),
    ) {
        block_on(async {
            let mut query = Query::within(memory_bytes_max);
            let mut in_memory = Query::default();
            let (mut store, mut other) = (query.open().await.unwrap(), in_memory.open().await.unwrap());
            for (changes, then, limit) in steps {
                if then == 0 {
                    let mut model = query.model.clone();
                    apply(&mut store, &mut model, &changes).unwrap();
                    check_reads(&mut store, &model, limit);
                    store.rollback().unwrap();
                } else {
                    query.run(&mut store, &changes).await.unwrap();
                    in_memory.run(&mut other, &changes).await.unwrap();
                }
                if then == 1 {
                    store = query.open().await.unwrap();
                }
                assert_eq!(contents(&store), query.model);
                check_reads(&mut store, &query.model, limit);
            }
            assert_eq!(contents(&query.open().await.unwrap()), query.model);
            assert_eq!(contents(&in_memory.open().await.unwrap()), query.model);
        });
    }
}

#[test]
fn what_is_not_needed_is_deleted_and_every_retained_commit_opens() {
    block_on(async {
        let (mut query, mut store) = Query::large().await;
        let mut commits = Vec::new();
        for n in 0..200_u8 {
            query.run_many(&mut store, 1).await;
            query.run(&mut store, &[(n as usize % SHARDS, "large", n, Some((n, 300)))]).await.unwrap();
            commits.push((query.commit.clone(), query.model.clone()));
            store.retain(BatchId(query.batch.saturating_sub(10))).await.unwrap();
            if n % 50 == 0 {
                store = query.open().await.unwrap();
            }
        }
        let bytes: u64 = query.files.list("").await.unwrap().iter().map(|file| file.size_bytes).sum();
        assert!(bytes < 7 * store.bytes(), "{bytes} bytes of files for {} of state", store.bytes());
        for (commit, model) in commits.split_off(195) {
            let files = Arc::new(query.files.clone());
            assert_eq!(contents(&CheckpointedStateStore::open(files, commit.as_ref()).await.unwrap()), model);
        }
    });
}

#[test]
fn without_a_change_no_file_is_written() {
    block_on(async {
        let (mut query, mut store) = Query::large().await;
        let before = (query.commit.clone(), query.files.list("").await.unwrap());
        query.run(&mut store, &[]).await.unwrap();
        query
            .run(
                &mut store,
                &[(0, "large", 0, Some((0, 300))), (0, "small", 1, Some((1, 1))), (0, "small", 1, None)],
            )
            .await
            .unwrap();
        assert_eq!((query.commit.clone(), query.files.list("").await.unwrap()), before);
    });
}

#[test]
fn a_rerun_writes_the_same_bytes_over_what_a_dead_run_left() {
    block_on(async {
        let (mut query, mut store) = Query::large().await;
        query.run_many(&mut store, 7).await;
        let mut again = query.open().await.unwrap();
        let changes = [(2, "small", 9, Some((9, 9)))];
        let mut dead = Query { files: query.files.clone(), batch: query.batch, ..Query::default() };
        dead.run(&mut store, &changes).await.unwrap();
        let file = query.file(query.batch).await;
        let left = query.files.read(&file).await.unwrap();
        query.run(&mut again, &changes).await.unwrap();
        assert!(left.is_some() && query.files.read(&file).await.unwrap() == left);
        assert_eq!(query.commit, dead.commit);
    });
}

#[test]
fn a_run_that_writes_something_else_leaves_the_committed_file_alone_and_its_own_goes() {
    block_on(async {
        let (mut query, mut stalled) = Query::large().await;
        query.run_many(&mut stalled, 3).await;
        let mut store = query.open().await.unwrap();
        let batch = query.batch;
        let mut other = Query { files: query.files.clone(), batch, ..Query::default() };
        query.run(&mut store, &[(2, "small", 9, Some((9, 9)))]).await.unwrap();
        // It was thought to be dead, and writes when the micro-batch has been committed.
        other.run(&mut stalled, &[(2, "small", 9, Some((1, 9)))]).await.unwrap();
        let files = async || query.files.list("").await.unwrap().len() as u64;
        assert_eq!(files().await, batch + 2);
        let mut again = query.open().await.unwrap();
        assert_eq!(contents(&again), query.model);
        again.retain(BatchId(batch)).await.unwrap();
        assert_eq!(files().await, batch + 1);
        assert_eq!(contents(&query.open().await.unwrap()), query.model);
    });
}

#[test]
fn what_a_dead_run_left_goes_when_its_micro_batch_is_committed() {
    block_on(async {
        let mut query = Query::default();
        for n in 0..3 {
            let mut dead = Query { files: query.files.clone(), batch: n, ..Query::default() };
            let mut store = query.open().await.unwrap();
            dead.run(&mut store, &[(1, "small", 1, Some((n as u8, 7)))]).await.unwrap();
            let mut store = query.open().await.unwrap();
            query.run(&mut store, &[(1, "small", 1, Some((99 + n as u8, 5)))]).await.unwrap();
            let of_batch = async || {
                let all = query.files.list("").await.unwrap();
                all.iter().filter(|info| file::batch_of(&info.path) == Some(BatchId(n))).count()
            };
            assert_eq!(of_batch().await, 2);
            store.retain(BatchId(n)).await.unwrap();
            assert_eq!(of_batch().await, 1);
            assert_eq!(contents(&query.open().await.unwrap()), query.model);
        }
    });
}

#[test]
fn state_of_earlier_micro_batches_is_read_while_the_query_goes_on() {
    block_on(async {
        let (mut query, mut store) = Query::large().await;
        let mut commits = Vec::new();
        for _ in 0..30 {
            query.run_many(&mut store, 1).await;
            commits.push((query.commit.clone().unwrap(), query.model.clone()));
            store.retain(BatchId(query.batch.saturating_sub(20))).await.unwrap();
        }
        for (commit, model) in commits.split_off(12) {
            let files = Arc::new(query.files.clone());
            let mut earlier = CheckpointedStateStore::open(files, Some(&commit)).await.unwrap();
            for table in ["small", "large"] {
                let mut found: Vec<_> = Vec::new();
                for shard in earlier.shards() {
                    found.extend(shard.scan(table, &[]..&[u8::MAX; 9], usize::MAX).unwrap());
                }
                found.sort();
                let of_table = model.iter().filter(|((_, name, _), _)| name == table);
                let mut wanted: Vec<(Bytes, Bytes)> =
                    of_table.map(|((_, _, key), value)| (key.clone().into(), value.clone().into())).collect();
                wanted.sort();
                assert_eq!(found, wanted, "{table}");
            }
        }
    });
}

#[test]
fn the_working_copy_on_disk_is_made_when_needed_and_goes_with_the_store() {
    block_on(async {
        let directory = std::env::temp_dir().join(format!("pelton-state-test-{}", std::process::id()));
        let options = StateOptions { memory_bytes_max: 30_000, directory: directory.clone() };
        let mut query = Query { options, ..Query::default() };
        let mut store = query.open().await.unwrap();
        query.run(&mut store, &[(1, "small", 1, Some((1, 100)))]).await.unwrap();
        assert!(!directory.exists());
        let changes: Vec<Change> = (0..100).map(|key| (3, "large", key, Some((key, 900)))).collect();
        query.run(&mut store, &changes).await.unwrap();
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        assert!(store.memory_bytes() < 30_000);
        assert_eq!(contents(&store), query.model);
        drop(store);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        std::fs::remove_dir(directory).unwrap();
    });
}
