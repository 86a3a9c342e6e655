//! A `rustc` that can compile for Wasm, and the cargo call that builds a guest with it.
//!
//! Three places are tried in order: the one that the user names, the ordinary one, the assembled one.

use crate::{RUSTC_VARIABLE, ToolchainError, WASM_TARGET, assembled_rust, place, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The profile of guests: small, fast, and aborting instead of unwinding (there is nothing to unwind to).
/// Given on the command line, so that a project need not repeat it.
const PROFILE: [&str; 7] = [
    "profile.plugin.inherits='release'",
    "profile.plugin.opt-level=3",
    "profile.plugin.lto='fat'",
    "profile.plugin.codegen-units=1",
    "profile.plugin.panic='abort'",
    "profile.plugin.strip=true",
    "profile.plugin.debug=false",
];

/// A way to compile Rust for Wasm on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RustToolchain {
    /// The compiler, if it is not the one that cargo takes by itself.
    rustc: Option<PathBuf>,
}

impl RustToolchain {
    /// Looks for one: `PELTON_WASM_RUSTC`, then the ordinary `rustc`, then the one assembled in the cache.
    pub fn find() -> Result<Self, ToolchainError> {
        if let Some(named) = std::env::var_os(RUSTC_VARIABLE).filter(|value| !value.is_empty()) {
            let rustc = PathBuf::from(named);
            if has_target(&rustc) {
                return Ok(Self { rustc: Some(rustc) });
            }
            return Err(ToolchainError::Missing {
                what: format!("{WASM_TARGET} for {}, which {RUSTC_VARIABLE} names,", rustc.display()),
                hint: format!("name a rustc that has this target, or unset {RUSTC_VARIABLE}"),
            });
        }
        if has_target(Path::new("rustc")) {
            return Ok(Self { rustc: None });
        }
        match assembled_rust().map(|prefix| prefix.join("rustc")).filter(|rustc| has_target(rustc)) {
            Some(rustc) => Ok(Self { rustc: Some(rustc) }),
            None => Err(ToolchainError::Missing {
                what: format!("Rust's standard library for {WASM_TARGET}"),
                hint: format!(
                    "run `rustup target add {WASM_TARGET}`, or set {RUSTC_VARIABLE} to a rustc that has it"
                ),
            }),
        }
    }

    /// How it would be named to a person.
    pub fn describe(&self) -> String {
        match &self.rustc {
            Some(rustc) => rustc.display().to_string(),
            None => "the rustc on the search path".to_owned(),
        }
    }

    /// Builds one package for Wasm and copies the module to `out`. `manifest` is a package's or a workspace's
    /// `Cargo.toml`; compiled pieces go to `target_dir`.
    pub fn build(
        &self,
        manifest: &Path,
        package: Option<&str>,
        target_dir: &Path,
        out: &Path,
    ) -> Result<(), ToolchainError> {
        let mut cargo = Command::new("cargo");
        cargo
            .args(["build", "--profile", "plugin", "--target", WASM_TARGET, "--manifest-path"])
            .arg(manifest);
        for setting in PROFILE {
            cargo.args(["--config", setting]);
        }
        if let Some(package) = package {
            cargo.args(["--package", package]);
        }
        // Flags that are meant for the host machine (target-cpu, sanitizers) do not suit a guest.
        cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("RUSTC");
        cargo.env("CARGO_TARGET_DIR", target_dir);
        if let Some(rustc) = &self.rustc {
            cargo.env("RUSTC", rustc).env_remove("RUSTC_WRAPPER");
        }
        run(cargo, "cargo")?;
        let module = module_name(manifest, package)?;
        place(&target_dir.join(WASM_TARGET).join("plugin").join(module), out)
    }
}

/// `lib_name.wasm`: cargo writes the package's name with underscores.
fn module_name(manifest: &Path, package: Option<&str>) -> Result<String, ToolchainError> {
    let name = match package {
        Some(package) => package.to_owned(),
        None => package_name(manifest)?,
    };
    Ok(format!("{}.wasm", name.replace('-', "_")))
}

/// The package's name as its manifest gives it (in the `[package]` table, as cargo itself writes it).
pub fn package_name(manifest: &Path) -> Result<String, ToolchainError> {
    let text = std::fs::read_to_string(manifest)
        .map_err(|cause| ToolchainError::File { path: manifest.to_owned(), cause })?;
    name_in(&text).ok_or_else(|| {
        ToolchainError::Project(format!("{} has no [package] with a name", manifest.display()))
    })
}

fn name_in(manifest: &str) -> Option<String> {
    let package = manifest.lines().map(str::trim).skip_while(|line| *line != "[package]").skip(1);
    let mut lines = package.take_while(|line| !line.starts_with('['));
    lines.find_map(|line| {
        let value = line.strip_prefix("name")?.trim_start().strip_prefix('=')?.trim();
        Some(value.trim_matches('"').to_owned())
    })
}

/// Whether this compiler has a standard library for the target: it can name the folder even if it is not there.
fn has_target(rustc: &Path) -> bool {
    let asked = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", WASM_TARGET])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let Ok(output) = asked else { return false };
    let Ok(folder) = std::str::from_utf8(&output.stdout) else { return false };
    let entries = std::fs::read_dir(folder.trim());
    output.status.success()
        && entries.is_ok_and(|mut entries| {
            entries.any(|e| e.is_ok_and(|e| e.file_name().to_string_lossy().starts_with("libcore-")))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_packages_name_and_no_other() {
        assert_eq!(name_in("[package]\nname = \"my-plugin\"\n"), Some("my-plugin".to_owned()));
        assert_eq!(
            name_in("[lib]\nname = \"x\"\n[package]\nversion=\"1\"\n  name=\"y\"\n").as_deref(),
            Some("y")
        );
        assert_eq!(name_in("[package]\nversion = \"1\"\n[lib]\nname = \"x\"\n"), None);
        assert_eq!(name_in("[workspace]\n"), None);
    }

    #[test]
    fn a_compiler_that_is_not_there_has_no_target() {
        assert!(!has_target(Path::new("/nowhere/rustc")));
    }
}
