//! Rows on which a plugin fails, in the real binary: they are dead letters, the rest goes on, and neither threads nor reruns
//! show in either.

use anyhow::{Context, Result, ensure};
use pelton_tests::{Finished, Pelton, committed_rows, plugin};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Numbers, a file a micro-batch, through some steps to a file.
struct Numbers {
    folder: tempfile::TempDir,
    pipeline: PathBuf,
}

impl Numbers {
    fn new(plugin_keys: &str, files: &[&[i64]], steps: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let shown = folder.path().display();
        std::fs::create_dir_all(folder.path().join("in"))?;
        for (file, numbers) in files.iter().enumerate() {
            let lines: String =
                numbers.iter().map(|n| format!("{{\"n\": {n}, \"t\": \"t{n}\"}}\n")).collect();
            std::fs::write(folder.path().join(format!("in/{file}.jsonl")), lines)?;
        }
        let text = format!(
            "name: poison\nplugins:\n  p:\n    path: '{}'\n    limits: {{time: 500ms, memory: 32MiB}}\n{plugin_keys}\nsources:\n  \
             numbers: {{connector: file, path: '{shown}/in/*.jsonl', format: json, schema: 'n long, t string', \
             max_files_per_trigger: 1}}\nsteps:\n{steps}\nsink: {{connector: file, path: '{shown}/out', format: \
             json}}\ncheckpoint: '{shown}/checkpoint'\n",
            plugin("failing.wasm")?.display()
        );
        let pipeline = folder.path().join("poison.yaml");
        std::fs::write(&pipeline, text)?;
        Ok(Self { folder, pipeline })
    }

    fn run(&self, arguments: &[&str]) -> Result<Finished> {
        let run = Pelton::new(["run", "--trigger", "available_now", "--progress", "json"])?;
        run.arg(&self.pipeline).args(arguments.iter().copied()).output()
    }

    fn rows(&self) -> Result<Vec<i64>> {
        let out = self.folder.path().join("out");
        let rows = if out.is_dir() { committed_rows(&out)? } else { Vec::new() };
        let mut all = Vec::new();
        for row in rows {
            let row: Value = serde_json::from_str(&row)?;
            all.push(row["n"].as_i64().context("a number")?);
        }
        all.sort_unstable();
        Ok(all)
    }

    fn letters(&self, batch: u64) -> Result<Vec<Value>> {
        letters(&self.folder.path().join(format!("checkpoint/dead-letters/{batch}.jsonl")))
    }
}

fn letters(file: &Path) -> Result<Vec<Value>> {
    let Ok(text) = std::fs::read_to_string(file) else { return Ok(Vec::new()) };
    text.lines().map(|line| serde_json::from_str(line).context("a dead letter")).collect()
}

const DEAD_LETTER: &str = "    on_plugin_failure: dead_letter";

