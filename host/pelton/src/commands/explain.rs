//! `pelton explain`: the assembly comes next.

use crate::cli::PipelineArgs;
use pelton_core::{Error, Result};

/// Not assembled yet.
pub(crate) fn run(_arguments: &PipelineArgs) -> Result<()> {
    Err(Error::internal("this command is not assembled yet"))
}
