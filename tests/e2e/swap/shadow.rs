//! `pelton swap --shadow`: a version beside the query. It takes over if it gives the same, the report says what it gives
//! otherwise, and the query knows nothing of it, whatever happens to either.

use super::api::{command, is_as_the_log_says, killed, says, swap, swapping, two_versions, version};
use super::running::{Run, add, entries, pipeline, put, row, rows};
use crate::replay::evens_pipeline;
use anyhow::{Context, Result, ensure};
use pelton_checkpoint::plugins::digest;
use pelton_tests::{Finished, Pelton, plugin};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Other bytes that do the same: with a custom section at their end.
fn another(folder: &Path, file: &Path) -> Result<PathBuf> {
    let mut bytes = std::fs::read(file)?;
    bytes.extend_from_slice(b"\x00\x08\x07another");
    let path = folder.join("another.wasm");
    std::fs::write(&path, bytes)?;
    Ok(path)
}

/// Waits until this is true of the query's status.
fn until(folder: &Path, query: &str, so: impl Fn(&Value) -> bool) -> Result<()> {
    let patience = Instant::now() + PATIENCE;
    loop {
        let status = command(folder, &["status", query, "--format", "json"])?.output()?.stdout;
        let status: Value = serde_json::from_str(status.trim()).unwrap_or_default();
        if so(&status) {
            return Ok(());
        }
        ensure!(Instant::now() < patience, "{status:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets a version run beside the query while rows come, and waits for what the command says.
fn shadow(
    folder: &Path,
    query: &str,
    plugin: &str,
    more: &[&str],
    come: impl FnOnce() -> Result<()>,
) -> Result<Finished> {
    std::thread::scope(|scope| {
        let swapping = command(folder, &["swap", query, plugin])?.args(more);
        let done = scope.spawn(move || swapping.output());
        until(folder, query, |status| status["shadow"]["outcome"] == "running")?;
        come()?;
        done.join().map_err(|_| anyhow::anyhow!("the command panicked"))?
    })
}

/// What the last shadow has found.
fn report(folder: &Path) -> Result<Value> {
    let report = command(folder, &["shadow", "totals", "--format", "json"])?.succeed()?.stdout;
    Ok(serde_json::from_str(report.trim())?)
}

fn of_totals(file: &Path) -> String {
    format!("totals={}", file.display())
}

/// A running `totals` in a version, with one row of `ann` committed.
fn started(folder: &Path, file: &Path) -> Result<Run> {
    put(&folder.join("totals.wasm"), &std::fs::read(file)?)?;
    let run = Run::start(&pipeline(folder, false)?, folder)?;
    add(folder, 0, "ann")?;
    until(folder, "totals", |status| status["last_committed"] == 0 && status["state"] == "waiting")?;
    Ok(run)
}

/// All files of the checkpoint with what is in them.
fn checkpoint(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.join("checkpoint")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(files.insert(path.clone(), std::fs::read(&path)?)),
            }
        }
    }
    Ok(files)
}

#[test]
fn a_version_that_gives_the_same_takes_over() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let two = plugin("totals-2.wasm")?;
    let _run = started(folder, &two)?;
    let new = another(folder, &two)?;
    let more = ["--shadow", "3", "--promote-if", "identical"];
    let done = shadow(folder, "totals", &of_totals(&new), &more, || {
        (1..4).try_for_each(|number| {
            add(folder, number, if number == 2 { "bob" } else { "ann" })?;
            rows(folder, number as usize + 1).map(|_| ())
        })
    })?;
    says(
        &done,
        0,
        &[
            "3 of 3 micro-batches (1 to 3), no row differs\n",
            "rows, by key: 3 running, 3 new: no difference\n",
            "; new 2 rows, ",
            ", no entry differs\n",
            "lost: running 0 refused, 0 poison, 0 late; new 0 refused, 0 poison, 0 late\n",
            "the new version has taken over with micro-batch 4\n",
        ],
    )?;
    add(folder, 4, "ann")?;
    ensure!(rows(folder, 5)?[4] == row("ann", 4, "version-2"), "{:?}", rows(folder, 5)?);
    let digest = digest(&std::fs::read(&new)?).0;
    let ran = entries(folder)?
        .iter()
        .map(|entry| entry["plugins"]["totals"] == digest.as_str())
        .collect::<Vec<_>>();
    ensure!(ran == [false, false, false, false, true, true], "{ran:?}");
    let report = report(folder)?;
    ensure!(report["promoted"]["batch_id"] == 4 && report["new"]["calls"] == 3, "{report:#}");
    Ok(())
}

