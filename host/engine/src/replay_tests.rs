//! Micro-batches that run again one after the other, on a state that goes its own way.

use crate::testing::{FileState, MemorySource, RecordingSink, Version, event_rows, event_schema, rows_text};
use crate::{Query, Replay, ReplayedBatch, Start, Turn};
use futures::TryStreamExt;
use pelton_checkpoint::{CommitLog, OffsetLog, layout};
use pelton_core::{BatchId, Clock, FileManager, ManualClock, MemoryFiles, QueryId, Result, Source};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What each of some micro-batches gave.
type Rows = BTreeMap<BatchId, Vec<String>>;

/// A query that has run eight micro-batches with version 1.
struct Ran {
    source: MemorySource,
    files: Arc<dyn FileManager>,
    rows: Rows,
}

impl Ran {
    async fn new() -> Self {
        let source = MemorySource::new(event_schema()).additions_per_batch(1);
        (0..8).for_each(|batch| source.add(event_rows([(1, batch * 12), (100 + batch, batch * 12 + 7)])));
        let files: Arc<dyn FileManager> = Arc::new(MemoryFiles::new());
        let clock = Arc::new(ManualClock::new(1000)) as Arc<dyn Clock>;
        let start =
            Start { query_id: Some(QueryId("q".into())), ..Start::new("q", Arc::clone(&files), clock) };
        let recovered = start.recover().await.unwrap();
        let state = FileState::open(recovered.checkpoint().state_files(), None).await.unwrap();
        let sink = RecordingSink::new();
        let query = Query::builder(recovered).input("events", Arc::new(source.reopen()));
        let query = query.logic(Version::new(1).logic()).state(Box::new(state)).sink(Arc::new(sink.clone()));
        let mut query = query.no_data_batches(false).build().await.unwrap();
        while let Turn::Ran(_) = query.run_once().await.unwrap() {}
        let rows = sink.batches().into_iter().map(|(id, rows)| (id, rows_text(&rows).unwrap()));
        Self { source, files, rows: rows.collect() }
    }

    /// The micro-batches behind one, with a version, on the state that that one left.
    async fn again(&self, after: u64, version: &Version) -> Result<Rows> {
        let (offsets, commits) =
            (OffsetLog::new(Arc::clone(&self.files)), CommitLog::new(Arc::clone(&self.files)));
        let commit = commits.expect(BatchId(after)).await?.state;
        let files = Arc::new(pelton_core::OverlayFiles::new(self.files.subtree(layout::STATE)));
        let mut state: Box<dyn pelton_core::StateStore> =
            Box::new(FileState::open(files, commit.as_ref()).await?);
        let source: Arc<dyn Source> = Arc::new(self.source.reopen());
        let (id, dataflow) = (QueryId("q".into()), version.logic().dataflow);
        let replay = Replay::new(id, dataflow, [("events".to_owned(), source)], []).parallelism(1);
        let mut all = Rows::new();
        for id in (after + 1..8).map(BatchId) {
            let entry = offsets.expect(id).await?;
            let ReplayedBatch { rows, state: left, losses, .. } =
                replay.begin(id, &entry, Some(state)).await?;
            all.insert(id, rows_text(&rows.try_collect::<Vec<_>>().await?)?);
            assert!(losses.dead_letters().await?.is_empty() && losses.rows().refused == 0);
            state = left.expect("the state comes back");
            state.commit(id).await?;
        }
        Ok(all)
    }
}

#[tokio::test]
async fn a_state_that_is_handed_on_gives_what_the_query_gave() {
    let ran = Ran::new().await;
    let before = ran.files.list("").await.unwrap();
    let again = ran.again(2, &Version::new(1)).await.unwrap();
    let expected: Rows = ran.rows.clone().into_iter().filter(|(id, _)| id.0 > 2).collect();
    assert!(expected.values().flatten().count() > 5, "{expected:?}");
    assert_eq!(again, expected);
    let other = ran.again(2, &Version::new(2)).await.unwrap();
    assert!(other.values().flatten().all(|row| row.contains("20")), "the marks of version 2: {other:?}");
    assert_eq!(other.values().flatten().count(), again.values().flatten().count());
    assert_eq!(ran.files.list("").await.unwrap(), before, "nothing is written");
}

#[tokio::test]
async fn a_version_that_fails_does_so_in_its_micro_batch() {
    let ran = Ran::new().await;
    let failed = ran.again(2, &Version::new(2).failing_at(105)).await.unwrap_err();
    assert_eq!(failed.message(), "plugin 'p', version 2: it cannot bear key 105");
}
