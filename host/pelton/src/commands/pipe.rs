//! `pelton pipe`: a Unix filter. JSON lines from stdin go through a chain of plugin functions to stdout; what is
//! refused goes to stderr, a line each, with its reason. There is no checkpoint and nothing is remembered.

mod chain;
mod input;
mod target;

use super::written;
use crate::cli::PipeArgs;
use crate::{json, plugins};
use arrow::datatypes::{Schema, SchemaRef};
use chain::{Chain, Refused};
use input::{Chunk, Lines};
use pelton_core::types::parse_columns;
use pelton_core::{BatchId, BatchInfo, Clock, DeadLetter, Error, Plugin, QueryId, Result};
use pelton_engine::SystemClock;
use pelton_wasm::{PluginHost, PluginSettings};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use target::Target;

/// The session's time zone: a pipe has no pipeline file that could name another.
const TIME_ZONE: &str = "UTC";

/// Runs until stdin ends or nobody reads stdout any more.
pub(crate) fn run(arguments: &PipeArgs) -> Result<()> {
    let targets = load(arguments)?;
    let declared = arguments.input_schema.as_deref().map(declared_schema).transpose()?;
    let mut lines = Lines::of(std::io::stdin());
    let Some(first) = lines.next_chunk()? else {
        return Ok(());
    };
    let schema = declared.map_or_else(|| json::infer(&first.bytes), Ok)?;
    let mut pipe =
        Pipe { decoder: json::LineDecoder::new(&schema)?, chain: Chain::bind(&targets, &schema)?, batch: 0 };
    let mut next = Some(first);
    while let Some(chunk) = next {
        if !pipe.send(&chunk)? {
            return Ok(());
        }
        next = lines.next_chunk()?;
    }
    Ok(())
}

fn declared_schema(ddl: &str) -> Result<SchemaRef> {
    let columns =
        parse_columns(ddl, TIME_ZONE).map_err(|why| Error::invalid(format!("--input-schema: {why}")))?;
    Ok(Arc::new(Schema::new(columns)))
}

/// Each plugin is loaded once, however many of its functions are in the chain.
fn load(arguments: &PipeArgs) -> Result<Vec<(Target, Arc<dyn Plugin>)>> {
    let targets = arguments.functions.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>>>()?;
    let names: Vec<String> = targets.iter().map(Target::plugin_name).collect();
    let configs = Configs::read(&arguments.config, &names)?;
    let host = plugins::host()?;
    let mut loaded = BTreeMap::new();
    targets
        .into_iter()
        .map(|target| {
            let plugin = match loaded.get(&target.file) {
                Some(plugin) => Arc::clone(plugin),
                None => load_one(&host, &target, &configs)?,
            };
            loaded.insert(target.file.clone(), Arc::clone(&plugin));
            // A wrong name is told before the first row comes, if ever one comes.
            target.choose(plugin.manifest()).map_err(|error| error.context(&target))?;
            Ok((target, plugin))
        })
        .collect()
}

fn load_one(host: &PluginHost, target: &Target, configs: &Configs) -> Result<Arc<dyn Plugin>> {
    let config = configs.of(&target.plugin_name());
    Ok(plugins::load(host, &target.file, PluginSettings { config, ..PluginSettings::default() })?)
}

/// What `--config` gave: for one plugin by its name, or for all of them.
#[derive(Debug, Default)]
struct Configs {
    all: Option<Value>,
    named: BTreeMap<String, Value>,
}

impl Configs {
    fn read(texts: &[String], plugins: &[String]) -> Result<Self> {
        let mut configs = Self::default();
        for text in texts {
            let (name, json) = match text.split_once('=') {
                Some((name, json)) if !text.trim_start().starts_with('{') => (Some(name.trim()), json),
                _ => (None, text.as_str()),
            };
            let value: Value = serde_json::from_str(json)
                .map_err(|why| Error::invalid(format!("--config '{text}' is no JSON: {why}")))?;
            match name {
                None => configs.all = Some(value),
                Some(name) if plugins.iter().any(|plugin| plugin == name) => {
                    configs.named.insert(name.to_owned(), value);
                }
                Some(name) => {
                    let near = pelton_core::suggest::did_you_mean(name, plugins.iter().map(String::as_str));
                    return Err(Error::invalid(format!(
                        "--config: there is no plugin '{name}' in this pipe{near}"
                    )));
                }
            }
        }
        Ok(configs)
    }

    fn of(&self, plugin: &str) -> Value {
        self.named.get(plugin).or(self.all.as_ref()).cloned().unwrap_or(Value::Null)
    }
}

/// What chunks are sent through.
struct Pipe {
    decoder: json::LineDecoder,
    chain: Chain,
    batch: u64,
}

impl Pipe {
    /// Decodes a chunk, sends its rows through the chain and writes what comes out. False if nobody reads it.
    fn send(&mut self, chunk: &Chunk) -> Result<bool> {
        let info = BatchInfo {
            query_id: QueryId("pipe".to_owned()),
            batch_id: BatchId(self.batch),
            time_ms: SystemClock.now_ms(),
            watermark_ms: None,
            late_watermark_ms: None,
        };
        self.batch += 1;
        let decoded = self.decoder.decode(&chunk.bytes, chunk.first_line)?;
        decoded.dead_letters.iter().for_each(report_malformed);
        let mut refused = Vec::new();
        let mut stdout = std::io::stdout().lock();
        for (call, rows) in decoded.batches.into_iter().enumerate() {
            let rows = self.chain.process(&info, call as u64, rows, &mut refused)?;
            if !written(stdout.write_all(&json::lines(&rows)?))? {
                return Ok(false);
            }
        }
        refused.iter().try_for_each(report_refused)?;
        written(stdout.flush())
    }
}

fn report_malformed(letter: &DeadLetter) {
    let (place, text) =
        (letter.position.as_deref().unwrap_or("stdin"), String::from_utf8_lossy(&letter.payload));
    crate::report::say(format_args!("malformed: {place}: {}: {}", letter.reason, text.trim_end()));
}

fn report_refused(refused: &Refused) -> Result<()> {
    let row = json::lines(&refused.row)?;
    let row = String::from_utf8_lossy(&row);
    crate::report::say(format_args!("refused: {}: {}: {}", refused.by, refused.reason, row.trim_end()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn configuration_is_for_one_plugin_or_for_all() {
        let names = ["flights".to_owned(), "redact".to_owned()];
        let texts = ["{\"a\": \"x=y\"}".to_owned(), "redact={\"b\": 2}".to_owned()];
        let configs = Configs::read(&texts, &names).unwrap_or_default();
        assert_eq!((configs.of("flights"), configs.of("redact")), (json!({"a": "x=y"}), json!({"b": 2})));
        let refused = Configs::read(&["flihgts={}".to_owned()], &names);
        assert!(refused.is_err_and(|why| why.to_string().contains("did you mean 'flights'?")));
        assert!(Configs::read(&["{".to_owned()], &names).is_err());
    }
}
