//! Sources and sinks with the real binary: what is sent over HTTP survives a kill, stdin ends a query, files roll over and are put
//! together.

use anyhow::{Context, Result, ensure};
use pelton_tests::{Pelton, committed_files, committed_rows};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A pipeline with this source and the rest of the file.
fn pipeline(folder: &Path, source: &str, rest: &str) -> Result<PathBuf> {
    let path = folder.join("pipeline.yaml");
    let shown = folder.display();
    let text = format!("name: query\nsources:\n  rows: {source}\ncheckpoint: '{shown}/checkpoint'\n{rest}\n");
    std::fs::write(&path, text)?;
    Ok(path)
}

fn run(pipeline: &Path) -> Result<Pelton> {
    Ok(Pelton::new(["run"])?.arg(pipeline))
}

/// Three files of ten numbers, one a micro-batch.
fn numbers(folder: &Path, files: std::ops::Range<u32>) -> Result<String> {
    std::fs::create_dir_all(folder.join("in"))?;
    for file in files {
        let lines: String = (0..10).map(|n| format!("{{\"n\": {}}}\n", file * 10 + n)).collect();
        std::fs::write(folder.join(format!("in/{file}.jsonl")), lines)?;
    }
    Ok(format!(
        "{{connector: file, path: '{}/in/*.jsonl', format: json, schema: 'n long', max_files_per_trigger: 1}}",
        folder.display()
    ))
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

#[test]
fn a_query_over_stdin_ends_with_its_input() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let rest = "steps:\n  - sql: SELECT n * 2 AS n FROM input\nsink: {connector: console, format: csv, options: {header: true}}";
    let file = pipeline(folder.path(), "{connector: stdin, format: json, schema: 'n long'}", rest)?;
    let said = run(&file)?.input("{\"n\": 1}\n{\"n\": 2}\n").succeed()?;
    ensure!(said.stdout == "n\n2\n4\n", "{}", said.stdout);
    ensure!(said.stderr.contains("cannot read anything twice"), "{}", said.stderr);
    for trigger in ["--batch", "--trigger=available_now"] {
        std::fs::remove_dir_all(folder.path().join("checkpoint")).ok();
        let lines: String = (0..50_000).map(|n| format!("{{\"n\": {n}}}\n")).collect();
        let said = run(&file)?.arg(trigger).input(lines).succeed()?;
        ensure!(said.stdout.lines().count() == 50_001, "{trigger}: {}", said.stdout.lines().count());
        ensure!(said.stdout.ends_with("99998\n"), "{trigger}");
    }
    Ok(())
}

#[test]
fn files_of_several_micro_batches_roll_over() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    let sink = format!(
        "sink: {{connector: file, path: '{}', format: json, rollover: {{size: 1MiB, interval: 1 hour}}}}",
        out.display()
    );
    let file = pipeline(folder.path(), &numbers(folder.path(), 0..3)?, &sink)?;
    run(&file)?.args(["--trigger", "available_now"]).succeed()?;
    let files = committed_files(&out)?;
    ensure!(files.len() == 1, "{:?}", files.keys());
    ensure!(committed_rows(&out)?.len() == 30);
    let both = format!("{sink}\n").replace("rollover", "max_records_per_file: 5, rollover");
    let file = pipeline(folder.path(), &numbers(folder.path(), 0..3)?, &both)?;
    let refused = Pelton::new(["check"])?.arg(&file).output()?;
    ensure!(refused.code == Some(2) && refused.stderr.contains("exclude each other"), "{}", refused.stderr);
    Ok(())
}

