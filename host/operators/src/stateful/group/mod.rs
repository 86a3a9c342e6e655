//! Stateful functions of plugins over groups of rows: finds the groups, hands them over with their state, many in a
//! call, and keeps what comes back.
//!
//! Driven by the dataflow. The first half encodes keys, takes late rows out (event time only, as in Spark) and splits
//! by shard. The second half brings a shard's rows together by group, in the order of the input. Groups are worked on
//! in the order of the bytes of their keys, so the order of what comes out depends on nothing else. Then it calls the
//! function: [`timeouts`] has the forms with one value and one timeout a group, [`processor`] that with variables and
//! named timers. Reads no clock: time is the micro-batch's.

mod call;
mod chunks;
mod entry;
mod index;
mod initial;
mod poison;
mod processor;
mod schemas;
mod show;
mod timeouts;

use super::event_time::{micros, without_late_rows};
use super::{NodeScope, Operator, Piece, Prepared, ShardOutput, Shown, packed};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef};
use call::Caller;
use chunks::{Chunk, Grouped, Source};
use initial::InitialGroups;
use pelton_core::{Error, ErrorKind, GroupForm, Result, SHARDS, StateOp, StateShard, TimeMode};
use pelton_plan::stateful::{self as plan, EventTimeColumn, StatefulNode};
use pelton_state::RowCodec;
use processor::Processor;
use std::sync::Arc;
use timeouts::Timeouts;

/// See the module.
pub(crate) struct Groups {
    /// Whose function it is, by the plugin's name in the pipeline file.
    plugin: String,
    keys: Vec<usize>,
    key_fields: Vec<FieldRef>,
    codec: RowCodec,
    event_time: Option<EventTimeColumn>,
    initial: Option<InitialGroups>,
    /// Whether the operator has run is noted here, in each shard.
    begun: String,
    time_mode: TimeMode,
    has_watermark: bool,
    kind: Kind,
}

enum Kind {
    Timeouts(Box<Timeouts>),
    Processor(Box<Processor>),
}

/// What is known of a micro-batch when a shard is worked on.
pub(super) struct Moment<'a> {
    pub(super) scope: &'a NodeScope<'a>,
    pub(super) shard: usize,
    /// The micro-batch's time in microseconds.
    pub(super) now: i64,
    /// The time that timeouts and timers are measured by: what is due is before it. `None`: nothing is.
    pub(super) time: Option<i64>,
}

impl Groups {
    /// The operator of a node.
    pub(crate) fn new(spec: &plan::Groups, node: &StatefulNode) -> Result<Self> {
        let input = node.inputs.first().ok_or_else(|| Error::internal("groups without an input"))?;
        let types = spec.keys.iter().map(|column| input.field(*column).data_type().clone());
        let types: Vec<DataType> = types.collect();
        let in_operator = |e: Error| e.context(format!("operator '{}'", node.name));
        let codec = RowCodec::new(types).map_err(in_operator)?;
        let caller = Caller::new(spec, node, codec.clone())?;
        let signature = spec.stateful.signature();
        let kind = match signature.form {
            GroupForm::MapGroups | GroupForm::FlatMapGroups => {
                Timeouts::new(caller, &node.name).map(Box::new).map(Kind::Timeouts)
            }
            GroupForm::Processor => Processor::new(caller, &node.name).map(Box::new).map(Kind::Processor),
        };
        Ok(Self {
            plugin: spec.function.plugin.clone(),
            keys: spec.keys.clone(),
            key_fields: spec.keys.iter().map(|column| input.fields()[*column].clone()).collect(),
            codec,
            event_time: spec.event_time,
            initial: spec.initial.clone().map(|table| {
                let value = signature.variables.first().map(|variable| variable.value.clone());
                InitialGroups::new(table, spec.keys.len(), value)
            }),
            begun: format!("{}/begun", node.name),
            time_mode: signature.time_mode,
            has_watermark: node.watermark_offset_ms.is_some(),
            kind: kind.map_err(in_operator)?,
        })
    }

