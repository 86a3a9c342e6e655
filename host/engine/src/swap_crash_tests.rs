//! Swaps and rollbacks, whatever dies: every file operation fails in turn, and what comes of it, the versions that the
//! log names included, is what a run gives in which the same swaps happened and nothing died.

use crate::testing::{
    FileState, MemorySource, RecordingSink, SinkFault, Version, event_rows, event_schema, rows_text,
};
use crate::{Candidate, Query, Start, SwapKind, SwapOutcome, Swaps, Turn};
use pelton_checkpoint::OffsetLog;
use pelton_core::files::{Fault, FaultyFiles};
use pelton_core::{
    BatchId, Clock, Error, ErrorKind, FileManager, ManualClock, MemoryFiles, PluginDigest, QueryId, Result,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot::Receiver;

/// What a run leaves: rows by micro-batch; by entry of the log the version, and how many swaps were undone.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    rows: BTreeMap<BatchId, Vec<String>>,
    versions: Vec<(String, usize)>,
}

/// Which version is offered before which micro-batch is planned.
type Offers = Vec<(u64, usize, SwapKind)>;

/// Everything that outlives a process; somebody who swaps included.
struct World {
    source: MemorySource,
    files: MemoryFiles,
    sink: RecordingSink,
    clock: Arc<ManualClock>,
    /// The first is the one that the pipeline file names.
    versions: Vec<Version>,
    offers: Offers,
    retain: u64,
    answers: Mutex<Vec<Answer>>,
}

/// Of the query to an offer.
enum Answer {
    There(Result<SwapOutcome>),
    ToCome(Receiver<Result<SwapOutcome>>),
}

impl World {
    fn new(versions: &[Version], offers: &[(u64, usize, SwapKind)]) -> Self {
        let world = Self {
            source: MemorySource::new(event_schema()).additions_per_batch(1),
            files: MemoryFiles::new(),
            sink: RecordingSink::new(),
            clock: Arc::new(ManualClock::new(1000)),
            versions: versions.to_vec(),
            offers: offers.to_vec(),
            retain: 100,
            answers: Mutex::default(),
        };
        for batch in 0..8 {
            // A key of its own for each micro-batch, so that a version can fail at one of them.
            world.source.add(event_rows([(1, batch * 12), (100 + batch, batch * 12 + 7)]));
        }
        world
    }

    fn version(&self, digest: &PluginDigest) -> Result<&Version> {
        let found = self.versions.iter().find(|version| version.digest() == *digest);
        found.ok_or_else(|| Error::internal("a version that nobody has made"))
    }

    /// What the binary does: the versions that the checkpoint names, with bytes that are there.
    async fn query(&self, files: Arc<dyn FileManager>, swaps: &Swaps) -> Result<Query> {
        let start = Start {
            query_id: Some(QueryId("q".into())),
            min_batches_to_retain: self.retain,
            ..Start::new("q", files, Arc::clone(&self.clock) as Arc<dyn Clock>)
        };
        let recovered = start.recover().await?;
        let written = self.versions[0].digest();
        let in_file = BTreeMap::from([("p".to_owned(), written.clone())]);
        let swapped_in = recovered.swapped_in(&in_file);
        for digest in swapped_in.values() {
            recovered.load_plugin(digest).await?;
        }
        let now = self.version(swapped_in.get("p").unwrap_or(&written))?.logic();
        let rerun = match recovered.rerun_plugins().and_then(|plugins| plugins.get("p")) {
            Some(digest) => Some((self.version(digest)?.logic(), recovered.load_plugin(digest).await?)),
            None => None,
        };
        let state = FileState::open(recovered.checkpoint().state_files(), recovered.state_commit()?).await?;
        let mut builder = Query::builder(recovered)
            .input("events", Arc::new(self.source.reopen()))
            .logic(now)
            .state(Box::new(state))
            .sink(Arc::new(self.sink.clone()))
            .no_data_batches(false)
            .parallelism(2)
            .swaps(swaps.clone())
            .file_plugins(in_file);
        if let Some((logic, _)) = rerun {
            builder = builder.rerun_logic(logic);
        }
        builder.build().await
    }

