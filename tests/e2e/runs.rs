//! Runs that go wrong, run together, or run as one batch, with the real binary.

use anyhow::{Context, Result, ensure};
use pelton_tests::{Finished, Pelton, committed_rows, pelton_binary, plugin};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A pipeline over numbered JSON lines in `folder/in`, with the given steps, to `folder/out`.
fn pipeline(folder: &Path, name: &str, rest: &str) -> Result<std::path::PathBuf> {
    let path = folder.join(format!("{name}.yaml"));
    let shown = folder.display();
    let text = format!(
        "name: {name}\n\
         sources:\n  numbers: {{connector: file, path: '{shown}/in/*.jsonl', format: json, schema: 'n long', \
         max_files_per_trigger: 1}}\n\
         checkpoint: '{shown}/checkpoint-{name}'\n{rest}\n"
    );
    std::fs::write(&path, text)?;
    Ok(path)
}

/// Three files with the numbers 0 to 29.
fn numbers(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder.join("in"))?;
    for file in 0..3 {
        let lines: String = (0..10).map(|n| format!("{{\"n\": {}}}\n", file * 10 + n)).collect();
        std::fs::write(folder.join(format!("in/{file}.jsonl")), lines)?;
    }
    Ok(())
}

fn run(pipeline: &Path) -> Result<Pelton> {
    Ok(Pelton::new(["run"])?.arg(pipeline))
}

fn to_file(folder: &Path, name: &str) -> String {
    format!("sink: {{connector: file, path: '{}/out-{name}', format: json}}", folder.display())
}

fn refused(finished: &Finished, code: i32, words: &[&str]) -> Result<()> {
    ensure!(finished.code == Some(code), "exit {:?}\n{}", finished.code, finished.stderr);
    for word in words {
        ensure!(finished.stderr.contains(word), "no '{word}' in\n{}", finished.stderr);
    }
    Ok(())
}

#[test]
fn a_checkpoint_belongs_to_one_run_at_a_time() -> Result<()> {
    let folder = tempfile::tempdir()?;
    numbers(folder.path())?;
    let file = pipeline(folder.path(), "one", &to_file(folder.path(), "one"))?;
    let mut first = run(&file)?.start()?;
    let lock = folder.path().join("checkpoint-one/commits/2");
    let patience = Instant::now() + Duration::from_secs(60);
    while !lock.is_file() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = run(&file)?.args(["--trigger", "available_now"]).output();
    first.kill()?;
    first.wait()?;
    refused(&second?, 1, &["fenced", "checkpoint-one", "hint"])?;
    // The dead run holds nothing.
    run(&file)?.args(["--trigger", "available_now"]).succeed()?;
    ensure!(committed_rows(&folder.path().join("out-one"))?.len() == 30, "each row once");
    Ok(())
}

#[test]
fn a_damaged_log_entry_is_named_and_nothing_starts_over() -> Result<()> {
    let folder = tempfile::tempdir()?;
    numbers(folder.path())?;
    let file = pipeline(folder.path(), "hurt", &to_file(folder.path(), "hurt"))?;
    run(&file)?.args(["--trigger", "available_now"]).succeed()?;
    let entry = folder.path().join("checkpoint-hurt/offsets/2");
    let text = std::fs::read_to_string(&entry)?;
    std::fs::write(&entry, text.replacen("batch_time_ms", "batch_time_mz", 1))?;
    let again = run(&file)?.args(["--trigger", "available_now"]).output()?;
    refused(&again, 1, &["offsets/2", "hint"])?;
    ensure!(committed_rows(&folder.path().join("out-hurt"))?.len() == 30, "the output is as it was");
    Ok(())
}

#[test]
fn another_querys_checkpoint_and_output_are_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    numbers(folder.path())?;
    let mine = pipeline(folder.path(), "mine", &to_file(folder.path(), "mine"))?;
    run(&mine)?.args(["--trigger", "available_now"]).succeed()?;
    let checkpoint = folder.path().join("checkpoint-mine");
    let yours = pipeline(folder.path(), "yours", &to_file(folder.path(), "mine"))?;
    let foreign = run(&yours)?.set("checkpoint", &checkpoint).output()?;
    refused(&foreign, 2, &["mine", "yours", "hint"])?;
    let output = run(&yours)?.args(["--trigger", "available_now"]).output()?;
    ensure!(output.code != Some(0), "two queries must not share an output directory");
    refused(&output, output.code.unwrap_or(-1), &["out-mine", "hint"])
}