    fn moment<'a>(&self, scope: &'a NodeScope<'a>, shard: usize) -> Moment<'a> {
        let now = micros(scope.batch.time_ms);
        let time = match self.time_mode {
            TimeMode::None => None,
            TimeMode::ProcessingTime => Some(now),
            TimeMode::EventTime => scope.watermark_ms.map(micros),
        };
        Moment { scope, shard, now, time }
    }

    /// Groups with a state from a table, in the operator's very first micro-batch; that it was is noted.
    fn begin(&self, at: &Moment<'_>, state: &mut dyn StateShard) -> Result<initial::OfShard> {
        if state.len(&self.begun) > 0 {
            return Ok(initial::OfShard::default());
        }
        state.apply(&self.begun, vec![StateOp::Put(Default::default(), Default::default())])?;
        match &self.initial {
            Some(initial) => initial.of_shard(at, &self.codec),
            None => Ok(initial::OfShard::default()),
        }
    }
}

impl Operator for Groups {
    fn counted_tables(&self, _name: &str) -> Vec<String> {
        match &self.kind {
            Kind::Timeouts(timeouts) => timeouts.counted_tables(),
            Kind::Processor(processor) => processor.counted_tables(),
        }
    }

    fn prepare(&self, scope: &NodeScope<'_>, _port: usize, rows: &[RecordBatch]) -> Result<Prepared> {
        let mut prepared = Prepared::default();
        let mut shards: Vec<Vec<Chunk>> = (0..SHARDS).map(|_| Vec::new()).collect();
        for rows in rows {
            let rows = without_late_rows(scope, rows, self.event_time, &mut prepared)?;
            if rows.num_rows() == 0 {
                continue;
            }
            let source = Arc::new(Source::new(rows, &self.keys, &self.codec)?);
            for (shard, chunk) in source.split() {
                shards[shard].push(chunk);
            }
        }
        prepared.pieces = packed(shards);
        Ok(prepared)
    }

    fn run(
        &self,
        scope: &NodeScope<'_>,
        shard: usize,
        mut pieces: Vec<Vec<Piece>>,
        state: &mut dyn StateShard,
    ) -> Result<ShardOutput> {
        let at = self.moment(scope, shard);
        let chunks = chunks::unpack(pieces.pop().unwrap_or_default())?;
        let begins_with = self.begin(&at, state)?;
        let groups = Grouped::new(&chunks, &begins_with.keys);
        let ran = match &self.kind {
            Kind::Timeouts(timeouts) => timeouts.run(&at, &groups, &begins_with, state),
            Kind::Processor(processor) => processor.run(&at, &groups, &begins_with, state),
        };
        ran.map_err(|e| match e.kind() {
            ErrorKind::Plugin => e.of_plugin(&self.plugin),
            _ => e,
        })
    }

    fn watches_watermark(&self) -> bool {
        self.has_watermark && self.time_mode == TimeMode::EventTime
    }

    fn watches_clock(&self) -> bool {
        self.time_mode == TimeMode::ProcessingTime
    }

    fn state_form(&self) -> String {
        match &self.kind {
            Kind::Timeouts(_) => "groups with a value and a timeout".to_owned(),
            Kind::Processor(_) => "variables and timers by key".to_owned(),
        }
    }

    fn waits_for(&self) -> String {
        let what = match &self.kind {
            Kind::Timeouts(_) => "a group's timeout",
            Kind::Processor(_) => "a timer",
        };
        match self.time_mode {
            TimeMode::None => "nothing; groups stay until the function removes them".to_owned(),
            TimeMode::ProcessingTime => format!("the time of a micro-batch to reach {what}"),
            TimeMode::EventTime => format!("the watermark to reach {what}"),
        }
    }

    /// Groups with their value and timeout; of a processor each variable's entries and the timers.
    fn show(&self, _name: &str, state: &mut dyn StateShard, each: &mut Shown<'_>) -> Result<()> {
        let keys = show::GroupKeys { fields: &self.key_fields, codec: &self.codec };
        match &self.kind {
            Kind::Timeouts(timeouts) => timeouts.show(&keys, state, each),
            Kind::Processor(processor) => processor.show(&keys, state, each),
        }
    }
}
