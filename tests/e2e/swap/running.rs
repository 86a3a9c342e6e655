//! Swaps in a `pelton run`, by watching the plugin's file.

use anyhow::{Context, Result, ensure};
use pelton_tests::{Pelton, committed_rows, plugin};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// The bytes of version 2 with another mark in them: another version that does the same.
pub(super) fn marked(file: &Path, mark: &str) -> Result<Vec<u8>> {
    let mut bytes = std::fs::read(file)?;
    let old = b"version-2";
    ensure!(mark.len() == old.len(), "the mark fits its place");
    let at = bytes.windows(old.len()).position(|found| found == old).context("the module has its mark")?;
    bytes[at..at + old.len()].copy_from_slice(mark.as_bytes());
    Ok(bytes)
}

/// Writes a file in one step, as a careful build does.
pub(super) fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, bytes)?;
    std::fs::rename(beside, path)?;
    Ok(())
}

pub(super) fn add(folder: &Path, number: u32, key: &str) -> Result<()> {
    put(
        &folder.join(format!("in/{number:03}.jsonl")),
        format!("{{\"key\": \"{key}\", \"amount\": 1}}\n").as_bytes(),
    )
}

pub(super) fn pipeline(folder: &Path, watch: bool) -> Result<PathBuf> {
    let shown = folder.display();
    std::fs::create_dir_all(folder.join("in"))?;
    let file = folder.join("totals.yaml");
    std::fs::write(
        &file,
        format!(
            "name: totals\nplugins:\n  totals: {{path: '{shown}/totals.wasm', watch: {watch}}}\nsources:\n  payments: \
             {{connector: file, path: '{shown}/in/*.jsonl', format: json, schema: 'key string, amount long', \
             max_files_per_trigger: 1}}\nsteps:\n  - {{plugin: totals.total, key: [key], output_mode: append}}\nsink: \
             {{connector: file, path: '{shown}/out', format: json}}\ncheckpoint: '{shown}/checkpoint'\nmin_batches_to_retain: 100000\n"
        ),
    )?;
    Ok(file)
}

/// A run that is killed when it is done with.
pub(super) struct Run(std::process::Child);

