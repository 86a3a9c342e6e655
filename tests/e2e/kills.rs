//! `kill -9` at random moments, restart until done: what the tests of every kind of checkpoint, source and sink share.

use anyhow::{Result, ensure};
use pelton_tests::Pelton;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Another sequence of moments: `PELTON_TEST_SEED=7 cargo xtask test`.
const SEED: &str = "PELTON_TEST_SEED";
/// So many times as many kills: `cargo xtask soak` sets it.
const SOAK: &str = "PELTON_TEST_SOAK";

/// The moments, and what has come of them.
pub(crate) struct Kills {
    random: ChaCha8Rng,
    /// For messages.
    seed: u64,
    /// How long an undisturbed run takes.
    whole_run: Duration,
    left: usize,
    done: usize,
    runs: usize,
    failures: usize,
}

impl Kills {
    /// So many in all, spread over runs of this length.
    pub(crate) fn new(number: usize, whole_run: Duration) -> Result<Self> {
        let seed = seed();
        let left = number * soak()?;
        let random = ChaCha8Rng::seed_from_u64(seed);
        Ok(Self { random, seed, whole_run, left, done: 0, runs: 0, failures: 0 })
    }

    /// Whether there are any left.
    pub(crate) fn are_left(&self) -> bool {
        self.left > 0
    }

    /// Starts it again and again, each time killed at another moment, until a run comes to a good end.
    pub(crate) fn until_done(&mut self, run: impl Fn() -> Result<Pelton>) -> Result<()> {
        self.until_done_in_spite(run, 0)
    }

    /// The same, where so many runs may fail by themselves because something outside does.
    pub(crate) fn until_done_in_spite(
        &mut self,
        run: impl Fn() -> Result<Pelton>,
        failures_max: usize,
    ) -> Result<()> {
        self.runs += 1;
        let failures_max = self.failures + failures_max;
        let log = tempfile::NamedTempFile::new()?;
        loop {
            let mut child = run()?.start_telling(log.reopen()?)?;
            let moment = Instant::now() + self.whole_run.mul_f64(self.random.random_range(0.0..0.6));
            while (self.left == 0 || Instant::now() < moment) && child.try_wait()?.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    self.failures += 1;
                    let told = std::fs::read_to_string(log.path())?;
                    ensure!(self.failures <= failures_max, "{self}: a run ended with {status}:\n{told}");
                }
                None => {
                    child.kill()?;
                    child.wait()?;
                    self.left -= 1;
                    self.done += 1;
                }
            }
        }
    }
}

impl std::fmt::Display for Kills {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { done, runs, failures, seed, .. } = self;
        write!(
            f,
            "{done} kills over {runs} runs, {failures} of which failed by themselves ({SEED}={seed}); "
        )?;
        write!(f, "an undisturbed one takes {} ms", self.whole_run.as_millis())
    }
}

/// Decides all moments and faults.
pub(crate) fn seed() -> u64 {
    environment(SEED)
}

/// So many times as much as in every build.
pub(crate) fn soak() -> Result<usize> {
    Ok(usize::try_from(environment(SOAK))?)
}

fn environment(name: &str) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Runs it to its end, which must be a good one, and takes the time.
pub(crate) fn timed(run: Pelton) -> Result<Duration> {
    let started = Instant::now();
    run.succeed()?;
    Ok(started.elapsed())
}

pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Fails with the first file that differs.
pub(crate) fn same_files(expected: &Files, found: &Files, kills: &Kills) -> Result<()> {
    let mut names = expected.keys().chain(found.keys());
    let bytes = |files: &Files, name: &str| files.get(name).map(|file| format!("{} bytes", file.len()));
    match names.find(|name| expected.get(*name) != found.get(*name)) {
        None => Ok(()),
        Some(name) => {
            let (found, expected) = (bytes(found, name), bytes(expected, name));
            anyhow::bail!("{kills}: {name}: {found:?} instead of {expected:?}")
        }
    }
}
