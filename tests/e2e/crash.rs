//! `kill -9` at random moments, restart until done: the committed output is that of an undisturbed run.

use anyhow::{Result, ensure};
use pelton_tests::{Pelton, committed_files, plugin};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::time::{Duration, Instant};

/// Kills in all, over as many runs from nothing as it takes.
const KILLS: usize = 50;
/// Another sequence of moments: `PELTON_TEST_SEED=7 cargo xtask test`.
const SEED: &str = "PELTON_TEST_SEED";

fn demo(folder: &Path) -> Result<Pelton> {
    Ok(Pelton::new(["run", "examples/01-flights/pipeline.yaml", "--trigger", "available_now"])?
        .arg("--plugin")
        .arg(format!("flights={}", plugin("flights-rust.wasm")?.display()))
        .set("sink.path", &folder.join("output"))
        .set("checkpoint", &folder.join("checkpoint")))
}

#[test]
fn fifty_kills_change_no_byte_of_the_output() -> Result<()> {
    // The first run may have to compile the plugin.
    demo(tempfile::tempdir()?.path())?.succeed()?;
    let undisturbed = tempfile::tempdir()?;
    let started = Instant::now();
    demo(undisturbed.path())?.succeed()?;
    let whole_run = started.elapsed();
    let expected = committed_files(&undisturbed.path().join("output"))?;
    ensure!(expected.len() >= 23, "every micro-batch wrote a file: {}", expected.len());

    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut kills = 0;
    let mut runs = 0;
    while kills < KILLS {
        let folder = tempfile::tempdir()?;
        kills += kill_until_done(folder.path(), whole_run, &mut random, KILLS - kills)?;
        runs += 1;
        let found = committed_files(&folder.path().join("output"))?;
        ensure!(found == expected, "run {runs} ({SEED}={seed}): {}", difference(&expected, &found));
    }
    println!("{kills} kills over {runs} runs; an undisturbed one takes {} ms", whole_run.as_millis());
    Ok(())
}

/// Starts it again and again, each time killed at another moment, until a run comes to its end. Returns the kills.
fn kill_until_done(
    folder: &Path,
    whole_run: Duration,
    random: &mut ChaCha8Rng,
    kills_max: usize,
) -> Result<usize> {
    let mut kills = 0;
    while kills < kills_max {
        let mut child = demo(folder)?.start()?;
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
    demo(folder)?.succeed()?;
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
