//! Checkpoint and output on a real S3 store: restarts, kills, a second run, and a way to the store that is slow and fails.

use crate::crash::aircraft;
use crate::kills::{Kills, same_files, seed, timed};
use anyhow::{Context, Result, ensure};
use pelton_tests::{Pelton, S3, committed_files, committed_rows};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// The stateful pipeline over real flights, everything that it writes in a folder of the store. `files` of the forty are
/// its input.
fn on_s3(store: &S3, folder: &str, files: &str) -> Result<Pelton> {
    let pelton = aircraft()?.set("sources.flights.path", Path::new(&format!("tests/data/flights/{files}")));
    let (output, checkpoint) = (format!("{folder}/output"), format!("{folder}/checkpoint"));
    Ok(pelton
        .set("sink.path", Path::new(&store.url(&output)))
        .set("checkpoint", Path::new(&store.url(&checkpoint))))
}

/// What the same gives on local disk.
fn on_disk(files: &str) -> Result<crate::kills::Files> {
    let folder = tempfile::tempdir()?;
    let pelton = aircraft()?.set("sources.flights.path", Path::new(&format!("tests/data/flights/{files}")));
    let output = folder.path().join("output");
    pelton.set("sink.path", &output).set("checkpoint", &folder.path().join("checkpoint")).succeed()?;
    committed_files(&output)
}

const FEW: &str = "0[0-9].csv.gz";

#[test]
fn a_store_holds_what_a_disk_does_and_a_restart_adds_nothing() -> Result<()> {
    let (store, expected) = (S3::shared()?, on_disk(FEW)?);
    for _ in 0..2 {
        store.reached_by(on_s3(&store, "restart", FEW)?).succeed()?;
        let found = committed_files(&store.files("restart/output"))?;
        ensure!(found == expected, "{:?} instead of {:?}", found.keys(), expected.keys());
    }
    // And what came meanwhile.
    store.reached_by(on_s3(&store, "restart", "{0[0-9],10,11}.csv.gz")?).succeed()?;
    let found = committed_files(&store.files("restart/output"))?;
    ensure!(found == on_disk("{0[0-9],10,11}.csv.gz")?, "{:?}", found.keys());
    Ok(())
}

#[test]
fn what_one_query_writes_to_a_store_another_reads_there() -> Result<()> {
    let (store, folder) = (S3::shared()?, tempfile::tempdir()?);
    let schema = "'time_hour timestamp, carrier string, flight long, tailnum string'";
    let run = |name: &str, source: &str, output: &str| -> Result<()> {
        let file = folder.path().join(format!("{name}.yaml"));
        let checkpoint = store.url(&format!("{name}/checkpoint"));
        std::fs::write(
            &file,
            format!(
                "name: {name}\nsources: {{flights: {{connector: file, {source}}}}}\nsink: {{connector: file, path: \
                 '{output}', format: json}}\ncheckpoint: '{checkpoint}'\n"
            ),
        )?;
        let pelton = Pelton::new(["run", "--trigger", "available_now"])?.arg(&file);
        store.reached_by(pelton).succeed()?;
        Ok(())
    };
    let local = folder.path().join("output").display().to_string();
    let columns = "schema: 'time_hour timestamp, carrier string, flight long, tailnum string, origin string, dest string, \
                   dep_delay double, distance double'";
    let csv = format!(
        "path: 'tests/data/flights/0[01].csv.gz', format: csv, options: {{header: true, null_value: NA}}, {columns}"
    );
    run("written", &csv, &store.url("written/output"))?;
    let json = store.url("written/output/*.json");
    run("read", &format!("path: '{json}', format: json, schema: {schema}"), &local)?;
    let rows = committed_rows(Path::new(&local))?;
    ensure!(rows.len() == 5200, "{} rows", rows.len());
    let first = "{\"time_hour\":\"2013-01-01T10:00:00.000Z\",\"carrier\":\"UA\",\"flight\":1545,\"tailnum\":\"N14228\"}";
    ensure!(rows.first().is_some_and(|row| row == first), "{:?}", rows.first());
    Ok(())
}

#[test]
fn of_two_runs_on_a_store_one_is_fenced() -> Result<()> {
    let (store, folder) = (S3::shared()?, tempfile::tempdir()?);
    // One that goes on for as long as it is let.
    let file = folder.path().join("rates.yaml");
    std::fs::write(
        &file,
        format!(
            "name: rates\nsources: {{rate: {{connector: rate, rows_per_second: 10}}}}\ntrigger: {{processing_time: 100 \
             milliseconds}}\nsink: {{connector: file, path: '{}', format: json}}\ncheckpoint: '{}'\n",
            store.url("fenced/output"),
            store.url("fenced/checkpoint")
        ),
    )?;
    let run = || Ok::<_, anyhow::Error>(store.reached_by(Pelton::new(["run"])?.arg(&file)));
    let commits = store.files("fenced/checkpoint/commits");
    let committed = || std::fs::read_dir(&commits).map_or(0, |entries| entries.count());
    let mut first = run()?.start()?;
    wait_until("the first run commits", || committed() >= 2)?;
    let mut second = run()?.start()?;
    // Mostly the first: whichever finds the next entry of the log written.
    let ended = (0..6000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let ended = |run: &mut Child| run.try_wait().ok().flatten();
        ended(&mut first).or_else(|| ended(&mut second))
    });
    let before = committed();
    let goes_on = wait_until("the other run goes on", || committed() >= before + 2);
    for run in [&mut first, &mut second] {
        let _ = run.kill();
        run.wait()?;
    }
    goes_on?;
    let ended = ended.context("both runs went on")?;
    ensure!(ended.code() == Some(1), "the overtaken run ended with {ended}");
    no_value_twice(&committed_rows(&store.files("fenced/output"))?)
}

fn no_value_twice(rows: &[String]) -> Result<()> {
    let mut values = Vec::new();
    for row in rows {
        let row: serde_json::Value = serde_json::from_str(row)?;
        values.push(row["value"].as_i64().with_context(|| row.to_string())?);
    }
    values.sort_unstable();
    let expected: Vec<i64> = (0..i64::try_from(values.len())?).collect();
    ensure!(values == expected && !values.is_empty(), "each number once: {values:?}");
    Ok(())
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        ensure!(Instant::now() < deadline, "it did not come to pass within a minute that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn twenty_kills_on_a_slow_and_failing_store_change_no_byte() -> Result<()> {
    let (store, expected) = (S3::shared()?, on_disk(FEW)?);
    let whole_run = timed(store.reached_by(on_s3(&store, "steady", FEW)?))?;
    let way = store.unsteady_way(seed())?;
    let mut kills = Kills::new(20, whole_run * 3)?;
    let mut runs = 0;
    while kills.are_left() {
        let folder = format!("unsteady-{runs}");
        // What the client cannot tell it must give up: a conditional write whose answer was lost, for example.
        kills.until_done_in_spite(|| Ok(store.reached_through(&way, on_s3(&store, &folder, FEW)?)), 100)?;
        same_files(&expected, &committed_files(&store.files(&format!("{folder}/output")))?, &kills)?;
        runs += 1;
    }
    let (requests, failures) = way.requests_and_failures();
    ensure!(failures > 20, "the way was too good: {failures} of {requests} requests failed");
    println!("{kills}; {failures} of {requests} requests failed");
    Ok(())
}
