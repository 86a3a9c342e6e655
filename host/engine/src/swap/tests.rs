//! Records, refusals, and a query that waits.

use super::record::{in_force, swapped};
use super::*;
use crate::testing::{
    MemorySource, RecordingSink, Version, event_rows, event_schema, int_schema, pass_through,
};
use crate::{RunControl, RunEnd, Start};
use pelton_checkpoint::{OffsetEntry, SwappedPlugin};
use pelton_core::{ErrorKind, Interval, ManualClock, MemoryFiles, RunId, Trigger};

fn digest(name: &str) -> PluginDigest {
    PluginDigest(name.to_owned())
}

fn change(kind: SwapKind, from: &str, since: u64) -> record::Change {
    record::Change { kind, from: digest(from), in_file: digest("a"), since: BatchId(since), layout: None }
}

fn before(swapped: &SwappedPlugin) -> Vec<&str> {
    swapped.before.iter().map(PluginDigest::as_str).collect()
}

#[test]
fn rollbacks_go_back_the_way_that_swaps_came() {
    let b = swapped(None, change(SwapKind::Swap, "a", 3));
    let c = swapped(Some(&b), change(SwapKind::Swap, "b", 5));
    assert_eq!(before(&c), ["a", "b"]);
    let back = swapped(Some(&c), change(SwapKind::Rollback, "c", 7));
    assert_eq!((before(&back), back.instead_of.as_str()), (vec!["a"], "a"));
    let back = swapped(Some(&back), change(SwapKind::Rollback, "b", 8));
    assert!(back.before.is_empty());
    let many = (0..20)
        .fold(None, |known, n| Some(swapped(known.as_ref(), change(SwapKind::Swap, &n.to_string(), n))));
    assert_eq!(before(&many.unwrap()), ["12", "13", "14", "15", "16", "17", "18", "19"]);
}

fn entry(plugin: &str, swaps: Option<SwappedPlugin>) -> OffsetEntry {
    OffsetEntry {
        batch_time_ms: 0,
        watermark_ms: None,
        late_watermark_ms: None,
        watermark_policy: None,
        partitions: BTreeMap::new(),
        sources: BTreeMap::new(),
        tables: BTreeMap::new(),
        plugins: BTreeMap::from([("p".to_owned(), digest(plugin))]),
        swaps: swaps.map(|swapped| ("p".to_owned(), swapped)).into_iter().collect(),
        rolled_back: Vec::new(),
        reset: Vec::new(),
        sink: None,
        run_id: RunId("r".into()),
    }
}

#[test]
fn the_file_has_the_last_word_once_it_has_changed() {
    let b = swapped(None, change(SwapKind::Swap, "a", 3));
    let of = |entry: &OffsetEntry, file: &str| {
        let goes_on = in_force(entry, &BTreeMap::from([("p".to_owned(), digest(file))]));
        goes_on.get("p").map(|digest| digest.0.clone())
    };
    let swapped_in = entry("b", Some(b));
    assert_eq!(of(&swapped_in, "a"), Some("b".to_owned()), "the file is as it was");
    assert_eq!(of(&swapped_in, "b"), None, "the file names it by now");
    assert_eq!(of(&swapped_in, "c"), None, "the file names something else");
    assert_eq!(of(&entry("b", None), "a"), None, "nothing was swapped");
    let gone = in_force(&swapped_in, &BTreeMap::new());
    assert!(gone.is_empty(), "the file has no such plugin any more");
}

/// A version that the file names by now is not replaced when the file is changed back.
#[test]
fn what_the_file_names_by_now_was_swapped_instead_of_itself() {
    let b = Version::new(2);
    let swapped_in = SwappedPlugin { instead_of: digest("a"), before: vec![digest("a")], probation: None };
    let mut last = entry("", Some(swapped_in));
    last.plugins.insert("p".to_owned(), b.digest());
    let in_file = BTreeMap::from([("p".to_owned(), b.digest())]);
    let kept = carried_on(&last, &b.logic(), &in_file);
    assert_eq!((&kept["p"].instead_of, before(&kept["p"])), (&b.digest(), vec!["a"]));
    assert!(carried_on(&last, &Version::new(3).logic(), &in_file).is_empty(), "another version runs");
}

