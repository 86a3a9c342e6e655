//! State that outlives the function that wrote it: the next version of the function takes it over, through a checkpoint
//! and through the sandbox, whether its instances stay or are new for every call.

use anyhow::{Result, ensure};
use pelton_tests::{Finished, Pelton, plugin};
use std::path::Path;

/// Rows of `k` and `v` in a file of their own: a micro-batch.
fn add(folder: &Path, number: usize, rows: &[(&str, i64)]) -> Result<()> {
    std::fs::create_dir_all(folder.join("in"))?;
    let line = |(k, v): &(&str, i64)| format!("{{\"k\":\"{k}\",\"v\":{v}}}\n");
    let lines: String = rows.iter().map(line).collect();
    Ok(std::fs::write(folder.join(format!("in/{number}.jsonl")), lines)?)
}

/// Runs a function over the files that are new.
fn run(folder: &Path, function: &str, arguments: &[&str]) -> Result<Finished> {
    let (file, shown) = (folder.join("kept.yaml"), folder.display());
    std::fs::write(
        &file,
        format!(
            "name: kept\nplugins: {{groups: {{path: '{}'}}}}\nsources:\n  s: {{connector: file, path: '{shown}/in/*.jsonl', format: \
             json, schema: 'k string, v long, ts timestamp', max_files_per_trigger: 1}}\nsteps:\n  - plugin: \
             groups.{function}\n    key: [k]\n    name: kept\noutput_mode: update\nsink: {{connector: console, format: \
             json}}\ncheckpoint: '{shown}/checkpoint'\n",
            plugin("groups.wasm")?.display()
        ),
    )?;
    Pelton::new(["run", "--trigger", "available_now"])?.args(arguments.iter().copied()).arg(&file).output()
}

fn succeeds(folder: &Path, function: &str, arguments: &[&str]) -> Result<Vec<String>> {
    let finished = run(folder, function, arguments)?;
    ensure!(finished.code == Some(0), "{function}: {}", finished.stderr);
    let mut rows: Vec<String> = finished.stdout.lines().map(str::to_owned).collect();
    rows.sort();
    Ok(rows)
}

/// What comes out before and after the function has changed.
fn changed(before: &str, after: &str, arguments: &[&str]) -> Result<Vec<String>> {
    let folder = tempfile::tempdir()?;
    add(folder.path(), 0, &[("a", 100), ("b", 250)])?;
    add(folder.path(), 1, &[("a", 20)])?;
    let mut rows = succeeds(folder.path(), before, arguments)?;
    add(folder.path(), 2, &[("a", 3), ("c", 7)])?;
    add(folder.path(), 3, &[("b", 50), ("a", 1)])?;
    rows.extend(succeeds(folder.path(), after, arguments)?);
    Ok(rows)
}

#[test]
fn a_value_of_an_older_version_is_migrated_when_it_is_read() -> Result<()> {
    let rows = changed("sum_v1", "sum_v2", &[])?;
    let kept = |key: &str, what: &str| format!("{{\"k\":\"{key}\",\"kept\":\"Some({what})\"}}");
    let expected = [
        kept("a", "SumV1 { cents: 100 }"),
        kept("a", "SumV1 { cents: 120 }"),
        kept("b", "SumV1 { cents: 250 }"),
        kept("a", "SumV2 { rows: 0, whole: 1.23 }"),
        kept("a", "SumV2 { rows: 1, whole: 1.24 }"),
        kept("b", "SumV2 { rows: 0, whole: 3.0 }"),
        kept("c", "SumV2 { rows: 1, whole: 0.07 }"),
    ];
    ensure!(rows == expected, "{rows:#?}");
    Ok(())
}

