//! State against a plain map: through restarts, crashes at every file operation, damage and deletions.

use super::file::path;
use super::*;
use futures::executor::block_on;
use pelton_core::files::{Fault, FaultyFiles, MemoryFiles};
use pelton_core::{ErrorKind, SHARDS, StateOp};
use proptest::prelude::*;

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
}

impl Query {
    async fn open(&self) -> Result<CheckpointedStateStore> {
        CheckpointedStateStore::open(Arc::new(self.files.clone()), self.commit.as_ref()).await
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
            for (key, value) in table.after(None) {
                model.insert((number, name.clone(), key.to_vec()), value.to_vec());
            }
        }
    }
    let bytes: usize = model.iter().map(|((_, _, key), value)| key.len() + value.len()).sum();
    assert_eq!(store.bytes(), bytes as u64);
    model
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

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

    #[test]
    fn a_damaged_file_never_gives_another_state(
        file in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), flip in 1_u8.., cut: bool,
    ) {
        block_on(async {
            let (mut query, mut store) = Query::large().await;
            query.run_many(&mut store, 40).await;
            let all = query.files.list("").await.unwrap();
            let path = &file.get(&all).path;
            let mut bytes = query.files.read(path).await.unwrap().unwrap().to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            bytes.truncate(if cut { at } else { bytes.len() });
            query.files.replace(path, bytes.into()).await.unwrap();
            match query.open().await {
                Ok(store) => assert_eq!(contents(&store), query.model),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Data);
                    assert!(error.message().contains(path), "{error}");
                }
            }
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
        assert!(bytes < 5 * store.bytes(), "{bytes} bytes of files for {} of state", store.bytes());
        for (commit, model) in commits.split_off(195) {
            let files = Arc::new(query.files.clone());
            assert_eq!(contents(&CheckpointedStateStore::open(files, commit.as_ref()).await.unwrap()), model);
        }
    });
}

#[test]
fn a_damaged_sweep_is_made_good_by_older_files() {
    block_on(async {
        let (mut query, mut store) = Query::large().await;
        query.run_many(&mut store, 80).await;
        let all = query.files.list("").await.unwrap();
        let newest =
            all.iter().map(|info| info.path.clone()).max_by_key(|path| path[7..].parse::<u64>().unwrap());
        let last = newest.unwrap();
        let mut bytes = query.files.read(&last).await.unwrap().unwrap().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        query.files.replace(&last, bytes.into()).await.unwrap();
        let mut store = query.open().await.unwrap();
        assert_eq!(contents(&store), query.model);
        // From here on the damaged file is needed for its changes alone, until a new sweep is complete.
        for _ in 0..30 {
            query.run_many(&mut store, 2).await;
            store.retain(BatchId(query.batch - 1)).await.unwrap();
            assert_eq!(contents(&query.open().await.unwrap()), query.model);
        }
        assert!(query.files.read(&last).await.unwrap().is_none());
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
        let mut dead =
            Query { files: query.files.clone(), batch: query.batch, commit: None, model: Model::new() };
        dead.run(&mut store, &changes).await.unwrap();
        let file = path(BatchId(query.batch));
        let left = query.files.read(&file).await.unwrap();
        query.run(&mut again, &changes).await.unwrap();
        assert!(left.is_some() && query.files.read(&file).await.unwrap() == left);
        assert_eq!(query.commit, dead.commit);
    });
}

#[test]
fn missing_and_newer_files_are_named() {
    block_on(async {
        let (mut query, mut store) = Query::large().await;
        query.run_many(&mut store, 3).await;
        let file = path(BatchId(2));
        let bytes = query.files.read(&file).await.unwrap().unwrap();
        let mut newer = bytes.to_vec();
        newer[8] = 3;
        query.files.replace(&file, newer.into()).await.unwrap();
        let error = query.open().await.unwrap_err();
        assert_eq!(
            error.message(),
            "the state after micro-batch 3 cannot be restored: memory:////deltas/2 is of format 3, this version of \
             Pelton reads format 2"
        );
        query.files.delete(&file).await.unwrap();
        let error = query.open().await.unwrap_err();
        assert!(error.message().ends_with("/deltas/2 is missing"), "{error}");
        query.commit = Some(StateCommit(serde_json::json!({"format": 7})));
        let error = query.open().await.unwrap_err();
        assert_eq!(
            error.message(),
            "the commit log names state of format 7, this version of Pelton reads format 2"
        );
    });
}