#[test]
fn a_changed_query_goes_on_with_its_state_only_if_it_is_meant() -> Result<()> {
    let folder = tempfile::tempdir()?;
    numbers(folder.path())?;
    let sums =
        |key: &str| format!("steps.0.sql=SELECT {key} AS k, count(*) AS c FROM numbers GROUP BY {key}");
    let rest = "steps: [{sql: SELECT 1}]\noutput_mode: update\nsink: {connector: console, format: json}";
    let file = pipeline(folder.path(), "sums", rest)?;
    let start = |key: &str, more: &[&str]| -> Result<Finished> {
        let pelton = run(&file)?.args(["--trigger", "available_now", "--set", &sums(key)]);
        pelton.args(more.iter().flat_map(|set| ["--set", set])).output()
    };
    ensure!(start("n % 2", &[])?.code == Some(0), "the query as it is");
    let changed = "key 1 was numbers.n % 2 and is numbers.n % 3";
    refused(
        &start("n % 3", &[])?,
        2,
        &["'sql.aggregate'", changed, "accept_changed_state: ['sql.aggregate']"],
    )?;
    let misspelt = start("n % 3", &["accept_changed_state=[sql.agregate]"])?;
    refused(&misspelt, 2, &["no operator 'sql.agregate' keeps state", "those that do: sql.aggregate"])?;
    std::fs::write(folder.path().join("in/3.jsonl"), "{\"n\": 3}\n")?;
    let meant = start("n % 3", &["accept_changed_state=[sql.aggregate]"])?;
    ensure!(
        meant.code == Some(0) && meant.stdout.contains(r#"{"k":0,"c":16}"#),
        "{}{}",
        meant.stdout,
        meant.stderr
    );
    ensure!(start("n % 3", &[])?.code == Some(0), "it is the new meaning");
    Ok(())
}

#[test]
fn a_query_that_fails_leaves_the_others_running() -> Result<()> {
    let folder = tempfile::tempdir()?;
    numbers(folder.path())?;
    let bad = format!("steps: [{{filter: '10 / (n - 15) > 0'}}]\n{}", to_file(folder.path(), "bad"));
    let bad = pipeline(folder.path(), "bad", &bad)?;
    let good = pipeline(folder.path(), "good", &to_file(folder.path(), "good"))?;
    let finished = run(&bad)?.arg(&good).args(["--trigger", "available_now"]).output()?;
    refused(&finished, 1, &["query 'bad'", "micro-batch 1"])?;
    ensure!(committed_rows(&folder.path().join("out-good"))?.len() == 30, "the good one came to its end");
    ensure!(committed_rows(&folder.path().join("out-bad"))?.len() < 30, "the bad one did not");
    Ok(())
}

#[test]
fn a_batch_gives_the_rows_of_the_stream() -> Result<()> {
    let folder = tempfile::tempdir()?;
    numbers(folder.path())?;
    let steps = "steps: [{filter: n % 3 = 0}, {select: [n, n * n AS square]}]\nsink: {connector: console, format: json}";
    let file = pipeline(folder.path(), "rows", steps)?;
    let stream = run(&file)?.args(["--trigger", "available_now"]).succeed()?.stdout;
    let batch = run(&file)?.arg("--batch").succeed()?.stdout;
    ensure!(stream.lines().count() == 10 && stream == batch, "stream:\n{stream}\nbatch:\n{batch}");
    Ok(())
}

#[test]
fn a_plugin_that_never_ends_ends_its_query_alone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    numbers(folder.path())?;
    let endless = folder.path().join("endless.wat");
    let flights = std::fs::read_to_string(plugin("flights-wat.wat")?)?;
    // The same plugin, with a loop where it should answer.
    let start =
        flights.find("(export \"pelton:plugin/scalar@0.1.0#evaluate\")").context("the export is there")?;
    let body =
        start + flights[start..].find("(result i32)").context("it has a result")? + "(result i32)".len();
    std::fs::write(
        &endless,
        format!("{}\n(loop $for_ever (br $for_ever))\n{}", &flights[..body], &flights[body..]),
    )?;
    let bad = format!(
        "plugins: {{flights: {{path: '{}', limits: {{time: 200ms}}}}}}\nsteps: [{{filter: 'flights.is_delayed(CAST(n AS DOUBLE))'}}]\n{}",
        endless.display(),
        to_file(folder.path(), "endless")
    );
    let bad = pipeline(folder.path(), "endless", &bad)?;
    let good = pipeline(folder.path(), "lively", &to_file(folder.path(), "lively"))?;
    let finished = run(&bad)?.arg(&good).args(["--trigger", "available_now"]).output()?;
    refused(&finished, 1, &["plugin 'flights'", "is_delayed", "ran longer than 200 ms"])?;
    ensure!(
        committed_rows(&folder.path().join("out-lively"))?.len() == 30,
        "the other query came to its end"
    );
    Ok(())
}

