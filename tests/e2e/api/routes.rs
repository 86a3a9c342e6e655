//! What can be asked, and by whom.

use super::Place;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;

/// All there are; what ends the run comes last.
const ROUTES: [(&str, &str); 12] = [
    ("get", "/queries"),
    ("get", "/queries/{name}"),
    ("get", "/queries/{name}/progress"),
    ("get", "/health/live"),
    ("get", "/health/ready"),
    ("get", "/metrics"),
    ("get", "/openapi.json"),
    ("post", "/queries/{name}/plugins/{plugin}"),
    ("post", "/queries/{name}/rollback"),
    ("get", "/queries/{name}/shadow"),
    ("delete", "/queries/{name}/shadow"),
    ("post", "/queries/{name}/stop"),
];

#[test]
fn every_route_answers_and_is_described() -> Result<()> {
    let place = Place::new()?;
    let run = place.waiting("totals", "a")?;
    let document = run.http.get("/openapi.json")?.json()?;
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().context("no paths")? {
        let methods = methods.as_object().context("no methods")?.keys();
        described.extend(methods.map(|method| (method.clone(), path.clone())));
    }
    let routes = ROUTES.map(|(method, path)| (method.to_owned(), path.to_owned()));
    ensure!(described == BTreeSet::from(routes), "described are {described:?}");
    let (text, schemas) = (document.to_string(), &document["components"]["schemas"]);
    for name in text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
        ensure!(schemas[name]["type"].is_string(), "{name} is described nowhere");
    }
    ensure!(schemas["Progress"]["properties"]["state_operators"].is_object(), "{schemas:#}");
    let nowhere = run.http.get("/query")?;
    ensure!(nowhere.status == 404 && nowhere.body.contains("/queries/{name}/stop"), "{nowhere:?}");
    for (method, path) in ROUTES {
        // Nothing is no plugin, and nothing was swapped or tried.
        let expected = match path {
            path if path.ends_with("/shadow") => 404,
            path if path.contains("plugins") || path.contains("rollback") => 400,
            _ => 200,
        };
        let path = path.replace("{name}", "totals").replace("{plugin}", "flights");
        let answer = run.ask(&method.to_uppercase(), &path)?;
        ensure!(answer.status == expected, "{method} {path}: {answer:?}");
        ensure!(answer.head.to_lowercase().contains("cache-control: no-store"), "{}", answer.head);
        ensure!(!answer.head.to_lowercase().contains("access-control"), "{}", answer.head);
    }
    Ok(())
}

#[test]
fn a_query_tells_what_it_does_and_has_done() -> Result<()> {
    let place = Place::new()?;
    let run = place.waiting("totals", "a")?;
    let queries = run.http.get("/queries")?.json()?;
    ensure!(queries.as_array().is_some_and(|queries| queries.len() == 1), "{queries:#}");
    // The second micro-batch has no data: it came because the watermark had moved.
    let query = run.until("totals", |query| query["counts"]["batches"] == 2)?;
    ensure!(query["counts"]["input_rows"] == 40 && query["counts"]["output_rows"] == 2, "{query:#}");
    ensure!(query["watermark"] == "2026-01-01T03:08:00.000Z", "{query:#}");
    ensure!(query["watermark_delay_seconds"].as_f64().is_some_and(|delay| delay > 0.0), "{query:#}");
    ensure!(query["state_rows"] == 1 && query["state_bytes"].as_u64() > Some(0), "{query:#}");
    let plugin = &query["plugins"]["flights"];
    ensure!(plugin["rows"] == 40 && plugin["errors"] == 0, "{plugin:#}");
    let progress = run.http.get("/queries/totals/progress")?.json()?;
    ensure!(progress.as_array().is_some_and(|batches| batches.len() == 2), "{progress:#}");
    check_progress(&progress[0])?;
    let last = run.http.get("/queries/totals/progress?last=1")?.json()?;
    ensure!(last[0]["batch_id"] == 1 && last.as_array().is_some_and(|all| all.len() == 1), "{last:#}");
    let unknown = run.http.get("/queries/total")?;
    ensure!(unknown.status == 404 && unknown.body.contains("did you mean 'totals'"), "{unknown:?}");
    let wrong = run.http.get("/queries/totals/progress?last=some")?;
    ensure!(wrong.status == 400 && wrong.json()?["kind"] == "invalid", "{wrong:?}");
    Ok(())
}

/// Spark's fields, in snake case.
fn check_progress(progress: &Value) -> Result<()> {
    let has = |at: &Value, fields: &[&str]| -> Result<()> {
        for field in fields {
            ensure!(at.get(field).is_some(), "no {field} in {at:#}");
        }
        Ok(())
    };
    has(
        progress,
        &[
            "id",
            "run_id",
            "name",
            "timestamp",
            "batch_id",
            "batch_duration",
            "num_input_rows",
            "input_rows_per_second",
            "processed_rows_per_second",
            "duration_ms",
            "event_time",
            "state_operators",
            "sources",
            "sink",
        ],
    )?;
    let operator = [
        "operator_name",
        "num_rows_total",
        "num_rows_updated",
        "num_rows_removed",
        "memory_used_bytes",
        "num_rows_dropped_by_watermark",
    ];
    has(&progress["state_operators"][0], &operator)?;
    let source = [
        "description",
        "start_offset",
        "end_offset",
        "num_input_rows",
        "input_rows_per_second",
        "processed_rows_per_second",
    ];
    has(&progress["sources"][0], &source)?;
    has(&progress["event_time"], &["max", "watermark"])?;
    ensure!(progress["event_time"]["max"] == "2026-01-01T03:09:00.000Z", "{progress:#}");
    ensure!(progress["state_operators"][0]["memory_used_bytes"].as_u64() > Some(0), "{progress:#}");
    has(&progress["sink"], &["description", "num_output_rows"])
}

