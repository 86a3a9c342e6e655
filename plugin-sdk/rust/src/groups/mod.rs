//! Functions over groups with state: `#[pelton::map_groups]`, `#[pelton::flat_map_groups]`, `#[pelton::processor]`.
//!
//! The attribute macros implement [`GroupFunction`] by way of `run`; `runtime` calls it with whole calls of many
//! groups. Nothing is kept between calls but memory that is used again: the state belongs to the host.
//!
//! | part | is |
//! |---|---|
//! | `state` | [`State`]: what can be kept for a group |
//! | `group_state`, `variables`, `map_state`, `timers` | what a function reads and changes of it |
//! | `tuple` | all variables of a function |
//! | `written` | changes as the host gets them |
//! | `rows` | the rows of one group |
//! | `run` | a call, group by group |
//! | `session` | a call, behind messages |

pub(crate) mod group_state;
pub(crate) mod map_state;
pub(crate) mod rows;
pub mod run;
pub(crate) mod session;
pub(crate) mod state;
pub(crate) mod timers;
pub(crate) mod tuple;
pub(crate) mod variables;
pub(crate) mod written;

use crate::array::{Array, Offsets};
use crate::context::Context;
use crate::error::Error;
use crate::function::Rejected;
use crate::ipc::Encoder;
use crate::time::TimeMode;
use crate::types::{Field, Schema};
use written::Changes;

/// How a function is called and what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Exactly one row a group.
    MapGroups = 0,
    /// Any number of rows.
    FlatMapGroups = 1,
    /// Any number of rows, and timers.
    Processor = 2,
}

/// What a variable holds for a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableKind {
    /// Nothing or one value.
    Value = 0,
    /// Values in order.
    List = 1,
    /// Values by key.
    Map = 2,
}

/// Which entries of a variable the host hands in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Load {
    /// None: the function only writes.
    Nothing,
    /// All of the group.
    #[default]
    Everything,
    /// Of a list: the last so many.
    Last(u32),
    /// Of a map: those whose keys stand in these columns of the group's rows.
    KeyedBy(Vec<String>),
}

/// A part of the state of each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableInfo {
    /// Names it for ever.
    pub name: String,
    /// What it holds.
    pub kind: VariableKind,
    /// Fields of a map's key.
    pub key: Vec<Field>,
    /// Fields of the value.
    pub value: Vec<Field>,
    /// Of the value.
    pub version: u32,
    /// An entry is gone so long after it was last written.
    pub ttl_ms: Option<u64>,
    /// Which entries a call is given.
    pub load: Load,
}

impl VariableInfo {
    /// The key's and then the value's fields.
    pub(crate) fn entries(&self) -> Schema {
        Schema::new(self.key.iter().chain(&self.value).cloned().collect())
    }
}

/// What an open function is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// How it is called.
    pub form: Form,
    /// What its timeouts and timers are measured by.
    pub time_mode: TimeMode,
    /// The rows that come out.
    pub output: Schema,
    /// The columns that it reads, by position in the input, ascending.
    pub reads: Vec<usize>,
    /// Its state.
    pub variables: Vec<VariableInfo>,
}

/// Why groups are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// They have rows, or an initial state alone.
    Data = 0,
    /// Their timeout has passed.
    Timeout = 1,
    /// A timer has passed.
    Timer = 2,
}

/// A timer that the host hands in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenTimer<'a> {
    pub(crate) group: u32,
    pub(crate) name: &'a str,
    pub(crate) at: i64,
}

/// The groups of a call.
pub struct Groups<'a> {
    pub(crate) reason: Reason,
    pub(crate) keys: Array<'a>,
    pub(crate) rows: Array<'a>,
    pub(crate) offsets: Offsets<'a>,
    pub(crate) state: Vec<(Array<'a>, Offsets<'a>)>,
    pub(crate) fired: Vec<GivenTimer<'a>>,
    pub(crate) pending: Vec<GivenTimer<'a>>,
}

/// A group's timeout from now on: as it lies in memory for the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Timeout {
    pub(crate) group: u32,
    pub(crate) at: i64,
}

/// What becomes of a timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TimerChange {
    pub(crate) group: u32,
    pub(crate) name: String,
    pub(crate) at: Option<i64>,
}

/// What a call gives back. Its memory is used again.
#[derive(Default)]
pub struct GroupReply {
    pub(crate) rows: Encoder,
    pub(crate) count: usize,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) changes: Vec<Changes>,
    pub(crate) timeouts: Vec<Timeout>,
    pub(crate) timers: Vec<TimerChange>,
}

/// A function over groups. Implemented by the attribute macros on a type that has the function's name.
pub trait GroupFunction: 'static {
    /// What is kept while it is open.
    type Open: 'static;

    /// Resolves the configuration and the schemas of key and input.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] with a message for the user of the function.
    fn open(config: &str, key: &Schema, input: &Schema) -> Result<(Self::Open, Signature), Error>;

    /// Processes the groups of a call.
    ///
    /// # Errors
    /// If the whole call failed.
    fn run(
        open: &mut Self::Open,
        context: &Context,
        groups: &Groups<'_>,
        reply: &mut GroupReply,
    ) -> Result<(), Error>;

    /// Rewrites stored entries of a variable from an older version; appends their columns.
    ///
    /// # Errors
    /// If that version is not known, or its entries are others than expected.
    fn migrate(
        open: &Self::Open,
        variable: usize,
        from: u32,
        old: &Schema,
        entries: &Array<'_>,
        to: &mut Encoder,
    ) -> Result<(), Error>;
}

/// An open function over groups, whatever it is.
pub(crate) trait RunningGroups {
    fn run(&mut self, context: &Context, groups: &Groups<'_>, reply: &mut GroupReply) -> Result<(), Error>;
    fn migrate(
        &self,
        variable: usize,
        from: u32,
        old: &Schema,
        entries: &Array<'_>,
        to: &mut Encoder,
    ) -> Result<(), Error>;
}

struct OpenGroups<F: GroupFunction>(F::Open);

impl<F: GroupFunction> RunningGroups for OpenGroups<F> {
    fn run(&mut self, context: &Context, groups: &Groups<'_>, reply: &mut GroupReply) -> Result<(), Error> {
        F::run(&mut self.0, context, groups, reply)
    }
    fn migrate(
        &self,
        variable: usize,
        from: u32,
        old: &Schema,
        entries: &Array<'_>,
        to: &mut Encoder,
    ) -> Result<(), Error> {
        F::migrate(&self.0, variable, from, old, entries, to)
    }
}

/// Opens any function over groups.
pub(crate) fn open<F: GroupFunction>(
    config: &str,
    key: &Schema,
    input: &Schema,
) -> Result<(Box<dyn RunningGroups>, Signature), Error> {
    let (open, signature) = F::open(config, key, input)?;
    Ok((Box::new(OpenGroups::<F>(open)), signature))
}
