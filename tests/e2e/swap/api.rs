//! `pelton swap` and `pelton rollback`, restarts after them, and 200 swaps under load.

use super::running::{Run, add, entries, marked, pipeline, put, row, rows};
use crate::kills::{seed, soak};
use anyhow::{Context, Result, ensure};
use pelton_tests::{Finished, Pelton, committed_files, plugin};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

pub(super) fn command(folder: &Path, arguments: &[&str]) -> Result<Pelton> {
    Ok(Pelton::new(arguments.iter().copied())?.env("XDG_RUNTIME_DIR", folder).env("PELTON_API", ""))
}

pub(super) fn swap(folder: &Path, file: &Path, more: &[&str]) -> Result<Finished> {
    let plugin = format!("totals={}", file.display());
    command(folder, &["swap", "totals", &plugin])?.args(more).output()
}

pub(super) fn says(finished: &Finished, code: i32, words: &[&str]) -> Result<()> {
    ensure!(finished.code == Some(code), "exit {:?}\n{}{}", finished.code, finished.stdout, finished.stderr);
    let text = format!("{}{}", finished.stdout, finished.stderr);
    words.iter().try_for_each(|word| {
        ensure!(text.contains(word), "no '{word}' in\n{text}");
        Ok(())
    })
}

/// Version 2 with another mark, in a file.
pub(super) fn version(folder: &Path, mark: &str) -> Result<PathBuf> {
    let path = folder.join(format!("{mark}.wasm"));
    std::fs::write(&path, marked(&plugin("totals-2.wasm")?, mark)?)?;
    Ok(path)
}

#[test]
fn a_swap_is_tried_done_and_taken_back() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    put(&folder.join("totals.wasm"), &std::fs::read(plugin("totals-1.wasm")?)?)?;
    let _run = Run::start(&pipeline(folder, false)?, folder)?;
    add(folder, 0, "ann")?;
    rows(folder, 1)?;
    let (two, three) = (plugin("totals-2.wasm")?, plugin("totals-3.wasm")?);
    let junk = folder.join("junk.wasm");
    std::fs::write(&junk, "nothing of the kind")?;
    let refused = swap(folder, &junk, &["--dry-run"])?;
    says(&refused, 2, &["junk.wasm: plugin 'totals': not a WebAssembly file"])?;
    ensure!(!refused.stderr.contains("totals.yaml"), "the running file is sound: {}", refused.stderr);
    let tried = swap(folder, &two, &["--dry-run"])?;
    let migrates = "{\"key\":\"ann\",\"total\":1} → {\"key\":\"ann\",\"total\":1,\"rows\":0}";
    says(&tried, 0, &["plugin 'totals' can be swapped from version", "from version 1 to 2", migrates])?;
    ensure!(entries(folder)?.len() == 1, "a dry run runs nothing");
    says(&swap(folder, &two, &[])?, 0, &["totals: plugin 'totals' runs in version", "since micro-batch 1"])?;
    add(folder, 1, "ann")?;
    ensure!(rows(folder, 2)?[1] == row("ann", 2, "version-2"));
    says(
        &swap(folder, &three, &[])?,
        2,
        &["plugin 'totals' is not swapped: the rows for the sink would have"],
    )?;
    let older = command(folder, &["rollback", "totals"])?.output()?;
    says(&older, 2, &["'state' is stored in version 2, but the function has version 1"])?;

    says(&swap(folder, &version(folder, "version-X")?, &[])?, 0, &[])?;
    add(folder, 2, "ann")?;
    ensure!(rows(folder, 3)?[2] == row("ann", 3, "version-X"));
    let back = command(folder, &["rollback", "totals", "totals"])?.output()?;
    says(&back, 0, &["totals: plugin 'totals' runs in version"])?;
    add(folder, 3, "ann")?;
    ensure!(rows(folder, 4)?[3] == row("ann", 4, "version-2"));
    add(folder, 4, "trap")?;
    ensure!(
        rows(folder, 5)?[4] == row("trap", 1, "version-X"),
        "the rollback was undone: {:?}",
        rows(folder, 5)?
    );
    let words = command(folder, &["status", "totals"])?.output()?;
    let last = "the last swap: rolled back with micro-batch";
    says(
        &words,
        0,
        &["versions before, oldest first: ", last, "(this run: 3 took over, 2 refused, 1 rolled back)"],
    )?;
    let status = command(folder, &["status", "totals", "--format", "json"])?.succeed()?.stdout;
    let status: Value = serde_json::from_str(status.trim())?;
    let swaps = &status["plugins"]["totals"];
    ensure!(
        (&swaps["swaps"], &swaps["swaps_refused"], &swaps["swaps_rolled_back"])
            == (&3.into(), &2.into(), &1.into()),
        "{swaps:#}"
    );
    ensure!(swaps["last_swap"]["outcome"] == "rolled_back", "{swaps:#}");
    Ok(())
}

