//! A `clang` that can compile for Wasm, and the call that builds a freestanding C guest with it.

use crate::{ToolchainError, on_path, place, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A C compiler for Wasm, with its linker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clang {
    program: PathBuf,
    linker: PathBuf,
}

/// Newer versions first; Debian and Ubuntu install some of them only under a name with the version.
const VERSIONS: [&str; 10] = ["", "-22", "-21", "-20", "-19", "-18", "-17", "-16", "-15", "-14"];

impl Clang {
    /// Looks for a clang that knows the target and for `wasm-ld`.
    pub fn find() -> Result<Self, ToolchainError> {
        let missing = |what: &str| ToolchainError::Missing {
            what: what.to_owned(),
            hint:
                "on Debian and Ubuntu run `apt-get install clang lld`; elsewhere install LLVM's clang and lld"
                    .to_owned(),
        };
        let versions = |stem: &str| VERSIONS.map(|version| format!("{stem}{version}"));
        let clangs = versions("clang");
        let program =
            clangs.iter().filter_map(|name| on_path([name.as_str()])).find(|program| knows_wasm(program));
        let linkers = versions("wasm-ld");
        let linker = on_path(linkers.iter().map(String::as_str));
        Ok(Self {
            program: program.ok_or_else(|| missing("clang for wasm32"))?,
            linker: linker.ok_or_else(|| missing("wasm-ld, the Wasm linker of lld,"))?,
        })
    }

    /// Compiles sources to one module without an entry point. What the guest exports, its attributes say.
    pub fn build(&self, sources: &[PathBuf], include: &[PathBuf], out: &Path) -> Result<(), ToolchainError> {
        let partial = out.with_extension("c.partial");
        if let Some(parent) = out.parent() {
            let at = |cause| ToolchainError::File { path: parent.to_owned(), cause };
            std::fs::create_dir_all(parent).map_err(at)?;
        }
        let mut clang = Command::new(&self.program);
        clang.args(["--target=wasm32-unknown-unknown", "-std=c11", "-O3", "-ffreestanding", "-nostdlib"]);
        clang.args(["-Wall", "-Wextra", "-Werror=implicit-function-declaration", "-mbulk-memory"]);
        clang.arg(format!("-fuse-ld={}", self.linker.display()));
        // The stack comes first, so that running over its end traps instead of writing into data.
        clang.args(["-Wl,--no-entry", "-Wl,--stack-first", "-Wl,-z,stack-size=65536", "-Wl,--strip-all"]);
        for folder in include {
            clang.arg("-I").arg(folder);
        }
        clang.args(sources).arg("-o").arg(&partial);
        run(clang, "clang")?;
        let placed = place(&partial, out);
        // A leftover copy harms nobody; that the module is in place is what counts.
        let _ = std::fs::remove_file(&partial);
        placed
    }
}

fn knows_wasm(clang: &Path) -> bool {
    let asked =
        Command::new(clang).arg("--print-targets").stdin(Stdio::null()).stderr(Stdio::null()).output();
    asked.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("wasm32"))
}
