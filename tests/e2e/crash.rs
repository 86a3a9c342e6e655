//! `kill -9` at random moments, restart until done: the committed output is that of an undisturbed run.

use anyhow::{Result, ensure};
use pelton_tests::{Pelton, committed_files, plugin};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::time::{Duration, Instant};

/// Another sequence of moments: `PELTON_TEST_SEED=7 cargo xtask test`.
const SEED: &str = "PELTON_TEST_SEED";
/// So many times as many kills: `cargo xtask soak` sets it.
const SOAK: &str = "PELTON_TEST_SOAK";

/// A pipeline that is killed, with its output and its checkpoint in a folder.
type Case = fn(&Path) -> Result<Pelton>;

fn demo(folder: &Path) -> Result<Pelton> {
    Ok(Pelton::new(["run", "examples/01-flights/pipeline.yaml", "--trigger", "available_now"])?
        .arg("--plugin")
        .arg(format!("flights={}", plugin("flights-rust.wasm")?.display()))
        .set("sink.path", &folder.join("output"))
        .set("checkpoint", &folder.join("checkpoint")))
}

/// The same into files that rows of several micro-batches share. The interval is out of reach: time is not the same in every run.
fn rollover(folder: &Path) -> Result<Pelton> {
    Ok(demo(folder)?
        .args(["--set", "sink.rollover.size=64KiB"])
        .args(["--set", "sink.rollover.interval=1 day"]))
}

/// 104,000 real flights through user code that keeps state and waits for timeouts.
fn aircraft(folder: &Path) -> Result<Pelton> {
    Ok(Pelton::new(["run", "tests/e2e/pipelines/aircraft.yaml", "--trigger", "available_now"])?
        .arg("--plugin")
        .arg(format!("sessionize={}", plugin("sessionize.wasm")?.display()))
        .set("sink.path", &folder.join("output"))
        .set("checkpoint", &folder.join("checkpoint")))
}

#[test]
fn fifty_kills_change_no_byte_of_the_output() -> Result<()> {
    kills_change_nothing(demo, 50, 23)
}

#[test]
fn thirty_kills_change_no_byte_of_files_that_roll_over() -> Result<()> {
    kills_change_nothing(rollover, 30, 3)
}

#[test]
fn a_hundred_kills_change_no_byte_of_what_state_and_timeouts_give() -> Result<()> {
    kills_change_nothing(aircraft, 100, 30)
}

/// Kills in all, over as many runs from nothing as it takes.
#[allow(clippy::print_stdout, reason = "who soaks wants to know")]
fn kills_change_nothing(case: Case, kills_max: usize, files_min: usize) -> Result<()> {
    // The first run may have to compile the plugin.
    case(tempfile::tempdir()?.path())?.succeed()?;
    let undisturbed = tempfile::tempdir()?;
    let started = Instant::now();
    case(undisturbed.path())?.succeed()?;
    let whole_run = started.elapsed();
    let expected = committed_files(&undisturbed.path().join("output"))?;
    ensure!(expected.len() >= files_min, "there are enough files: {}", expected.len());

    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seed: u64 = number(SEED);
    let kills_max = kills_max * usize::try_from(number(SOAK))?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut kills = 0;
    let mut runs = 0;
    while kills < kills_max {
        let folder = tempfile::tempdir()?;
        kills += kill_until_done(case, folder.path(), whole_run, &mut random, kills_max - kills)?;
        runs += 1;
        let found = committed_files(&folder.path().join("output"))?;
        ensure!(found == expected, "run {runs} ({SEED}={seed}): {}", difference(&expected, &found));
    }
    println!("{kills} kills over {runs} runs; an undisturbed one takes {} ms", whole_run.as_millis());
    Ok(())
}

/// Starts it again and again, each time killed at another moment, until a run comes to its end. Returns the kills.
fn kill_until_done(
    case: Case,
    folder: &Path,
    whole_run: Duration,
    random: &mut ChaCha8Rng,
    kills_max: usize,
) -> Result<usize> {
    let mut kills = 0;
    while kills < kills_max {
        let mut child = case(folder)?.start()?;
        let moment = Instant::now() + whole_run.mul_f64(random.random_range(0.0..0.6));
        while Instant::now() < moment && child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "a restarted run failed: {status}");
            return Ok(kills);
        }
        child.kill()?;
        child.wait()?;
        kills += 1;
    }
    case(folder)?.succeed()?;
    Ok(kills)
}

type Files = std::collections::BTreeMap<String, Vec<u8>>;

/// The first file that differs.
fn difference(expected: &Files, found: &Files) -> String {
    let names = expected.keys().chain(found.keys());
    let differing = names.into_iter().find(|name| expected.get(*name) != found.get(*name));
    let bytes = |files: &Files, name: &str| files.get(name).map(|file| format!("{} bytes", file.len()));
    differing.map_or_else(
        || "no file differs".to_owned(),
        |name| format!("{name}: {:?} instead of {:?}", bytes(found, name), bytes(expected, name)),
    )
}
