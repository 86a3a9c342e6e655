//! The variables of a function, all together. `run` hands them from group to group.

use super::Timeout;
use super::variables::{Declared, Moment, Variable};
use super::written::Changes;
use crate::array::{Array, Offsets};
use crate::error::Error;
use crate::input::Plan;
use crate::ipc::Encoder;
use crate::types::Schema;

/// The variables of a function: a tuple of them.
pub trait Variables: Default + 'static {
    /// Reads the entries of a call.
    type Readers<'a>;
    /// What their types say of them, in order.
    fn declared() -> Vec<Declared>;
    /// Matches each with its stored fields.
    ///
    /// # Errors
    /// As [`Variable::plans`].
    fn plans(entries: &[Schema]) -> Result<Vec<Vec<Plan>>, Error>;
    /// Readers for a call.
    ///
    /// # Errors
    /// As [`Variable::reader`].
    fn readers<'a>(
        plans: &[Vec<Plan>],
        state: &[(Array<'a>, Offsets<'a>)],
    ) -> Result<Self::Readers<'a>, Error>;
    /// Takes on a group.
    ///
    /// # Errors
    /// As [`Variable::begin`].
    fn begin(
        &mut self,
        readers: &Self::Readers<'_>,
        state: &[(Array<'_>, Offsets<'_>)],
        group: usize,
        moment: &Moment,
    ) -> Result<(), Error>;
    /// Notes what was changed of the group.
    fn end(&mut self, group: u32, timeouts: &mut Vec<Timeout>);
    /// Forgets changes that were not written.
    fn forget(&mut self);
    /// Writes the changes of all groups.
    fn write(&mut self, entries: &[Schema], changes: &mut [Changes]);
    /// Rewrites entries of one of them.
    ///
    /// # Errors
    /// As [`Variable::migrate`].
    fn migrate(
        variable: usize,
        from: u32,
        old: &Schema,
        entries: &Array<'_>,
        to: &mut Encoder,
    ) -> Result<(), Error>;
}

macro_rules! variables {
    ($($name:ident $index:tt),*) => {
        #[allow(unused_variables, reason = "a function may have no variables")]
        impl<$($name: Variable),*> Variables for ($($name,)*) {
            type Readers<'a> = ($($name::Reader<'a>,)*);

            fn declared() -> Vec<Declared> {
                vec![$($name::declared()),*]
            }
            fn plans(entries: &[Schema]) -> Result<Vec<Vec<Plan>>, Error> {
                Ok(vec![$($name::plans(&entries[$index])?),*])
            }
            fn readers<'a>(
                plans: &[Vec<Plan>],
                state: &[(Array<'a>, Offsets<'a>)],
            ) -> Result<Self::Readers<'a>, Error> {
                Ok(($($name::reader(&plans[$index], &state[$index].0)?,)*))
            }
            #[inline]
            fn begin(
                &mut self,
                readers: &Self::Readers<'_>,
                state: &[(Array<'_>, Offsets<'_>)],
                group: usize,
                moment: &Moment,
            ) -> Result<(), Error> {
                $(self.$index.begin(&readers.$index, state[$index].1.range(group), moment)?;)*
                Ok(())
            }
            #[inline]
            fn end(&mut self, group: u32, timeouts: &mut Vec<Timeout>) {
                $(self.$index.end(group, timeouts);)*
            }
            fn forget(&mut self) {
                $(self.$index.forget();)*
            }
            fn write(&mut self, entries: &[Schema], changes: &mut [Changes]) {
                $(self.$index.write(&entries[$index], &mut changes[$index]);)*
            }
            fn migrate(
                variable: usize,
                from: u32,
                old: &Schema,
                entries: &Array<'_>,
                to: &mut Encoder,
            ) -> Result<(), Error> {
                match variable {
                    $($index => $name::migrate(from, old, entries, to),)*
                    _ => Err(Error::Failed("there is no such variable".to_owned())),
                }
            }
        }
    };
}

variables!();
variables!(V0 0);
variables!(V0 0, V1 1);
variables!(V0 0, V1 1, V2 2);
variables!(V0 0, V1 1, V2 2, V3 3);
variables!(V0 0, V1 1, V2 2, V3 3, V4 4);
variables!(V0 0, V1 1, V2 2, V3 3, V4 4, V5 5);
variables!(V0 0, V1 1, V2 2, V3 3, V4 4, V5 5, V6 6);
variables!(V0 0, V1 1, V2 2, V3 3, V4 4, V5 5, V6 6, V7 7);
