//! Transform and sink functions that work on any schema. A transform's output columns are decided when it is opened.
//!
//! ```
//! use pelton::dynamic::{Columns, Rows, Transform};
//! use pelton::{Context, Error, Schema};
//!
//! /// Leaves out the first column.
//! struct Tail;
//!
//! impl Transform for Tail {
//!     const NAME: &'static str = "tail";
//!     const DOC: &'static str = "Leaves out the first column.";
//!     type Config = ();
//!
//!     fn open(_: (), input: &Schema) -> Result<(Self, Schema), String> {
//!         match input.fields.split_first() {
//!             Some((_, tail)) if !tail.is_empty() => Ok((Tail, Schema::new(tail.to_vec()))),
//!             _ => Err("the input needs at least two columns".to_owned()),
//!         }
//!     }
//!
//!     fn process(&mut self, _: &Context, rows: &Rows<'_>, output: &mut Columns) -> Result<(), Error> {
//!         for row in 0..rows.len() {
//!             for (i, column) in rows.columns()[1..].iter().enumerate() {
//!                 output.column(i).push_from(column, row);
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! pelton::plugin!(name: "tail", version: "0.1.0", functions: [Tail]);
//! ```

use crate::array::Array;
use crate::config::Config;
use crate::context::Context;
use crate::error::Error;
use crate::function::{Entry, Exported, Function, Reply};
use crate::output::Build;
use crate::sink::{BatchPart, SinkFunction};
use crate::types::Schema;
use std::marker::PhantomData;

pub use crate::array::Array as Rows;
pub use crate::output::AnyBuilder;

/// A transform function of any schema. List the type itself in [`crate::plugin!`].
pub trait Transform: Sized + 'static {
    /// The function's name.
    const NAME: &'static str;
    /// One line for a person.
    const DOC: &'static str;
    /// Its configuration; `()` if it has none.
    type Config: Config;

    /// Decides the output's columns, of which there must be one at least.
    ///
    /// # Errors
    /// A message for the user of the function: why configuration or schema do not suit it.
    fn open(config: Self::Config, input: &Schema) -> Result<(Self, Schema), String>;

    /// Processes one batch: every output column must end with the same number of values.
    ///
    /// # Errors
    /// If the whole call failed.
    fn process(&mut self, context: &Context, rows: &Array<'_>, output: &mut Columns) -> Result<(), Error>;
}

/// A sink function of any schema. List it as [`AnySink`] of the type in [`crate::plugin!`].
pub trait Sink: Sized + 'static {
    /// The function's name.
    const NAME: &'static str;
    /// One line for a person.
    const DOC: &'static str;
    /// Its configuration; `()` if it has none.
    type Config: Config;

    /// Takes on the schema.
    ///
    /// # Errors
    /// A message for the user of the function: why configuration or schema do not suit it.
    fn open(config: Self::Config, input: &Schema) -> Result<Self, String>;

    /// Writes the rows of a part.
    ///
    /// # Errors
    /// If it cannot; the micro-batch then fails.
    fn write(&mut self, context: &Context, part: BatchPart, rows: &Array<'_>) -> Result<(), Error>;
}

/// Makes a [`Sink`] a function of a plugin: `pelton::plugin!(functions: [AnySink<Post>])`.
pub struct AnySink<S>(PhantomData<S>);

impl<S: Sink> Exported for AnySink<S> {
    const ENTRY: Entry = Entry::sink::<Self>(S::NAME, S::DOC);
}

impl<S: Sink> SinkFunction for AnySink<S> {
    type Open = S;

    fn open(config: &str, input: &Schema) -> Result<S, Error> {
        let config = S::Config::parse(config).map_err(Error::Unsuitable)?;
        S::open(config, input).map_err(Error::Unsuitable)
    }
    fn write(open: &mut S, context: &Context, part: BatchPart, rows: &Array<'_>) -> Result<(), Error> {
        open.write(context, part, rows)
    }
}

/// The output of one call.
pub struct Columns {
    columns: Vec<AnyBuilder>,
    refused: Vec<(usize, String)>,
}

impl Columns {
    /// An output column.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn column(&mut self, index: usize) -> &mut AnyBuilder {
        &mut self.columns[index]
    }
    /// Refuses an input row. Rows must be refused in ascending order.
    pub fn refuse(&mut self, row: usize, reason: impl Into<String>) {
        self.refused.push((row, reason.into()));
    }
}

/// What an open dynamic function keeps.
pub struct State<T> {
    transform: T,
    output: Columns,
}

impl<T: Transform> Exported for T {
    const ENTRY: Entry = Entry::transform::<T>(T::NAME, T::DOC);
}

impl<T: Transform> Function for T {
    type State = State<T>;

    fn open(config: &str, input: &Schema) -> Result<(State<T>, Schema), Error> {
        let config = T::Config::parse(config).map_err(Error::Unsuitable)?;
        let (transform, schema) = T::open(config, input).map_err(Error::Unsuitable)?;
        if schema.fields.is_empty() {
            return Err(Error::Unsuitable("no column is left to put out".to_owned()));
        }
        let columns = schema.fields.iter().map(|f| AnyBuilder::new(&f.data_type)).collect();
        Ok((State { transform, output: Columns { columns, refused: Vec::new() } }, schema))
    }

    fn run(
        state: &mut State<T>,
        context: &Context,
        rows: &Array<'_>,
        reply: &mut Reply,
    ) -> Result<(), Error> {
        let State { transform, output } = state;
        output.columns.iter_mut().for_each(Build::clear);
        transform.process(context, rows, output)?;
        reply.rows = output.columns[0].len();
        if output.columns.iter().any(|column| column.len() != reply.rows) {
            return Err(Error::Failed("the output's columns have different lengths".to_owned()));
        }
        for (row, reason) in output.refused.drain(..) {
            reply.refuse(row, reason);
        }
        output.columns.iter().for_each(|column| column.write(&mut reply.encoder));
        Ok(())
    }
}
