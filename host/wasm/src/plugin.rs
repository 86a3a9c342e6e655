//! A loaded plugin: its manifest, what it is built of, and the way to its functions. `host` makes it; the engine
//! and SQL use it as a `core::Plugin`, `pelton plugin inspect` as [`WasmPlugin`].

use crate::code::Code;
use crate::contract::GuestManifest;
use crate::form::Form;
use crate::http::Http;
use crate::limits::clean_text;
use crate::opened::{OpenedScalar, OpenedSink, OpenedStateful, OpenedTransform};
use arrow::datatypes::SchemaRef;
use pelton_core::function::PluginMetrics;
use pelton_core::suggest::did_you_mean;
use pelton_core::{
    Error, FunctionInfo, FunctionKind, Manifest, OutputMode, Plugin, PluginDigest, Result, ScalarFunction,
    SinkFunction, StatefulFunction, TransformFunction,
};
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;
use wasmtime::component::types::ComponentItem;

/// All that a plugin is made of.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) digest: PluginDigest,
    pub(crate) size_bytes: u64,
    pub(crate) form: Form,
    pub(crate) manifest: Manifest,
    pub(crate) config: String,
    pub(crate) time_zone: String,
    pub(crate) discard_after_every_call: bool,
    pub(crate) seed: Option<u64>,
    pub(crate) idle_instances: usize,
    pub(crate) http: Arc<Http>,
    pub(crate) code: Code,
}

/// A plugin that is compiled and has described itself.
pub struct WasmPlugin {
    parts: Arc<Parts>,
}

/// What can be seen of a plugin from outside.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// Identity of its bytes.
    pub digest: PluginDigest,
    /// Size of its file.
    pub size_bytes: u64,
    /// How it is built.
    pub form: Form,
    /// Version of the contract that it was built for.
    pub contract_version: String,
    /// What it says of itself.
    pub manifest: Manifest,
    /// Names of the interfaces that it calls (of a core module: after it was wrapped).
    pub imports: Vec<String>,
    /// Names of what it exports.
    pub exports: Vec<String>,
}

impl std::fmt::Debug for WasmPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WasmPlugin")
            .field("name", &self.parts.name)
            .field("digest", &self.parts.digest)
            .finish_non_exhaustive()
    }
}

impl WasmPlugin {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts: Arc::new(parts) }
    }

    /// Its name in the pipeline file.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Looks at it from outside.
    pub fn inspect(&self) -> Inspection {
        let parts = &self.parts;
        let (component, engine) = (parts.code.pre.component(), parts.code.pre.engine());
        let component_type = component.component_type();
        // Interfaces that only share types ask nothing of the host.
        let asks = |item: &ComponentItem| match item {
            ComponentItem::ComponentInstance(instance) => instance.exports(engine).any(|(_, item)| {
                matches!(item.ty, ComponentItem::ComponentFunc(_) | ComponentItem::Resource(_))
            }),
            _ => true,
        };
        let imports = component_type.imports(engine).filter(|(_, item)| asks(&item.ty));
        Inspection {
            digest: parts.digest.clone(),
            size_bytes: parts.size_bytes,
            form: parts.form,
            contract_version: parts.code.exports.version.clone(),
            manifest: parts.manifest.clone(),
            imports: imports.map(|(name, _)| name.to_owned()).collect(),
            exports: component_type.exports(engine).map(|(name, _)| name.to_owned()).collect(),
        }
    }

    /// Refuses functions that are not there, or are something else.
    fn expect(&self, function: &str, wanted: FunctionKind) -> Result<()> {
        let (name, functions) = (&self.parts.name, &self.parts.manifest.functions);
        let Some(found) = functions.iter().find(|info| info.name == function) else {
            let near = did_you_mean(function, functions.iter().map(|info| info.name.as_str()));
            return Err(Error::invalid(format!("plugin '{name}' has no function '{function}'{near}")));
        };
        if found.kind == wanted {
            return Ok(());
        }
        let (is, wanted) = (kind_name(found.kind), kind_name(wanted));
        let error = Error::invalid(format!(
            "plugin '{name}', function '{function}' is a {is} function and cannot be used as a {wanted} function"
        ));
        Err(match found.kind {
            FunctionKind::Scalar => {
                error.hint(format!("use it in SQL: SELECT {name}.{function}(…), or in a filter"))
            }
            FunctionKind::Transform => error.hint(format!("use it as a step: - plugin: {name}.{function}")),
            FunctionKind::Stateful => {
                error.hint(format!("use it as a step with a key: - plugin: {name}.{function}, key: [column]"))
            }
            FunctionKind::Sink => {
                error.hint(format!("use it as the sink: {{connector: plugin, plugin: {name}.{function}}}"))
            }
            FunctionKind::Aggregate => {
                error.hint(format!("this version of Pelton does not run {is} functions"))
            }
        })
    }
}