    /// One process: it goes on after a rollback, and ends when there is nothing more to do.
    async fn run(&self, files: Arc<dyn FileManager>) -> Result<()> {
        let swaps = Swaps::default();
        loop {
            let mut query = self.query(Arc::clone(&files), &swaps).await?;
            loop {
                self.offer(&mut query, &swaps).await;
                match query.run_once().await? {
                    Turn::Ran(_) => {}
                    Turn::Idle => return Ok(()),
                    Turn::RolledBack(_) => break,
                }
            }
        }
    }

    /// Whoever swaps asks again if a file was in the way.
    async fn offer(&self, query: &mut Query, swaps: &Swaps) {
        let next = query.position.batch_id.0;
        let due = self.offers.iter().find(|(at, ..)| *at == next && query.position.pending.is_none());
        let Some((_, version, kind)) = due else { return };
        for _ in 0..2 {
            let logic = self.versions[*version].logic();
            let candidate =
                Candidate { plugin: "p".into(), logic, sink: None, kind: *kind, is_in_file: false };
            let mut answer = swaps.offer(candidate);
            query.take_over().await;
            let answer = match answer.try_recv() {
                Ok(Err(refused)) if refused.kind() == ErrorKind::Unavailable => continue,
                Ok(answer) => Answer::There(answer),
                Err(_) => Answer::ToCome(answer),
            };
            return self.answers.lock().unwrap().push(answer);
        }
    }

    /// What became of the offers.
    fn answers(&self) -> Vec<Result<SwapOutcome>> {
        let answers = std::mem::take(&mut *self.answers.lock().unwrap());
        let answer = |answer| match answer {
            Answer::There(answer) => answer,
            Answer::ToCome(mut answer) => answer.try_recv().expect("an answer"),
        };
        answers.into_iter().map(answer).collect()
    }

    async fn run_undisturbed(&self) {
        self.run(Arc::new(self.files.clone())).await.unwrap();
    }

    async fn outcome(&self) -> Outcome {
        let rows = self.sink.batches().into_iter();
        let rows = rows.map(|(id, rows)| (id, rows_text(&rows).unwrap())).collect();
        let log = OffsetLog::new(Arc::new(self.files.clone()));
        let mut versions = Vec::new();
        for id in log.ids().await.unwrap() {
            let entry = log.expect(id).await.unwrap();
            let number = self.versions.iter().position(|version| version.digest() == entry.plugins["p"]);
            versions.push((format!("{id}: v{}", number.unwrap() + 1), entry.rolled_back.len()));
        }
        Outcome { rows, versions }
    }

    async fn kept(&self) -> usize {
        self.files.list("plugins").await.unwrap().len()
    }
}

/// The same with every file operation failing in turn, before or after its effect, once or for good.
async fn dies_everywhere(versions: &[Version], offers: &[(u64, usize, SwapKind)]) -> Outcome {
    let undisturbed = World::new(versions, offers);
    let counting = FaultyFiles::new(Arc::new(undisturbed.files.clone()), None);
    undisturbed.run(Arc::new(counting.clone())).await.unwrap();
    let expected = undisturbed.outcome().await;
    for at in 1..=counting.operations() {
        for (after_effect, crash) in [(false, false), (false, true), (true, false), (true, true)] {
            let fault = Fault { at, after_effect, crash };
            let world = World::new(versions, offers);
            let faulty = FaultyFiles::new(Arc::new(world.files.clone()), Some(fault));
            let disturbed = world.run(Arc::new(faulty)).await;
            world.run_undisturbed().await;
            assert_eq!(world.outcome().await, expected, "{fault:?}, whose run ended with {disturbed:?}");
        }
    }
    expected
}

