//! `pelton replay`: what it shows is what was, it changes nothing, and it tells in what another build differs.

use anyhow::{Context, Result, ensure};
use pelton_tests::{Pelton, plugin};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every file of a folder with its content and the time of its last change.
fn snapshot(folder: &Path) -> Result<BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let changed = path.metadata()?.modified()?;
                    files.insert(path.clone(), (std::fs::read(&path)?, changed));
                }
            }
        }
    }
    Ok(files)
}

/// Lines of JSON that a replay prints.
fn replay(file: &Path, arguments: &[&str]) -> Result<Vec<Value>> {
    let finished =
        Pelton::new(["replay", "--format", "json"])?.arg(file).args(arguments.iter().copied()).succeed()?;
    finished.stdout.lines().map(|line| serde_json::from_str(line).context("a line")).collect()
}

fn of(lines: &[Value], what: &str) -> Vec<Value> {
    lines.iter().filter_map(|line| line.get(what).cloned()).collect()
}

/// Numbers to 23, four a micro-batch, through `even` of a plugin.
fn evens(folder: &Path) -> Result<PathBuf> {
    let path = evens_pipeline(folder)?;
    for file in 0..6 {
        let lines: String = (0..4).map(|n| format!("{{\"n\": {}}}\n", file * 4 + n)).collect();
        std::fs::write(folder.join(format!("in/{file}.jsonl")), lines)?;
    }
    Ok(path)
}

/// The even ones of the numbers in `in/`, a file a micro-batch.
pub(crate) fn evens_pipeline(folder: &Path) -> Result<PathBuf> {
    let shown = folder.display();
    std::fs::create_dir_all(folder.join("in"))?;
    let path = folder.join("evens.yaml");
    std::fs::write(
        &path,
        format!(
            "name: evens\nplugins: {{p: '{}'}}\nsources:\n  numbers: {{connector: file, path: '{shown}/in/*.jsonl', format: json, \
             schema: 'n long', max_files_per_trigger: 1}}\nsteps: [{{plugin: p.even}}]\nsink: {{connector: file, path: \
             '{shown}/out', format: json}}\ncheckpoint: '{shown}/checkpoint'\n",
            plugin("conformance.wasm")?.display()
        ),
    )?;
    Ok(path)
}

fn run(file: &Path) -> Result<()> {
    Pelton::new(["run", "--trigger", "available_now"])?.arg(file).succeed().map(|_| ())
}

#[test]
fn it_gives_what_was_given_and_changes_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = evens(folder.path())?;
    run(&file)?;
    let before = snapshot(folder.path())?;
    let lines = replay(&file, &["--batches", "1..2", "--dead-letters"])?;
    let batch = |id: u64| lines.iter().filter(|line| line["batch_id"] == id).cloned().collect::<Vec<_>>();
    ensure!(of(&batch(1), "row") == [json!({"n": 4}), json!({"n": 6})], "{lines:#?}");
    ensure!(of(&batch(2), "row") == [json!({"n": 8}), json!({"n": 10})], "{lines:#?}");
    let summary = &of(&batch(1), "summary")[0];
    ensure!(
        summary["rows"] == 2 && summary["committed_rows"] == 2 && summary["dead_letters"] == 2,
        "{summary}"
    );
    let logged = std::fs::read_to_string(folder.path().join("checkpoint/dead-letters/1.jsonl"))?;
    let logged: Vec<Value> = logged.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(of(&batch(1), "dead_letter") == logged, "the dead letters of then: {lines:#?}");
    // With another build: 4 comes out as 40, nothing is refused.
    let other = format!("p={}", plugin("failing.wasm")?.display());
    let lines = replay(&file, &["--batches", "1", "--plugin", &other])?;
    ensure!(of(&lines, "row") == [json!({"n": 40}), json!({"n": 6})], "{lines:#?}");
    let table = Pelton::new(["replay"])?.arg(&file).succeed()?.stdout;
    ensure!(
        table.starts_with("micro-batch 5, ") && table.contains("2 rows (2 were committed), 2 dead letters"),
        "{table}"
    );
    ensure!(table.contains("20") && table.contains("22"), "{table}");
    ensure!(snapshot(folder.path())? == before, "a replay writes nothing");
    Ok(())
}