#[test]
fn what_does_not_fit_is_refused_with_the_difference() {
    let running = Version::new(1).state_version(2).logic();
    let try_on = |candidate: &Logic, plugin: &str| {
        let refused = check::check(&running, candidate, plugin).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        refused.message().to_owned()
    };
    let fits = Version::new(2).state_version(2).logic();
    assert!(check::check(&running, &fits, "p").is_ok());
    assert_eq!(try_on(&fits, "pp"), "the query has no plugin 'pp'; did you mean 'p'?");
    let older = Version::new(2).state_version(1).logic();
    let message = try_on(&older, "p");
    let words = "plugin 'p' is not swapped: the operator 'counts' cannot go on with the state in the checkpoint: its \
                 variable 'total' is stored in version 2, but the function has version 1";
    assert!(message.starts_with(words), "{message}");
    let renamed = Version::new(2).operator("sums").logic();
    let words =
        "plugin 'p' is not swapped: the checkpoint holds the state of the operator 'counts' (aggregate)";
    assert!(try_on(&renamed, "p").starts_with(words), "{}", try_on(&renamed, "p"));
    let other_columns = Logic { dataflow: pass_through(int_schema()), ..Version::new(2).logic() };
    assert_eq!(
        try_on(&other_columns, "p"),
        "plugin 'p' is not swapped: the rows for the sink would have other columns\n  running: k: long, end: long, \
         n: long\n  new:     n: long"
    );
    let mut two = fits.clone();
    two.plugins.insert("q".to_owned(), two.plugins["p"].clone());
    assert_eq!(try_on(&two, "p"), "plugin 'p' is not swapped: another plugin was swapped in between");
}

/// With an interval of an hour nobody moves the clock.
#[tokio::test]
async fn a_swap_does_not_wait_for_the_next_trigger() {
    let clock = Arc::new(ManualClock::new(0));
    let source = MemorySource::new(event_schema());
    let start = Start::new("q", Arc::new(MemoryFiles::new()), clock as _);
    let recovered = start.recover().await.unwrap();
    let state = crate::testing::FileState::open(recovered.checkpoint().state_files(), None).await.unwrap();
    let swaps = Swaps::default();
    source.add(event_rows([(1, 1)]));
    let mut query = Query::builder(recovered)
        .input("events", Arc::new(source.reopen()))
        .logic(Version::new(1).logic())
        .state(Box::new(state))
        .sink(Arc::new(RecordingSink::new()))
        .trigger(Trigger::ProcessingTime(Interval::from_millis(3_600_000)))
        .swaps(swaps.clone())
        .build()
        .await
        .unwrap();
    let control = RunControl::default();
    let script = async {
        let swap = |number| {
            let logic = Version::new(number).logic();
            swaps.swap(Candidate {
                plugin: "p".into(),
                logic,
                sink: None,
                kind: SwapKind::Swap,
                is_in_file: false,
            })
        };
        assert!(matches!(swap(2).await, Ok(SwapOutcome::TookOver { .. })));
        source.add(event_rows([(1, 2)]));
        assert!(matches!(swap(3).await, Ok(SwapOutcome::TookOver { .. })));
        let plugin = swaps.plugins().remove("p").unwrap();
        assert_eq!((plugin.counts.swaps, plugin.before.len(), plugin.on_probation), (2, 2, true));
        control.stop.cancel();
    };
    let (summary, ()) = tokio::join!(query.run(&control), script);
    let summary = summary.unwrap();
    assert_eq!((summary.end, summary.rows_in), (RunEnd::Stopped, 1), "what came since waits for its trigger");
    swaps.check_alive().expect("it may go on");
    swaps.end();
    let refused = swaps.check_alive().expect_err("it has ended");
    assert!(
        refused.hint_text().is_some_and(|hint| hint.contains("--rerun-with-current-plugins")),
        "{refused}"
    );
    let late = swaps.swap(Candidate {
        plugin: "p".into(),
        logic: Version::new(1).logic(),
        sink: None,
        kind: SwapKind::Swap,
        is_in_file: false,
    });
    let ended = late.await.unwrap_err();
    assert_eq!(ended.message(), "the query has ended, so nothing can be swapped in it any more");
}
