//! The plugins of a pipeline file, loaded.

use bytes::Bytes;
use pelton_core::{Error, Plugin, PluginDigest, Result, suggest};
use pelton_engine::PluginCode;
use pelton_plan::PipelineFile;
use pelton_plan::file::{Duration, PluginLimits, RecycleLimits, SpannedText};
use pelton_wasm::{HttpAllowance, HttpOrigin, Limits, PluginHost, PluginSettings, Recycle};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `--plugin NAME=PATH`: plugins that are taken from elsewhere than the pipeline file says.
pub(crate) struct Overrides(BTreeMap<String, PathBuf>);

impl Overrides {
    /// Every name must be a plugin of one of the files.
    pub(crate) fn new(pairs: &[(String, String)], files: &[PipelineFile]) -> Result<Self> {
        for (name, _) in pairs {
            let mut names = files.iter().flat_map(|file| file.plugins.keys()).map(String::as_str);
            if !names.any(|known| known == name) {
                let names = files.iter().flat_map(|file| file.plugins.keys()).map(String::as_str);
                let near = suggest::did_you_mean(name, names);
                return Err(Error::invalid(format!(
                    "--plugin {name}: no pipeline file has a plugin '{name}'{near}"
                )));
            }
        }
        Ok(Self(pairs.iter().map(|(name, path)| (name.clone(), PathBuf::from(path))).collect()))
    }

    /// Whether a plugin is taken from elsewhere.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether none is.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Overrides {
    /// Where a plugin is taken from, if it is one of them.
    pub(crate) fn get(&self, plugin: &str) -> Option<&Path> {
        self.0.get(plugin).map(PathBuf::as_path)
    }
}

/// Plugins by their name in the file.
#[derive(Clone)]
pub(crate) struct Plugins(BTreeMap<String, Loaded>);

#[derive(Clone)]
struct Loaded {
    plugin: Arc<dyn Plugin>,
    bytes: Bytes,
}

impl Plugins {
    /// Reads and loads them all.
    pub(crate) fn load(host: &PluginHost, file: &PipelineFile, overrides: &Overrides) -> Result<Self> {
        let mut plugins = BTreeMap::new();
        for (name, spec) in &file.plugins {
            let options = spec.options();
            let path = overrides.0.get(name).map_or_else(|| Path::new(&options.path.value), PathBuf::as_path);
            let bytes =
                Bytes::from(crate::plugins::read(path).map_err(
                    |error| match overrides.0.contains_key(name) {
                        true => error.context(format_args!("--plugin {name}")),
                        false => placed(file, options.path.span, error),
                    },
                )?);
            let loaded = loaded(host, name, bytes, settings(file, name)?);
            let loaded = loaded.map_err(|error| placed(file, options.path.span, error))?;
            plugins.insert(name.clone(), loaded);
        }
        Ok(Self(plugins))
    }

    /// The same plugins with other bytes for some of them, which do not come from the paths in the file.
    pub(crate) fn with_code(
        &self,
        host: &PluginHost,
        file: &PipelineFile,
        code: Vec<(String, Bytes)>,
    ) -> Result<Self> {
        self.with_code_beside(host, file, code, None)
    }

    /// Loads all of them once more, and other bytes for one: what they cost is counted apart, and what they log is marked.
    pub(crate) fn beside(
        &self,
        host: &PluginHost,
        file: &PipelineFile,
        (plugin, bytes): (String, Bytes),
    ) -> Result<[Self; 2]> {
        let code = self.0.iter().map(|(name, loaded)| (name.clone(), loaded.bytes.clone()));
        let running = self.with_code_beside(host, file, code.collect(), Some("shadow, running"))?;
        let new = running.with_code_beside(host, file, vec![(plugin, bytes)], Some("shadow, new"))?;
        Ok([running, new])
    }

    fn with_code_beside(
        &self,
        host: &PluginHost,
        file: &PipelineFile,
        code: Vec<(String, Bytes)>,
        mark: Option<&str>,
    ) -> Result<Self> {
        let mut plugins = self.clone();
        for (name, bytes) in code {
            let log_name = mark.map(|mark| format!("{name} ({mark})"));
            let settings = PluginSettings { log_name, ..settings(file, &name)? };
            let loaded = loaded(host, &name, bytes, settings)?;
            plugins.0.insert(name, loaded);
        }
        Ok(plugins)
    }

    /// For the planner.
    pub(crate) fn loaded(&self) -> BTreeMap<String, Arc<dyn Plugin>> {
        self.0.iter().map(|(name, loaded)| (name.clone(), Arc::clone(&loaded.plugin))).collect()
    }

    /// One of them.
    pub(crate) fn get(&self, name: &str) -> Option<&dyn Plugin> {
        self.0.get(name).map(|loaded| loaded.plugin.as_ref())
    }