#[test]
fn the_code_of_then_comes_from_the_checkpoint() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = evens(folder.path())?;
    run(&file)?;
    let changed = std::fs::read_to_string(&file)?.replace(
        &plugin("conformance.wasm")?.display().to_string(),
        &plugin("failing.wasm")?.display().to_string(),
    );
    std::fs::write(&file, changed)?;
    ensure!(
        of(&replay(&file, &["--batches", "1"])?, "row") == [json!({"n": 4}), json!({"n": 6})],
        "as it ran"
    );
    let lines = replay(&file, &["--batches", "1..2", "--compare"])?;
    let differences = of(&lines, "difference");
    ensure!(differences == [json!({"logged": {"n": 4}}), json!({"given": {"n": 40}})], "{lines:#?}");
    let summary = of(&lines, "summary");
    let rows = json!({"logged": 2, "given": 2, "equal": 1, "changed": 0, "only_logged": 1, "only_given": 1});
    ensure!(summary[0]["rows"] == rows && summary[0]["same_plugins"] == false, "{lines:#?}");
    ensure!(summary[1]["rows"]["equal"] == 2 && summary[1]["dead_letters"]["only_logged"] == 2, "{lines:#?}");
    let words = Pelton::new(["replay", "--batches", "1", "--compare", "--dead-letters"])?
        .arg(&file)
        .succeed()?
        .stdout;
    for part in [
        "2 rows as logged, 2 with the given plugins: 1 equal, 0 changed, 1 only as logged, 1 only with the given\n",
        "  - {\"n\":4}\n  + {\"n\":40}\n",
        "  2 dead letters as logged, 0 with the given plugins: 0 equal, 0 changed, 2 only as logged, 0 only with the given\n",
    ] {
        ensure!(words.contains(part), "no '{part}' in\n{words}");
    }
    Ok(())
}

/// Totals of users by a function with state, and a count of them in SQL. One file a micro-batch.
fn totals(folder: &Path, batches: usize, retain: u64) -> Result<PathBuf> {
    let shown = folder.display();
    std::fs::create_dir_all(folder.join("in"))?;
    for number in 0..batches {
        let line = |user: &str, n: usize| {
            format!("{{\"user\":\"{user}\",\"n\":{n},\"ts\":\"2026-01-01T12:00:{:02}Z\"}}\n", number * 4)
        };
        std::fs::write(folder.join(format!("in/{number}.jsonl")), line("ann", number) + &line("bob", 10))?;
    }
    let path = folder.join("totals.yaml");
    std::fs::write(
        &path,
        format!(
            "name: totals\nplugins: {{p: '{}'}}\nsources:\n  numbers:\n    connector: file\n    path: '{shown}/in/*.jsonl'\n    format: \
             json\n    schema: {{user: string, n: long, ts: timestamp}}\n    max_files_per_trigger: 1\n    watermark: {{column: ts, \
             delay: 0 seconds}}\nsteps:\n- {{plugin: p.totals, key: [user], name: totals, output_mode: append}}\n- sql: SELECT user, max(sum) AS sum, \
             count(*) AS n FROM input GROUP BY user\noutput_mode: update\nsink: {{connector: console, format: json}}\ncheckpoint: \
             '{shown}/checkpoint'\nmin_batches_to_retain: {retain}\n",
            plugin("failing.wasm")?.display()
        ),
    )?;
    Ok(path)
}

#[test]
fn a_stateful_micro_batch_runs_on_the_state_of_its_time() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = totals(folder.path(), 5, 100)?;
    let stdout = Pelton::new(["run", "--trigger", "available_now"])?.arg(&file).succeed()?.stdout;
    let given: Vec<Value> = stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let before = snapshot(folder.path())?;
    let last = of(&replay(&file, &[])?, "summary").len();
    ensure!(last == 1, "the last micro-batch alone");
    let lines = replay(&file, &["--batches", "0..4"])?;
    ensure!(
        of(&lines, "row")[..] == given[..of(&lines, "row").len()],
        "{:#?}\n{given:#?}",
        of(&lines, "row")
    );
    ensure!(of(&lines, "row").len() >= 10, "each user in each micro-batch: {lines:#?}");
    let same = replay(&file, &["--batches", "0..4", "--compare", "--key", "user"])?;
    ensure!(
        of(&same, "difference").is_empty() && of(&same, "summary").iter().all(|s| s["same_plugins"] == true),
        "{same:#?}"
    );
    ensure!(snapshot(folder.path())? == before, "a replay writes nothing, also not to the state");
    // The query goes on as if nobody had looked.
    let line = "{\"user\":\"ann\",\"n\":1,\"ts\":\"2026-01-01T12:00:30Z\"}\n";
    std::fs::write(folder.path().join("in/9.jsonl"), line)?;
    let more = Pelton::new(["run", "--trigger", "available_now"])?.arg(&file).succeed()?.stdout;
    ensure!(more.contains("\"user\":\"ann\",\"sum\":11"), "{more}");
    Ok(())
}

