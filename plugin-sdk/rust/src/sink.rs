//! `#[pelton::sink]`: rows in, nothing out. Spark's `foreachBatch`.

use crate::array::Array;
use crate::config::Config;
use crate::context::{Clock, Context};
use crate::error::Error;
use crate::function::{Kind, Opener, Rejected};
use crate::groups::rows::{Reader, Rows};
use crate::input::{Input, Plan};
use crate::ipc;
use crate::runtime::{Plugin, find};
use crate::types::{DataType, Field, Schema};
use std::cell::RefCell;
use std::fmt::Display;

/// Which rows a micro-batch brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputMode {
    /// New ones.
    #[default]
    Append = 0,
    /// Changed ones.
    Update = 1,
    /// The whole result.
    Complete = 2,
}

/// Where a call stands in its micro-batch. A large one comes in several parts, one after the other; an empty one in a
/// single part without rows. After a failure all of them come again, the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPart {
    /// From 0.
    pub number: u32,
    /// No further part follows.
    pub is_last: bool,
    /// Which rows these are.
    pub output_mode: OutputMode,
}

/// A sink function. Implemented by the attribute macro on a type that has the function's name.
pub trait SinkFunction: 'static {
    /// What is kept while it is open.
    type Open: 'static;

    /// Checks configuration and schema.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] with a message for the user of the function.
    fn open(config: &str, input: &Schema) -> Result<Self::Open, Error>;

    /// Writes the rows of a part.
    ///
    /// # Errors
    /// If it cannot; the micro-batch then fails.
    fn write(
        open: &mut Self::Open,
        context: &Context,
        part: BatchPart,
        rows: &Array<'_>,
    ) -> Result<(), Error>;
}

/// An open sink function, whatever it is.
pub(crate) trait RunningSink {
    fn write(&mut self, context: &Context, part: (u32, bool), rows: &Array<'_>) -> Result<(), Error>;
}

struct OpenSink<F: SinkFunction> {
    open: F::Open,
    output_mode: OutputMode,
}

impl<F: SinkFunction> RunningSink for OpenSink<F> {
    fn write(&mut self, context: &Context, part: (u32, bool), rows: &Array<'_>) -> Result<(), Error> {
        let part = BatchPart { number: part.0, is_last: part.1, output_mode: self.output_mode };
        F::write(&mut self.open, context, part, rows)
    }
}

/// Opens any sink function.
pub(crate) fn open<F: SinkFunction>(
    config: &str,
    input: &Schema,
    output_mode: OutputMode,
) -> Result<Box<dyn RunningSink>, Error> {
    Ok(Box::new(OpenSink::<F> { open: F::open(config, input)?, output_mode }))
}

/// An open sink function, behind messages.
pub(crate) struct SinkSession {
    running: Box<dyn RunningSink>,
    input: Schema,
}

impl SinkSession {
    /// Opens a function for a schema message.
    pub(crate) fn open(
        plugin: &Plugin,
        function: &str,
        config: &str,
        input: &[u8],
        output_mode: OutputMode,
    ) -> Result<Self, Error> {
        let Opener::Sink(open) = find(plugin, Kind::Sink, function)?.open else {
            return Err(Error::Unsuitable(format!("'{function}' is not a sink function")));
        };
        let input = ipc::read_schema(input)?;
        Ok(Self { running: open(config, &input, output_mode)?, input })
    }

    /// Writes a part.
    pub(crate) fn write(&mut self, clock: Clock, part: (u32, bool), rows: &[u8]) -> Result<(), Error> {
        let rows = ipc::read_batch(rows, &self.input)?;
        self.running.write(&Context::new(clock), part, &rows)
    }
}

/// What an attribute's function keeps while it is open.
pub struct TypedSink<C> {
    config: C,
    plan: Plan,
}

/// What a sink function may return: nothing, or a `Result` whose error fails the micro-batch.
#[diagnostic::on_unimplemented(
    message = "a sink function cannot return `{Self}`",
    label = "the return type of a sink function",
    note = "it returns nothing, or a Result<(), E> whose error fails the micro-batch"
)]
pub trait SinkReturn {
    /// Why the micro-batch fails, if it does.
    ///
    /// # Errors
    /// The reason.
    fn outcome(self) -> Result<(), String>;
}

impl SinkReturn for () {
    fn outcome(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: Display> SinkReturn for Result<(), E> {
    fn outcome(self) -> Result<(), String> {
        self.map_err(|e| e.to_string())
    }
}

/// See [`SinkFunction::open`]. The function is there for its types.
///
/// # Errors
/// If input or configuration do not suit it.
pub fn open_typed<'a, T, C, R, F>(config: &str, input: &Schema, _function: F) -> Result<TypedSink<C>, Error>
where
    T: Input<'a>,
    C: Config,
    R: SinkReturn,
    F: Fn(Rows<'_, T>, BatchPart, &Context, &C) -> R,
{
    let row = Field::new("", DataType::Struct(input.fields.clone()), false);
    let plan = T::plan(&row, "").map_err(Error::Unsuitable)?;
    Ok(TypedSink { config: C::parse(config).map_err(Error::Unsuitable)?, plan })
}

/// See [`SinkFunction::write`]. A row that cannot be read fails the micro-batch: there is no further place for it.
///
/// # Errors
/// The function's.
pub fn write_typed<'a, T, C, R, F>(
    open: &TypedSink<C>,
    context: &Context,
    part: BatchPart,
    rows: &Array<'a>,
    function: F,
) -> Result<(), Error>
where
    T: Input<'a>,
    C: Config,
    R: SinkReturn,
    F: Fn(Rows<'_, T>, BatchPart, &Context, &C) -> R,
{
    let reader = Reader::<T>(T::reader(&open.plan, rows)?);
    let refused: RefCell<Vec<Rejected>> = RefCell::default();
    let outcome =
        function(Rows::new(&reader, &refused, 0..rows.len()), part, context, &open.config).outcome();
    outcome.map_err(Error::Failed)?;
    match refused.take().first() {
        Some(refused) => Err(Error::Failed(format!("row {}: {}", refused.row, refused.reason))),
        None => Ok(()),
    }
}
