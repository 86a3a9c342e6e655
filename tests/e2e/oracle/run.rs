//! Runs scripts through the real `pelton test --print json`, many in a process.

use anyhow::{Context, Result, ensure};
use pelton_tests::Pelton;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a script printed: a line a micro-batch, and a line for each failure.
pub(super) type Printed = Vec<Value>;

/// Runs scripts by name. One that brings the process down has printed nothing; those after it run in another.
pub(super) fn scripts(scripts: &[(String, Value)]) -> Result<BTreeMap<String, Printed>> {
    let folder = tempfile::tempdir()?;
    let mut left = Vec::new();
    for (at, (name, script)) in scripts.iter().enumerate() {
        let path = folder.path().join(format!("{at:04}.json"));
        std::fs::write(&path, script.to_string())?;
        left.push((path.display().to_string(), name.as_str()));
    }
    let mut printed = BTreeMap::new();
    while !left.is_empty() {
        // Two at least, so that each is named in the output.
        let again = left.first().cloned().filter(|_| left.len() == 1);
        let paths = left.iter().chain(&again).map(|(path, _)| path);
        let finished = Pelton::new(["test", "--print", "json", "--quiet"])?.args(paths).output()?;
        ensure!(finished.code != Some(2), "a script is wrong:\n{}", finished.stderr);
        let (lines, last) = by_script(&finished.stdout)?;
        ensure!(
            !lines.is_empty(),
            "pelton test printed nothing, exit {:?}:\n{}",
            finished.code,
            finished.stderr
        );
        let crashed = finished.code.is_none_or(|code| code > 2);
        for (path, found) in lines {
            let name = left.iter().find(|(known, _)| *known == path).map(|(_, name)| *name);
            let died = crashed && Some(&path) == last.as_ref();
            let death = Value::from(format!("pelton died: {}", tail(&finished.stderr)));
            let found = if died { found.into_iter().chain([death]).collect() } else { found };
            printed.insert(name.with_context(|| format!("an unknown script {path}"))?.to_owned(), found);
        }
        left.retain(|(_, name)| !printed.contains_key(*name));
    }
    Ok(printed)
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

/// The lines of each script, and the last script that was begun.
fn by_script(stdout: &str) -> Result<(BTreeMap<String, Printed>, Option<String>)> {
    let (mut scripts, mut current) = (BTreeMap::new(), None);
    for line in stdout.lines() {
        let value: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        match value["script"].as_str() {
            Some(path) => {
                scripts.insert(path.to_owned(), Vec::new());
                current = Some(path.to_owned());
            }
            None => {
                let script = current.as_ref().and_then(|path| scripts.get_mut(path));
                script.context("a line before the first script")?.push(value);
            }
        }
    }
    Ok((scripts, current))
}