#[test]
fn traps_and_overrun_limits_make_dead_letters_and_the_rest_goes_on() -> Result<()> {
    let test =
        Numbers::new(DEAD_LETTER, &[&[1, 2, 13, 3, -4, 14, 5, 6, 15, 7], &[8, 9]], "- plugin: p.work")?;
    let finished = test.run(&[])?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    ensure!(test.rows()? == [1, 2, 3, 5, 6, 7, 8, 9], "{:?}", test.rows()?);
    let letters = test.letters(0)?;
    let seen: Vec<String> = letters.iter().map(|l| format!("{} {}", l["kind"], l["payload"])).collect();
    let expected = [(13, "poison"), (14, "poison"), (15, "poison"), (-4, "refused")];
    let expected = expected.map(|(n, kind)| format!("\"{kind}\" \"{{\\\"n\\\":{n}}}\""));
    let with_t = expected.map(|line| line.replace("}\"", "") + ",");
    ensure!(
        seen.len() == 4 && seen.iter().zip(&with_t).all(|(seen, expected)| seen.starts_with(expected)),
        "{seen:?} instead of {with_t:?}"
    );
    let reason = |at: usize| letters[at]["reason"].as_str().unwrap_or_default().to_owned();
    ensure!(
        finished.stderr.matches("ERROR panicked").count() == 1 && reason(0).ends_with("13 is bad luck"),
        "{}\n{}",
        reason(0),
        finished.stderr
    );
    ensure!(
        reason(0).starts_with("p.work: trapped: it reached an 'unreachable' instruction"),
        "{}",
        reason(0)
    );
    ensure!(reason(1).contains("of memory (limit memory: 32 MiB)"), "{}", reason(1));
    ensure!(reason(2).starts_with("p.work: ran longer than 500 ms (limit time)"), "{}", reason(2));
    ensure!(
        letters.iter().all(|l| l["plugin"].as_str().is_some_and(|digest| digest.len() == 64)),
        "{letters:?}"
    );
    ensure!(test.letters(1)?.is_empty(), "the second micro-batch has none");
    let progress: Value = serde_json::from_str(
        finished.stderr.lines().find(|line| line.starts_with('{')).context("a line of progress")?,
    )?;
    ensure!(progress["num_poison_rows"] == 3 && progress["num_refused_rows"] == 1, "{progress}");
    Ok(())
}

#[test]
fn poison_rows_are_fed_back_when_the_function_is_mended() -> Result<()> {
    let test = Numbers::new(DEAD_LETTER, &[&[1, 13, 2, 14, -4]], "- plugin: p.work")?;
    let finished = test.run(&[])?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    ensure!(test.rows()? == [1, 2], "{:?}", test.rows()?);
    let replay = || {
        let said = Pelton::new(["dead-letters", "replay", "--kind", "poison"])?.arg(&test.pipeline).succeed();
        said.map(|said| said.stdout)
    };
    let text = std::fs::read_to_string(&test.pipeline)?;
    std::fs::write(&test.pipeline, text.replace("- plugin: p.work", "- filter: n > 0"))?;
    ensure!(replay()?.contains("go back to 'numbers': 2"));
    ensure!(replay()?.contains("nothing to feed back"));
    let finished = test.run(&[])?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    ensure!(test.rows()? == [1, 2, 13, 14], "{:?}", test.rows()?);
    let again = Pelton::new(["replay", "--format", "json", "--batches", "1..1"])?
        .arg(&test.pipeline)
        .succeed()?
        .stdout;
    ensure!(again.contains("\"n\":13") && again.contains("\"n\":14"), "fed back again: {again}");
    Ok(())
}

#[test]
fn the_number_of_threads_and_a_rerun_show_in_nothing() -> Result<()> {
    let numbers: Vec<i64> = (0..30_000).map(|n| if n % 2_500 == 7 { 13 } else { n % 12 }).collect();
    let output = |threads: &str| -> Result<(Vec<i64>, Vec<Value>)> {
        let steps = "- select: {n: 'p.square(n)', t: t}\n- filter: p.is_even(n)";
        let test = Numbers::new(DEAD_LETTER, &[&numbers], steps)?;
        let finished = test.run(&["--threads", threads])?;
        ensure!(finished.code == Some(0), "{}", finished.stderr);
        let first = (test.rows()?, test.letters(0)?);
        // As if the process had died before the commit: the sink has the rows.
        std::fs::remove_file(test.folder.path().join("checkpoint/commits/0"))?;
        std::fs::write(test.folder.path().join("checkpoint/dead-letters/0.jsonl"), "left over\n")?;
        std::fs::remove_dir_all(test.folder.path().join("out"))?;
        let finished = test.run(&["--threads", threads])?;
        ensure!(finished.code == Some(0), "{}", finished.stderr);
        ensure!((test.rows()?, test.letters(0)?) == first, "a rerun gives the same");
        Ok(first)
    };
    let one = output("1")?;
    ensure!(one.1.len() == 12 && one.0.len() > 10_000, "{} letters, {} rows", one.1.len(), one.0.len());
    ensure!(output("3")? == one, "three threads give what one gives");
    Ok(())
}

