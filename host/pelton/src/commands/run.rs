//! `pelton run`: the assembly comes next.

use crate::cli::RunArgs;
use pelton_core::{Error, Result};

/// Not assembled yet.
pub(crate) fn run(_arguments: &RunArgs) -> Result<()> {
    Err(Error::internal("this command is not assembled yet"))
}