#[test]
fn variables_of_every_kind_are_migrated() -> Result<()> {
    let rows = changed("kinds_v1", "kinds_v2", &[])?;
    let last = rows.iter().find(|row| row.contains("\"b\"") && row.contains("SumV2"));
    let sum = |rows: i64, whole: &str| format!("SumV2 {{ rows: {rows}, whole: {whole} }}");
    let (old, new) = (sum(-1, "2.5"), sum(1, "0.5"));
    let expected =
        format!("{{\"k\":\"b\",\"kept\":\"Some({new}) [{old}, {new}] [(50, {new}), (250, {old})]\"}}");
    ensure!(last == Some(&expected), "{rows:#?}\ninstead of {expected}");
    Ok(())
}

#[test]
fn instances_that_are_new_for_every_call_answer_the_same() -> Result<()> {
    for (before, after) in [("sum_v1", "sum_v2"), ("kinds_v1", "kinds_v2")] {
        let (kept, fresh) = (changed(before, after, &[])?, changed(before, after, &["--fresh-instances"])?);
        ensure!(kept == fresh && kept.len() == 7, "{kept:#?}\n{fresh:#?}");
    }
    Ok(())
}

#[test]
fn a_variable_that_was_dropped_begins_anew_or_not_at_all() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    add(folder, 0, &[("a", 1)])?;
    succeeds(folder, "kinds_v1", &[])?;
    add(folder, 1, &[("a", 2)])?;
    let dropped = run(folder, "kinds_without_map", &[])?;
    ensure!(
        dropped.code == Some(0) && dropped.stderr.contains("'map' is no longer used"),
        "{}",
        dropped.stderr
    );
    add(folder, 2, &[("a", 3)])?;
    let again = run(folder, "kinds_without_map", &[])?;
    ensure!(again.code == Some(0) && !again.stderr.contains("'map'"), "it is said once: {}", again.stderr);
    add(folder, 3, &[("a", 4)])?;
    let back = run(folder, "kinds_v1", &[])?;
    let refusal = "the variable 'map' of the operator 'kept' is back";
    ensure!(back.code == Some(2) && back.stderr.contains(refusal), "{:?} {}", back.code, back.stderr);
    let unknown = run(folder, "kinds_v1", &["--reset-state", "kept.mop"])?;
    ensure!(unknown.stderr.contains("did you mean 'kept.map'?"), "{}", unknown.stderr);
    let rows = succeeds(folder, "kinds_v1", &["--reset-state", "kept.map"])?;
    let sum = |cents: i64| format!("SumV1 {{ cents: {cents} }}");
    let list = [1, 2, 3, 4].map(sum).join(", ");
    let expected = format!("{{\"k\":\"a\",\"kept\":\"Some({0}) [{list}] [(4, {0})]\"}}", sum(4));
    ensure!(rows == [expected.clone()], "{rows:?}\ninstead of {expected}");
    add(folder, 4, &[("a", 5)])?;
    let rows = succeeds(folder, "kinds_v1", &[])?;
    ensure!(rows[0].ends_with(&format!("[(4, {}), (5, {})]\"}}", sum(4), sum(5))), "{rows:?}");
    Ok(())
}

#[test]
fn another_config_of_a_function_with_state_is_told_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut file = 0;
    let mut told = |config: &str| {
        add(folder.path(), file, &[("a", 1)])?;
        file += 1;
        let ran = run(folder.path(), "sum_v1", &["--set", &format!("plugins.groups.config={{{config}}}")])?;
        ensure!(ran.code == Some(0), "{}", ran.stderr);
        Ok(ran.stderr)
    };
    let (old, new) = ("minutes: 15, channel: hush-1", "minutes: 20, channel: hush-2");
    let stderr = told(old)?;
    ensure!(!stderr.contains("config"), "there was nothing before: {stderr}");
    let stderr = told(new)?;
    let minutes = "operator 'kept': `minutes` in the config of its plugin was 15 and is 20 from here on";
    ensure!(stderr.contains(minutes), "{stderr}");
    let channel = "operator 'kept': `channel` in the config of its plugin was a text (checksum ";
    ensure!(stderr.contains(channel) && !stderr.contains("hush"), "{stderr}");
    let stderr = told(new)?;
    ensure!(!stderr.contains("config"), "it is said once: {stderr}");
    Ok(())
}