#[test]
fn a_micro_batch_that_failed_can_be_looked_at_with_what_would_mend_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = totals(folder.path(), 2, 100)?;
    let bad = "{\"user\":\"ann\",\"n\":13,\"ts\":\"2026-01-01T12:00:05Z\"}\n";
    std::fs::write(folder.path().join("in/2.jsonl"), bad)?;
    let failed = Pelton::new(["run", "--trigger", "available_now"])?.arg(&file).output()?;
    ensure!(failed.code == Some(1) && failed.stderr.contains("micro-batch 2"), "{}", failed.stderr);
    let again = Pelton::new(["replay", "--batches", "2"])?.arg(&file).output()?;
    ensure!(
        again.code == Some(1) && again.stderr.contains("micro-batch 2: operator 'totals'"),
        "{}",
        again.stderr
    );
    let arguments =
        ["--batches", "2", "--dead-letters", "--set", "plugins.p={path: P, on_plugin_failure: dead_letter}"];
    let set = arguments[4].replace('P', &format!("'{}'", plugin("failing.wasm")?.display()));
    let lines = replay(&file, &[arguments[0], arguments[1], arguments[2], arguments[3], &set])?;
    let letters = of(&lines, "dead_letter");
    ensure!(letters.len() == 1 && letters[0]["kind"] == "poison", "{lines:#?}");
    ensure!(of(&lines, "summary")[0]["committed_rows"].is_null(), "{lines:#?}");
    Ok(())
}

fn refused(file: &Path, arguments: &[&str], code: i32, words: &[&str]) -> Result<()> {
    let finished = Pelton::new(["replay"])?.arg(file).args(arguments.iter().copied()).output()?;
    ensure!(finished.code == Some(code), "{arguments:?}: exit {:?}\n{}", finished.code, finished.stderr);
    for word in words {
        ensure!(finished.stderr.contains(word), "{arguments:?}: no '{word}' in\n{}", finished.stderr);
    }
    Ok(())
}

#[test]
fn what_cannot_be_replayed_is_named_with_what_can() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = totals(folder.path(), 8, 3)?;
    refused(&file, &[], 2, &["there is no checkpoint"])?;
    run(&file)?;
    let kept = |log: &str| -> Result<Vec<u64>> {
        let entries = std::fs::read_dir(folder.path().join("checkpoint").join(log))?;
        let mut ids: Vec<u64> =
            entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        ids.sort_unstable();
        Ok(ids)
    };
    // The state of the one before is needed.
    let (first, last) = (kept("commits")?[0] + 1, *kept("offsets")?.last().context("a micro-batch")?);
    let range = format!(
        "micro-batches {first} to {last} can be replayed; min_batches_to_retain says how many are kept"
    );
    refused(
        &file,
        &["--batches", "0..7"],
        2,
        &["micro-batch 0 cannot be replayed: it is no longer remembered", &range],
    )?;
    let future = format!("micro-batch {} cannot be replayed: it has not run yet", last + 1);
    refused(&file, &["--batches", &(last + 1).to_string()], 2, &[&future, &range])?;
    refused(&file, &["--batches", "7..3"], 2, &["'7..3' ends before it begins"])?;
    let key = ["--batches", "7", "--compare", "--key", "usr"];
    refused(
        &file,
        &key,
        2,
        &["--key: the rows have no column 'usr'; did you mean 'user'?", "the columns are user, sum, n"],
    )?;
    refused(&file, &["--key", "user"], 2, &["--compare"])?;
    // Another pipeline than the one that left the state.
    let other = std::fs::read_to_string(&file)?.replace("max(sum)", "max(CAST(sum AS DOUBLE))");
    let another = folder.path().join("other.yaml");
    std::fs::write(&another, other)?;
    refused(
        &another,
        &[],
        2,
        &[
            "the state of 'sql.aggregate' before micro-batch",
            "is not the one that the pipeline file describes",
        ],
    )?;
    std::fs::remove_dir_all(folder.path().join("in"))?;
    std::fs::create_dir_all(folder.path().join("in"))?;
    refused(&file, &["--batches", "7"], 1, &["micro-batch 7: ", "7.jsonl"])
}
