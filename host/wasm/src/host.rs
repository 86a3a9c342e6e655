//! From a plugin's bytes to a loaded plugin. The binary calls it, once for every plugin of a pipeline file. It
//! reads no plugin files: where the bytes come from (a file, a checkpoint) is the caller's business.

use crate::cache::ModuleCache;
use crate::code::{Code, Exports};
use crate::engine::{Ticker, engine};
use crate::form::{self, Form};
use crate::http::{Http, HttpAllowance};
use crate::limits::{Limits, bytes_text};
use crate::log::{LogListener, PluginLog};
use crate::plugin::WasmPlugin;
use crate::services;
use crate::stats::Stats;
use parking_lot::Mutex;
use pelton_core::{Error, PluginDigest, Result};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use wasmtime::Engine;
use wasmtime::component::Component;

/// How the host runs plugins, all of them.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// Where compiled plugins are kept between runs; `None` keeps none. The directory is made, private to its user.
    pub cache_dir: Option<PathBuf>,
    /// The stack of a guest, in bytes. Calls need as much of their thread's stack, and a quarter of a megabyte more.
    /// Default 512 KiB.
    pub stack_bytes: usize,
    /// Instances of an opened function that wait for the next call, at most. More than this many calls at a time
    /// are served as well, by instances that are made for them; with 0, every call is. Default 16.
    pub idle_instances: usize,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self { cache_dir: None, stack_bytes: 512 << 10, idle_instances: 16 }
    }
}

/// How one plugin is run: the pipeline file's part.
#[derive(Debug, Clone)]
pub struct PluginSettings {
    /// The plugin's own settings: an object, given to it as JSON when a function is opened. `null` counts as `{}`.
    pub config: serde_json::Value,
    /// What it may use.
    pub limits: Limits,
    /// Makes a new instance for every call. Answers must not change by it; tests use it to find guests whose do.
    pub discard_after_every_call: bool,
    /// The seed of every call, instead of the call's own: for tests of a function that uses it.
    pub seed: Option<u64>,
    /// The session's time zone, which `timestamp` columns of the answers get. If the input has such columns,
    /// theirs is used.
    pub time_zone: String,
    /// Is told what the plugin logs, beside the log.
    pub log_listener: Option<LogListener>,
    /// Who the lines of the log are said to come from, if not the plugin by its name.
    pub log_name: Option<String>,
    /// Whom its sink functions may speak to.
    pub http: HttpAllowance,
}

impl Default for PluginSettings {
    fn default() -> Self {
        Self {
            config: serde_json::Value::Null,
            limits: Limits::default(),
            discard_after_every_call: false,
            seed: None,
            time_zone: "UTC".to_owned(),
            log_listener: None,
            log_name: None,
            http: HttpAllowance::default(),
        }
    }
}

/// SHA-256 of a plugin's bytes, as they are in its file.
pub fn digest(bytes: &[u8]) -> PluginDigest {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to memory does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    PluginDigest(hex)
}

/// Runs plugins: one engine, one clock for time limits, one cache of compiled code. Cheap to share, meant to be one.
pub struct PluginHost {
    engine: Engine,
    cache: Option<ModuleCache>,
    options: HostOptions,
    /// Runs from the first plugin's load until the last one is dropped.
    ticker: Mutex<Weak<Ticker>>,
}

impl std::fmt::Debug for PluginHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginHost").field("options", &self.options).finish_non_exhaustive()
    }
}

impl PluginHost {
    /// Fails only if this machine cannot run WebAssembly.
    pub fn new(options: HostOptions) -> Result<Self> {
        let engine = engine(options.stack_bytes)?;
        let cache = options.cache_dir.as_deref().and_then(|directory| ModuleCache::open(directory, &engine));
        Ok(Self { engine, cache, options, ticker: Mutex::default() })
    }

    /// Loads a plugin: compiles it (or finds it compiled), links what it imports, and asks it what it is.
    /// `name` is its name in the pipeline file; errors and logs carry it.
    ///
    /// `Invalid`: the bytes are no plugin for this host. `Plugin`: it failed to describe itself.
    pub fn load(&self, name: &str, bytes: &[u8], settings: PluginSettings) -> Result<Arc<WasmPlugin>> {
        self.load_unnamed(name, bytes, settings)
            .map(Arc::new)
            .map_err(|e| e.context(format!("plugin '{name}'")))
    }

    fn load_unnamed(&self, name: &str, bytes: &[u8], settings: PluginSettings) -> Result<WasmPlugin> {
        let config = config_text(&settings.config)?;
        check_size(bytes, &settings.limits)?;
        let digest = digest(bytes);
        let (form, component) = self.component(bytes, &digest)?;
        let exports = Exports::of(&component, &self.engine)?;
        let pre = services::link(&self.engine, &component)?;
        let limits = Arc::new(settings.limits);
        let http = Arc::new(Http::new(settings.http, &limits));
        let code = Code {
            pre,
            exports,
            stack_bytes: self.options.stack_bytes,
            stats: Arc::new(Stats::default()),
            log: Arc::new(PluginLog::new(
                settings.log_name.as_deref().unwrap_or(name),
                settings.log_listener,
                &limits,
            )),
            limits,
            _ticker: self.ticker()?,
        };
        let described = crate::plugin::manifest(&code)?;
        Ok(WasmPlugin::new(crate::plugin::Parts {
            name: name.to_owned(),
            digest,
            size_bytes: bytes.len() as u64,
            form,
            manifest: described,
            config,
            time_zone: settings.time_zone,
            discard_after_every_call: settings.discard_after_every_call,
            seed: settings.seed,
            idle_instances: self.options.idle_instances,
            http,
            code,
        }))
    }