fn versions(outcome: &Outcome) -> String {
    let version = |(entry, undone): &(String, usize)| format!("{entry}{}", "!".repeat(*undone));
    outcome.versions.iter().map(version).collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn swaps_happen_once_wherever_the_process_dies() {
    let all = [Version::new(1), Version::new(2), Version::new(3)];
    let outcome = dies_everywhere(&all, &[(2, 1, SwapKind::Swap), (5, 2, SwapKind::Swap)]).await;
    assert_eq!(versions(&outcome), "0: v1, 1: v1, 2: v2, 3: v2, 4: v2, 5: v3, 6: v3, 7: v3");
    assert_eq!(outcome.rows[&BatchId(4)], ["1, 20, 2001", "101, 20, 2001"]);
    assert_eq!(outcome.rows[&BatchId(5)], ["1, 30, 3001", "1, 40, 3001", "102, 40, 3001"]);
}

#[tokio::test]
async fn a_version_that_fails_at_once_leaves_what_would_be_without_it() {
    let all = [Version::new(1), Version::new(2).failing_at(102)];
    let outcome = dies_everywhere(&all, &[(2, 1, SwapKind::Swap)]).await;
    assert_eq!(versions(&outcome), "0: v1, 1: v1, 2: v1!, 3: v1, 4: v1, 5: v1, 6: v1, 7: v1");
    let without = World::new(&[Version::new(1)], &[]);
    without.run_undisturbed().await;
    assert_eq!(outcome.rows, without.outcome().await.rows);
}

#[tokio::test]
async fn a_version_that_fails_on_probation_is_undone_from_there_on() {
    let all = [Version::new(1), Version::new(2).failing_at(104)];
    let outcome = dies_everywhere(&all, &[(2, 1, SwapKind::Swap)]).await;
    assert_eq!(versions(&outcome), "0: v1, 1: v1, 2: v2, 3: v2, 4: v1!, 5: v1, 6: v1, 7: v1");
}

#[tokio::test]
async fn a_rollback_happens_once_wherever_the_process_dies_and_is_undone_if_it_fails() {
    let all = [Version::new(1), Version::new(2)];
    let there_and_back = [(2, 1, SwapKind::Swap), (4, 0, SwapKind::Rollback)];
    let outcome = dies_everywhere(&all, &there_and_back).await;
    assert_eq!(versions(&outcome), "0: v1, 1: v1, 2: v2, 3: v2, 4: v1, 5: v1, 6: v1, 7: v1");

    let all = [Version::new(1).failing_at(105), Version::new(2)];
    let outcome = dies_everywhere(&all, &there_and_back).await;
    assert_eq!(versions(&outcome), "0: v1, 1: v1, 2: v2, 3: v2, 4: v1, 5: v2!, 6: v2, 7: v2");
}

#[tokio::test]
async fn whoever_swaps_is_told_what_became_of_it() {
    let all = [Version::new(1), Version::new(2), Version::new(3).failing_at(104)];
    let offers =
        [(2, 1, SwapKind::Swap), (3, 1, SwapKind::Swap), (4, 2, SwapKind::Swap), (6, 2, SwapKind::Rollback)];
    let world = World::new(&all, &offers);
    world.run_undisturbed().await;
    let [v1, v2, v3] = [0, 1, 2].map(|version| world.versions[version].digest());
    let mut answers = world.answers().into_iter();
    let took_over = SwapOutcome::TookOver { batch_id: BatchId(2), from: v1, to: v2.clone() };
    assert_eq!(answers.next().unwrap().unwrap(), took_over);
    let already = answers.next().unwrap().unwrap_err();
    let runs = format!("plugin 'p' is not swapped: it runs in this version already ({})", &v2.as_str()[..12]);
    assert_eq!((already.kind(), already.message()), (ErrorKind::Invalid, runs.as_str()));
    let why = "plugin 'p', version 3: it cannot bear key 104".to_owned();
    let rolled_back = SwapOutcome::RolledBack { batch_id: BatchId(4), from: v3, to: v2, why };
    assert_eq!(answers.next().unwrap().unwrap(), rolled_back);
    let not_before = answers.next().unwrap().unwrap_err();
    assert!(not_before.message().ends_with("is not the version before any more"), "{not_before}");
}

#[tokio::test]
async fn a_query_at_rest_takes_over_in_a_micro_batch_without_data() {
    let world = World::new(&[Version::new(1), Version::new(2)], &[(8, 1, SwapKind::Swap)]);
    world.run_undisturbed().await;
    let answers = world.answers();
    assert!(matches!(answers[..], [Ok(SwapOutcome::TookOver { batch_id: BatchId(8), .. })]), "{answers:?}");
    assert_eq!(world.outcome().await.versions.last().unwrap().0, "8: v2");
}

/// The first run of the micro-batch was seen; in the second the plugin fails, as one does that is sometimes too slow.
#[tokio::test]
async fn what_the_sink_has_is_not_undone() {
    let flaky = Version::new(2).failing_at(102).sparing(1);
    let world = World::new(&[Version::new(1), flaky], &[(2, 1, SwapKind::Swap)]);
    world.sink.fail_batch(BatchId(2), SinkFault::After);
    let lost_answer = world.run(Arc::new(world.files.clone())).await.unwrap_err();
    assert!(lost_answer.message().contains("injected fault after the sink's write"), "{lost_answer}");
    let failed = world.run(Arc::new(world.files.clone())).await.unwrap_err();
    assert_eq!(
        failed.message(),
        "query 'q', micro-batch 2: plugin 'p', version 2: it cannot bear key 102; the swap of plugin 'p' cannot be \
         undone: the sink `recording` has rows of the micro-batch, or may have some"
    );
    assert_eq!(world.outcome().await.versions.last().unwrap(), &("2: v2".to_owned(), 0));
}

#[tokio::test]
async fn what_the_version_before_could_not_read_is_not_undone() {
    let newer = Version::new(2).state_version(2).failing_at(103);
    let world = World::new(&[Version::new(1).state_version(1), newer], &[(2, 1, SwapKind::Swap)]);
    let failed = world.run(Arc::new(world.files.clone())).await.unwrap_err();
    let message = failed.message();
    assert!(
        message.contains("the swap of plugin 'p' cannot be undone: the operator 'counts' cannot go on"),
        "{message}"
    );
    assert!(message.contains("'total' is stored in version 2, but the function has version 1"), "{message}");

    // In its first micro-batch nothing of it is stored yet.
    let newer = Version::new(2).state_version(2).failing_at(102);
    let world = World::new(&[Version::new(1).state_version(1), newer], &[(2, 1, SwapKind::Swap)]);
    world.run_undisturbed().await;
    assert!(versions(&world.outcome().await).contains("2: v1!, 3: v1"));
}

#[tokio::test]
async fn after_its_probation_a_failure_is_one() {
    let world = World::new(&[Version::new(1), Version::new(2).failing_at(7)], &[(2, 1, SwapKind::Swap)]);
    for batch in 8..crate::PROBATION_BATCHES as i64 + 2 {
        world.source.add(event_rows([(1, batch * 12)]));
    }
    world.source.add(event_rows([(7, 200)]));
    let failed = world.run(Arc::new(world.files.clone())).await.unwrap_err();
    assert_eq!(failed.message(), "query 'q', micro-batch 12: plugin 'p', version 2: it cannot bear key 7");
}

#[tokio::test]
async fn bytes_that_nothing_asks_for_go() {
    let there_and_back = [(2, 1, SwapKind::Swap), (3, 0, SwapKind::Rollback)];
    let world = World { retain: 2, ..World::new(&[Version::new(1), Version::new(2)], &there_and_back) };
    for batch in 8..20 {
        world.source.add(event_rows([(1, batch * 12)]));
    }
    world.run_undisturbed().await;
    assert_eq!(world.kept().await, 1, "nobody goes back to version 2");
    let world = World { retain: 2, ..World::new(&[Version::new(1), Version::new(2)], &there_and_back[..1]) };
    world.run_undisturbed().await;
    assert_eq!(world.kept().await, 2, "a rollback may go to version 1");
}
