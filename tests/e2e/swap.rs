//! Plugins that are swapped in a running query: every refusal, limit and rollback with its message, over real Wasm and
//! through `pelton test`, whose micro-batches are real ones.

mod api;
mod running;
mod shadow;

use anyhow::{Result, ensure};
use pelton_tests::{Pelton, plugin};
use std::path::Path;

/// A script over running totals that begin in version 1; `$1`, `$2` and `$3` stand for the versions' files, `$dir` for a
/// folder of its own.
fn script(folder: &Path, steps: &str) -> Result<String> {
    let mut text = format!(
        "pipeline:\n  plugins:\n    totals: {{path: '$1', limits: {{time: 200ms}}}}\n  sources:\n    payments: {{connector: \
         memory, schema: 'key string, amount long'}}\n  steps:\n    - {{plugin: totals.total, key: [key], \
         output_mode: append}}\nsteps:\n{steps}"
    );
    for number in 1..=3 {
        let file = plugin(&format!("totals-{number}.wasm"))?;
        text = text.replace(&format!("${number}"), &file.display().to_string());
    }
    Ok(text.replace("$dir", &folder.display().to_string()))
}

/// Runs a script that must go as it says.
fn goes_as_it_says(steps: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    goes_as_it_says_in(folder.path(), steps)
}

fn goes_as_it_says_in(folder: &Path, steps: &str) -> Result<()> {
    let path = folder.join("script.yaml");
    std::fs::write(&path, script(folder, steps)?)?;
    let finished = Pelton::new(["test"])?.arg(&path).output()?;
    ensure!(finished.code == Some(0), "{}\n{}", finished.stdout, finished.stderr);
    Ok(())
}

/// A step that is refused with these words.
fn refused(step: &str, kind: &str, words: &str) -> String {
    format!("  - {step}\n  - expect: {{error: {{kind: {kind}, message: \"{words}\"}}}}\n")
}

const ANN_AND_BOB: &str = "  - add: {payments: [{key: ann, amount: 3}, {key: bob, amount: 4}]}\n  - expect: [{rows: [{key: \
                           ann, total: 3, version: version-1}, {key: bob, total: 4, version: version-1}]}]\n";

#[test]
fn a_new_version_takes_over_with_state_that_it_migrates_and_outlives_a_restart() -> Result<()> {
    goes_as_it_says(&format!(
        "{ANN_AND_BOB}  - swap: {{totals: '$2'}}
  - add: {{payments: [{{key: ann, amount: 5}}]}}
  - expect: [{{batch_id: 1, no_data: true, rows: []}}, {{rows: [{{key: ann, total: 8, version: version-2}}]}}]
  - restart
  - add: {{payments: [{{key: bob, amount: 1}}]}}
  - expect: [{{rows: [{{key: bob, total: 5, version: version-2}}]}}]
"
    ))
}

#[test]
fn a_version_that_traps_is_swapped_back_at_once_and_in_a_later_micro_batch() -> Result<()> {
    let trap = "  - add: {payments: [{key: trap, amount: 1}]}\n  - expect: [{rows: [{key: trap, total: 1, version: \
                version-1}]}]\n";
    let nothing = refused("rollback", "invalid", "no plugin of the query 'test' was swapped");
    goes_as_it_says(&format!(
        "{ANN_AND_BOB}  - swap: {{totals: '$2'}}\n{trap}{nothing}{trap_again}",
        trap_again = "  - restart\n  - add: {payments: [{key: trap, amount: 1}]}\n  - expect: [{rows: [{key: trap, total: 2, \
                      version: version-1}]}]\n"
    ))?;
    // The second of two versions whose state is the same, after micro-batches with it.
    let folder = tempfile::tempdir()?;
    let other = running::marked(&plugin("totals-2.wasm")?, "version-X")?;
    std::fs::write(folder.path().join("x.wasm"), other)?;
    goes_as_it_says_in(
        folder.path(),
        "  - swap: {totals: '$dir/x.wasm'}
  - swap: {totals: '$2'}
  - add: {payments: [{key: ann, amount: 3}]}
  - expect: [{rows: [{key: ann, total: 3, version: version-2}]}]
  - add: {payments: [{key: trap, amount: 1}]}
  - expect: [{rows: [{key: trap, total: 1, version: version-X}]}]
  - add: {payments: [{key: ann, amount: 3}]}
  - expect: [{rows: [{key: ann, total: 6, version: version-X}]}]
",
    )
}

