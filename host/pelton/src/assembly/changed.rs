//! Plugins of which a start has another version than the last micro-batch ran with, where there is state: they are looked at
//! as if they were swapped in.

use super::sample::check_migrates;
use super::{Assembly, Parts, RunOptions, logic_of, physical_plan};
use arrow::datatypes::SchemaRef;
use pelton_core::Result;
use pelton_engine::{Candidate, Recovered, ResetState, SwapKind, check_swap};
use pelton_plan::PipelineFile;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Assembly {
    /// The plugins that are on probation from the start on: the version that ran before would do in their place. Refused if
    /// one cannot migrate the state.
    pub(super) async fn on_probation(
        &self,
        file: &PipelineFile,
        recovered: &Recovered,
        now: &Parts,
        (options, reset): (RunOptions, &ResetState),
    ) -> Result<BTreeSet<String>> {
        let mut on_probation = BTreeSet::new();
        let ran = recovered.resume().newest_entry().map(|entry| &entry.plugins);
        let changed: Vec<_> = ran
            .into_iter()
            .flatten()
            .filter(|(name, digest)| now.plugins.digest(name).is_some_and(|current| current != *digest))
            .collect();
        let has_state = recovered.state_commit()?.is_some();
        if changed.is_empty() || !has_state || *reset != ResetState::Nothing {
            return Ok(on_probation);
        }
        check_migrates(file, recovered, &now.plan).await?;
        if options.rerun_with_current_plugins {
            return Ok(on_probation);
        }
        for (name, digest) in changed {
            let code = vec![(name.clone(), recovered.load_plugin(digest).await?)];
            // With the rest of the pipeline as it is now the version before need not do any more.
            let before = now.plugins.with_code(&self.host, file, code).and_then(|plugins| {
                let plan = physical_plan(file, &plugins, &now.sources, &now.tables)?;
                let schemas: Vec<SchemaRef> =
                    now.given.iter().map(|(_, schema)| Arc::clone(schema)).collect();
                logic_of(&plan, &plugins, &schemas)
            });
            let candidate = Candidate {
                plugin: name.clone(),
                logic: now.logic.clone(),
                sink: None,
                kind: SwapKind::Swap,
                is_in_file: true,
            };
            if before.and_then(|before| check_swap(&before, &candidate)).is_ok() {
                tracing::info!("plugin '{name}' is another version than ran before: it is on probation");
                on_probation.insert(name.clone());
            }
        }
        Ok(on_probation)
    }
}
