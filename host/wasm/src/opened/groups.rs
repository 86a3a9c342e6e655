//! Stateful functions: groups of rows and their state in, rows, changes of the state and timers out. `plugin` opens
//! them, the operator over group state calls them. It keeps no state: that belongs to the host.

use super::answer::Answers;
use super::signature::Reading;
use super::{Pool, Pooled, When, encoded, error, started};
use crate::code::{Fault, NO_CLOCK, Running};
use crate::codec::{Encoder, zone_of};
use crate::contract::Bytes;
use crate::contract::stateful::{
    Entries, GivenTimer, Groups, GuestSignature, MigrateFn, Numbers, ProcessGroupsFn,
};
use crate::plugin::Parts;
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use pelton_core::{
    CallScope, Error, FunctionKind, GroupInput, GroupOutput, Result, StatefulFunction, StatefulSignature,
    Timer,
};
use std::sync::Arc;

/// A stateful function, opened for groups with one schema of keys and of rows.
pub(crate) struct OpenedStateful {
    pool: Pool<Instance>,
    opening: Opening,
    signature: StatefulSignature,
    input: InputEncoders,
    answers: Answers,
}

/// What instances are opened with.
struct Opening {
    zone: String,
    input: SchemaRef,
    key_message: Bytes,
    input_message: Bytes,
}

/// What a call's input is encoded with.
struct InputEncoders {
    keys: Encoder,
    rows: Encoder,
    state: Vec<Encoder>,
}

/// An instance on which the function is open.
struct Instance {
    running: Running,
    process: ProcessGroupsFn,
    /// Where its input is encoded, used again and again.
    buffers: Buffers,
}

impl Pooled for Instance {
    fn running(&self) -> &Running {
        &self.running
    }
}

#[derive(Default)]
struct Buffers {
    keys: Bytes,
    rows: Bytes,
    offsets: Numbers,
    state: Vec<Entries>,
}

impl OpenedStateful {
    pub(crate) fn open(
        plugin: &Arc<Parts>,
        function: &str,
        key: SchemaRef,
        input: SchemaRef,
    ) -> Result<Self> {
        let named = |e: Error| e.context(format!("plugin '{}', function '{function}'", plugin.name));
        let encoding = plugin.manifest.encoding;
        let zone = zone_of(&input).or_else(|| zone_of(&key));
        let zone = zone.map_or_else(|| plugin.time_zone.clone(), |zone| zone.to_string());
        let keys = Encoder::new(encoding, key).map_err(named)?;
        let message = |encoder: &Encoder| encoder.schema_message().map_err(named).map(Bytes::new);
        let (key_message, input_message) =
            (message(&keys)?, message(&Encoder::new(encoding, input.clone()).map_err(named)?)?);
        let opening = Opening { zone, input, key_message, input_message };
        let (instance, signature) = opening
            .start(plugin, function)
            .map_err(|fault| error(&plugin.name, function, When::Opened, fault))?;
        let columns: Vec<_> = signature.reads.iter().map(|at| opening.input.fields()[*at].clone()).collect();
        let rows = Encoder::new(encoding, Arc::new(Schema::new(columns))).map_err(named)?;
        let state =
            signature.variables.iter().map(|variable| Encoder::new(encoding, variable.entries.clone()));
        let state = state.collect::<Result<_>>().map_err(named)?;
        let answers = Answers::new(encoding, &signature);
        let pool = Pool::new(plugin, function, instance);
        Ok(Self { pool, opening, signature, input: InputEncoders { keys, rows, state }, answers })
    }

    fn run(
        &self,
        instance: &mut Instance,
        scope: &CallScope<'_>,
        input: &GroupInput,
    ) -> Result<GroupOutput, Fault> {
        let (code, clock) = (&self.pool.plugin.code, self.pool.clock(scope));
        let groups = self.input.encode(input, &mut instance.buffers)?;
        instance.running.repeats(scope.is_piece());
        let answer = instance.running.call(code, &clock, &instance.process, (clock, groups))?.0;
        let answer = answer.map_err(|error| Fault::said(&error))?;
        self.answers
            .output(&self.signature, input, answer, &code.limits)
            .map_err(|lie| Fault::broken(format!("answered wrong groups: {lie}")))
    }