#[test]
fn small_files_are_put_together_and_the_query_goes_on() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    let sink = format!("sink: {{connector: file, path: '{}', format: parquet}}", out.display());
    let file = pipeline(folder.path(), &numbers(folder.path(), 0..3)?, &sink)?;
    let available_now = || run(&file)?.args(["--trigger", "available_now"]).succeed();
    available_now()?;
    let compact = |arguments: &[&str]| {
        Pelton::new(["files", "compact"])?.arg(&out).args(arguments).succeed().map(|said| said.stdout)
    };
    ensure!(compact(&["--dry-run"])?.contains("3 files"));
    ensure!(committed_files(&out)?.len() == 3, "a dry run changes nothing");
    let said = compact(&["--delete-after", "0 seconds", "--format", "json"])?;
    let said: serde_json::Value = serde_json::from_str(&said)?;
    ensure!(
        said["deleted"] == 3 && said["files"][0]["replaces"].as_array().map(Vec::len) == Some(3),
        "{said}"
    );
    ensure!(committed_files(&out)?.len() == 1);

    numbers(folder.path(), 3..5)?;
    available_now()?;
    compact(&[])?;
    let listed = Pelton::new(["files", "ls", "--format", "json"])?.arg(&out).succeed()?.stdout;
    let states =
        |state: &str| listed.lines().filter(|line| line.contains(&format!("\"state\":\"{state}\""))).count();
    ensure!((states("live"), states("replaced")) == (1, 3), "{listed}");

    // A query that reads the output knows what was put together, and so does one that comes later.
    let copy = tempfile::tempdir()?;
    let source = format!("{{connector: file, path: '{}', format: parquet, schema: 'n long'}}", out.display());
    let printed = pipeline(copy.path(), &source, "sink: {connector: console, format: json}")?;
    let rows = run(&printed)?.args(["--trigger", "available_now"]).succeed()?.stdout;
    let expected: Vec<String> = (0..50).map(|n| format!("{{\"n\":{n}}}")).collect();
    ensure!(sorted(rows.lines().map(str::to_owned).collect()) == sorted(expected), "{rows}");
    let again = run(&printed)?.args(["--trigger", "available_now"]).succeed()?.stdout;
    ensure!(again.is_empty(), "{again}");

    let refused = Pelton::new(["files", "compact"])?.arg(folder.path().join("in")).output()?;
    ensure!(
        refused.code == Some(2) && refused.stderr.contains("not the output of a file sink"),
        "{}",
        refused.stderr
    );
    Ok(())
}

/// Sends lines and returns the status and the body.
fn post(port: u16, key: &str, lines: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(
        stream,
        "POST /rows HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nidempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{lines}",
        lines.len()
    )?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    let status = said.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, said.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned()))
}

fn until<T>(what: &str, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(why) if Instant::now() > patience => return Err(why.context(what.to_owned())),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[test]
fn what_was_sent_and_acknowledged_comes_out_once_however_often_the_query_is_killed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let source = format!("{{connector: http, listen: '127.0.0.1:{port}', path: /rows, schema: 'n long'}}");
    let sink = format!("sink: {{connector: file, path: '{}', format: json}}", out.display());
    let file = pipeline(folder.path(), &source, &sink)?;
    for round in 0..5 {
        let mut child = run(&file)?.start()?;
        for n in round * 20..round * 20 + 20 {
            // Whoever gets no answer sends again: the key keeps it from doubling.
            let line = format!("{{\"n\":{n}}}\n");
            let (status, said) = until("no answer", || post(port, &format!("row-{n}"), &line))?;
            ensure!(status == 200, "{status}: {said}");
            let (_, said) = until("no answer", || post(port, &format!("row-{n}"), &line))?;
            ensure!(said.contains("\"repeated\":true"), "{said}");
        }
        child.kill()?;
        child.wait()?;
    }
    run(&file)?.args(["--trigger", "available_now"]).succeed()?;
    let expected: Vec<String> = (0..100).map(|n| format!("{{\"n\":{n}}}")).collect();
    ensure!(sorted(committed_rows(&out)?) == sorted(expected), "{:?}", committed_rows(&out)?);
    Ok(())
}

#[test]
fn dead_letters_are_fed_back_once_when_the_pipeline_is_mended() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("out");
    std::fs::create_dir_all(folder.path().join("in"))?;
    std::fs::write(folder.path().join("in/0.jsonl"), "{\"n\": 1}\n{\"n\": \"two\"}\n{\"n\": 3}\n")?;
    let sink = format!("sink: {{connector: file, path: '{}', format: json}}", out.display());
    let source = |schema: &str| {
        let path = folder.path().join("in/*.jsonl");
        format!(
            "{{connector: file, path: '{}', format: json, schema: 'n {schema}', on_malformed: dead_letter}}",
            path.display()
        )
    };
    let steps = format!("steps:\n  - sql: SELECT CAST(n AS string) AS n FROM input\n{sink}");
    let file = pipeline(folder.path(), &source("long"), &steps)?;
    let available_now = |file: &Path| run(file)?.args(["--trigger", "available_now"]).succeed();
    let letters = |arguments: &[&str]| {
        Pelton::new(["dead-letters"])?.args(arguments).arg(&file).succeed().map(|said| said.stdout)
    };
    available_now(&file)?;
    ensure!(committed_rows(&out)?.len() == 2);
    let shown = letters(&["show"])?;
    ensure!(shown.contains("malformed at rows") && shown.contains("{\"n\": \"two\"}"), "{shown}");

    // It fails again as long as nothing is mended: a new letter, and the old one is done with.
    ensure!(letters(&["replay", "--dry-run"])?.contains("would go back to 'rows': 1"));
    ensure!(letters(&["replay"])?.contains("go back to 'rows': 1"));
    ensure!(letters(&["replay"])?.contains("nothing to feed back"));
    available_now(&file)?;
    ensure!(committed_rows(&out)?.len() == 2);
    let listed = letters(&["ls"])?;
    ensure!(listed.lines().count() == 3, "a heading and two micro-batches: {listed}");
    ensure!(letters(&["show", "--batch", "1"])?.contains("(again)"));

    let file = pipeline(folder.path(), &source("string"), &steps)?;
    ensure!(letters(&["replay"])?.contains("go back to"));
    available_now(&file)?;
    available_now(&file)?;
    ensure!(sorted(committed_rows(&out)?) == ["{\"n\":\"1\"}", "{\"n\":\"3\"}", "{\"n\":\"two\"}"]);
    ensure!(letters(&["replay"])?.contains("nothing to feed back"));
    Ok(())
}

