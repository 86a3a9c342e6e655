//! `/metrics`: that Prometheus can read it, and that the page about it names what is there.

use super::Place;
use anyhow::{Context, Result, ensure};
use pelton_tests::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, SystemTime};

/// A sample: its name, its labels, its value.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

/// The types by name, and the samples; an error if it is not OpenMetrics.
fn parse(text: &str) -> Result<(BTreeMap<&str, &str>, Vec<Sample<'_>>)> {
    let (mut types, mut samples, mut current) = (BTreeMap::new(), Vec::new(), "");
    let body = text.strip_suffix("# EOF\n").context("no end")?;
    for line in body.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').context("no type")?;
            ensure!(types.insert(name, kind).is_none(), "{name} comes twice");
            current = name;
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.strip_suffix('}').with_context(|| line.to_owned())?;
            ensure!(name.starts_with(current), "{name} stands below {current}");
            samples.push(Sample { name, labels, value: value.parse()? });
        }
    }
    Ok((types, samples))
}

fn value(samples: &[Sample<'_>], name: &str, labels: &str) -> Result<f64> {
    let found = samples.iter().find(|sample| sample.name == name && sample.labels == labels);
    found.map(|sample| sample.value).with_context(|| format!("no {name}{{{labels}}}"))
}

#[test]
fn prometheus_reads_what_the_query_has_done() -> Result<()> {
    let place = Place::new()?;
    let run = place.waiting("totals", "a")?;
    run.until("totals", |query| query["counts"]["batches"] == 2)?;
    let answer = run.http.get("/metrics")?;
    ensure!(answer.head.contains("application/openmetrics-text; version=1.0.0"), "{}", answer.head);
    let (types, samples) = parse(&answer.body)?;
    ensure!(types["pelton_batch_duration_seconds"] == "histogram", "{types:?}");
    let of_query = "query=\"totals\"";
    for (name, labels, wanted) in [
        ("pelton_batches_total", of_query, 2.0),
        ("pelton_batch_id", of_query, 1.0),
        ("pelton_batch_duration_seconds_count", of_query, 2.0),
        ("pelton_query_state", "query=\"totals\",state=\"waiting\"", 1.0),
        ("pelton_query_state", "query=\"totals\",state=\"failed\"", 0.0),
        ("pelton_source_rows_total", "query=\"totals\",source=\"numbers\"", 40.0),
        ("pelton_source_backlog_files", "query=\"totals\",source=\"numbers\"", 0.0),
        ("pelton_source_backlog_bytes", "query=\"totals\",source=\"numbers\"", 0.0),
        ("pelton_source_lag_seconds", "query=\"totals\",source=\"numbers\"", 0.0),
        ("pelton_sink_rows_total", of_query, 2.0),
        ("pelton_plugin_rows_total", "query=\"totals\",plugin=\"flights\"", 40.0),
        ("pelton_state_rows", "query=\"totals\",operator=\"sql.aggregate\"", 1.0),
        ("pelton_batch_stage_duration_seconds_count", "query=\"totals\",stage=\"state_commit\"", 2.0),
    ] {
        let found = value(&samples, name, labels)?;
        ensure!(found == wanted, "{name}{{{labels}}} is {found}, not {wanted}");
    }
    for name in ["pelton_watermark_delay_seconds", "pelton_last_commit_timestamp_seconds"] {
        ensure!(value(&samples, name, of_query)? > 0.0, "{name}");
    }
    Ok(())
}

#[test]
fn what_waits_in_a_source_is_told_in_files_bytes_and_seconds() -> Result<()> {
    const HOUR: Duration = Duration::from_secs(3600);
    let place = Place::new()?;
    let input = place.path().join("in");
    for number in 0..3_u32 {
        let file = File::create(input.join(format!("{number}.jsonl")))?;
        (&file).write_all(b"{\"n\": 20, \"at\": \"2026-01-01T00:00:00Z\"}\n")?;
        file.set_modified(SystemTime::now() - HOUR * (3 - number))?;
    }
    let pipeline = place.pipeline("totals", "a")?;
    let text = std::fs::read_to_string(&pipeline)?.replace("schema:", "max_files_per_trigger: 1, schema:");
    std::fs::write(&pipeline, format!("{text}trigger: {{processing_time: 1000 days}}\n"))?;
    let run = place.start(&[], &[&pipeline])?;
    let query =
        run.until("totals", |query| query["state"] == "waiting" && query["counts"]["batches"] == 1)?;
    let (source, bytes) = (&query["sources"]["numbers"], 2 * 40);
    ensure!(source["backlog_files"] == 2 && source["backlog_bytes"] == bytes, "{query:#}");
    ensure!(source["backlog_rows"].is_null(), "nobody counts them: {query:#}");
    let of_the_second = |lag: f64| (7200.0..7260.0).contains(&lag);
    ensure!(source["lag_seconds"].as_f64().is_some_and(of_the_second), "{query:#}");
    let text = run.http.get("/metrics")?.body;
    let (samples, of_source) = (parse(&text)?.1, "query=\"totals\",source=\"numbers\"");
    ensure!(value(&samples, "pelton_source_backlog_files", of_source)? == 2.0, "{text}");
    ensure!(value(&samples, "pelton_source_backlog_bytes", of_source)? == f64::from(bytes), "{text}");
    ensure!(of_the_second(value(&samples, "pelton_source_lag_seconds", of_source)?), "{text}");
    ensure!(value(&samples, "pelton_source_backlog_rows", of_source).is_err(), "nobody counts them: {text}");
    let progress = run.http.get("/queries/totals/progress")?.json()?;
    ensure!(progress[0]["sources"][0]["metrics"]["oldest_outstanding"].is_string(), "{progress:#}");
    let shown = place.pelton(["status", "totals"])?.succeed()?.stdout;
    for words in ["LAG", "2 hours", "2 files, 80 B wait, the oldest for 2 hours"] {
        ensure!(shown.contains(words), "no '{words}' in\n{shown}");
    }
    Ok(())
}

/// As Prometheus shows them.
fn shown(types: &BTreeMap<&str, &str>) -> BTreeSet<String> {
    let suffix = |kind: &str| match kind {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    };
    types.iter().map(|(name, kind)| format!("{name}{}", suffix(kind))).collect()
}

#[test]
fn the_page_names_every_metric_and_no_other() -> Result<()> {
    let place = Place::new()?;
    let run = place.waiting("totals", "a")?;
    let text = run.http.get("/metrics")?.body;
    let there = shown(&parse(&text)?.0);
    let page = std::fs::read_to_string(repository().join("docs/operations.md"))?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let is_metric = |name: &&str| name.starts_with("pelton_") || name.starts_with("process_");
    let named: BTreeSet<String> =
        rows.filter(is_metric).filter(|name| *name != "pelton_commits").map(str::to_owned).collect();
    let missing: Vec<_> = there.difference(&named).collect();
    let gone: Vec<_> = named.difference(&there).collect();
    ensure!(missing.is_empty() && gone.is_empty(), "the page lacks {missing:?} and has {gone:?}");
    // What the alerts ask for is there, too.
    let alerts = page.split("```yaml\ngroups:").nth(1).and_then(|rest| rest.split("```").next());
    let words =
        alerts.context("no alerts on the page")?.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let asked: BTreeSet<&str> = words.filter(is_metric).collect();
    ensure!(asked.len() >= 5, "the alerts ask for {asked:?}");
    let unknown: Vec<_> = asked.iter().filter(|name| !there.contains(**name)).collect();
    ensure!(unknown.is_empty(), "the alerts ask for {unknown:?}");
    Ok(())
}
