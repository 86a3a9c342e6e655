//! What real Spark answered (tests/oracle), through `pelton test`: the same input in the same micro-batches gives the
//! same rows, watermarks, late rows and state, and what Spark refuses is refused.

mod case;
mod changes;
mod compare;
mod groups;
mod known;
mod matrix;
mod plan;
mod run;
mod translate;

use anyhow::{Context, Result, ensure};
use case::Case;
use translate::Disturbance;

/// Every case of a group.
fn answers_as_spark(group: &str, disturbance: Disturbance) -> Result<()> {
    let cases = case::group(group)?;
    ensure!(!cases.is_empty(), "no cases in {group}");
    all_answer_as_spark(&cases, disturbance)
}

/// All that differs is told at once.
fn all_answer_as_spark(cases: &[Case], disturbance: Disturbance) -> Result<()> {
    let scripts = cases.iter().map(|case| {
        let script = translate::script(case, disturbance).with_context(|| case.id.clone())?;
        Ok((case.id.clone(), script))
    });
    let printed = run::scripts(&scripts.collect::<Result<Vec<_>>>()?)?;
    let mut wrong = Vec::new();
    for case in cases {
        let found = printed.get(&case.id).context("a script that did not run")?;
        let differences = known::unmeant(&case.id, compare::differences(case, found));
        if !differences.is_empty() {
            wrong.push(format!("{}\n    {}", case.id, differences.join("\n    ")));
        }
    }
    ensure!(
        wrong.is_empty(),
        "{} of {} cases differ from Spark:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    Ok(())
}

/// The groups' tests, each undisturbed, with restarts and with crashes.
macro_rules! groups {
    ($($name:ident: $group:literal;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn answers_as_spark_does() -> Result<()> {
                answers_as_spark($group, Disturbance::None)
            }

            #[test]
            fn answers_the_same_if_every_row_is_worked_on_alone() -> Result<()> {
                answers_as_spark($group, Disturbance::Scattered)
            }

            #[test]
            fn answers_the_same_with_a_restart_between_all_steps() -> Result<()> {
                answers_as_spark($group, Disturbance::Restarts)
            }

            #[test]
            fn answers_the_same_if_the_sink_fails_before_every_micro_batch() -> Result<()> {
                answers_as_spark($group, Disturbance::CrashBefore)
            }

            #[test]
            fn answers_the_same_if_the_last_commit_is_lost_after_every_step() -> Result<()> {
                answers_as_spark($group, Disturbance::LostCommits)
            }

            #[test]
            fn answers_the_same_if_every_micro_batch_dies_before_its_commit() -> Result<()> {
                answers_as_spark($group, Disturbance::CrashAfter)
            }
        }
    )*};
}

groups! {
    stateless: "01_stateless";
    windows: "02_window_agg";
    groups_without_windows: "03_groupby_agg";
    deduplication: "04_dedup";
    joins_with_tables: "05_stream_static_join";
    joins_of_streams: "06_stream_stream_join";
    stateful_functions: "07_group_state";
    processors: "07b_transform_with_state";
    stateful_functions_of_scala: "07c_scala_group_state";
    chains: "08_chained";
    recovery: "10_recovery";
}
