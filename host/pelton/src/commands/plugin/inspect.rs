//! `pelton plugin inspect`: what a plugin file holds, for a person or for a program, on stdout; or what one function makes
//! of some columns.

mod function;

use crate::cli::{InspectArgs, PrintFormat};
use crate::commands::print_line;
use crate::plugins;
use pelton_core::{Encoding, Error, FunctionKind, Result};
use pelton_wasm::{Inspection, PluginSettings};
use std::fmt::Write;

/// Loads it and prints it.
pub(crate) fn run(arguments: &InspectArgs) -> Result<()> {
    if let Some(name) = &arguments.function {
        return function::run(arguments, name);
    }
    let plugin = plugins::load(&plugins::host()?, &arguments.file, PluginSettings::default())?;
    let seen = plugin.inspect();
    let page = match arguments.format {
        PrintFormat::Words => words(&seen),
        PrintFormat::Json => serde_json::to_string_pretty(&seen)
            .map_err(|why| Error::internal(format!("the inspection is no JSON: {why}")))?,
    };
    print_line(page.trim_end())
}

fn words(seen: &Inspection) -> String {
    let manifest = &seen.manifest;
    let rows = match manifest.encoding {
        Encoding::Arrow => "Arrow",
        Encoding::Json => "JSON",
    };
    let mut page = format!("{} {}\n", manifest.name, manifest.version);
    let facts = [
        ("form", seen.form.to_string()),
        ("size", format!("{} bytes", seen.size_bytes)),
        ("contract", format!("{}, rows as {rows}", seen.contract_version)),
        ("sha256", seen.digest.to_string()),
        ("imports", list(&seen.imports)),
    ];
    for (name, fact) in facts {
        // Writing to memory does not fail.
        let _ = writeln!(page, "  {name:<10}{fact}");
    }
    let width = manifest.functions.iter().map(|function| function.name.len()).max().unwrap_or(0);
    for function in &manifest.functions {
        let _ = writeln!(page, "  {:<width$}  {:<9}  {}", function.name, kind(function.kind), function.doc);
    }
    page
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

fn kind(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Scalar => "scalar",
        FunctionKind::Transform => "transform",
        FunctionKind::Stateful => "stateful",
        FunctionKind::Aggregate => "aggregate",
        FunctionKind::Sink => "sink",
    }
}