impl Plugin for WasmPlugin {
    fn manifest(&self) -> &Manifest {
        &self.parts.manifest
    }
    fn digest(&self) -> &PluginDigest {
        &self.parts.digest
    }
    fn scalar(&self, function: &str, arguments: SchemaRef) -> Result<Arc<dyn ScalarFunction>> {
        self.expect(function, FunctionKind::Scalar)?;
        Ok(Arc::new(OpenedScalar::bind(&self.parts, function, arguments)?))
    }
    fn transform(&self, function: &str, input: SchemaRef) -> Result<Arc<dyn TransformFunction>> {
        self.expect(function, FunctionKind::Transform)?;
        Ok(Arc::new(OpenedTransform::open(&self.parts, function, input)?))
    }
    fn stateful(
        &self,
        function: &str,
        key: SchemaRef,
        input: SchemaRef,
    ) -> Result<Arc<dyn StatefulFunction>> {
        self.expect(function, FunctionKind::Stateful)?;
        Ok(Arc::new(OpenedStateful::open(&self.parts, function, key, input)?))
    }
    fn sink(&self, function: &str, input: SchemaRef, mode: OutputMode) -> Result<Arc<dyn SinkFunction>> {
        self.expect(function, FunctionKind::Sink)?;
        Ok(Arc::new(OpenedSink::open(&self.parts, function, input, mode)?))
    }
    fn metrics(&self) -> PluginMetrics {
        self.parts.code.stats.metrics()
    }
}

fn kind_name(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Scalar => "scalar",
        FunctionKind::Transform => "transform",
        FunctionKind::Stateful => "stateful",
        FunctionKind::Aggregate => "aggregate",
        FunctionKind::Sink => "sink",
    }
}

/// Asks the plugin for its manifest and checks it.
pub(crate) fn manifest(code: &Code) -> Result<Manifest> {
    let described =
        code.describe().map_err(|fault| Error::plugin(format!("function 'describe' {}", fault.reason)))?;
    checked(described, code).map_err(|wrong| Error::invalid(format!("its manifest is not usable: {wrong}")))
}

/// Names are short; texts for people are cut.
const NAME_BYTES: usize = 128;
const DOC_BYTES: usize = 4 << 10;

/// Whether this can be the name of a function or of a part of its state.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain) && name.len() <= NAME_BYTES
}

fn checked(manifest: GuestManifest, code: &Code) -> Result<Manifest, String> {
    let named = |what: &str, text: String| match text.len() {
        1..=NAME_BYTES if !text.contains(char::is_control) => Ok(text),
        0 => Err(format!("its {what} is empty")),
        _ => Err(format!("its {what} is no {what}: '{}'", clean_text(&text, NAME_BYTES))),
    };
    let functions = manifest.functions;
    if functions.len() > code.limits.functions {
        return Err(format!(
            "it names {} functions (limit functions: {})",
            functions.len(),
            code.limits.functions
        ));
    }
    let mut seen = HashSet::new();
    let functions = functions.into_iter().map(|function| {
        let name = function.name;
        if !is_name(&name) {
            let name = clean_text(&name, NAME_BYTES);
            return Err(format!(
                "'{name}' is no name of a function (letters, digits, '_' and '-', a letter first)"
            ));
        }
        if !seen.insert(name.clone()) {
            return Err(format!("it names the function '{name}' twice"));
        }
        let kind = FunctionKind::from(function.kind);
        if kind != FunctionKind::Aggregate && code.exports.pair(kind).is_none() {
            let (kind, version) = (kind_name(kind), &code.exports.version);
            return Err(format!(
                "it names the {kind} function '{name}', but does not export pelton:plugin/{kind}@{version}"
            ));
        }
        Ok(FunctionInfo { name, kind, doc: clean_text(&function.doc, DOC_BYTES) })
    });
    Ok(Manifest {
        functions: functions.collect::<Result<_, String>>()?,
        name: named("name", manifest.name)?,
        version: named("version", manifest.version)?,
        encoding: manifest.encoding.into(),
    })
}
