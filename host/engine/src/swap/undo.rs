//! Undoing a swap whose version has failed: the micro-batch is to run again with the version before.
//!
//! Called by `micro_batch` with the failure. What failed must be nowhere: not in the sink, and not in state that the version
//! before could not read; else the failure stays one.

use super::record::{self, Undone};
use super::{LastSwap, SwapOutcome, Swapping, short};
use crate::compatible;
use crate::micro_batch::{BatchContext, Turn};
use crate::query::Query;
use pelton_checkpoint::{Probation, RolledBack};
use pelton_core::{Error, ErrorKind, Result};
use std::collections::BTreeSet;

impl Query {
    /// Undoes the swap that a failure comes from, or gives the failure back.
    pub(crate) async fn undo_swap(&mut self, batch: &BatchContext, failed: Error) -> Result<Turn> {
        let batch_id = batch.info.batch_id;
        let Some(undone) = record::undone(&batch.entry, batch_id, &batch.logic, &failed) else {
            return Err(with_way_out(failed));
        };
        let Undone { entry, probation, rolled_back } = undone;
        if let Err(why) = self.may_undo(batch, &probation).await {
            return Err(not_undone(&failed, &rolled_back, &why));
        }
        self.checkpoint.rewrite_offsets(batch_id, &batch.entry, &entry).await?;
        self.tell_rolled_back(batch, rolled_back);
        Ok(Turn::RolledBack(batch_id))
    }

    /// Whether the micro-batch can run again as if it had never run.
    async fn may_undo(&self, batch: &BatchContext, probation: &Probation) -> Result<()> {
        if batch.is_in_sink || self.sink.may_hold(&batch.info, batch.is_rerun).await? {
            return Err(Error::invalid(format!(
                "the sink `{}` has rows of the micro-batch, or may have some",
                self.sink.description()
            )));
        }
        let (Some(then), Some(now)) = (&self.committed_layout, &probation.layout) else { return Ok(()) };
        if then == now {
            return Ok(());
        }
        let then = self.checkpoint.load_layouts(then).await?;
        let now = self.checkpoint.load_layouts(now).await?;
        let alive = |layouts: Vec<pelton_core::StateLayout>| -> Vec<_> {
            layouts.into_iter().filter(|layout| !layout.set_aside).collect()
        };
        compatible::goes_on(&alive(then), &alive(now), &BTreeSet::new()).map(|_| ())
    }

    fn tell_rolled_back(&mut self, batch: &BatchContext, rolled_back: RolledBack) {
        let batch_id = batch.info.batch_id;
        let RolledBack { plugin, from, to, why } = rolled_back;
        tracing::warn!(
            query = self.checkpoint.metadata().query_name,
            %batch_id,
            "the swap of plugin '{plugin}' from {} to {} is undone, for the micro-batch failed with it: {why}",
            short(&to),
            short(&from),
        );
        let last = LastSwap { outcome: "rolled_back", batch_id: Some(batch_id), message: Some(why.clone()) };
        self.swaps.count(&plugin, last, |counts| counts.rolled_back += 1);
        if let Some(Swapping { answer, plugin: swapping, .. }) = self.swapping.take() {
            let _ = answer.send(match swapping == plugin {
                true => Ok(SwapOutcome::RolledBack { batch_id, from, to, why }),
                false => Err(Error::unavailable(format!(
                    "micro-batch {batch_id} failed with another plugin, '{plugin}', and runs again; plugin \
                     '{swapping}' is swapped with it"
                ))),
            });
        }
    }
}

/// A plugin's failure that no swap is to blame for.
fn with_way_out(failed: Error) -> Error {
    let wants_one = failed.kind() == ErrorKind::Plugin && failed.hint_text().is_none();
    match wants_one && failed.plugin_name().is_some() {
        true => failed.hint(
            "mend the plugin, give the pipeline file the mended version, and start with --rerun-with-current-plugins; or let \
             such rows go to the dead letters: on_plugin_failure: dead_letter",
        ),
        false => failed,
    }
}

fn not_undone(failed: &Error, rolled_back: &RolledBack, why: &Error) -> Error {
    let RolledBack { plugin, .. } = rolled_back;
    let message = failed.message();
    let what = format!("{message}; the swap of plugin '{plugin}' cannot be undone: {}", why.message());
    Error::new(failed.kind(), what).of_plugin(plugin).hint(
        "mend the plugin, give the pipeline file the mended version, and start with --rerun-with-current-plugins",
    )
}
