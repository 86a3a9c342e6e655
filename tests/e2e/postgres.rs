//! The PostgreSQL sink in the real binary, over a stateful query in update mode.

use crate::examples::in_order;
use anyhow::{Result, ensure};
use pelton_tests::{Pelton, Postgres, repository};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const PIPELINE: &str = "examples/04-credit-limits/postgres.yaml";
const KILLS: usize = 20;
/// Another sequence of moments: `PELTON_TEST_SEED=7 cargo xtask test`.
const SEED: &str = "PELTON_TEST_SEED";

/// The example, into a table; input and checkpoint are in a folder.
fn example(command: &str, url: &str, table: &str, folder: &Path) -> Result<Pelton> {
    let input = folder.join("input");
    if !input.is_dir() {
        in_order("transactions", &input)?;
    }
    let pelton = Pelton::new([command, PIPELINE])?.arg("--set").arg(format!("sink.table={table}"));
    let pelton =
        pelton.set("sources.transactions.path", &input).set("checkpoint", &folder.join("checkpoint"));
    Ok(pelton.arg("--set").arg(format!("sink.url={url}")))
}

fn content(server: &Postgres, table: &str) -> Result<String> {
    server.sql(&format!("SELECT start, \"user\", spent, credit, over FROM {table} ORDER BY start, \"user\""))
}

/// The last row of each key of what update mode gives, as psql prints it.
fn expected() -> Result<String> {
    let rows = std::fs::read_to_string(repository().join("examples/04-credit-limits/expected-update.jsonl"))?;
    let mut last = BTreeMap::new();
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row)?;
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let amount = |name: &str| format!("{:.2}", row[name].as_f64().unwrap_or_default());
        let over = if row["over"] == true { "t" } else { "f" };
        let key = (text("start"), text("user"));
        let line = format!("{}|{}|{}|{}|{over}", key.0, key.1, amount("spent"), amount("credit"));
        last.insert(key, line);
    }
    Ok(last.into_values().collect::<Vec<_>>().join("\n"))
}

#[test]
fn the_example_keeps_a_table_and_a_second_run_of_it_changes_nothing() -> Result<()> {
    let (server, folder) = (Postgres::shared()?, tempfile::tempdir()?);
    for _ in 0..2 {
        example("run", &server.url(), "example", folder.path())?.succeed()?;
        ensure!(content(&server, "example")? == expected()?, "{}", content(&server, "example")?);
    }
    Ok(())
}

#[test]
fn twenty_kills_change_no_row_of_the_table() -> Result<()> {
    let (server, expected) = (Postgres::shared()?, expected()?);
    let started = Instant::now();
    example("run", &server.url(), "whole", tempfile::tempdir()?.path())?.succeed()?;
    let whole_run = started.elapsed();
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut kills, mut runs) = (0, 0);
    while kills < KILLS {
        let (folder, table) = (tempfile::tempdir()?, format!("killed_{runs}"));
        loop {
            let mut child = example("run", &server.url(), &table, folder.path())?.start()?;
            let moment = Instant::now() + whole_run.mul_f64(random.random_range(0.0..0.9));
            while Instant::now() < moment && child.try_wait()?.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            if let Some(status) = child.try_wait()? {
                ensure!(status.success(), "a restarted run failed: {status}");
                break;
            }
            child.kill()?;
            child.wait()?;
            kills += 1;
        }
        let found = content(&server, &table)?;
        ensure!(found == expected, "run {runs} ({SEED}={seed}):\n{found}\ninstead of\n{expected}");
        runs += 1;
    }
    println!("{kills} kills over {runs} runs; an undisturbed one takes {} ms", whole_run.as_millis());
    Ok(())
}

#[test]
fn a_password_is_shown_nowhere() -> Result<()> {
    let (server, folder) = (Postgres::shared()?, tempfile::tempdir()?);
    server.sql("CREATE ROLE locked LOGIN PASSWORD 's3cret'; CREATE SCHEMA vault AUTHORIZATION locked")?;
    let secret = server.url_with_password(Some("s3cret"));
    let shown = |command: &str, url: &str, more: &[&str]| -> Result<String> {
        let finished =
            example(command, url, "vault.spent", folder.path())?.args(more.iter().copied()).output()?;
        Ok(format!("{:?}\n{}{}", finished.code, finished.stdout, finished.stderr))
    };
    let good = [
        shown("explain", &secret, &[])?,
        shown("check", &secret, &[])?,
        shown("run", &secret, &["-vv", "--progress", "json"])?,
    ];
    ensure!(good.iter().all(|output| output.starts_with("Some(0)")), "{good:?}");
    let bad = [
        shown("run", &secret.replace("s3cret", "s3crets"), &["-vv"])?,
        shown("run", &secret.replace("postgresql", "postgressql"), &[])?,
        shown("run", &secret, &["--set", "sink.keys=x"])?,
    ];
    ensure!(bad.iter().all(|output| !output.starts_with("Some(0)")), "{bad:?}");
    ensure!(good.iter().chain(&bad).all(|output| !output.contains("s3cret")), "{good:?} {bad:?}");
    let kept = std::process::Command::new("grep").args(["-rl", "s3cret"]).arg(folder.path()).output()?;
    ensure!(kept.stdout.is_empty(), "in {}", String::from_utf8_lossy(&kept.stdout));
    // From the environment.
    let run = example("run", &server.url_with_password(None), "vault.spent", folder.path())?;
    run.env("PGPASSWORD", "s3cret").succeed()?;
    Ok(())
}

#[test]
fn a_connection_is_encrypted_if_the_certificate_is_trusted() -> Result<()> {
    let ((server, authority), folder) = (Postgres::start_encrypted()?, tempfile::tempdir()?);
    let run = |url: &str| example("run", url, "spent", folder.path());
    let encrypted = server.encrypted_url()?;
    run(&encrypted)?.env("SSL_CERT_FILE", &authority).succeed()?;
    ensure!(content(&server, "spent")? == expected()?);
    let (_other, unknown) = Postgres::start_encrypted()?;
    let cases = [
        (encrypted.clone(), &unknown, "certificate"),
        (encrypted.replace("localhost", "127.0.0.1"), &authority, "certificate"),
        (encrypted.replace("?sslmode=require", ""), &authority, "no encryption"),
    ];
    for (url, authority, why) in cases {
        let refused = run(&url)?.env("SSL_CERT_FILE", authority).output()?;
        ensure!(refused.code == Some(2) && refused.stderr.contains(why), "{url}: {}", refused.stderr);
    }
    Ok(())
}