    /// For the checkpoint.
    pub(crate) fn code(&self) -> BTreeMap<String, PluginCode> {
        let code = |loaded: &Loaded| PluginCode {
            digest: loaded.plugin.digest().clone(),
            bytes: loaded.bytes.clone(),
        };
        self.0.iter().map(|(name, loaded)| (name.clone(), code(loaded))).collect()
    }

    /// The same with the version that others have of one.
    pub(crate) fn with_version_of(mut self, name: &str, others: &Self) -> Self {
        if let Some(loaded) = others.0.get(name) {
            self.0.insert(name.to_owned(), loaded.clone());
        }
        self
    }

    /// Which bytes they have.
    pub(crate) fn digests(&self) -> BTreeMap<String, PluginDigest> {
        self.0.iter().map(|(name, loaded)| (name.clone(), loaded.plugin.digest().clone())).collect()
    }

    /// Which bytes a plugin has.
    pub(crate) fn digest(&self, name: &str) -> Option<&PluginDigest> {
        self.0.get(name).map(|loaded| loaded.plugin.digest())
    }
}

fn loaded(host: &PluginHost, name: &str, bytes: Bytes, settings: PluginSettings) -> Result<Loaded> {
    let plugin = host.load(name, &bytes, settings)?;
    Ok(Loaded { plugin, bytes })
}

/// What the file says of a plugin.
fn settings(file: &PipelineFile, name: &str) -> Result<PluginSettings> {
    let options = file.plugins.get(name).map(pelton_plan::file::PluginSpec::options);
    let options =
        options.ok_or_else(|| Error::internal(format!("the plugin '{name}' is not in the file")))?;
    Ok(PluginSettings {
        config: options.config.clone().into(),
        limits: limits(file, &options.limits)?,
        time_zone: file.time_zone().to_owned(),
        http: HttpAllowance {
            origins: origins(file, &options.allow.http)?,
            private: origins(file, &options.allow.http_private)?,
        },
        ..PluginSettings::default()
    })
}

/// Whom a plugin may speak to.
fn origins(file: &PipelineFile, named: &[SpannedText]) -> Result<Vec<HttpOrigin>> {
    let origin =
        |text: &SpannedText| HttpOrigin::parse(&text.value).map_err(|why| file.text().error(text.span, why));
    named.iter().map(origin).collect()
}

/// An error that shows the line of the file that it is about; kind and hint stay.
pub(super) fn placed(file: &PipelineFile, span: pelton_plan::file::Span, error: Error) -> Error {
    let located = Error::new(error.kind(), file.text().located(span, error.message()));
    match error.hint_text() {
        Some(hint) => located.hint(hint),
        None => located,
    }
}

/// The host's defaults where the file says nothing.
fn limits(file: &PipelineFile, given: &PluginLimits) -> Result<Limits> {
    let default = Limits::default();
    let memory_bytes = given.memory.map_or(default.memory_bytes, |size| size.0);
    Ok(Limits {
        memory_bytes,
        time_ms: given.time.map_or(default.time_ms, millis),
        output_bytes: given.output.map_or(default.output_bytes, |size| size.0),
        log_bytes_per_call: given.log.map_or(default.log_bytes_per_call, |size| size.0),
        table_elements: given.table_elements.unwrap_or(default.table_elements),
        http_time_ms: given.http_time.map_or(default.http_time_ms, millis),
        http_response_bytes: given.http_response.map_or(default.http_response_bytes, |size| size.0),
        recycle: recycle(file, &given.recycle, memory_bytes)?,
        ..default
    })
}

fn recycle(file: &PipelineFile, given: &RecycleLimits, memory_bytes: u64) -> Result<Recycle> {
    let default = Recycle::default();
    if let Some(calls) = given.calls.as_ref().filter(|calls| calls.value == 0) {
        let what = "an instance serves at least 1 call before it is replaced";
        return Err(file.text().error(calls.span, what.to_owned()));
    }
    if let Some(memory) = given.memory.as_ref().filter(|memory| memory.value.0 >= memory_bytes) {
        let what = format!(
            "an instance whose memory may grow by {} bytes reaches its limit of {memory_bytes} bytes before it is replaced",
            memory.value.0
        );
        let error = file.text().error(memory.span, what);
        return Err(error.hint("set recycle.memory well below limits.memory, or leave it out"));
    }
    Ok(Recycle {
        calls: given.calls.as_ref().map_or(default.calls, |calls| calls.value),
        memory_bytes: given.memory.as_ref().map(|memory| memory.value.0),
        age_ms: given.age.map_or(default.age_ms, millis),
    })
}

/// At least one.
fn millis(duration: Duration) -> u64 {
    duration.interval().as_millis().unsigned_abs().max(1)
}