#[test]
fn a_version_that_migrates_is_compared_by_key_and_taken_by_hand() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let _run = started(folder, &plugin("totals-1.wasm")?)?;
    let two = plugin("totals-2.wasm")?;
    let more = ["--shadow", "2", "--promote-if", "identical"];
    let done = shadow(folder, "totals", &of_totals(&two), &more, || {
        add(folder, 1, "ann")?;
        add(folder, 2, "bob")?;
        rows(folder, 3).map(|_| ())
    })?;
    says(
        &done,
        1,
        &[
            "2 of 2 micro-batches (1 to 2), 2 rows differ\n",
            "rows, by key: 2 running, 2 new: 0 equal, 2 changed, 0 only running, 0 only new\n",
            "micro-batch 1, changed:\n  - {\"key\":\"ann\",\"total\":2,\"version\":\"version-1\"}\n  + \
             {\"key\":\"ann\",\"total\":2,\"version\":\"version-2\"}\n",
            "micro-batch 2, changed:\n",
            "the new version does not take over: 2 of 2 rows and dead letters differ\n",
            "plugin 'totals' is not swapped: 2 of 2 rows and dead letters differ",
        ],
    )?;
    ensure!(!done.stdout.contains("entries differ"), "the state is laid out otherwise: {}", done.stdout);
    let report = report(folder)?;
    let calls = |version: &str| (report[version]["calls"].as_u64(), report[version]["rows"].as_u64());
    ensure!(calls("running") == (Some(2), Some(2)), "{report:#}");
    ensure!(calls("new") == calls("running"), "to migrate is no call of the function: {report:#}");
    says(&swap(folder, &two, &[])?, 0, &["since micro-batch 3"])?;
    add(folder, 3, "ann")?;
    ensure!(rows(folder, 4)?[3] == row("ann", 3, "version-2"), "{:?}", rows(folder, 4)?);
    Ok(())
}

#[test]
fn a_version_that_fails_beside_the_query_harms_nobody() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let _run = started(folder, &plugin("totals-1.wasm")?)?;
    let done = shadow(folder, "totals", &of_totals(&plugin("totals-2.wasm")?), &["--shadow", "3"], || {
        add(folder, 1, "ann")?;
        add(folder, 2, "trap")?;
        rows(folder, 3).map(|_| ())
    })?;
    says(
        &done,
        1,
        &[
            "failed beside",
            "1 of 3 micro-batches (1), 1 row differs: micro-batch 2, with the new version: ",
            "the key 'trap' is too much",
            "plugin 'totals' is not swapped: the shadow failed",
        ],
    )?;
    add(folder, 3, "trap")?;
    ensure!(rows(folder, 4)?[2..] == [row("trap", 1, "version-1"), row("trap", 2, "version-1")]);
    ensure!(entries(folder)?.iter().all(|entry| entry["rolled_back"].as_array().is_none_or(Vec::is_empty)));
    Ok(())
}

fn add_numbers(folder: &Path, file: u32) -> Result<()> {
    let lines: String = (0..4).map(|n| format!("{{\"n\": {}}}\n", file * 4 + n)).collect();
    put(&folder.join(format!("in/{file}.jsonl")), lines.as_bytes())?;
    rows(folder, file as usize * 2 + 2).map(|_| ())
}