    /// The compiled component, from the cache if it is there.
    fn component(&self, bytes: &[u8], digest: &PluginDigest) -> Result<(Form, Component)> {
        let (form, binary) = form::binary(bytes)?;
        if let Some(component) =
            self.cache.as_ref().and_then(|cache| cache.load(&self.engine, digest.as_str()))
        {
            return Ok((form, component));
        }
        let component = match form {
            Form::Component => binary,
            Form::CoreModule => form::wrap(&binary)?.into(),
        };
        let component = Component::from_binary(&self.engine, &component).map_err(|e| {
            Error::invalid(format!("its WebAssembly does not compile: {e:#}"))
                .hint("threads, relaxed SIMD, 64-bit memories and exceptions are not available to plugins")
        })?;
        if let Some(cache) = &self.cache {
            cache.store(digest.as_str(), &component);
        }
        Ok((form, component))
    }

    fn ticker(&self) -> Result<Arc<Ticker>> {
        let mut running = self.ticker.lock();
        if let Some(ticker) = running.upgrade() {
            return Ok(ticker);
        }
        let ticker = Ticker::start(&self.engine)?;
        *running = Arc::downgrade(&ticker);
        Ok(ticker)
    }
}

fn check_size(bytes: &[u8], limits: &Limits) -> Result<()> {
    let size = bytes.len() as u64;
    if size <= limits.plugin_bytes {
        return Ok(());
    }
    let (size, limit) = (bytes_text(size), bytes_text(limits.plugin_bytes));
    Err(Error::invalid(format!("its file has {size} (limit plugin_bytes: {limit})"))
        .hint("strip its debug information, or build it with optimisation for size"))
}

fn config_text(config: &serde_json::Value) -> Result<String> {
    match config {
        serde_json::Value::Null => Ok("{}".to_owned()),
        serde_json::Value::Object(_) => Ok(config.to_string()),
        _ => {
            Err(Error::invalid("its 'config' must be an object").hint("for example config: {threshold: 15}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::Plugin;

    fn host() -> PluginHost {
        PluginHost::new(HostOptions::default()).unwrap()
    }

    fn boundary() -> Vec<u8> {
        form::binary(include_bytes!("../examples/boundary.wat")).unwrap().1.into_owned()
    }

    #[test]
    fn a_component_and_the_core_module_it_was_made_of_are_the_same_plugin() {
        let module = boundary();
        let component = form::wrap(&module).unwrap();
        let host = host();
        let from_module = host.load("m", &module, PluginSettings::default()).unwrap();
        let from_component = host.load("c", &component, PluginSettings::default()).unwrap();
        assert_eq!(from_component.inspect().form, Form::Component);
        assert_eq!(from_module.inspect().form, Form::CoreModule);
        assert_eq!(from_module.manifest(), from_component.manifest());
        assert_eq!(from_module.inspect().exports, from_component.inspect().exports);
        assert_ne!(from_module.digest(), from_component.digest());
    }

    #[test]
    fn a_file_that_is_too_large_is_not_compiled() {
        let limits = Limits { plugin_bytes: 1000, ..Limits::default() };
        let settings = PluginSettings { limits, ..PluginSettings::default() };
        let error = host().load("p", &boundary(), settings).expect_err("refused");
        assert!(error.message().contains("(limit plugin_bytes: 1000 bytes)"), "{error}");
    }

    #[test]
    fn time_goes_on_only_while_there_are_plugins() {
        let host = host();
        let first = host.load("a", &boundary(), PluginSettings::default()).unwrap();
        let second = host.load("b", &boundary(), PluginSettings::default()).unwrap();
        assert_eq!(host.ticker.lock().strong_count(), 2);
        drop((first, second));
        assert_eq!(host.ticker.lock().strong_count(), 0);
    }

    #[test]
    fn a_component_that_imports_what_is_not_granted_is_refused_by_name() {
        let refused = |wat: &str| {
            let engine = engine(512 << 10).unwrap();
            let component = Component::new(&engine, wat).unwrap();
            services::link(&engine, &component).err().expect("refused").message().to_owned()
        };
        assert_eq!(
            refused(r#"(component (import "wasi:http/handler@0.2.0" (instance (export "f" (func)))))"#),
            "it imports 'wasi:http/handler@0.2.0', which no plugin is granted"
        );
        assert_eq!(
            refused(r#"(component (import "log" (func)))"#),
            "it imports 'log', which no plugin is granted"
        );
        let newer = r#"(component (import "pelton:plugin/host@0.7.0" (instance (export "f" (func)))))"#;
        assert_eq!(
            refused(newer),
            "it imports 'pelton:plugin/host@0.7.0': it was built for version 0.7.0 of the contract pelton:plugin; this host \
             knows 0.1.0"
        );
        let more = r#"(component (import "pelton:plugin/host@0.1.0" (instance (export "f" (func)))))"#;
        assert_eq!(
            refused(more),
            "it imports 'f' of 'pelton:plugin/host@0.1.0', which this Pelton does not have; there are: log, count"
        );
        let another = r#"(component (import "pelton:plugin/host@0.1.0" (instance (export "log" (func)))))"#;
        assert!(refused(another).starts_with("it imports something with another signature"));
    }
}