#[test]
fn a_sink_function_gets_the_rows_and_its_refusal_ends_the_query_with_its_words() -> Result<()> {
    let folder = tempfile::tempdir()?;
    numbers(folder.path())?;
    let rest = |argument: &str| -> Result<String> {
        Ok(format!(
            "plugins: {{bench: '{}'}}\nsteps: [{{select: ['{argument} AS a']}}]\nsink: {{connector: plugin, plugin: \
             bench.swallow}}",
            plugin("bench.wasm")?.display()
        ))
    };
    let good = pipeline(folder.path(), "good", &rest("n")?)?;
    let finished = run(&good)?.args(["--trigger", "available_now", "--summary", "json"]).succeed()?;
    ensure!(finished.stderr.contains("\"rows_out\":30"), "{}", finished.stderr);
    let bad = pipeline(folder.path(), "bad", &rest("n - 25")?)?;
    let finished = run(&bad)?.args(["--trigger", "available_now"]).output()?;
    refused(&finished, 1, &["bench", "swallow", "-25 is negative"])?;
    // After a way out the micro-batch comes again, with the function as it is.
    let again = run(&bad)?.args(["--trigger", "available_now"]).output()?;
    refused(&again, 1, &["-25 is negative"])
}

#[cfg(unix)]
#[test]
fn a_second_signal_ends_a_run_whose_reader_does_not_read() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir_all(folder.path().join("in"))?;
    let lines: String = (0..200_000).map(|n| format!("{{\"n\": {n}}}\n")).collect();
    std::fs::write(folder.path().join("in/0.jsonl"), lines)?;
    let file = pipeline(folder.path(), "one", "sink: {connector: console, format: json}")?;
    let (reader, writer) = std::io::pipe()?;
    let told_to = std::fs::File::create(folder.path().join("stderr"))?;
    let mut blocked = run(&file)?.start_to(writer, told_to)?;
    let begun = folder.path().join("checkpoint-one/offsets/0");
    let patience = Instant::now() + Duration::from_secs(60);
    while !begun.is_file() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = blocked.id().to_string();
    let terminate = || -> Result<()> {
        let sent = Command::new("kill").args(["-TERM", &id]).status()?;
        ensure!(sent.success(), "it could not be told to end");
        Ok(())
    };
    terminate()?;
    std::thread::sleep(Duration::from_millis(500));
    let (told, waits) = (terminate(), blocked.try_wait()?.is_none());
    let patience = Instant::now() + Duration::from_secs(10);
    while blocked.try_wait()?.is_none() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = blocked.try_wait()?;
    let _ = blocked.kill();
    drop(reader);
    told?;
    ensure!(waits, "the first signal lets the micro-batch come to its end");
    ensure!(ended.and_then(|status| status.code()) == Some(143), "{ended:?}");
    let told = std::fs::read_to_string(folder.path().join("stderr"))?;
    ensure!(told.contains("micro-batch 0 is abandoned; a new start runs it again"), "{told}");
    ensure!(!folder.path().join("checkpoint-one/commits/0").exists(), "it is run again at the next start");
    Ok(())
}

#[test]
fn a_run_goes_on_when_nobody_reads_what_it_tells() -> Result<()> {
    let folder = tempfile::tempdir()?;
    numbers(folder.path())?;
    let file = pipeline(folder.path(), "one", &to_file(folder.path(), "one"))?;
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let told = ["--trigger", "available_now", "--progress", "json"];
    let run = run(&file)?.args(told).env("PELTON_LOG", "debug").start_to(Stdio::null(), writer)?.wait()?;
    ensure!(run.code() == Some(0), "{run}");
    ensure!(committed_rows(&folder.path().join("out-one"))?.len() == 30);
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn rows_for_a_closed_stdout_are_not_lost_in_silence() -> Result<()> {
    let folder = tempfile::tempdir()?;
    numbers(folder.path())?;
    let file = pipeline(folder.path(), "one", "sink: {connector: console, format: json}")?;
    let told = |redirected: &str| -> Result<String> {
        let script = format!("exec \"$0\" run \"$1\" --batch {redirected}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).arg(pelton_binary()?).arg(&file).env_remove("PELTON_LOG");
        Ok(String::from_utf8(shell.output()?.stderr)?)
    };
    let closed = told(">&-")?;
    ensure!(closed.contains("stdout is closed: the rows"), "{closed}");
    let unwanted = told("> /dev/null")?;
    ensure!(!unwanted.contains("stdout"), "{unwanted}");
    Ok(())
}