#[test]
fn a_restart_goes_on_with_what_was_swapped_until_the_file_is_another() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let in_file = folder.join("totals.wasm");
    put(&in_file, &std::fs::read(plugin("totals-1.wasm")?)?)?;
    let file = pipeline(folder, false)?;
    let run = Run::start(&file, folder)?;
    add(folder, 0, "ann")?;
    rows(folder, 1)?;
    says(&swap(folder, &plugin("totals-2.wasm")?, &[])?, 0, &[])?;
    drop(run);
    let goes_on = |number: u32, version: &str| -> Result<String> {
        add(folder, number, "ann")?;
        let done = command(folder, &["run", "--trigger", "available_now"])?.arg(&file).succeed()?;
        let last = rows(folder, number as usize + 1)?.pop().context("a row")?;
        ensure!(last == row("ann", number + 1, version), "{last}");
        Ok(done.stderr)
    };
    let says = "plugin 'totals' goes on in the version that was swapped in while the query ran";
    let told = goes_on(1, "version-2")?;
    ensure!(told.contains(says) && told.contains("it is on probation until micro-batch 11"), "{told}");
    ensure!(!told.contains("to make it permanent"), "{told}");
    // As the line on stderr says.
    put(&in_file, &std::fs::read(plugin("totals-2.wasm")?)?)?;
    ensure!(!goes_on(2, "version-2")?.contains(says), "the file names it by now");
    put(&in_file, &std::fs::read(version(folder, "version-Y")?)?)?;
    ensure!(!goes_on(3, "version-Y")?.contains(says), "the file has the last word");
    Ok(())
}

/// The last one is too much for version 2 without another mark.
const KEYS: [&str; 10] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "trap"];

/// Adds files until it is told to stop; gives how many.
fn feed(folder: &Path, from: u32, stop: &AtomicBool) -> Result<u32> {
    let mut number = from;
    while !stop.load(SeqCst) {
        let lines: String =
            (0..50).map(|n| format!("{{\"key\": \"{}\", \"amount\": 1}}\n", KEYS[n % 10])).collect();
        put(&folder.join(format!("in/{number:06}.jsonl")), lines.as_bytes())?;
        number += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(number)
}

/// Every micro-batch gave the rows of the version that its entry in the log names, and every row counts once: the totals of
/// each key go up by the rows of the micro-batch. Gives how often the version changed.
pub(super) fn is_as_the_log_says(
    folder: &Path,
    marks: &BTreeMap<String, String>,
    files: u32,
) -> Result<usize> {
    let log = entries(folder)?;
    let digest = |batch: usize| log[batch]["plugins"]["totals"].as_str().unwrap_or_default().to_owned();
    let mut totals: BTreeMap<String, u64> = BTreeMap::new();
    for (name, content) in committed_files(&folder.join("out"))? {
        let batch = name.split('-').nth(1).and_then(|number| number.parse().ok()).context("a micro-batch")?;
        let mark = marks.get(&digest(batch)).context("a version that nobody has made")?;
        for line in String::from_utf8(content)?.lines() {
            let row: Value = serde_json::from_str(line)?;
            ensure!(row["version"] == mark.as_str(), "micro-batch {batch} of {mark}: {line}");
            let (key, total) = (row["key"].to_string(), row["total"].as_u64().context("a total")?);
            let before = totals.insert(key, total).unwrap_or(0);
            ensure!(total > before && total % 5 == 0, "micro-batch {batch}: {before} and then {line}");
        }
    }
    ensure!(
        totals.len() == 10 && totals.values().all(|total| *total == u64::from(files) * 5),
        "{files}: {totals:?}"
    );
    Ok((1..log.len()).filter(|batch| digest(*batch) != digest(batch - 1)).count())
}

/// Two versions of the same state, by digest; the first is in the pipeline file.
pub(super) fn two_versions(folder: &Path) -> Result<(BTreeMap<String, String>, [PathBuf; 2])> {
    let files = [version(folder, "version-X")?, version(folder, "version-Y")?];
    let mut marks = BTreeMap::new();
    for (file, mark) in files.iter().zip(["version-X", "version-Y"]) {
        let digest = pelton_checkpoint::plugins::digest(&std::fs::read(file)?);
        marks.insert(digest.0, mark.to_owned());
    }
    put(&folder.join("totals.wasm"), &std::fs::read(&files[0])?)?;
    Ok((marks, files))
}

#[test]
#[allow(clippy::print_stdout, reason = "who measures wants to know")]
fn two_hundred_swaps_under_load_lose_and_double_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let (marks, versions) = two_versions(folder)?;
    let file = pipeline(folder, false)?;
    let stop = AtomicBool::new(false);
    let (files, swaps) = std::thread::scope(|scope| -> Result<(u32, usize)> {
        let feeder = scope.spawn(|| feed(folder, 0, &stop));
        let swapped = (|| {
            let _run = Run::start(&file, folder)?;
            rows(folder, 10)?;
            for number in 1..=200 {
                says(&swap(folder, &versions[number % 2], &[])?, 0, &[])?;
            }
            Ok::<_, anyhow::Error>(200)
        })();
        stop.store(true, SeqCst);
        let files = feeder.join().map_err(|_| anyhow::anyhow!("the feeder panicked"))??;
        Ok((files, swapped?))
    })?;
    command(folder, &["run", "--trigger", "available_now"])?.arg(&file).succeed()?;
    let changes = is_as_the_log_says(folder, &marks, files)?;
    ensure!(changes == swaps, "{changes} changes of the version in the log after {swaps} swaps");
    println!("{swaps} swaps over {} micro-batches", entries(folder)?.len());
    Ok(())
}

