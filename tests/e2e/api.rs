//! The HTTP API of a run, with the real binary.

mod commands;
mod metrics;
mod routes;

use anyhow::{Context, Result, bail, ensure};
use pelton_tests::{Http, Pelton, plugin};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A place of its own for runs to find each other.
struct Place {
    folder: tempfile::TempDir,
}

/// A run that goes on until it is stopped; killed if the test forgets it.
struct Run {
    child: Child,
    http: Http,
    url: String,
    token: String,
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Place {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("in"))?;
        let lines = (0..40).map(|n| {
            let (hour, minute) = (n / 10, n % 10);
            format!("{{\"n\": {n}, \"at\": \"2026-01-01T0{hour}:0{minute}:00Z\"}}\n")
        });
        std::fs::write(folder.path().join("in/0.jsonl"), lines.collect::<String>())?;
        Ok(Self { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Counts by the hour over a plugin's filter, which lets 24 of 40 rows through.
    fn pipeline(&self, name: &str, at: &str) -> Result<PathBuf> {
        let (shown, flights) = (self.path().display(), plugin("flights-rust.wasm")?);
        let text = format!(
            "name: {name}\n\
             plugins: {{flights: '{}'}}\n\
             sources:\n  numbers: {{connector: file, path: '{shown}/in/*.jsonl', format: json, \
             schema: 'n double, at timestamp', watermark: {{column: at, delay: 1 minute}}}}\n\
             steps:\n- filter: flights.is_delayed(n)\n\
             - sql: SELECT window.start AS hour, count(*) AS c FROM input GROUP BY window(at, '1 hour')\n\
             sink: {{connector: file, path: '{shown}/out-{at}', format: json}}\n\
             checkpoint: '{shown}/checkpoint-{at}'\n",
            flights.display()
        );
        let path = self.path().join(format!("{at}.yaml"));
        std::fs::write(&path, text)?;
        Ok(path)
    }

    fn pelton<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Pelton> {
        Ok(Pelton::new(arguments)?.env("XDG_RUNTIME_DIR", self.path()).env("PELTON_API", ""))
    }

    /// What runs have written about themselves.
    fn announcements(&self) -> Result<Vec<(PathBuf, Value)>> {
        let Ok(found) = std::fs::read_dir(self.path().join("pelton")) else { return Ok(Vec::new()) };
        let mut announcements = Vec::new();
        for entry in found {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let text = std::fs::read(&path)?;
                announcements.push((path, serde_json::from_slice(&text)?));
            }
        }
        Ok(announcements)
    }

    /// Starts a run and waits until it says where it listens.
    fn start(&self, arguments: &[&str], pipelines: &[&Path]) -> Result<Run> {
        let mut child = self.pelton(["run"])?.args(arguments).args(pipelines).start()?;
        let patience = Instant::now() + PATIENCE;
        while Instant::now() < patience {
            let of_child = |(_, run): &(PathBuf, Value)| run["pid"] == child.id();
            if let Some((_, run)) = self.announcements()?.into_iter().find(of_child) {
                let text = |key: &str| run[key].as_str().unwrap_or_default().to_owned();
                let url = text("url");
                return Ok(Run { child, http: Http::new(&url), url, token: text("token") });
            }
            if let Some(status) = child.try_wait()? {
                bail!("pelton ended by itself: {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        bail!("the run does not say where its API is")
    }

    /// One query that waits for more data, with something committed.
    fn waiting(&self, name: &str, at: &str) -> Result<Run> {
        let run = self.start(&[], &[&self.pipeline(name, at)?])?;
        run.until(name, |query| query["state"] == "waiting" && !query["last_committed"].is_null())?;
        Ok(run)
    }
}

impl Run {
    fn query(&self, name: &str) -> Result<Value> {
        let answer = self.ask("GET", &format!("/queries/{name}"))?;
        ensure!(answer.status == 200, "{answer:?}");
        answer.json()
    }

    /// With the token.
    fn ask(&self, method: &str, path: &str) -> Result<pelton_tests::Answer> {
        self.http.ask(method, path, &[("Authorization", &format!("Bearer {}", self.token))])
    }

    /// Asks until it is so.
    fn until(&self, name: &str, so: impl Fn(&Value) -> bool) -> Result<Value> {
        let patience = Instant::now() + PATIENCE;
        loop {
            let query = self.query(name)?;
            if so(&query) {
                return Ok(query);
            }
            ensure!(Instant::now() < patience, "it does not come to that: {query:#}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its exit code.
    fn code(&mut self) -> Result<i32> {
        let patience = Instant::now() + PATIENCE;
        while Instant::now() < patience {
            if let Some(status) = self.child.try_wait()? {
                return status.code().context("a signal ended it");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the run does not end")
    }
}
