//! Functions of plugins by their names in the file: found, and refused with the nearest right name.

use super::Resolver;
use crate::file::{OnPluginFailure, Spanned, SpannedText};
use crate::sql::Placed;
use pelton_core::suggest::did_you_mean;
use pelton_core::{FailurePolicy, FunctionKind, PluginDigest, Result};

/// A function of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionRef {
    /// The plugin's name in the file.
    pub plugin: String,
    /// The function's name in the plugin.
    pub function: String,
    /// The plugin's bytes.
    pub digest: PluginDigest,
    /// What follows when a call of it fails.
    pub on_failure: FailurePolicy,
}

impl FunctionRef {
    /// With what a step says of failures, if it says anything.
    pub(super) fn with_policy(self, step: Option<&Spanned<OnPluginFailure>>) -> Self {
        let on_failure = step.map_or(self.on_failure, |said| said.value.policy());
        Self { on_failure, ..self }
    }
}

impl std::fmt::Display for FunctionRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.plugin, self.function)
    }
}

impl<'a> Resolver<'a> {
    /// The names of a plugin and its function: `plugin.function`.
    pub(super) fn function_name(&self, named: &'a SpannedText) -> Result<(&'a str, &'a str)> {
        named.value.split_once('.').ok_or_else(|| {
            let what = format!("'{}' does not name a function; write plugin.function", named.value);
            self.placed(named).error(what)
        })
    }

    /// A function as `plugin.function` names it.
    pub(super) fn plugin_function(&self, named: &'a SpannedText, kind: FunctionKind) -> Result<FunctionRef> {
        let (plugin, name) = self.function_name(named)?;
        self.function(self.placed(named), plugin, name, kind)
    }

    pub(super) fn function(
        &self,
        at: Placed<'_>,
        plugin: &str,
        name: &str,
        kind: FunctionKind,
    ) -> Result<FunctionRef> {
        let Some(known) = self.session.plugins.get(plugin) else {
            let near = did_you_mean(plugin, self.session.plugins.keys().map(String::as_str));
            return Err(at.error(format!("there is no plugin '{plugin}' in this file{near}")));
        };
        let functions = &known.manifest().functions;
        let Some(found) = functions.iter().find(|f| f.name == name) else {
            let near = did_you_mean(name, functions.iter().map(|f| f.name.as_str()));
            return Err(at.error(format!("the plugin '{plugin}' has no function '{name}'{near}")));
        };
        if found.kind != kind {
            let what = match found.kind {
                FunctionKind::Scalar => format!(
                    "'{plugin}.{name}' is a scalar function; call it in a filter, select or sql step: {plugin}.{name}(column, …)"
                ),
                FunctionKind::Transform => {
                    format!("'{plugin}.{name}' is a transform function; use it as a step of its own")
                }
                FunctionKind::Sink => format!(
                    "'{plugin}.{name}' is a sink function; use it so: sink: {{connector: plugin, plugin: {plugin}.{name}}}"
                ),
                FunctionKind::Stateful => format!(
                    "'{plugin}.{name}' is a stateful function; use it as a step of its own, with the `key` of its groups"
                ),
                _ => format!(
                    "'{plugin}.{name}' is of a kind that no step can run; steps run scalar, transform and stateful functions"
                ),
            };
            return Err(at.error(what));
        }
        Ok(FunctionRef {
            plugin: plugin.to_owned(),
            function: name.to_owned(),
            digest: known.digest().clone(),
            on_failure: self.session.policies.get(plugin).copied().unwrap_or_default(),
        })
    }
}
