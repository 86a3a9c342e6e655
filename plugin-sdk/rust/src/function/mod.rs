//! What a plugin's functions are to the runtime: opened once for a schema, then called batch by batch.
//!
//! The attribute macros implement [`Function`] for a type named like the user's function, by way of `scalar`,
//! `map` and `flat_map`; [`crate::dynamic`] does it for functions that work on any schema.

pub mod flat_map;
pub mod map;
pub mod scalar;

use crate::array::Array;
use crate::config::Config;
use crate::context::Context;
use crate::error::Error;
use crate::groups::{GroupFunction, RunningGroups, Signature};
use crate::input::Plan;
use crate::ipc::Encoder;
use crate::output::{Build, BuildRow};
use crate::sink::{OutputMode, RunningSink, SinkFunction};
use crate::types::Schema;
use std::any::Any;

/// What a function can be used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Columns in, one column out, row for row.
    Scalar = 0,
    /// Rows in, any number of rows out.
    Transform = 1,
    /// Groups of rows and their state in, rows and new state out.
    Stateful = 2,
    /// Rows in, nothing out.
    Sink = 4,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Transform => "transform",
            Self::Stateful => "stateful",
            Self::Sink => "sink",
        }
    }
}

/// A function of a plugin, of whatever kind: the attribute macros implement it on a type that has the function's
/// name, [`crate::plugin!`] and the testing harness take it.
pub trait Exported: 'static {
    /// Its entry in the plugin's list.
    const ENTRY: Entry;
}

/// A function over rows, each for itself. Implemented by the attribute macros.
pub trait Function: 'static {
    /// What is kept while it is open.
    type State: 'static;

    /// Resolves configuration and input schema to the output schema.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] with a message for the user of the function.
    fn open(config: &str, input: &Schema) -> Result<(Self::State, Schema), Error>;

    /// Processes one batch. The rows that come out are in `reply` when it returns.
    ///
    /// # Errors
    /// If the whole call failed.
    fn run(
        state: &mut Self::State,
        context: &Context,
        rows: &Array<'_>,
        reply: &mut Reply,
    ) -> Result<(), Error>;
}

/// An input row that a function refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its place in the input batch.
    pub row: u32,
    /// Why.
    pub reason: String,
}

/// What a call gives back.
#[derive(Default)]
pub struct Reply {
    pub(crate) encoder: Encoder,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) rows: usize,
}

impl Reply {
    /// Notes a refused row; rows must be given in ascending order.
    pub(crate) fn refuse(&mut self, row: usize, reason: String) {
        self.rejected.push(Rejected { row: row as u32, reason });
    }
    pub(crate) fn rows<B: BuildRow>(&mut self, builder: &B) {
        builder.write_columns(&mut self.encoder);
        self.rows = builder.len();
    }
    pub(crate) fn column<B: Build>(&mut self, builder: &B) {
        builder.write(&mut self.encoder);
        self.rows = builder.len();
    }
}

/// What an attribute's function keeps while it is open.
pub struct Typed<C> {
    plan: Plan,
    config: C,
    builder: Option<Box<dyn Any>>,
}

impl<C: Config> Typed<C> {
    pub(crate) fn new(config: &str, plan: Result<Plan, String>) -> Result<Self, Error> {
        let config = C::parse(config).map_err(Error::Unsuitable)?;
        Ok(Self { plan: plan.map_err(Error::Unsuitable)?, config, builder: None })
    }
}

/// The builder of the last call, emptied, or a new one.
pub(crate) fn reuse<B: Build + Default>(kept: &mut Option<Box<dyn Any>>) -> &mut B {
    if !kept.as_ref().is_some_and(|kept| kept.is::<B>()) {
        *kept = Some(Box::<B>::default());
    }
    let builder = kept.as_mut().and_then(|kept| kept.downcast_mut::<B>());
    let builder = builder.unwrap_or_else(|| unreachable!("the box was just filled with this type"));
    builder.clear();
    builder
}

/// A function that is open.
pub(crate) trait Running {
    fn run(&mut self, context: &Context, rows: &Array<'_>, reply: &mut Reply) -> Result<(), Error>;
}

struct Open<F: Function>(F::State);

impl<F: Function> Running for Open<F> {
    fn run(&mut self, context: &Context, rows: &Array<'_>, reply: &mut Reply) -> Result<(), Error> {
        F::run(&mut self.0, context, rows, reply)
    }
}

type OpenRows = (Box<dyn Running>, Schema);
type OpenGroups = (Box<dyn RunningGroups>, Signature);
type OpenSink = Box<dyn RunningSink>;

/// How a function is opened: with configuration, key and input.
pub(crate) enum Opener {
    Rows(fn(&str, &Schema) -> Result<OpenRows, Error>),
    Groups(fn(&str, &Schema, &Schema) -> Result<OpenGroups, Error>),
    Sink(fn(&str, &Schema, OutputMode) -> Result<OpenSink, Error>),
}

/// A function in a plugin's list.
pub struct Entry {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    #[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "only the Wasm export describes"))]
    pub(crate) doc: &'static str,
    pub(crate) open: Opener,
}

impl Entry {
    /// The entry of a scalar function.
    pub const fn scalar<F: Function>(name: &'static str, doc: &'static str) -> Self {
        Self { name, kind: Kind::Scalar, doc, open: Opener::Rows(open::<F>) }
    }
    /// The entry of a transform function.
    pub const fn transform<F: Function>(name: &'static str, doc: &'static str) -> Self {
        Self { name, kind: Kind::Transform, doc, open: Opener::Rows(open::<F>) }
    }
    /// The entry of a function over groups.
    pub const fn groups<F: GroupFunction>(name: &'static str, doc: &'static str) -> Self {
        Self { name, kind: Kind::Stateful, doc, open: Opener::Groups(crate::groups::open::<F>) }
    }
    /// The entry of a sink function.
    pub const fn sink<F: SinkFunction>(name: &'static str, doc: &'static str) -> Self {
        Self { name, kind: Kind::Sink, doc, open: Opener::Sink(crate::sink::open::<F>) }
    }
}

fn open<F: Function>(config: &str, input: &Schema) -> Result<(Box<dyn Running>, Schema), Error> {
    let (state, output) = F::open(config, input)?;
    Ok((Box::new(Open::<F>(state)), output))
}
