//! `pelton schema`: what a pipeline file may hold, generated from the types that read it, on stdout.

use super::print_line;
use crate::cli::{SchemaArgs, SchemaFormat};
use pelton_core::{Error, Result};
use pelton_plan::file::{PipelineFile, reference_markdown};

/// Prints it.
pub(crate) fn run(arguments: &SchemaArgs) -> Result<()> {
    let page = match arguments.format {
        SchemaFormat::Json => serde_json::to_string_pretty(&PipelineFile::json_schema())
            .map_err(|why| Error::internal(format!("the schema is no JSON: {why}")))?,
        SchemaFormat::Markdown => reference_markdown(),
    };
    print_line(page.trim_end())
}
