//! `pelton status` and `pelton stop`, and how they find the runs.

use super::Place;
use anyhow::{Context, Result, ensure};
use pelton_tests::committed_rows;
use serde_json::Value;
use std::net::TcpListener;

fn status(place: &Place, arguments: &[&str]) -> Result<Vec<Value>> {
    let lines = place.pelton(["status", "--format", "json"])?.args(arguments).succeed()?.stdout;
    lines.lines().map(|line| serde_json::from_str(line).context("no JSON")).collect()
}

#[test]
fn stop_ends_a_query_with_what_it_began_committed() -> Result<()> {
    let place = Place::new()?;
    let mut run = place.waiting("totals", "a")?;
    let stopped = place.pelton(["stop", "totals"])?.succeed()?;
    ensure!(stopped.stderr.contains("totals has stopped; micro-batch 1 is committed"), "{stopped:?}");
    // Its checkpoint is free, whether the process has ended yet or not.
    let pipeline = place.path().join("a.yaml");
    place.pelton(["run", "--trigger", "available_now"])?.arg(&pipeline).succeed()?;
    ensure!(run.code()? == 0, "as Ctrl-C does");
    ensure!(committed_rows(&place.path().join("out-a"))?.len() == 2, "what was committed stands");
    ensure!(place.announcements()?.is_empty(), "the run has left something");
    let none = place.pelton(["stop", "totals"])?.output()?;
    ensure!(none.code == Some(2) && none.stderr.contains("no query 'totals' is running"), "{none:?}");
    Ok(())
}

#[test]
fn stop_now_does_not_wait_for_the_micro_batch() -> Result<()> {
    let place = Place::new()?;
    let mut run = place.waiting("totals", "a")?;
    let stopped = place.pelton(["stop", "totals", "--now"])?.succeed()?;
    ensure!(stopped.stderr.contains("totals has ended at once"), "{stopped:?}");
    ensure!(run.code()? == 0, "it was asked to");
    Ok(())
}

#[test]
fn an_answer_need_not_be_waited_for() -> Result<()> {
    let place = Place::new()?;
    let mut run = place.waiting("totals", "a")?;
    let answer = run.ask("POST", "/queries/totals/stop?wait=false")?;
    ensure!(answer.status == 202 && answer.json()?["stop_requested"] == true, "{answer:?}");
    ensure!(run.code()? == 0, "it was asked to");
    Ok(())
}

#[test]
fn two_runs_of_one_name_are_told_apart() -> Result<()> {
    let place = Place::new()?;
    let (mut first, mut second) = (place.waiting("totals", "a")?, place.waiting("totals", "b")?);
    let shown = status(&place, &[])?;
    let pids: Vec<&Value> = shown.iter().map(|query| &query["pid"]).collect();
    ensure!(pids == [first.child.id(), second.child.id()], "{shown:#?}");
    ensure!(shown[1]["checkpoint"].as_str().is_some_and(|path| path.ends_with("checkpoint-b")), "{shown:#?}");
    let unclear = place.pelton(["stop", "totals"])?.output()?;
    ensure!(unclear.code == Some(2), "{unclear:?}");
    for words in ["2 runs have a query 'totals'", "checkpoint-a", "checkpoint-b", &second.url, "--api"] {
        ensure!(unclear.stderr.contains(words), "no '{words}' in\n{}", unclear.stderr);
    }
    ensure!(status(&place, &["--api", &second.url])?.len() == 1, "one run was asked");
    // Of a run of this user the token is known.
    place.pelton(["stop", "totals", "--api", &second.url])?.succeed()?;
    ensure!(second.code()? == 0, "it was asked to");
    let shown = place.pelton(["status", "totals"])?.succeed()?.stdout;
    for words in ["checkpoint-a", "waiting", "plugin flights", "2 micro-batches, 40 rows in, 2 out"] {
        ensure!(shown.contains(words), "no '{words}' in\n{shown}");
    }
    let misspelt = place.pelton(["stop", "total"])?.output()?;
    ensure!(misspelt.code == Some(2) && misspelt.stderr.contains("did you mean 'totals'"), "{misspelt:?}");
    place.pelton(["stop", "totals"])?.succeed()?;
    ensure!(first.code()? == 0, "it was asked to");
    Ok(())
}