#[test]
fn the_report_says_what_differs_as_a_replay_does() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let file = evens_pipeline(folder)?;
    let _run = Run::start(&file, folder)?;
    add_numbers(folder, 0)?;
    let new = format!("p={}", plugin("failing.wasm")?.display());
    let more = ["--shadow", "2", "--promote-if", "within=10%"];
    let done = shadow(folder, "evens", &new, &more, || {
        add_numbers(folder, 1)?;
        add_numbers(folder, 2)
    })?;
    let short =
        |file: &str| Ok::<_, anyhow::Error>(digest(&std::fs::read(plugin(file)?)?).0[..12].to_owned());
    let (running, new_digest) = (short("conformance.wasm")?, short("failing.wasm")?);
    let without_cost: Vec<&str> = done.stdout.lines().filter(|line| !line.starts_with("cost: ")).collect();
    let letters = without_cost.iter().filter(|line| line.contains("\"kind\":\"refused\"")).count();
    let expected = format!(
        "evens: version {new_digest} of plugin 'p' has run beside {running}, 2 of 2 micro-batches (1 to 2), 6 rows differ\n\
         rows, compared as a whole: 4 running, 4 new: 3 equal, 0 changed, 1 only running, 1 only new\n\
         dead letters: 4 running, 0 new: 0 equal, 0 changed, 4 only running, 0 only new\n\
         lost: running 4 refused, 0 poison, 0 late; new 0 refused, 0 poison, 0 late\n\
         micro-batch 1, only running:\n  - {{\"n\":4}}\nmicro-batch 1, only new:\n  + {{\"n\":40}}\n\
         micro-batch 1, a dead letter of the version that runs:"
    );
    ensure!(without_cost.join("\n").starts_with(&expected) && letters == 4, "{}", done.stdout);
    says(&done, 1, &["plugin 'p' is not swapped: 6 of 8 rows and dead letters differ, more than 10%"])?;
    ensure!(done.stdout.contains("\ncost: running 2 calls, 8 rows, "), "{}", done.stdout);

    // The same by hand, afterwards.
    let replayed =
        Pelton::new(["replay", "--batches", "1..2", "--compare", "--format", "json", "--plugin", &new])?
            .arg(&file)
            .succeed()?
            .stdout;
    let lines: Vec<Value> = replayed.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let report = command(folder, &["shadow", "evens", "--format", "json"])?.succeed()?.stdout;
    let report: Value = serde_json::from_str(report.trim())?;
    for (of_replay, of_shadow) in
        [("equal", "equal"), ("only_logged", "only_running"), ("only_given", "only_new")]
    {
        for what in ["rows", "dead_letters"] {
            let counts = lines.iter().filter_map(|line| line["summary"][what][of_replay].as_u64());
            ensure!(counts.sum::<u64>() == report[what][of_shadow], "{what}: {replayed}\n{report:#}");
        }
    }
    let status = command(folder, &["status", "evens"])?.succeed()?.stdout;
    ensure!(status.contains("2 of 2 micro-batches, 6 rows differ; it is done"), "{status}");
    // 75 of 100 differ.
    let more = ["--shadow", "1", "--promote-if", "within=80%"];
    says(&shadow(folder, "evens", &new, &more, || add_numbers(folder, 3))?, 0, &["has taken over"])
}

#[test]
fn nothing_of_it_is_in_the_checkpoint_and_it_ends_with_the_process() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let run = started(folder, &plugin("totals-1.wasm")?)?;
    let file = folder.join("totals.yaml");
    let two = plugin("totals-2.wasm")?;
    let begin = || swap(folder, &two, &["--shadow", "100", "--no-wait"]);
    let before = checkpoint(folder)?;
    says(&begin()?, 0, &["runs beside", "0 of 100 micro-batches, no row differs"])?;
    says(&begin()?, 2, &["a shadow of plugin 'totals' runs already", "pelton shadow totals --end"])?;
    let ended = command(folder, &["shadow", "totals", "--end"])?.output()?;
    says(&ended, 0, &["was ended beside", "it was asked to end"])?;
    ensure!(checkpoint(folder)? == before, "a shadow has written into the checkpoint");

    says(&begin()?, 0, &[])?;
    add(folder, 1, "ann")?;
    rows(folder, 2)?;
    until(folder, "totals", |status| status["shadow"]["batches"] == 1)?;
    let name = digest(&std::fs::read(&two)?).0;
    let names_it = |(path, content): (&PathBuf, &Vec<u8>)| {
        path.to_string_lossy().contains(&name) || String::from_utf8_lossy(content).contains(&name)
    };
    ensure!(!checkpoint(folder)?.iter().any(names_it), "the checkpoint names a version that never ran");
    drop(run);
    add(folder, 2, "ann")?;
    command(folder, &["run", "--trigger", "available_now"])?.arg(&file).succeed()?;
    let all = (1..4).map(|total| row("ann", total, "version-1")).collect::<Vec<_>>();
    ensure!(rows(folder, 3)? == all, "{:?}", rows(folder, 3)?);
    ensure!(!checkpoint(folder)?.iter().any(names_it));
    Ok(())
}

