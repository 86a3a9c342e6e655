//! `#[pelton::map]`: a row in, at most one row out.

use super::{Reply, Typed, reuse};
use crate::array::Array;
use crate::config::Config;
use crate::context::Context;
use crate::error::Error;
use crate::input::{Arguments, Matching};
use crate::output::{Output, Row};
use crate::types::Schema;
use std::fmt::Display;

/// What a map function may return: a row, an `Option` of one (`None` drops the row), or a `Result` of these
/// whose error refuses the row.
#[diagnostic::on_unimplemented(
    message = "a map function cannot return `{Self}`",
    label = "the return type of a map function",
    note = "it returns a struct with #[derive(pelton::Row)], an Option of one (None drops the row), or a Result \
            of these whose error refuses the row"
)]
pub trait MapReturn {
    /// The row.
    type Row: Row;
    /// The row or none, or why the input row is refused.
    ///
    /// # Errors
    /// The reason.
    fn outcome(self) -> Result<Option<Self::Row>, String>;
}

impl<T: Row> MapReturn for T {
    type Row = T;
    #[inline]
    fn outcome(self) -> Result<Option<T>, String> {
        Ok(Some(self))
    }
}

impl<T: Row> MapReturn for Option<T> {
    type Row = T;
    #[inline]
    fn outcome(self) -> Result<Option<T>, String> {
        Ok(self)
    }
}

impl<T: Row, E: Display> MapReturn for Result<T, E> {
    type Row = T;
    #[inline]
    fn outcome(self) -> Result<Option<T>, String> {
        self.map(Some).map_err(|e| e.to_string())
    }
}

impl<T: Row, E: Display> MapReturn for Result<Option<T>, E> {
    type Row = T;
    #[inline]
    fn outcome(self) -> Result<Option<T>, String> {
        self.map_err(|e| e.to_string())
    }
}

/// See [`super::Function::open`]. The function is there for its types.
///
/// # Errors
/// If the input schema or the configuration do not suit it.
pub fn open<'a, A, C, R, F>(config: &str, input: &Schema, _function: F) -> Result<(Typed<C>, Schema), Error>
where
    A: Arguments<'a>,
    C: Config,
    R: MapReturn,
    F: Fn(A, &Context, &C) -> R,
{
    let typed = Typed::new(config, A::plan(input, Matching::Name))?;
    Ok((typed, Schema::new(R::Row::columns())))
}

/// See [`super::Function::run`].
///
/// # Errors
/// If the rows do not have the schema that was agreed.
pub fn run<'a, A, C, R, F>(
    typed: &mut Typed<C>,
    context: &Context,
    rows: &Array<'a>,
    reply: &mut Reply,
    function: F,
) -> Result<(), Error>
where
    A: Arguments<'a>,
    C: Config,
    R: MapReturn,
    F: Fn(A, &Context, &C) -> R,
{
    let reader = A::reader(&typed.plan, rows)?;
    let builder: &mut <R::Row as Output>::Builder = reuse(&mut typed.builder);
    for row in 0..rows.len() {
        let outcome = match A::read(&reader, row) {
            Ok(input) => function(input, context, &typed.config).outcome(),
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok(Some(output)) => output.append(builder),
            Ok(None) => {}
            Err(reason) => reply.refuse(row, reason),
        }
    }
    reply.rows(builder);
    Ok(())
}