#[test]
fn a_budget_ends_the_query_with_counts_and_the_first_reason() -> Result<()> {
    let keys = "    on_plugin_failure: {dead_letter: {rows_max: 3}}";
    let test = Numbers::new(keys, &[&[1, 13, 13, 2, 13, 3, 13, 4]], "- plugin: p.work\n  name: working")?;
    let finished = test.run(&[])?;
    ensure!(finished.code == Some(1), "{}", finished.stderr);
    for words in [
        "error (plugin): query 'poison', micro-batch 0: operator 'working': plugin 'p', function 'work' fails on too many rows of \
         the micro-batch: 4 are found (rows_max: 3) in ",
        " calls (calls_max: 3000); the first failure: trapped: it reached an 'unreachable' instruction",
        "hint: mend the plugin and start with --rerun-with-current-plugins; or raise on_plugin_failure: {dead_letter: {rows_max: \
         …, calls_max: …}}",
    ] {
        ensure!(finished.stderr.contains(words), "no '{words}' in\n{}", finished.stderr);
    }
    ensure!(test.rows()?.is_empty() && test.letters(0)?.is_empty(), "nothing of the micro-batch is there");
    Ok(())
}

#[test]
fn a_failure_fails_the_query_unless_the_file_says_otherwise() -> Result<()> {
    for (keys, says) in [
        ("", "batch 0: trapped"),
        ("    on_plugin_failure: retry 2", "after 2 retries: plugin 'p', function 'work'"),
    ] {
        let test = Numbers::new(keys, &[&[1, 13]], "- plugin: p.work")?;
        let finished = test.run(&[])?;
        ensure!(
            finished.code == Some(1) && finished.stderr.contains(says),
            "no '{says}' in\n{}",
            finished.stderr
        );
        ensure!(
            finished.stderr.contains("; it panicked at ")
                && finished.stderr.contains("hint: mend the plugin, give"),
            "neither why nor the way out:\n{}",
            finished.stderr
        );
        let mended = test.run(&["--set", "plugins.p.on_plugin_failure=dead_letter"])?;
        ensure!(mended.code == Some(0) && test.rows()? == [1], "the micro-batch goes on:\n{}", mended.stderr);
    }
    Ok(())
}

#[test]
fn what_is_written_wrongly_is_told_with_its_place() -> Result<()> {
    for (keys, says) in [
        (
            "    on_plugin_failure: deadletter",
            "poison.yaml:6:24: 'deadletter' is not possible here; did you mean 'dead_letter'?",
        ),
        ("    on_plugin_failure: {retry: 0}", "poison.yaml:6:24: 0 retries are none; write 'fail'"),
    ] {
        let finished = Numbers::new(keys, &[&[1]], "- plugin: p.work")?.run(&[])?;
        ensure!(
            finished.code == Some(2) && finished.stderr.contains(says),
            "no '{says}' in\n{}",
            finished.stderr
        );
    }
    for (recycle, says) in [
        ("{calls: 0}", "an instance serves at least 1 call before it is replaced"),
        (
            "{memory: 32MiB}",
            "an instance whose memory may grow by 33554432 bytes reaches its limit of 33554432 bytes before it is replaced",
        ),
    ] {
        let test = Numbers::new("", &[&[1]], "- plugin: p.work")?;
        let finished = test.run(&["--set", &format!("plugins.p.limits.recycle={recycle}")])?;
        ensure!(
            finished.code == Some(2) && finished.stderr.contains(says),
            "no '{says}' in\n{}",
            finished.stderr
        );
    }
    Ok(())
}

