//! A function over groups that is open, behind messages: what the Wasm exports and the testing harness share.

use super::{GivenTimer, GroupReply, Groups, Reason, RunningGroups, Signature, VariableInfo};
use crate::array::Offsets;
use crate::context::{Clock, Context};
use crate::error::Error;
use crate::function::{Kind, Opener};
use crate::ipc::{self, Encoder};
use crate::runtime::{Plugin, find};
use crate::types::Schema;

/// An open function, with what its calls use again and again.
pub(crate) struct GroupSession {
    running: Box<dyn RunningGroups>,
    signature: Signature,
    key: Schema,
    rows: Schema,
    entries: Vec<Schema>,
    reply: GroupReply,
    migrated: Encoder,
}

/// The entries of a variable as messages.
pub(crate) struct RawEntries<'a> {
    pub(crate) rows: &'a [u8],
    pub(crate) offsets: &'a [[u8; 4]],
}

/// A call's groups as messages.
pub(crate) struct RawGroups<'a> {
    pub(crate) reason: Reason,
    pub(crate) keys: &'a [u8],
    pub(crate) rows: &'a [u8],
    pub(crate) offsets: &'a [[u8; 4]],
    pub(crate) state: Vec<RawEntries<'a>>,
    pub(crate) fired: Vec<GivenTimer<'a>>,
    pub(crate) pending: Vec<GivenTimer<'a>>,
}

impl GroupSession {
    /// Opens a function for schema messages.
    pub(crate) fn open(
        plugin: &Plugin,
        function: &str,
        config: &str,
        key: &[u8],
        input: &[u8],
    ) -> Result<Self, Error> {
        let entry = find(plugin, Kind::Stateful, function)?;
        let Opener::Groups(open) = entry.open else {
            return Err(Error::Unsuitable(format!("'{function}' is not a stateful function")));
        };
        let (key, input) = (ipc::read_schema(key)?, ipc::read_schema(input)?);
        let (running, signature) = open(config, &key, &input)?;
        let rows = Schema::new(signature.reads.iter().map(|at| input.fields[*at].clone()).collect());
        let entries = signature.variables.iter().map(VariableInfo::entries).collect();
        let reply = GroupReply::default();
        Ok(Self { running, signature, key, rows, entries, reply, migrated: Encoder::default() })
    }

    pub(crate) fn signature(&self) -> &Signature {
        &self.signature
    }
    /// The columns of the rows that it reads.
    pub(crate) fn rows(&self) -> &Schema {
        &self.rows
    }
    /// What the last call gave back.
    pub(crate) fn reply(&self) -> &GroupReply {
        &self.reply
    }

    /// Processes groups.
    pub(crate) fn run(&mut self, clock: Clock, raw: &RawGroups<'_>) -> Result<(), Error> {
        let groups = read(raw, &self.key, &self.rows, &self.entries)?;
        let reply = &mut self.reply;
        reply.rejected.clear();
        reply.timeouts.clear();
        reply.timers.clear();
        reply.changes.resize_with(self.entries.len(), Default::default);
        reply.rows.begin(&self.signature.output);
        self.running.run(&Context::new(clock), &groups, reply)?;
        reply.rows.finish(reply.count);
        Ok(())
    }

    /// Rewrites entries of a variable; the message of what they are now.
    pub(crate) fn migrate(
        &mut self,
        variable: &str,
        from: u32,
        old: &[u8],
        entries: &[u8],
    ) -> Result<&[u8], Error> {
        let at = self.signature.variables.iter().position(|info| info.name == variable);
        let at = at.ok_or_else(|| Error::Failed(format!("there is no variable '{variable}'")))?;
        let old = ipc::read_schema(old)?;
        let entries = ipc::read_batch(entries, &old)?;
        self.migrated.begin(&self.entries[at]);
        self.running.migrate(at, from, &old, &entries, &mut self.migrated)?;
        Ok(self.migrated.finish(entries.len()))
    }
}

fn read<'a>(
    raw: &RawGroups<'a>,
    key: &Schema,
    rows: &Schema,
    entries: &[Schema],
) -> Result<Groups<'a>, Error> {
    let keys = ipc::read_batch(raw.keys, key)?;
    let rows = ipc::read_batch(raw.rows, rows)?;
    if raw.state.len() != entries.len() {
        return Err(Error::Failed("the call has not as many variables as the function".to_owned()));
    }
    let state = raw.state.iter().zip(entries).map(|(raw, schema)| {
        let rows = ipc::read_batch(raw.rows, schema)?;
        Ok((rows.clone(), offsets(raw.offsets, keys.len(), rows.len())?))
    });
    Ok(Groups {
        reason: raw.reason,
        offsets: offsets(raw.offsets, keys.len(), rows.len())?,
        state: state.collect::<Result<_, Error>>()?,
        fired: raw.fired.clone(),
        pending: raw.pending.clone(),
        keys,
        rows,
    })
}

/// One more than there are groups, never falling, and within the rows.
fn offsets(offsets: &[[u8; 4]], groups: usize, rows: usize) -> Result<Offsets<'_>, Error> {
    let at = |offset: &[u8; 4]| u32::from_le_bytes(*offset) as usize;
    let fits = offsets.len() == groups + 1
        && offsets.windows(2).all(|pair| at(&pair[0]) <= at(&pair[1]))
        && offsets.last().is_some_and(|last| at(last) <= rows);
    match fits {
        true => Ok(Offsets(offsets)),
        false => Err(Error::Failed("the offsets of the groups do not fit their rows".to_owned())),
    }
}