/// Two sources read the same three rows, the last of which is late.
fn late_rows(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder.join("in"))?;
    for (number, time) in ["12:00", "12:30", "09:00"].iter().enumerate() {
        let row = format!("{{\"k\": \"x\", \"ts\": \"2026-01-01T{time}:00Z\"}}\n");
        std::fs::write(folder.join(format!("in/{number}.jsonl")), row)?;
    }
    let shown = folder.display();
    let source = format!(
        "{{connector: file, path: '{shown}/in/*.jsonl', format: json, schema: 'k string, ts timestamp', \
         max_files_per_trigger: 1, watermark: {{column: ts, delay: 1 minute}}}}"
    );
    let path = folder.join("pipeline.yaml");
    let text = format!(
        "name: query\nsources:\n  a: {source}\n  b: {source}\ncheckpoint: '{shown}/checkpoint'\nsteps:\n  - sql: SELECT k, ts \
         FROM a UNION ALL SELECT k, ts FROM b\n  - sql: SELECT k, window(ts, '10 minutes') AS w, count(*) AS n FROM input \
         GROUP BY 1, 2\non_late: dead_letter\noutput_mode: update\nsink: {{connector: memory}}\n"
    );
    std::fs::write(&path, text)?;
    Ok(path)
}

#[test]
fn what_is_not_fed_back_is_told_and_a_letter_goes_back_to_one_source() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = late_rows(folder.path())?;
    run(&file)?.args(["--trigger", "available_now"]).succeed()?;
    let replay = |arguments: &[&str]| {
        let replay = Pelton::new(["dead-letters", "replay"])?.args(arguments).arg(&file);
        replay.succeed().map(|said| said.stdout)
    };
    let nothing = replay(&[])?;
    for words in
        ["nothing to feed back: there are no malformed ones", "left where they are: 2 late", "--kind"]
    {
        ensure!(nothing.contains(words), "no '{words}' in\n{nothing}");
    }
    ensure!(nothing.contains("late again"), "and why: {nothing}");
    let json: serde_json::Value = serde_json::from_str(&replay(&["--dry-run", "--format", "json"])?)?;
    ensure!(json == serde_json::json!({"dry_run": true, "replayed": {}, "left": {"late": 2}}), "{json}");
    let unclear = Pelton::new(["dead-letters", "replay", "--kind", "late"])?.arg(&file).output()?;
    ensure!(unclear.code == Some(2) && unclear.stderr.contains("--source"), "{unclear:?}");
    ensure!(replay(&["--kind", "late", "--source", "a"])?.contains("go back to 'a': 2"));
    let again = replay(&["--kind", "late", "--source", "b"])?;
    ensure!(again.contains("nothing to feed back: the late ones (2) were fed back before"), "{again}");
    run(&file)?.args(["--trigger", "available_now"]).succeed()?;
    let shown = Pelton::new(["dead-letters", "ls"])?.arg(&file).succeed()?.stdout;
    ensure!(shown.lines().count() == 3, "they are late again, in a micro-batch of their own:\n{shown}");
    let live = Pelton::new(["explain", "--live"])?.arg(&file).succeed()?.stdout;
    let read = "source a: read up to {\"log_offset\":2}, and dead letters that were fed back up to replays/1";
    ensure!(live.contains(read), "{live}");
    std::fs::remove_file(folder.path().join("checkpoint/replays/1"))?;
    for lost in
        [run(&file)?.args(["--trigger", "available_now"]), Pelton::new(["dead-letters", "ls"])?.arg(&file)]
    {
        let lost = lost.output()?;
        let told = lost.stderr.contains("replays/1 cannot be used: it is missing");
        ensure!(lost.code == Some(1) && told && lost.stderr.contains("restore it"), "{lost:?}");
    }
    Ok(())
}
