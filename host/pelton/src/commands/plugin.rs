//! `pelton plugin …`: one module a command.

pub(crate) mod build;
pub(crate) mod inspect;
pub(crate) mod new;
pub(crate) mod test;
