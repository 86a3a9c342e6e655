//! What a new version of a plugin makes of state that an older one has written: a few keys, as both read them.
//!
//! Reads the checkpoint beside the running query, as `pelton state show` does, and changes nothing.

use super::{Parts, state_options};
use pelton_checkpoint::{CommitLog, layout};
use pelton_core::{Error, Result, StateLayout, VariableLayout};
use pelton_engine::Recovered;
use pelton_operators::{show_state, state_layouts};
use pelton_plan::json::{Nulls, row_json};
use pelton_plan::{PhysicalPlan, PipelineFile};
use pelton_state::CheckpointedStateStore;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rows of each operator that are looked at.
const ROWS: usize = 20;

/// Rows of an operator's state, as they are and as the new version has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Migrated {
    /// Its name in the plan.
    pub(crate) operator: String,
    /// As the version that runs reads them.
    #[schema(value_type = Vec<Object>)]
    pub(crate) before: Vec<Value>,
    /// The same ones as the new version reads them.
    #[schema(value_type = Vec<Object>)]
    pub(crate) after: Vec<Value>,
}

/// The operators whose stored state another version reads otherwise, and some of their rows; none if none does, or nothing
/// is stored.
pub(crate) async fn migrated(file: &PipelineFile, running: &Parts, new: &Parts) -> Result<Vec<Migrated>> {
    let names = changed(&state_layouts(&running.plan)?, &state_layouts(&new.plan)?);
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let commits = CommitLog::new(Arc::clone(&running.checkpoint));
    let Some(last) = commits.ids().await?.last().copied() else { return Ok(Vec::new()) };
    let commit = commits.expect(last).await?;
    let Some(state) = &commit.state else { return Ok(Vec::new()) };
    let files = running.checkpoint.subtree(layout::STATE);
    let mut store = CheckpointedStateStore::open_with(files, Some(state), state_options(file)).await?;
    let (running, new) = (Arc::clone(&running.plan), Arc::clone(&new.plan));
    let sampled = tokio::task::spawn_blocking(move || {
        let sample = |operator: String| -> Result<Migrated> {
            // In this order: reading as the new version notes its schema in the copy.
            let before = rows(&running, &operator, &mut store)?;
            let after = rows(&new, &operator, &mut store)?;
            Ok(Migrated { operator, before, after })
        };
        names.into_iter().map(sample).collect::<Result<Vec<_>>>()
    });
    sampled.await.map_err(|e| Error::internal(format!("reading state did not end: {e}")))?
}

/// Refused if the plan cannot read some of the state that the last commit names, where it reads it otherwise than what wrote it.
pub(super) async fn check_migrates(
    file: &PipelineFile,
    recovered: &Recovered,
    plan: &Arc<PhysicalPlan>,
) -> Result<()> {
    let names = changed(recovered.layouts(), &state_layouts(plan)?);
    let Some(commit) = recovered.state_commit()?.filter(|_| !names.is_empty()) else { return Ok(()) };
    let files = recovered.checkpoint().state_files();
    let mut store = CheckpointedStateStore::open_with(files, Some(commit), state_options(file)).await?;
    let plan = Arc::clone(plan);
    let sampled = tokio::task::spawn_blocking(move || {
        names.iter().try_for_each(|operator| rows(&plan, operator, &mut store).map(|_| ()))
    });
    let sampled = sampled.await.map_err(|e| Error::internal(format!("reading state did not end: {e}")))?;
    sampled.map_err(|e| {
        let what =
            format!("the state in the checkpoint cannot be migrated: tried on some of it, {}", e.message());
        Error::new(e.kind(), what).hint(
            "mend `migrate`, or give the pipeline file the version that ran before: nothing has changed",
        )
    })
}

/// The operators with variables of another version.
fn changed(running: &[StateLayout], new: &[StateLayout]) -> Vec<String> {
    let version = |layout: &StateLayout, of: &VariableLayout| {
        layout.variables.iter().find(|variable| variable.name == of.name).map(|variable| variable.version)
    };
    let is_changed = |now: &&StateLayout| {
        let then = running.iter().find(|then| then.name == now.name && !then.set_aside);
        then.is_some_and(|then| {
            now.variables
                .iter()
                .any(|variable| version(then, variable).is_some_and(|v| v != variable.version))
        })
    };
    new.iter().filter(is_changed).map(|layout| layout.name.clone()).collect()
}

fn rows(plan: &PhysicalPlan, operator: &str, store: &mut CheckpointedStateStore) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    show_state(plan, operator, store, &mut |part, batch| {
        for row in 0..batch.num_rows() {
            if rows.len() == ROWS {
                return Ok(ControlFlow::Break(()));
            }
            let mut shown = row_json(&batch, row, Nulls::Written)?;
            if let (Value::Object(fields), false) = (&mut shown, part.is_empty()) {
                fields.insert("part".to_owned(), part.into());
            }
            rows.push(shown);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(rows)
}
