//! The static tables of a micro-batch: what they are read from is written down before it runs, and a rerun reads the same.
//!
//! Called by `micro_batch`. Tables read themselves.

use crate::micro_batch::BatchContext;
use crate::query::Query;
use pelton_core::{ErrorKind, Result, TableVersion};
use std::collections::BTreeMap;

impl Query {
    /// What a micro-batch that is planned now sees of the tables.
    pub(crate) async fn latest_tables(&self) -> Result<BTreeMap<String, TableVersion>> {
        let mut versions = BTreeMap::new();
        for (name, table) in &self.tables {
            let latest = table.latest().await;
            let latest = latest.map_err(|failed| failed.context(format_args!("table '{name}'")))?;
            versions.extend(latest.map(|version| (name.clone(), version)));
        }
        Ok(versions)
    }

    /// Lets the tables give what the offset log says. (An entry of an earlier version says nothing of them.)
    pub(crate) async fn pin_tables(&self, batch: &BatchContext) -> Result<()> {
        if batch.is_rerun && self.rerun_with_current_tables {
            return Ok(());
        }
        for (name, table) in &self.tables {
            let Some(version) = batch.tables().get(name) else { continue };
            table.pin(version).await.map_err(|failed| {
                let gone = batch.is_rerun && failed.kind() == ErrorKind::Data;
                let failed = failed.context(format_args!("table '{name}'"));
                match gone {
                    true => failed.hint(
                        "the micro-batch must run again with the table as it was: put the file back for one start, or \
                         use --rerun-with-current-tables",
                    ),
                    false => failed,
                }
            })?;
        }
        Ok(())
    }
}