/// A row that the version before takes is no dead letter, whatever the policy says; after the probation it is one.
#[test]
fn a_version_on_probation_makes_no_poison_rows() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let backlog = ["[{key: ann, amount: 1}]"; 10].join(", ");
    let quiet = ["{}"; 10].join(", ");
    let steps = format!(
        "{ANN_AND_BOB}  - swap: {{totals: '$2'}}
  - add: {{payments: [{{key: trap, amount: 1}}]}}
  - expect: [{{rows: [{{key: trap, total: 1, version: version-1}}], dead_letters: 0}}]
  - swap: {{totals: '$2'}}
  - add: {{payments: [{backlog}]}}
  - expect: [{quiet}]
  - add: {{payments: [{{key: trap, amount: 1}}, {{key: cid, amount: 1}}]}}
  - expect: [{{rows: [{{key: cid, total: 1, version: version-2}}], dead_letters: 1}}]
"
    );
    let limits = "limits: {time: 200ms}";
    let text =
        script(folder.path(), &steps)?.replace(limits, &format!("{limits}, on_plugin_failure: dead_letter"));
    let path = folder.path().join("script.yaml");
    std::fs::write(&path, text)?;
    let finished = Pelton::new(["test"])?.arg(&path).output()?;
    ensure!(finished.code == Some(0), "{}\n{}", finished.stdout, finished.stderr);
    Ok(())
}

#[test]
fn a_version_that_never_ends_is_swapped_back() -> Result<()> {
    goes_as_it_says(&format!(
        "{ANN_AND_BOB}  - swap: {{totals: '$2'}}
  - add: {{payments: [{{key: loop, amount: 1}}]}}
  - expect: [{{rows: [{{key: loop, total: 1, version: version-1}}]}}]
  - restart
  - add: {{payments: [{{key: ann, amount: 1}}]}}
  - expect: [{{rows: [{{key: ann, total: 4, version: version-1}}]}}]
"
    ))
}

#[test]
fn state_that_the_version_before_cannot_read_is_in_the_way_of_going_back() -> Result<()> {
    let steps = format!(
        "{ANN_AND_BOB}  - swap: {{totals: '$2'}}
  - add: {{payments: [{{key: ann, amount: 1}}]}}
  - expect: [{{rows: [{{key: ann, total: 4, version: version-2}}]}}]
{rollback}  - add: {{payments: [{{key: trap, amount: 1}}]}}
  - expect: {{error: {{kind: plugin, message: \"the swap of plugin 'totals' cannot be undone: the operator 'totals.total' cannot \
         go on with the state in the checkpoint\"}}}}
",
        rollback = refused(
            "rollback: totals",
            "invalid",
            "plugin 'totals' is not swapped: the operator 'totals.total' cannot go on with the state in the checkpoint"
        )
    );
    goes_as_it_says(&steps)
}

#[test]
fn after_its_probation_a_version_is_not_swapped_back() -> Result<()> {
    let backlog = ["[{key: ann, amount: 1}]"; 10].join(", ");
    let quiet = ["{}"; 10].join(", ");
    goes_as_it_says(&format!(
        "  - swap: {{totals: '$2'}}
  - add: {{payments: [{backlog}]}}
  - expect: [{quiet}]
  - add: {{payments: [{{key: trap, amount: 1}}]}}
  - expect: {{error: {{kind: plugin, message: \"plugin 'totals', function 'total', batch 11\"}}}}
"
    ))
}

#[test]
fn what_does_not_fit_is_refused_and_the_running_version_goes_on() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("no.wasm"), "nothing of the kind")?;
    let redact = plugin("redact.wasm")?;
    let refusals = [
        refused(
            "swap: {totals: '$3'}",
            "invalid",
            "plugin 'totals' is not swapped: the rows for the sink would have other columns",
        ),
        refused(
            "swap: {totals: '$3'}",
            "invalid",
            "running: key: string not null, total: long not null, version: string not null",
        ),
        refused(&format!("swap: {{totals: '{}'}}", redact.display()), "invalid", "has no function 'total'"),
        refused("swap: {totals: '$dir/no.wasm'}", "invalid", "plugin 'totals': not a WebAssembly file"),
        refused(
            "swap: {total: '$2'}",
            "invalid",
            "the query 'test' has no plugin 'total'; did you mean 'totals'?",
        ),
        refused(
            "swap: {totals: '$1'}",
            "invalid",
            "plugin 'totals' is not swapped: it runs in this version already",
        ),
        refused(
            "rollback: totals",
            "invalid",
            "the plugin 'totals' of the query 'test' has no version before: it was not swapped",
        ),
    ]
    .concat();
    goes_as_it_says_in(
        folder.path(),
        &format!(
            "{ANN_AND_BOB}{refusals}  - add: {{payments: [{{key: ann, amount: 1}}]}}\n  - expect: [{{rows: [{{key: ann, \
                  total: 4, version: version-1}}]}}]\n"
        ),
    )
}

#[test]
fn a_migration_that_fails_on_a_sample_of_the_state_is_refused() -> Result<()> {
    let words = "plugin 'totals' is not swapped: tried on the state, operator 'totals.total': plugin 'totals', function \
                 'total', when it rewrote the entries of";
    goes_as_it_says(&format!(
        "  - add: {{payments: [{{key: ann, amount: 13}}]}}\n  - expect: [{{}}]\n{}",
        refused("swap: {totals: '$2'}", "plugin", words)
    ))
}

#[test]
fn a_query_that_is_down_has_nothing_to_swap() -> Result<()> {
    let words = "the query does not run, so nothing can be swapped in it";
    goes_as_it_says(&format!("  - stop\n{}", refused("swap: {totals: '$2'}", "invalid", words)))
}
