//! `pelton test`: scripts over a pipeline. What Spark says to them is in `oracle`.

use anyhow::{Result, ensure};
use pelton_tests::{Finished, Pelton};

/// A pipeline of two columns, and what a script does with it.
const PIPELINE: &str = "pipeline:
  sources: {s: {connector: file, path: none, format: json, schema: {k: string, n: long}}}
  steps: [{filter: n > 0}]
steps:
";

fn run(steps: &str, arguments: &[&str]) -> Result<Finished> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("t.yaml"), format!("{PIPELINE}{steps}"))?;
    Pelton::new(["test", "t.yaml"])?.args(arguments).current_dir(folder.path()).output()
}

fn passes(steps: &str) -> Result<()> {
    let finished = run(steps, &[])?;
    ensure!(finished.code == Some(0), "{}\n{}", finished.stdout, finished.stderr);
    Ok(())
}

fn says(steps: &str, code: i32, words: &[&str]) -> Result<()> {
    let finished = run(steps, &[])?;
    let said = format!("{}{}", finished.stdout, finished.stderr);
    ensure!(finished.code == Some(code), "exit {:?}\n{said}", finished.code);
    for word in words {
        ensure!(said.contains(word), "no '{word}' in\n{said}");
    }
    Ok(())
}

#[test]
fn the_examples_scripts_pass() -> Result<()> {
    let folder = std::fs::read_dir(pelton_tests::repository().join("examples/tests"))?;
    let scripts = folder.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let finished = Pelton::new(["test"])?.args(&scripts).succeed()?;
    let all = format!("{} scripts, all as expected", scripts.len());
    ensure!(finished.stdout.contains(&all) && finished.stderr.is_empty(), "{finished:?}");
    Ok(())
}

#[test]
fn a_difference_is_a_diff_with_its_place() -> Result<()> {
    let steps = "- add: {s: [{k: a, n: 1}, {k: b, n: 2}]}
- expect: [{rows: [{k: a, n: 1}, {k: c, n: 3}], late_rows: 1}]\n";
    let rows = ["  - {\"k\":\"c\",\"n\":3}", "  + {\"k\":\"b\",\"n\":2}", "1 as expected"];
    says(steps, 1, &["FAILED  t.yaml", "t.yaml:6:12: micro-batch 0", "late_rows: expected 1, found 0"])?;
    says(steps, 1, &rows)
}

#[test]
fn every_micro_batch_must_be_expected() -> Result<()> {
    let steps = "- add: {s: [[{k: a, n: 1}], []]}\n- expect: [{batch_id: 0}]\n";
    says(steps, 1, &["t.yaml:6:3: micro-batch 1 ran and was not expected"])?;
    says("- expect: [{rows: []}]\n", 1, &["no micro-batch ran where one was expected"])
}

#[test]
fn a_wrong_script_is_told_with_its_place() -> Result<()> {
    says("- add: {t: [{k: a}]}\n", 2, &["t.yaml:5:9: there is no source 't'"])?;
    says(
        "- add: {s: [{kk: a}]}\n",
        2,
        &["t.yaml:5:13: the source 's' has no column 'kk'; did you mean 'k'?"],
    )?;
    says("- expct: []\n", 2, &["t.yaml:5:3: there is no step 'expct'; did you mean 'expect'?"])?;
    says("- delete_commit: 0\n", 2, &["the query runs; stop it"])
}

#[test]
fn a_failing_sink_leaves_the_micro_batch_to_the_next_start() -> Result<()> {
    for when in ["before", "after"] {
        passes(&format!(
            "- fail_sink: {{batch_id: 1, when: {when}}}
- add: {{s: [[{{k: a, n: 1}}], [{{k: b, n: 2}}]]}}
- expect: [{{rows: [{{k: a, n: 1}}]}}, {{error: {{kind: unavailable, message: the sink}}}}]
- restart
- expect: [{{batch_id: 1, rows: [{{k: b, n: 2}}]}}]\n"
        ))?;
    }
    Ok(())
}

#[test]
fn a_lost_commit_is_made_up_for() -> Result<()> {
    passes(
        "- add: {s: [{k: a, n: 1}]}
- stop
- delete_commit: 0
- start
- expect: [{batch_id: 0}, {batch_id: 0, rows: [{k: a, n: 1}]}]\n",
    )
}

#[test]
fn the_clock_fires_one_trigger_however_far_it_goes() -> Result<()> {
    passes(
        "- restart: {set: {trigger: {processing_time: 10 seconds}}}
- add: {s: [[{k: a, n: 1}], [{k: b, n: 2}], [{k: c, n: 3}]]}
- expect: []
- advance_clock: 9 seconds
- expect: []
- advance_clock: 1 second
- expect: [{rows: [{k: a, n: 1}]}]
- advance_clock: 1 minute
- expect: [{rows: [{k: b, n: 2}]}]\n",
    )
}

#[test]
fn a_trigger_that_ends_runs_whenever_something_comes() -> Result<()> {
    passes(
        "- stop
- add: {s: [[{k: a, n: 1}], [{k: b, n: 2}]]}
- expect: []
- start: {set: {trigger: once}}
- expect: [{rows: [{k: a, n: 1}, {k: b, n: 2}]}]
- add: {s: [{k: c, n: 3}]}
- expect: [{rows: [{k: c, n: 3}]}]\n",
    )
}

#[test]
fn a_refused_pipeline_can_be_expected() -> Result<()> {
    passes("- restart: {set: {steps.0.filter: x > 0}}\n- expect: {error: {kind: invalid, message: x}}\n")?;
    passes("- restart: {set: {output_mode: sometimes}}\n- expect: {error: {kind: invalid}}\n")?;
    says("- restart: {set: {steps.0.filter: x > 0}}\n", 1, &["the query failed", "error (invalid)"])
}

#[test]
fn json_has_a_line_a_micro_batch_and_one_for_a_failure() -> Result<()> {
    let steps = "- add: {s: [{k: a, n: 1}]}\n- fail_sink: {batch_id: 1}\n- add: {s: [{k: a, n: 1}]}\n";
    let finished = run(steps, &["--print", "json"])?;
    ensure!(finished.code == Some(1), "exit {:?}", finished.code);
    let lines: Vec<&str> = finished.stdout.lines().collect();
    let first = r#"{"batch_id":0,"rows":[{"k":"a","n":1}],"watermark":null,"no_data":false,"late_rows":0,"state_rows":0}"#;
    ensure!(lines.len() == 2 && lines[0] == first, "{lines:?}");
    ensure!(
        lines[1].starts_with(r#"{"error":{"kind":"unavailable","message":"query 'test', micro-batch 1"#),
        "{lines:?}"
    );
    Ok(())
}
