//! `#[pelton::flat_map]`: a row in, any number of rows out.

use super::{Reply, Typed, reuse};
use crate::array::Array;
use crate::config::Config;
use crate::context::Context;
use crate::error::Error;
use crate::input::{Arguments, Matching};
use crate::output::{Output, Row};
use crate::types::Schema;

/// Takes the rows of a flat_map function that takes `&mut Emit<T>`. If the function refuses its input row in the
/// end, what it emitted for that row is forgotten.
#[derive(Debug)]
pub struct Emit<T> {
    rows: Vec<T>,
}

impl<T> Emit<T> {
    /// Puts out a row.
    #[inline]
    pub fn row(&mut self, row: T) {
        self.rows.push(row);
    }
    /// An emitter whose rows can be looked at: for tests of a function.
    pub fn new() -> Self {
        Self { rows: Vec::new() }
    }
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.rows.drain(..)
    }
    /// The rows put out so far.
    pub fn into_rows(self) -> Vec<T> {
        self.rows
    }
}

impl<T> Default for Emit<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// What a function with an emitter may return: nothing, or a `Result` whose error refuses the row.
#[diagnostic::on_unimplemented(
    message = "a flat_map function with `&mut Emit` cannot return `{Self}`",
    label = "the return type of a function that emits",
    note = "it returns nothing, or a Result<(), E> whose error refuses the row"
)]
pub trait EmitReturn {
    /// Why the row is refused, if it is.
    ///
    /// # Errors
    /// The reason.
    fn outcome(self) -> Result<(), String>;
}

impl EmitReturn for () {
    fn outcome(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: std::fmt::Display> EmitReturn for Result<(), E> {
    #[inline]
    fn outcome(self) -> Result<(), String> {
        self.map_err(|e| e.to_string())
    }
}

/// See [`super::Function::open`]. The function is there for its types.
///
/// # Errors
/// If the input schema or the configuration do not suit it.
pub fn open<'a, A, C, T, R, F>(
    config: &str,
    input: &Schema,
    _function: F,
) -> Result<(Typed<C>, Schema), Error>
where
    A: Arguments<'a>,
    C: Config,
    T: Row,
    R: EmitReturn,
    F: Fn(A, &mut Emit<T>, &Context, &C) -> R,
{
    let typed = Typed::new(config, A::plan(input, Matching::Name))?;
    Ok((typed, Schema::new(T::columns())))
}

/// See [`super::Function::run`].
///
/// # Errors
/// If the rows do not have the schema that was agreed.
pub fn run<'a, A, C, T, R, F>(
    typed: &mut Typed<C>,
    context: &Context,
    rows: &Array<'a>,
    reply: &mut Reply,
    function: F,
) -> Result<(), Error>
where
    A: Arguments<'a>,
    C: Config,
    T: Row,
    R: EmitReturn,
    F: Fn(A, &mut Emit<T>, &Context, &C) -> R,
{
    let reader = A::reader(&typed.plan, rows)?;
    let builder: &mut <T as Output>::Builder = reuse(&mut typed.builder);
    let mut emit = Emit::new();
    for row in 0..rows.len() {
        let outcome = match A::read(&reader, row) {
            Ok(input) => function(input, &mut emit, context, &typed.config).outcome(),
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok(()) => emit.rows.drain(..).for_each(|output| output.append(builder)),
            Err(reason) => {
                emit.rows.clear();
                reply.refuse(row, reason);
            }
        }
    }
    reply.rows(builder);
    Ok(())
}

/// Emits what a function returned.
#[inline]
pub fn emit_all<T>(rows: impl IntoIterator<Item = T>, emit: &mut Emit<T>) {
    emit.rows.extend(rows);
}