/// Groups: the guilty one keeps its state, and a timeout whose call fails does not come again.
#[test]
fn a_guilty_group_goes_on_from_the_state_it_had() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let shown = folder.path().display();
    std::fs::create_dir_all(folder.path().join("in"))?;
    let files: [&[(&str, i64, u32)]; 5] = [
        &[("ann", 1, 0), ("bob", 2, 0), ("cem", 100, 0)],
        &[("ann", 13, 1), ("ann", 5, 1), ("bob", 4, 1)],
        &[("bob", 1, 30)],
        &[("bob", 1, 31)],
        &[("ann", 2, 32), ("cem", 1, 32)],
    ];
    for (number, rows) in files.iter().enumerate() {
        let line = |(user, n, second): &(&str, i64, u32)| {
            format!("{{\"user\":\"{user}\",\"n\":{n},\"ts\":\"2026-01-01T12:00:{second:02}Z\"}}\n")
        };
        std::fs::write(
            folder.path().join(format!("in/{number}.jsonl")),
            rows.iter().map(line).collect::<String>(),
        )?;
    }
    let pipeline = folder.path().join("totals.yaml");
    std::fs::write(
        &pipeline,
        format!(
            "name: totals\nplugins: {{p: {{path: '{}', on_plugin_failure: dead_letter}}}}\nsources:\n  numbers:\n    connector: \
             file\n    path: '{shown}/in/*.jsonl'\n    format: json\n    schema: {{user: string, n: long, ts: timestamp}}\n    \
             max_files_per_trigger: 1\n    watermark: {{column: ts, delay: 0 seconds}}\nsteps:\n- {{plugin: p.totals, key: [user], \
             name: totals}}\noutput_mode: update\nsink: {{connector: console, format: json}}\ncheckpoint: '{shown}/checkpoint'\n",
            plugin("failing.wasm")?.display()
        ),
    )?;
    let finished = Pelton::new(["run", "--trigger", "available_now"])?.arg(&pipeline).succeed()?;
    let mut rows: Vec<&str> = finished.stdout.lines().collect();
    rows.sort_unstable();
    let told = |user: &str, sum: i64, timed_out: bool| {
        format!("{{\"user\":\"{user}\",\"sum\":{sum},\"timed_out\":{timed_out}}}")
    };
    let expected = [
        told("ann", 1, false),
        told("ann", 1, true),
        told("ann", 3, false),
        told("bob", 2, false),
        told("bob", 6, false),
        told("bob", 7, false),
        told("bob", 8, false),
        told("cem", 100, false),
        told("cem", 101, false),
    ];
    ensure!(rows == expected, "{rows:#?}");
    let mut seen = Vec::new();
    for batch in 0..8 {
        let found = letters(&folder.path().join(format!("checkpoint/dead-letters/{batch}.jsonl")))?;
        seen.extend(
            found.iter().map(|l| format!("{} {}", l["reason"].as_str().unwrap_or_default(), l["payload"])),
        );
    }
    ensure!(seen.len() == 3, "{seen:#?}");
    ensure!(seen[0].contains("trapped") && seen[0].contains("\\\"n\\\":13"), "{seen:#?}");
    ensure!(seen[1].contains("trapped") && seen[1].contains("\\\"n\\\":5"), "{seen:#?}");
    ensure!(
        seen[2].starts_with("p.totals: called for its timeout, which is cleared: trapped")
            && seen[2].contains("cem"),
        "{seen:#?}"
    );
    Ok(())
}

/// A function that leaks a megabyte with each call, through many more calls than its memory holds.
#[test]
fn a_plugin_that_leaks_gives_the_rows_of_one_that_does_not() -> Result<()> {
    let files: Vec<Vec<i64>> = (0..60).map(|file| vec![0, file]).collect();
    let files: Vec<&[i64]> = files.iter().map(Vec::as_slice).collect();
    let test = Numbers::new("", &files, "- select: {n: 'p.leak(n)'}")?;
    let finished = test.run(&[])?;
    ensure!(finished.code == Some(0), "{}", finished.stderr);
    let mut expected: Vec<i64> = (0..60).flat_map(|file| [0, file]).collect();
    expected.sort_unstable();
    ensure!(test.rows()? == expected, "{:?}", test.rows()?);
    Ok(())
}