#[test]
fn another_swap_ends_a_shadow_and_what_cannot_be_tried_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let _run = started(folder, &plugin("totals-2.wasm")?)?;
    let (new, other) = (version(folder, "version-X")?, version(folder, "version-Y")?);
    let done = shadow(folder, "totals", &of_totals(&new), &["--shadow", "5"], || {
        says(&swap(folder, &other, &[])?, 0, &["since micro-batch 1"])
    })?;
    says(&done, 0, &["another version of plugin 'totals' runs since micro-batch 1"])?;
    let three = swap(folder, &plugin("totals-3.wasm")?, &["--shadow", "5"])?;
    says(&three, 2, &["plugin 'totals' is not swapped: the rows for the sink would have other columns"])?;
    let key = swap(folder, &new, &["--shadow", "5", "--key", "kay"])?;
    says(&key, 2, &["the rows for the sink have no column 'kay'; did you mean 'key'?"])?;
    let condition = swap(folder, &new, &["--shadow", "5", "--promote-if", "same"])?;
    says(&condition, 2, &["'same' is no condition; write identical, or for example within=0.1%"])?;
    says(&swap(folder, &new, &["--shadow", "5", "--dry-run"])?, 2, &["cannot be used with"])?;
    says(&swap(folder, &new, &["--promote-if", "identical"])?, 2, &["--shadow"])
}

/// A running `totals` in version 2 over another source.
fn over(folder: &Path, source: &str) -> Result<Run> {
    put(&folder.join("totals.wasm"), &std::fs::read(plugin("totals-2.wasm")?)?)?;
    let file = pipeline(folder, false)?;
    let text = std::fs::read_to_string(&file)?;
    let (before, rest) = text.split_once("{connector: file").context("a source")?;
    let (_, after) = rest.split_once("max_files_per_trigger: 1}").context("its end")?;
    std::fs::write(&file, format!("{before}{source}{after}"))?;
    let run = Run::start(&file, folder)?;
    until(folder, "totals", |status| status["state"] == "waiting")?;
    Ok(run)
}

#[test]
fn a_source_that_gives_rows_once_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let source = "{connector: http, listen: '127.0.0.1:0', format: json, schema: 'key string, amount long'}";
    let _run = over(folder, source)?;
    let refused = swap(folder, &another(folder, &plugin("totals-2.wasm")?)?, &["--shadow", "1"])?;
    let why = "the source 'payments' cannot be read a second time beside the query: an http source deletes rows when";
    says(&refused, 2, &["totals.yaml:5:3: ", why])
}

#[cfg(unix)]
#[test]
fn records_of_a_topic_are_read_a_second_time() -> Result<()> {
    let (kafka, folder) = (pelton_tests::Kafka::shared()?, tempfile::tempdir()?);
    let folder = folder.path();
    kafka.create_topic("shadowed", 2)?;
    let produce = |key: &str| {
        kafka.produce("shadowed", [pelton_tests::Record::new(format!("{{\"key\":\"{key}\",\"amount\":1}}"))])
    };
    let servers = kafka.bootstrap_servers();
    let _run = over(
        folder,
        &format!(
            "{{connector: kafka, bootstrap_servers: '{servers}', subscribe: shadowed, starting_offsets: earliest, \
             format: json, schema: 'key string, amount long'}}"
        ),
    )?;
    produce("ann")?;
    rows(folder, 1)?;
    until(folder, "totals", |status| status["last_committed"] == 0)?;
    let new = another(folder, &plugin("totals-2.wasm")?)?;
    let more = ["--shadow", "2", "--promote-if", "identical"];
    let done = shadow(folder, "totals", &of_totals(&new), &more, || {
        produce("bob")?;
        rows(folder, 2)?;
        produce("ann")?;
        rows(folder, 3).map(|_| ())
    })?;
    says(
        &done,
        0,
        &["rows, by key: 2 running, 2 new: no difference\n", "has taken over with micro-batch 3\n"],
    )?;
    produce("ann")?;
    ensure!(rows(folder, 4)?[2..] == [row("ann", 2, "version-2"), row("ann", 3, "version-2")]);
    Ok(())
}

#[test]
#[allow(clippy::print_stdout, reason = "who soaks wants to know")]
fn kills_among_shadows_that_take_over_leave_what_the_log_says() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let (marks, versions) = two_versions(folder)?;
    let more = ["--shadow", "2", "--promote-if", "within=100%"];
    let ask = |number: usize| swapping(&versions[number % 2], &more);
    let (files, kills) = killed(folder, 30, (200..600, 0..1200), ask)?;
    let changes = is_as_the_log_says(folder, &marks, files)?;
    println!("{kills} kills, {changes} changes of the version, {} micro-batches", entries(folder)?.len());
    ensure!(changes > 0, "no shadow has led to a swap");
    Ok(())
}
