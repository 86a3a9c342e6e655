//! Plugin files to loaded plugins: the way that `run`, `pipe` and `plugin …` share. Compiled code is kept in the
//! user's cache folder.

use pelton_core::{Error, Result};
use pelton_wasm::{HostOptions, PluginHost, PluginSettings, WasmPlugin};
use std::path::Path;
use std::sync::Arc;

/// The host for all plugins of this process.
pub(crate) fn host() -> Result<PluginHost> {
    host_with(HostOptions::default())
}

/// One that makes a new instance for every call.
pub(crate) fn host_of_fresh_instances() -> Result<PluginHost> {
    host_with(HostOptions { idle_instances: 0, ..HostOptions::default() })
}

fn host_with(options: HostOptions) -> Result<PluginHost> {
    let cache_dir = pelton_toolchain::cache_dir().map(|dir| dir.join("modules"));
    PluginHost::new(HostOptions { cache_dir, ..options })
}

/// The bytes of a plugin's file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|why| {
        let error = Error::invalid(format!("cannot read the plugin {}: {why}", path.display()));
        match why.kind() {
            std::io::ErrorKind::NotFound => {
                error.hint("build it (pelton plugin build); a relative path starts at the working directory")
            }
            _ => error,
        }
    })
}

/// A plugin by the name of its file.
pub(crate) fn load(host: &PluginHost, path: &Path, settings: PluginSettings) -> Result<Arc<WasmPlugin>> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    host.load(&name, &read(path)?, settings)
}