#[test]
fn what_a_killed_run_has_left_is_removed() -> Result<()> {
    let place = Place::new()?;
    let mut run = place.waiting("totals", "a")?;
    run.child.kill()?;
    run.child.wait()?;
    ensure!(place.announcements()?.len() == 1, "it could not remove it");
    let shown = place.pelton(["status"])?.succeed()?;
    ensure!(shown.stdout.is_empty() && shown.stderr.contains("no query is running"), "{shown:?}");
    ensure!(place.announcements()?.is_empty(), "nobody needs it");
    let gone = place.pelton(["status", "--api", &run.url])?.output()?;
    ensure!(gone.code == Some(1) && gone.stderr.contains("does not answer"), "{gone:?}");
    Ok(())
}

#[test]
fn a_port_of_ones_own_serves_all_commands_by_one_variable() -> Result<()> {
    let place = Place::new()?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let pipeline = place.pipeline("totals", "a")?;
    let mut run = place.start(&["--api", &address], &[&pipeline])?;
    ensure!(run.url == format!("http://{address}"), "{}", run.url);
    let taken = place.pelton(["run"])?.env("PELTON_API", &address).arg(&pipeline).output()?;
    ensure!(taken.code == Some(1), "{taken:?}");
    ensure!(taken.stderr.contains(&format!("the API cannot listen on {address}")), "{}", taken.stderr);
    let shown = place.pelton(["status", "totals"])?.env("PELTON_API", &address).succeed()?;
    ensure!(shown.stdout.contains("totals"), "{shown:?}");
    place.pelton(["stop", "totals"])?.env("PELTON_API", format!("http://{address}")).succeed()?;
    ensure!(run.code()? == 0, "it was asked to");
    Ok(())
}

#[test]
fn a_run_without_an_api_is_not_found() -> Result<()> {
    let place = Place::new()?;
    let pipeline = place.pipeline("totals", "a")?;
    place.pelton(["run", "--no-api", "--trigger", "available_now"])?.arg(&pipeline).succeed()?;
    ensure!(!place.path().join("pelton").exists(), "it has left something");
    let both = place.pelton(["run", "--no-api", "--api", "127.0.0.1:1"])?.arg(&pipeline).output()?;
    ensure!(both.code == Some(2), "{both:?}");
    Ok(())
}

#[test]
fn a_directory_that_others_can_read_gets_no_token() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new()?;
    let directory = place.path().join("pelton");
    std::fs::create_dir(&directory)?;
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755))?;
    let pipeline = place.pipeline("totals", "a")?;
    let ran = place.pelton(["run", "--trigger", "available_now"])?.arg(&pipeline).succeed()?;
    let words = "is not a directory for this user alone (mode 0700)";
    ensure!(ran.stderr.contains(words), "{}", ran.stderr);
    ensure!(std::fs::read_dir(&directory)?.count() == 0, "it has left something");
    let refused = place.pelton(["status"])?.output()?;
    ensure!(refused.code == Some(1) && refused.stderr.contains(words), "{refused:?}");
    Ok(())
}

#[test]
fn another_servers_answer_is_not_taken_for_ours() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let server = std::thread::spawn(move || -> std::io::Result<()> {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept()?;
        let _ = stream.read(&mut [0; 1024])?;
        stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    });
    let place = Place::new()?;
    let strange = place.pelton(["status", "--api", &url])?.output()?;
    server.join().ok().context("the server has failed")??;
    ensure!(
        strange.code == Some(1) && strange.stderr.contains("is this the API of a `pelton run`"),
        "{strange:?}"
    );
    let wrong = place.pelton(["status", "--api", "https://example.org"])?.output()?;
    ensure!(wrong.code == Some(2) && wrong.stderr.contains("it must be http"), "{wrong:?}");
    Ok(())
}

#[test]
fn status_says_that_a_query_waits_for_a_cluster_and_why() -> Result<()> {
    let place = Place::new()?;
    let path = place.path().join("waits.yaml");
    std::fs::write(
        &path,
        "name: waits\nsources:\n  orders: {connector: kafka, bootstrap_servers: '127.0.0.1:1', subscribe: t}\n\
         sink: {connector: console}\n",
    )?;
    let run = place.start(&[], &[&path])?;
    let waits = run.until("waits", |query| !query["waiting_for"].is_null())?;
    let what = waits["waiting_for"].as_str().unwrap_or_default();
    ensure!(what.starts_with("Kafka at 127.0.0.1:1: ") && what.ends_with("(source 'orders')"), "{waits:#}");
    let shown = place.pelton(["status"])?.succeed()?.stdout;
    ensure!(shown.contains("waiting for Kafka at 127.0.0.1:1: "), "{shown}");
    Ok(())
}