impl Run {
    /// `folder` is where its API is found.
    pub(super) fn start(file: &Path, folder: &Path) -> Result<Self> {
        let run = Pelton::new(["run"])?.arg(file).env("XDG_RUNTIME_DIR", folder).env("PELTON_API", "");
        Ok(Self(run.start()?))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The entries of the offset log, in their order.
pub(super) fn entries(folder: &Path) -> Result<Vec<Value>> {
    let mut entries = Vec::new();
    while let Ok(text) = std::fs::read_to_string(folder.join(format!("checkpoint/offsets/{}", entries.len())))
    {
        entries.push(serde_json::from_str(text.lines().nth(1).context("an entry has three lines")?)?);
    }
    Ok(entries)
}

/// The committed rows, once they are so many.
pub(super) fn rows(folder: &Path, count: usize) -> Result<Vec<String>> {
    let patience = Instant::now() + PATIENCE;
    loop {
        let rows = committed_rows(&folder.join("out")).unwrap_or_default();
        if rows.len() >= count {
            return Ok(rows);
        }
        ensure!(Instant::now() < patience, "only {rows:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for the first entry of the log of which this is true.
fn until(folder: &Path, so: impl Fn(&Value) -> bool) -> Result<()> {
    let patience = Instant::now() + PATIENCE;
    while !entries(folder)?.iter().any(&so) {
        ensure!(Instant::now() < patience, "{:#?}", entries(folder)?);
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

pub(super) fn row(key: &str, total: u32, version: &str) -> String {
    format!("{{\"key\":\"{key}\",\"total\":{total},\"version\":\"{version}\"}}")
}

#[test]
fn a_watched_file_is_swapped_in_when_it_is_written_and_stays_after_kill_9() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let (one, two) = (std::fs::read(plugin("totals-1.wasm")?)?, std::fs::read(plugin("totals-2.wasm")?)?);
    put(&folder.join("totals.wasm"), &one)?;
    let file = pipeline(folder, true)?;
    let run = Run::start(&file, folder)?;
    add(folder, 0, "ann")?;
    ensure!(rows(folder, 1)? == [row("ann", 1, "version-1")]);
    put(&folder.join("totals.wasm"), &two)?;
    until(folder, |entry| entry["swaps"]["totals"]["probation"].is_object())?;
    add(folder, 1, "ann")?;
    ensure!(rows(folder, 2)?[1] == row("ann", 2, "version-2"));
    drop(run);
    let _run = Run::start(&file, folder)?;
    add(folder, 2, "ann")?;
    ensure!(rows(folder, 3)?[2] == row("ann", 3, "version-2"));
    Ok(())
}

#[test]
fn a_watched_version_that_fails_is_not_taken_again_after_kill_9() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    put(&folder.join("totals.wasm"), &std::fs::read(plugin("totals-1.wasm")?)?)?;
    let file = pipeline(folder, true)?;
    let run = Run::start(&file, folder)?;
    add(folder, 0, "ann")?;
    rows(folder, 1)?;
    put(&folder.join("totals.wasm"), &std::fs::read(plugin("totals-2.wasm")?)?)?;
    until(folder, |entry| entry["swaps"]["totals"]["probation"].is_object())?;
    add(folder, 1, "trap")?;
    ensure!(rows(folder, 2)?[1] == row("trap", 1, "version-1"));
    until(folder, |entry| {
        entry["rolled_back"][0]["why"].as_str().is_some_and(|why| why.contains("trapped"))
    })?;
    drop(run);
    add(folder, 2, "ann")?;
    let again = Pelton::new(["run", "--trigger", "available_now"])?.arg(&file).succeed()?;
    ensure!(rows(folder, 3)?[2] == row("ann", 2, "version-1"), "{:?}", rows(folder, 3)?);
    let says =
        "plugin 'totals' goes on in the version before that of the pipeline file, which was swapped back";
    ensure!(
        again.stderr.contains(says) && again.stderr.contains("to make it permanent: cp '"),
        "{}",
        again.stderr
    );
    Ok(())
}

/// A file that is written while the query is down is looked at as if it were swapped in.
#[test]
fn a_version_that_a_start_finds_is_tried_on_the_state_and_on_probation() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    put(&folder.join("totals.wasm"), &std::fs::read(plugin("totals-1.wasm")?)?)?;
    let file = pipeline(folder, false)?;
    let run = || Pelton::new(["run", "--trigger", "available_now"])?.arg(&file).output();
    add(folder, 0, "ann")?;
    ensure!(run()?.code == Some(0));
    put(&folder.join("totals.wasm"), &std::fs::read(plugin("totals-2.wasm")?)?)?;
    add(folder, 1, "trap")?;
    let undone = run()?;
    ensure!(undone.code == Some(0), "{}", undone.stderr);
    ensure!(undone.stderr.contains("the swap of plugin 'totals' from"), "{}", undone.stderr);
    ensure!(undone.stderr.contains("it panicked at"), "{}", undone.stderr);
    ensure!(rows(folder, 2)?[1] == row("trap", 1, "version-1"));
    put(&folder.join("in/002.jsonl"), b"{\"key\": \"odd\", \"amount\": 13}\n")?;
    let goes_on = run()?;
    ensure!(goes_on.code == Some(0), "{}", goes_on.stderr);
    ensure!(rows(folder, 3)?[2] == row("odd", 13, "version-1"), "the file is as it was");
    put(&folder.join("totals.wasm"), &marked(&plugin("totals-2.wasm")?, "version-X")?)?;
    add(folder, 3, "ann")?;
    let refused = run()?;
    let words =
        "the state in the checkpoint cannot be migrated: tried on some of it, operator 'totals.total'";
    ensure!(refused.code != Some(0) && refused.stderr.contains(words), "{}", refused.stderr);
    put(&folder.join("totals.wasm"), &std::fs::read(plugin("totals-1.wasm")?)?)?;
    ensure!(run()?.code == Some(0));
    ensure!(rows(folder, 4)?[3] == row("ann", 2, "version-1"), "nothing has changed");
    Ok(())
}
