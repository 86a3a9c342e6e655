//! GROUP BY with a session window: sessions of a key grow with its rows and melt together when they touch. Spark's
//! `SessionWindowStateStoreRestoreExec`, `MergingSessionsExec` and `SessionWindowStateStoreSaveExec`.
//!
//! A row makes the session `[time, time + gap)`; sessions of a key are one if one begins at the other's end or before.
//! `prepare` does that within a part, `run` with all parts of a shard and with the stored sessions.
//!
//! State: `name/sessions` has an entry for each session, `[key group][keys][start]` (see [`value`]). If sessions are
//! over some day, the index `name/ends` names them by their ends; those that have grown since then are in it again.

mod partial;
mod shard;
mod value;

use super::aggregate::calls::Calls;
use super::aggregate::keys::{shaped, window_array};
use super::event_time::micros;
use super::layout::entries_while;
use super::time_index::TimeIndex;
use super::{NodeScope, Operator, Piece, Prepared, ShardOutput, Shown, unpacked};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use partial::Partial;
use pelton_core::{Error, OutputMode, Result, StateShard};
use pelton_plan::evaluation_error;
use pelton_plan::stateful::{Aggregate, GroupKey, TimeWindow};
use pelton_state::RowCodec;
use std::sync::Arc;

/// GROUP BY with a session window and at least one other key.
pub(super) struct SessionWindows {
    /// All keys but the window.
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    types: Vec<DataType>,
    codec: RowCodec,
    /// For each of the result's first columns the key that it is; none is the window.
    columns: Vec<Option<usize>>,
    time: Arc<dyn PhysicalExpr>,
    gap_us: Arc<dyn PhysicalExpr>,
    calls: Calls,
    mode: OutputMode,
    expires: bool,
    schema: SchemaRef,
}

impl SessionWindows {
    pub(super) fn new(aggregate: &Aggregate, input: &SchemaRef, schema: &SchemaRef) -> Result<Self> {
        let Some(TimeWindow::Session { time, gap_us }) = &aggregate.window else {
            return Err(Error::internal("a session window that is none"));
        };
        if aggregate.output_mode == OutputMode::Update {
            return Err(Error::internal("a session window in update mode"));
        }
        let mut exprs = Vec::new();
        let mut columns = Vec::new();
        for key in &aggregate.keys {
            columns.push(match key {
                GroupKey::Expr(expr) => {
                    exprs.push(expr.clone());
                    Some(exprs.len() - 1)
                }
                GroupKey::Window => None,
            });
        }
        if exprs.is_empty() {
            return Err(Error::internal("a session window without another key"));
        }
        let types = exprs.iter().map(|expr| expr.data_type(input)).collect::<Result<Vec<_>, _>>();
        let types = types.map_err(|e| evaluation_error(&e))?;
        Ok(Self {
            codec: RowCodec::new(types.clone())?,
            exprs,
            types,
            columns,
            time: time.clone(),
            gap_us: gap_us.clone(),
            calls: Calls::new(&aggregate.aggregates)?,
            mode: aggregate.output_mode,
            expires: aggregate.event_time.is_some() && aggregate.output_mode == OutputMode::Append,
            schema: schema.clone(),
        })
    }

    /// A watermark in microseconds, if it means anything here.
    fn horizon_us(&self, watermark_ms: Option<i64>) -> Option<i64> {
        watermark_ms.filter(|_| self.expires).map(micros)
    }

    /// Rows of the result: the keys of `[key group][keys]`, the sessions' starts and ends, the results of the states.
    fn result(
        &self,
        keys: &[&[u8]],
        starts: &[i64],
        ends: &[i64],
        states: &[ArrayRef],
    ) -> Result<RecordBatch> {
        let bytes = keys.iter().map(|key| key.get(1..).unwrap_or_default());
        let exprs = self.codec.decode(bytes)?;
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for (column, field) in self.columns.iter().zip(self.schema.fields()) {
            columns.push(match column {
                Some(key) => exprs[*key].clone(),
                None => window_array(field, starts.to_vec(), ends.to_vec())?,
            });
        }
        columns.extend(self.calls.results(states, keys.len())?);
        shaped(&self.schema, columns, keys.len())
    }
}

impl Operator for SessionWindows {
    fn counted_tables(&self, name: &str) -> Vec<String> {
        vec![sessions_table(name)]
    }

    fn prepare(&self, scope: &NodeScope<'_>, _: usize, rows: &[RecordBatch]) -> Result<Prepared> {
        partial::prepare(self, scope, self.horizon_us(scope.late_ms), rows)
    }

    fn run(
        &self,
        scope: &NodeScope<'_>,
        _: usize,
        pieces: Vec<Vec<Piece>>,
        state: &mut dyn StateShard,
    ) -> Result<ShardOutput> {
        let partials = unpacked::<Partial>(pieces.into_iter().flatten())?;
        let mut shard = shard::Shard {
            operator: self,
            sessions: sessions_table(scope.name),
            ends: TimeIndex::new(format!("{}/ends", scope.name)),
            state,
            output: ShardOutput::default(),
        };
        if !partials.is_empty() {
            shard.take(scope, partials)?;
        }
        match (self.mode, self.horizon_us(scope.watermark_ms)) {
            (OutputMode::Complete, _) => shard.give_all()?,
            (_, Some(watermark_us)) => shard.expire(watermark_us)?,
            _ => {}
        }
        Ok(shard.output)
    }

    fn watches_watermark(&self) -> bool {
        self.mode != OutputMode::Complete
    }

    fn state_form(&self) -> String {
        // Without an end to wait for there is no index of ends.
        match self.expires {
            true => "an entry a session, and their ends".to_owned(),
            false => "an entry a session".to_owned(),
        }
    }

    fn waits_for(&self) -> String {
        match self.expires {
            true => "the watermark to pass the end of a session".to_owned(),
            false => "nothing; keeps its sessions for ever".to_owned(),
        }
    }

    /// A session as it would be given now.
    fn show(&self, name: &str, state: &mut dyn StateShard, each: &mut Shown<'_>) -> Result<()> {
        entries_while(state, &sessions_table(name), |_, entries| each("", self.given_entries(&entries)?))
    }
}

fn sessions_table(name: &str) -> String {
    format!("{name}/sessions")
}
