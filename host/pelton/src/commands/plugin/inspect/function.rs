//! One function, opened for some columns: what comes out, and what it keeps if it is one over groups.

use crate::cli::{InspectArgs, PrintFormat};
use crate::commands::print_line;
use crate::plugins;
use arrow::datatypes::{Schema, SchemaRef};
use pelton_core::suggest::did_you_mean;
use pelton_core::types::{columns_name, parse_columns};
use pelton_core::{
    Error, FunctionInfo, FunctionKind, GroupForm, Load, OutputMode, Plugin, Result, StateVariable,
    StatefulSignature, TimeMode, VariableLayout,
};
use pelton_wasm::{PluginSettings, WasmPlugin};
use serde_json::{Value, json};
use std::sync::Arc;

/// Opens it and prints what it says.
pub(super) fn run(arguments: &InspectArgs, name: &str) -> Result<()> {
    let config = serde_json::from_str(&arguments.config)
        .map_err(|why| Error::invalid(format!("--config is no JSON: {why}")))?;
    let settings = PluginSettings { config, ..PluginSettings::default() };
    let plugin = plugins::load(&plugins::host()?, &arguments.file, settings)?;
    let functions = &plugin.manifest().functions;
    let info = functions.iter().find(|info| info.name == name).ok_or_else(|| {
        let near = did_you_mean(name, functions.iter().map(|info| info.name.as_str()));
        Error::invalid(format!("the plugin has no function '{name}'{near}"))
    })?;
    let input = columns("--input-schema", arguments.input_schema.as_deref().unwrap_or_default())?;
    let opened = opened(&plugin, info, &input, &arguments.key)?;
    let page = match arguments.format {
        PrintFormat::Words => opened.words(info, &input),
        PrintFormat::Json => serde_json::to_string_pretty(&opened.json(info, &input))
            .map_err(|why| Error::internal(format!("the function is no JSON: {why}")))?,
    };
    print_line(page.trim_end())
}

fn columns(option: &str, text: &str) -> Result<SchemaRef> {
    if text.is_empty() {
        return Ok(Arc::new(Schema::empty()));
    }
    let columns = parse_columns(text, "UTC").map_err(|why| Error::invalid(format!("{option}: {why}")))?;
    Ok(Arc::new(Schema::new(columns)))
}

/// What a function is once it is open.
enum Opened {
    /// The columns that come out: none of a sink function.
    Rows(Option<SchemaRef>),
    Groups(StatefulSignature),
}

fn opened(plugin: &WasmPlugin, info: &FunctionInfo, input: &SchemaRef, key: &str) -> Result<Opened> {
    let name = info.name.as_str();
    Ok(match info.kind {
        FunctionKind::Scalar => {
            let field = plugin.scalar(name, input.clone())?.field();
            Opened::Rows(Some(Arc::new(Schema::new(vec![field]))))
        }
        FunctionKind::Transform => Opened::Rows(Some(plugin.transform(name, input.clone())?.output_schema())),
        FunctionKind::Stateful => {
            let function = plugin.stateful(name, columns("--key", key)?, input.clone())?;
            Opened::Groups(function.signature().clone())
        }
        FunctionKind::Sink => {
            plugin.sink(name, input.clone(), OutputMode::Append)?;
            Opened::Rows(None)
        }
        FunctionKind::Aggregate => {
            return Err(Error::invalid(format!(
                "'{name}' is an aggregate function, which cannot be opened yet"
            )));
        }
    })
}

impl Opened {
    /// What it is, a name and a value each; a name may come several times.
    fn facts(&self, input: &SchemaRef) -> Vec<(&'static str, String)> {
        match self {
            Self::Rows(None) => Vec::new(),
            Self::Rows(Some(output)) => vec![("gives", columns_name(output.fields()))],
            Self::Groups(signature) => {
                let mut facts = vec![
                    ("form", form(signature.form).to_owned()),
                    ("time", time(signature)),
                    ("reads", reads(signature, input).join(", ")),
                    ("gives", columns_name(signature.output.fields())),
                ];
                facts.extend(
                    signature
                        .variables
                        .iter()
                        .map(|variable| ("keeps", variable_text(variable, signature, input))),
                );
                facts
            }
        }
    }

    fn words(&self, info: &FunctionInfo, input: &SchemaRef) -> String {
        let facts = self.facts(input).into_iter().map(|(name, fact)| format!("  {name:<8}{fact}\n"));
        format!("{}  {}  {}\n{}", info.name, super::kind(info.kind), info.doc, facts.collect::<String>())
    }

    fn json(&self, info: &FunctionInfo, input: &SchemaRef) -> Value {
        let mut page = json!({"function": info.name, "kind": super::kind(info.kind), "doc": info.doc});
        match self {
            Self::Rows(output) => {
                page["output"] = json!(output.as_ref().map(|output| columns_name(output.fields())));
            }
            Self::Groups(signature) => {
                page["form"] = json!(signature.form);
                page["time_mode"] = json!(signature.time_mode);
                page["reads"] = json!(reads(signature, input));
                page["output"] = json!(columns_name(signature.output.fields()));
                let variable = |variable: &StateVariable| {
                    json!({
                        "name": variable.name,
                        "kind": variable.kind,
                        "version": variable.version,
                        "key": columns_name(variable.key.fields()),
                        "value": columns_name(variable.value.fields()),
                        "ttl_ms": variable.ttl_ms,
                        "load": load(variable, signature, input),
                    })
                };
                page["variables"] = signature.variables.iter().map(variable).collect();
            }
        }
        page
    }
}

fn form(form: GroupForm) -> &'static str {
    match form {
        GroupForm::MapGroups => "map_groups: one row a group",
        GroupForm::FlatMapGroups => "flat_map_groups: any number of rows a group",
        GroupForm::Processor => "processor: any number of rows a group",
    }
}

fn time(signature: &StatefulSignature) -> String {
    let what = match signature.form {
        GroupForm::MapGroups | GroupForm::FlatMapGroups => "a timeout",
        GroupForm::Processor => "named timers",
    };
    match signature.time_mode {
        TimeMode::None => "none".to_owned(),
        TimeMode::ProcessingTime => format!("{what} by processing time"),
        TimeMode::EventTime => format!("{what} by event time"),
    }
}

fn reads(signature: &StatefulSignature, input: &SchemaRef) -> Vec<String> {
    signature.reads.iter().map(|column| input.field(*column).name().clone()).collect()
}

/// Which entries a call is given.
fn load(variable: &StateVariable, signature: &StatefulSignature, input: &SchemaRef) -> String {
    match &variable.load {
        Load::Nothing => "nothing".to_owned(),
        Load::Everything => "everything".to_owned(),
        Load::Last(count) => format!("last {count}"),
        Load::KeyedBy(columns) => {
            let reads = reads(signature, input);
            let names = columns.iter().filter_map(|column| reads.get(*column).cloned());
            format!("keyed by {}", names.collect::<Vec<_>>().join(", "))
        }
    }
}

fn variable_text(variable: &StateVariable, signature: &StatefulSignature, input: &SchemaRef) -> String {
    let mut text = VariableLayout::of(variable).to_string();
    if variable.load != Load::Everything {
        text.push_str(&format!("; loads {}", load(variable, signature, input)));
    }
    if let Some(ttl_ms) = variable.ttl_ms {
        text.push_str(&format!("; gone {ttl_ms} ms after its last write"));
    }
    text
}