#[test]
fn nothing_is_changed_without_the_token_and_no_other_name_is_answered() -> Result<()> {
    let place = Place::new()?;
    let run = place.waiting("totals", "a")?;
    for wrong in ["", "Bearer", "Bearer 0123456789abcdef", &format!("Basic {}", run.token)] {
        let headers = [("Authorization", wrong)];
        let refused = run.http.ask("POST", "/queries/totals/stop", &headers)?;
        ensure!(refused.status == 401 && refused.head.contains("earer"), "{wrong}: {refused:?}");
        ensure!(refused.json()?["kind"] == "invalid", "{refused:?}");
    }
    let token = format!("Bearer {}", run.token);
    for host in ["evil.example", "127.0.0.1.evil.example", ""] {
        let refused =
            run.http.ask("POST", "/queries/totals/stop", &[("Host", host), ("Authorization", &token)])?;
        ensure!(matches!(refused.status, 400 | 403), "{host}: {refused:?}");
        let refused = run.http.ask("GET", "/queries", &[("Host", host)])?;
        ensure!(
            matches!(refused.status, 400 | 403) && !refused.body.contains("totals"),
            "{host}: {refused:?}"
        );
    }
    let preflight = [("Origin", "http://evil.example"), ("Access-Control-Request-Method", "POST")];
    let refused = run.http.ask("OPTIONS", "/queries/totals/stop", &preflight)?;
    ensure!(refused.status == 401, "{refused:?}");
    ensure!(run.query("totals")?["stop_requested"] == false, "it was not to be stopped");
    let wrong = run.ask("POST", "/queries")?;
    ensure!(wrong.status == 405, "{wrong:?}");
    Ok(())
}

#[test]
fn elsewhere_than_on_this_machine_even_reading_needs_a_token() -> Result<()> {
    let place = Place::new()?;
    let pipeline = place.pipeline("totals", "a")?;
    let open = place.pelton(["run", "--api", "0.0.0.0:0"])?.arg(&pipeline).output()?;
    ensure!(open.code == Some(2), "{open:?}");
    for words in ["the API would listen on 0.0.0.0:0", "without a token", "--api-token-file"] {
        ensure!(open.stderr.contains(words), "no '{words}' in\n{}", open.stderr);
    }
    let file = place.path().join("token");
    std::fs::write(&file, "too short\n")?;
    let arguments = ["run", "--api", "0.0.0.0:0", "--api-token-file"];
    let short = place.pelton(arguments)?.arg(&file).arg(&pipeline).output()?;
    ensure!(short.code == Some(2) && short.stderr.contains("holds no token for the API"), "{short:?}");
    std::fs::write(&file, "a-secret-of-some-length\n")?;
    let file = file.display().to_string();
    let mut run = place.start(&["--api", "0.0.0.0:0", "--api-token-file", &file], &[&pipeline])?;
    run.http = pelton_tests::Http::new(&run.url.replace("0.0.0.0", "127.0.0.1"));
    ensure!(run.token == "a-secret-of-some-length", "{}", run.token);
    for path in ["/queries", "/queries/totals", "/metrics", "/openapi.json"] {
        let refused = run.http.get(path)?;
        ensure!(refused.status == 401 && !refused.body.contains("totals"), "{path}: {refused:?}");
        let answered = run.ask("GET", path)?;
        ensure!(answered.status == 200, "{path}: {answered:?}");
    }
    ensure!(run.http.get("/health/live")?.status == 200, "health is for everybody");
    Ok(())
}

#[test]
fn a_failed_query_stays_to_be_seen_while_others_run() -> Result<()> {
    let place = Place::new()?;
    let good = place.pipeline("good", "good")?;
    let bad = place.pipeline("bad", "bad")?;
    std::fs::create_dir(place.path().join("hurt"))?;
    std::fs::write(place.path().join("hurt/0.jsonl"), "{\"n\": \"no number\"}\n")?;
    let text = std::fs::read_to_string(&bad)?.replace("/in/*.jsonl", "/hurt/*.jsonl");
    std::fs::write(&bad, text)?;
    let mut run = place.start(&[], &[&bad, &good])?;
    let failed = run.until("bad", |query| query["state"] == "failed")?;
    let message = failed["failure"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("query 'bad', micro-batch 0"), "{failed:#}");
    run.until("good", |query| query["state"] == "waiting")?;
    ensure!(run.http.get("/health/live")?.status == 200, "it lives");
    let ready = run.http.get("/health/ready")?;
    ensure!(ready.status == 503 && ready.json()?["status"] == "failed", "{ready:?}");
    let shown = place.pelton(["status"])?.succeed()?.stdout;
    ensure!(shown.contains("failed") && shown.contains(message), "{shown}");
    let stopped = place.pelton(["stop", "bad"])?.output()?;
    ensure!(stopped.code == Some(1) && stopped.stderr.contains(message), "{stopped:?}");
    place.pelton(["stop", "good"])?.succeed()?;
    ensure!(run.code()? == 1, "a query had failed");
    Ok(())
}
