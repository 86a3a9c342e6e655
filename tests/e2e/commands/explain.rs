//! `explain --live`: what a query waits for, from its checkpoint, whether it runs or not.

use super::fails;
use anyhow::{Result, ensure};
use pelton_tests::Pelton;
use std::path::{Path, PathBuf};

/// Two sources, of which the second has one row only.
fn pipeline(folder: &Path) -> Result<PathBuf> {
    let shown = folder.display();
    for (source, rows) in [("web", ["12:01", "12:55"].as_slice()), ("app", &["12:04"])] {
        std::fs::create_dir_all(folder.join(source))?;
        let lines = rows.iter().map(|time| format!("{{\"ts\":\"2026-01-01T{time}:00Z\"}}\n"));
        std::fs::write(folder.join(format!("{source}/0.jsonl")), lines.collect::<String>())?;
    }
    let source = |name: &str, more: &str| {
        format!(
            "  {name}:\n    connector: file\n    path: '{shown}/{name}'\n    format: json\n    schema: 'ts timestamp'\n    \
             watermark: {{column: ts, delay: 5 minutes{more}}}\n"
        )
    };
    let text = format!(
        "name: visits\nsources:\n{}{}steps:\n  - sql: SELECT ts FROM web UNION ALL SELECT ts FROM app\n  - sql: SELECT \
         window(ts, '10 minutes') AS w, count(*) AS n FROM input GROUP BY 1\nsink: {{connector: console, format: \
         json}}\ncheckpoint: '{shown}/checkpoint'\n",
        source("web", ""),
        source("app", ", per_partition: true")
    );
    let file = folder.join("visits.yaml");
    std::fs::write(&file, text)?;
    Ok(file)
}

fn live(file: &Path, format: &str) -> Result<String> {
    Ok(Pelton::new(["explain", "--live", "--format", format])?.arg(file).succeed()?.stdout)
}

#[test]
fn it_says_what_holds_the_watermark_and_since_when() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = pipeline(folder.path())?;
    ensure!(live(&file, "words")?.contains("has not run yet"));
    ensure!(!folder.path().join("checkpoint/metadata").exists(), "it only looks");
    Pelton::new(["run", "--trigger", "available_now"])?.arg(&file).succeed()?;
    let words = live(&file, "words")?;
    let expected = [
        "watermark: 2026-01-01T11:59:00.000Z, since micro-batch 0",
        "waits for 'app', which waits for app, since micro-batch 0",
        "watermark of 'web': 2026-01-01T12:50:00.000Z",
        "app: latest 2026-01-01T12:04:00.000Z",
        "waits for the watermark to pass the end of a window",
    ];
    for line in expected {
        ensure!(words.contains(line), "no '{line}' in\n{words}");
    }
    let json: serde_json::Value = serde_json::from_str(&live(&file, "json")?)?;
    ensure!(json["held_by"][0]["partitions"][0] == "app", "{json}");
    ensure!(json["operators"][0]["watermark"] == "2026-01-01T11:59:00.000Z", "{json}");
    Ok(())
}

#[test]
fn a_format_is_for_what_live_finds() -> Result<()> {
    fails(&["explain", "--format", "json", "nowhere.yaml"], 2, &["--live"])
}
