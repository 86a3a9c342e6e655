//! `pelton plugin test`: runs a plugin against cases (the format is plugin-sdk/conformance/README.md), a line a case
//! on stdout. Each case gets a plugin of its own, freshly loaded.

mod answer;
mod capture;
mod cases;
mod check;
mod stateful;

use crate::cli::TestArgs;
use crate::commands::print_line;
use crate::plugins;
use cases::{Case, CaseFile};
use pelton_core::suggest::did_you_mean;
use pelton_core::words::counted;
use pelton_core::{Error, Plugin, Result};
use pelton_wasm::{PluginHost, PluginSettings};
use std::collections::HashSet;
use std::path::Path;

/// Runs all cases of all files; an error if any failed.
pub(crate) fn run(arguments: &TestArgs) -> Result<()> {
    let subject = Subject {
        host: plugins::host()?,
        name: arguments.file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        bytes: plugins::read(&arguments.file)?,
    };
    let (mut run, mut failed) = (0, 0);
    for path in &arguments.cases {
        let file = read(path)?;
        subject.is_meant(&file, path)?;
        for case in &file.cases {
            run += 1;
            let outcome = subject.run(case);
            failed += usize::from(outcome.is_err());
            print_line(&match outcome {
                Ok(()) => format!("ok      {}", case.name),
                Err(why) => format!("FAILED  {}\n        {}", case.name, why.replace('\n', "\n        ")),
            })?;
        }
    }
    match failed {
        0 => print_line(&format!("{}, all as expected", counted(run, "case"))),
        _ => Err(Error::data(format!("{failed} of {} failed", counted(run, "case")))),
    }
}

/// The plugin under test.
struct Subject {
    host: PluginHost,
    name: String,
    bytes: Vec<u8>,
}

impl Subject {
    /// Cases may name the plugin that they are for.
    fn is_meant(&self, file: &CaseFile, path: &Path) -> Result<()> {
        let Some(wanted) = &file.plugin else { return Ok(()) };
        let plugin = self.host.load(&self.name, &self.bytes, PluginSettings::default())?;
        let found = &plugin.manifest().name;
        if found == wanted {
            return Ok(());
        }
        let cases = path.display();
        Err(Error::data(format!("{cases} is for the plugin '{wanted}'; this one calls itself '{found}'")))
    }

    fn run(&self, case: &Case) -> Result<(), String> {
        let answer = answer::of(self, case)?;
        check::check(&case.expect, &answer)
    }
}

/// Reads a file of cases and refuses names that are there twice.
fn read(path: &Path) -> Result<CaseFile> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|why| Error::invalid(format!("cannot read {shown}: {why}")))?;
    let file: CaseFile = serde_json::from_str(&text).map_err(|why| {
        Error::invalid(format!("{shown}:{}:{}: {}", why.line(), why.column(), cases::without_place(&why)))
    })?;
    let mut seen = HashSet::new();
    match file.cases.iter().find(|case| !seen.insert(case.name.as_str())) {
        Some(twice) => Err(Error::invalid(format!("{shown}: there are two cases named '{}'", twice.name))),
        None => Ok(file),
    }
}

/// `; did you mean …` for a column that rows name and the schema has not.
fn unknown_column(column: &str, schema: &arrow::datatypes::Schema) -> String {
    let names = schema.fields().iter().map(|field| field.name().as_str());
    format!("there is no column '{column}'{}", did_you_mean(column, names))
}