/// Kills a run that is fed, so many times, each some time after something was asked of it; then lets it come to its end. Gives
/// how many files came and how many kills there were. `ask` has the arguments of a command for each of them.
pub(super) fn killed(
    folder: &Path,
    kills: usize,
    (before_ms, after_ms): (std::ops::Range<u64>, std::ops::Range<u64>),
    ask: impl Fn(usize) -> Vec<String>,
) -> Result<(u32, usize)> {
    let file = pipeline(folder, false)?;
    let kills = kills * soak()?;
    let stop = AtomicBool::new(false);
    let mut random = ChaCha8Rng::seed_from_u64(seed());
    let files = std::thread::scope(|scope| -> Result<u32> {
        let feeder = scope.spawn(|| feed(folder, 0, &stop));
        let killed = (0..kills).try_for_each(|number| {
            let run = Run::start(&file, folder)?;
            std::thread::sleep(Duration::from_millis(random.random_range(before_ms.clone())));
            let mut asking = command(folder, &[])?.args(ask(number)).start()?;
            std::thread::sleep(Duration::from_millis(random.random_range(after_ms.clone())));
            drop(run);
            asking.wait().map(|_| ()).context("the command cannot be waited for")
        });
        stop.store(true, SeqCst);
        let files = feeder.join().map_err(|_| anyhow::anyhow!("the feeder panicked"))??;
        killed.map(|()| files)
    })?;
    command(folder, &["run", "--trigger", "available_now"])?.arg(&file).succeed()?;
    Ok((files, kills))
}

/// The arguments of a swap.
pub(super) fn swapping(file: &Path, more: &[&str]) -> Vec<String> {
    let plugin = format!("totals={}", file.display());
    ["swap", "totals", &plugin].iter().chain(more).map(|word| (*word).to_owned()).collect()
}

#[test]
#[allow(clippy::print_stdout, reason = "who soaks wants to know")]
fn a_hundred_kills_among_swaps_leave_what_the_log_says() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let (marks, versions) = two_versions(folder)?;
    let ask = |number: usize| swapping(&versions[number % 2], &[]);
    let (files, kills) = killed(folder, 100, (200..600, 0..400), ask)?;
    let changes = is_as_the_log_says(folder, &marks, files)?;
    println!("{kills} kills, {changes} changes of the version, {} micro-batches", entries(folder)?.len());
    ensure!(changes > 10, "only {changes} swaps came through");
    Ok(())
}

#[test]
#[allow(clippy::print_stdout, reason = "who soaks wants to know")]
fn kills_among_swaps_that_are_undone_leave_what_the_log_says() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let (mut marks, _) = two_versions(folder)?;
    let failing = plugin("totals-2.wasm")?;
    marks.insert(pelton_checkpoint::plugins::digest(&std::fs::read(&failing)?).0, "version-2".to_owned());
    let (files, kills) = killed(folder, 50, (200..600, 0..500), |_| swapping(&failing, &[]))?;
    is_as_the_log_says(folder, &marks, files)?;
    let is_undone = |entry: &&Value| entry["rolled_back"].as_array().is_some_and(|undone| !undone.is_empty());
    let undone = entries(folder)?.iter().filter(is_undone).count();
    println!("{kills} kills, {undone} swaps undone, {} micro-batches", entries(folder)?.len());
    ensure!(undone > 0, "no swap was undone");
    Ok(())
}
