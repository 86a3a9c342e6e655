//! `#[pelton::scalar]` and `#[pelton::filter]`: one value for each row.

use super::{Reply, Typed, reuse};
use crate::array::Array;
use crate::config::Config;
use crate::context::Context;
use crate::error::Error;
use crate::input::{Arguments, Matching};
use crate::output::{Build, Output};
use crate::types::{Field, Schema};
use std::fmt::Display;

/// What a scalar function may return: a value, or a `Result` whose error refuses the row.
pub trait ScalarReturn {
    /// The value.
    type Value: Output;
    /// The value, or why the row is refused.
    ///
    /// # Errors
    /// The reason.
    fn outcome(self) -> Result<Self::Value, String>;
}

impl<T: Output> ScalarReturn for T {
    type Value = T;
    #[inline]
    fn outcome(self) -> Result<T, String> {
        Ok(self)
    }
}

impl<T: Output, E: Display> ScalarReturn for Result<T, E> {
    type Value = T;
    #[inline]
    fn outcome(self) -> Result<T, String> {
        self.map_err(|e| e.to_string())
    }
}

/// What a filter may return.
#[diagnostic::on_unimplemented(
    message = "a filter returns `bool`, not `{Self}`",
    label = "the return type of a filter",
    note = "it may also return `Option<bool>` (None counts as false) or `Result` of these to refuse a row"
)]
pub trait FilterReturn: ScalarReturn {}
impl FilterReturn for bool {}
impl FilterReturn for Option<bool> {}
impl<E: Display> FilterReturn for Result<bool, E> {}
impl<E: Display> FilterReturn for Result<Option<bool>, E> {}

/// Makes the compiler check a filter's return type.
pub const fn is_filter<R: FilterReturn>() {}

/// See [`super::Function::open`]. The function is there for its types.
///
/// # Errors
/// If the arguments or the configuration do not suit it.
pub fn open<'a, A, C, R, F>(
    name: &str,
    config: &str,
    input: &Schema,
    _function: F,
) -> Result<(Typed<C>, Schema), Error>
where
    A: Arguments<'a>,
    C: Config,
    R: ScalarReturn,
    F: Fn(A, &Context, &C) -> R,
{
    let typed = Typed::new(config, A::plan(input, Matching::NameOrOrder))?;
    // Nullable whatever the type: at a refused row there is no value.
    let field = Field::new(name, R::Value::data_type(), true);
    Ok((typed, Schema::new(vec![field])))
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
    R: ScalarReturn,
    F: Fn(A, &Context, &C) -> R,
{
    let reader = A::reader(&typed.plan, rows)?;
    let builder: &mut <R::Value as Output>::Builder = reuse(&mut typed.builder);
    for row in 0..rows.len() {
        let outcome = match A::read(&reader, row) {
            Ok(arguments) => function(arguments, context, &typed.config).outcome(),
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok(value) => value.append(builder),
            Err(reason) => {
                builder.append_null();
                reply.refuse(row, reason);
            }
        }
    }
    reply.column(builder);
    Ok(())
}
