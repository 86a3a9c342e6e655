//! GROUP BY, with or without a sliding window. Spark's `StateStoreRestoreExec`, `StateStoreSaveExec` and what is
//! between them.
//!
//! `prepare` combines the rows of a part to one partial state a group; `run` merges the partial states of a shard with
//! the stored ones and gives what the output mode asks for. Windows that overlap are made of *panes*, the pieces of
//! time that are in the same windows: rows are combined by pane, and only what comes out is spread over windows.
//!
//! State: the table `name/groups`, one entry a group; see [`keys`] for its keys.

pub(super) mod calls;
pub(super) mod groups;
pub(super) mod keys;
pub(super) mod partial;
mod size;
mod window;

use crate::stateful::event_time::micros;
use crate::stateful::layout::entries_while;
use crate::stateful::session::SessionWindows;
use crate::stateful::{NodeScope, Operator, Piece, Prepared, ShardOutput, Shown, unpacked};
use arrow::array::RecordBatch;
use calls::Calls;
use keys::Keys;
use partial::Partial;
use pelton_core::{Error, OutputMode, Result, StateShard};
use pelton_plan::stateful::{Aggregate, StatefulNode, TimeWindow};

/// Makes the operator of a GROUP BY.
pub(super) fn operator(node: &StatefulNode, aggregate: &Aggregate) -> Result<Box<dyn Operator>> {
    let [input] = node.inputs.as_slice() else {
        return Err(Error::internal(format!(
            "the GROUP BY '{}' has {} inputs",
            node.name,
            node.inputs.len()
        )));
    };
    if let Some(TimeWindow::Session { .. }) = &aggregate.window {
        return Ok(Box::new(SessionWindows::new(aggregate, input, &node.schema)?));
    }
    Ok(Box::new(GroupBy {
        keys: Keys::new(aggregate, input, &node.schema)?,
        calls: Calls::new(&aggregate.aggregates)?,
        mode: aggregate.output_mode,
    }))
}

/// GROUP BY without sessions.
struct GroupBy {
    keys: Keys,
    calls: Calls,
    mode: OutputMode,
}

impl GroupBy {
    /// A watermark in microseconds, if it means anything here.
    fn horizon_us(&self, watermark_ms: Option<i64>) -> Option<i64> {
        let means_something = self.keys.expires() && self.mode != OutputMode::Complete;
        watermark_ms.filter(|_| means_something).map(micros)
    }
}

impl Operator for GroupBy {
    fn counted_tables(&self, name: &str) -> Vec<String> {
        vec![groups_table(name)]
    }

    fn prepare(&self, scope: &NodeScope<'_>, _: usize, rows: &[RecordBatch]) -> Result<Prepared> {
        partial::prepare(&self.keys, &self.calls, scope, self.horizon_us(scope.late_ms), rows)
    }

    fn run(
        &self,
        scope: &NodeScope<'_>,
        shard: usize,
        pieces: Vec<Vec<Piece>>,
        state: &mut dyn StateShard,
    ) -> Result<ShardOutput> {
        let partials = unpacked::<Partial>(pieces.into_iter().flatten())?;
        let mut shard = groups::Shard {
            keys: &self.keys,
            calls: &self.calls,
            mode: self.mode,
            table: groups_table(scope.name),
            // Without keys there is one group, whether there are rows or not.
            holds_global_group: self.keys.is_global() && shard == 0,
            late_us: self.horizon_us(scope.late_ms),
            watermark_us: self.horizon_us(scope.watermark_ms),
            is_final: scope.batch.is_final(),
            state,
            output: ShardOutput::default(),
        };
        shard.run(partials)?;
        Ok(shard.output)
    }

    fn watches_watermark(&self) -> bool {
        self.mode != OutputMode::Complete
    }

    fn state_form(&self) -> String {
        self.keys.form()
    }

    fn waits_for(&self) -> String {
        match (self.mode, self.keys.expires()) {
            (OutputMode::Append, true) => format!("the watermark to pass {}", self.keys.expiry_text()),
            (_, true) if self.mode == OutputMode::Update => {
                format!("nothing; forgets a group when the watermark passes {}", self.keys.expiry_text())
            }
            _ => "nothing; keeps its groups for ever".to_owned(),
        }
    }

    /// A group as it would be given now.
    fn show(&self, name: &str, state: &mut dyn StateShard, each: &mut Shown<'_>) -> Result<()> {
        entries_while(state, &groups_table(name), |_, entries| {
            each("", groups::given_entries(&self.keys, &self.calls, &entries)?)
        })
    }
}

fn groups_table(name: &str) -> String {
    format!("{name}/groups")
}