    fn run_migrate(
        &self,
        instance: &mut Instance,
        variable: usize,
        from: u32,
        entries: &RecordBatch,
    ) -> Result<RecordBatch, Fault> {
        let code = &self.pool.plugin.code;
        let at = code.exports.migrate.ok_or_else(|| Fault::broken("is not exported"))?;
        let migrate: MigrateFn = instance.running.function(&at)?;
        let encoder = Encoder::new(self.pool.plugin.manifest.encoding, entries.schema())?;
        let old = Bytes::new(encoder.schema_message()?);
        let mut buffer = Bytes::default();
        let rows = encoded(&encoder, entries, &mut buffer)?;
        let name = self.signature.variables[variable].name.clone();
        let answer = instance.running.call(code, &NO_CLOCK, &migrate, (name, from, old, rows))?.0;
        let message = answer.map_err(|error| Fault::said(&error))?;
        let entries = entries.num_rows();
        self.answers
            .migrated(variable, message, entries, &code.limits)
            .map_err(|lie| Fault::broken(format!("answered wrong entries: {lie}")))
    }

    /// A further instance; it must answer the signature that the first one answered.
    fn another(&self) -> Result<Instance, Fault> {
        let (instance, signature) = self.opening.start(&self.pool.plugin, &self.pool.function)?;
        match signature == self.signature {
            true => Ok(instance),
            false => Err(Fault::broken("answered another signature than when it was first opened")),
        }
    }
}

impl StatefulFunction for OpenedStateful {
    fn signature(&self) -> &StatefulSignature {
        &self.signature
    }
    fn process(&self, scope: &CallScope<'_>, groups: &GroupInput) -> Result<GroupOutput> {
        let run = |instance: &mut Instance| self.run(instance, scope, groups);
        let rows = groups.rows.num_rows();
        let output = self.pool.call(When::Called(scope), rows, || self.another(), run)?;
        self.pool.plugin.code.stats.refused(output.rejected.len());
        Ok(output)
    }
    fn migrate(&self, variable: usize, from: u32, entries: &RecordBatch) -> Result<RecordBatch> {
        let Some(name) = self.signature.variables.get(variable).map(|variable| variable.name.as_str()) else {
            return Err(Error::internal(format!("there is no variable {variable} to migrate")));
        };
        let when = When::Migrated { variable: name, from };
        let migrate = |instance: &mut Instance| self.run_migrate(instance, variable, from, entries);
        self.pool.call(when, entries.num_rows(), || self.another(), migrate)
    }
}

impl Opening {
    /// Makes an instance and opens the function on it; with the signature that it answered.
    fn start(&self, plugin: &Parts, function: &str) -> Result<(Instance, StatefulSignature), Fault> {
        let (mut running, pair) = started(plugin, FunctionKind::Stateful)?;
        let schemas = (self.key_message.clone(), self.input_message.clone());
        let parameters = (function.to_owned(), plugin.config.clone(), schemas.0, schemas.1);
        let answer: GuestSignature = running.open(&plugin.code, &pair.open, parameters)?;
        let reading = Reading {
            encoding: plugin.manifest.encoding,
            zone: &self.zone,
            limits: &plugin.code.limits,
            input: &self.input,
        };
        let signature = reading
            .signature(answer)
            .map_err(|lie| Fault::broken(format!("answered a wrong signature: {lie}")))?;
        let process = running.function(&pair.call)?;
        Ok((Instance { running, process, buffers: Buffers::default() }, signature))
    }
}

impl InputEncoders {
    fn encode(&self, input: &GroupInput, buffers: &mut Buffers) -> Result<Groups, Fault> {
        if input.state.len() != self.state.len() {
            let (given, wanted) = (input.state.len(), self.state.len());
            return Err(Error::internal(format!("a call with {given} variables of {wanted}")).into());
        }
        buffers.state.resize_with(self.state.len(), Entries::default);
        let state = self.state.iter().zip(&input.state).zip(&mut buffers.state);
        let state = state.map(|((encoder, entries), buffer)| {
            Ok(Entries {
                rows: encoded(encoder, &entries.rows, &mut buffer.rows)?,
                offsets: shared(&entries.offsets, &mut buffer.offsets),
            })
        });
        Ok(Groups {
            state: state.collect::<Result<_, Fault>>()?,
            reason: input.reason.into(),
            keys: encoded(&self.keys, &input.keys, &mut buffers.keys)?,
            rows: encoded(&self.rows, &input.rows, &mut buffers.rows)?,
            offsets: shared(&input.offsets, &mut buffers.offsets),
            fired: given(&input.fired),
            pending: given(&input.pending),
        })
    }
}

/// Copies numbers where the last call's were, and shares them.
fn shared(numbers: &[u32], buffer: &mut Numbers) -> Numbers {
    if Arc::get_mut(buffer).is_none() {
        *buffer = Numbers::default();
    }
    if let Some(buffer) = Arc::get_mut(buffer) {
        buffer.clear();
        buffer.extend_from_slice(numbers);
    }
    buffer.clone()
}

fn given(timers: &[Timer]) -> Vec<GivenTimer> {
    timers
        .iter()
        .map(|timer| GivenTimer { group: timer.group, name: timer.name.clone(), at: timer.at })
        .collect()
}
