//! Makes sure of the compilers, of what builds the libraries in C, and of the services of the tests: uses what is there,
//! installs what can be installed without a question, and otherwise says what to do. Every step has a time limit:
//! nothing here hangs.

use crate::progress::Step;
use crate::shell::{command, run_within};
use anyhow::{Context, Result, anyhow, bail, ensure};
use pelton_toolchain::{Clang, RUSTC_VARIABLE, RustToolchain, WASM_TARGET, assembled_rust, on_path};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Takes Debian's compiler and builds a standard library for it: where rustup cannot reach its server.
const ASSEMBLE: &str = include_str!("../rust-wasm-debian.sh");

const RUSTUP_LIMIT: Duration = Duration::from_secs(120);
const ASSEMBLE_LIMIT: Duration = Duration::from_secs(30 * 60);
const APT_LIMIT: Duration = Duration::from_secs(15 * 60);

/// A Rust compiler for Wasm.
pub(crate) fn rust() -> Result<RustToolchain> {
    let missing = match RustToolchain::find() {
        Ok(found) => return Ok(found),
        Err(missing) if std::env::var_os(RUSTC_VARIABLE).is_some() => return Err(missing.into()),
        Err(missing) => missing,
    };
    let mut tried = Vec::new();
    for way in [add_with_rustup, assemble_on_debian] {
        match way() {
            Ok(()) => match RustToolchain::find() {
                Ok(found) => return Ok(found),
                Err(still) => tried.push(anyhow!("it ended well, but {still}")),
            },
            Err(why) => tried.push(why),
        }
    }
    let tried = tried.iter().map(|why| format!("\n  tried: {why:#}")).collect::<String>();
    bail!("{missing}{tried}")
}

/// The ordinary way.
fn add_with_rustup() -> Result<()> {
    let rustup = on_path(["rustup"]).context("rustup is not installed")?;
    let step = Step::start(format!("adding the Wasm target: rustup target add {WASM_TARGET}"));
    let mut add = command(&rustup);
    add.args(["target", "add", WASM_TARGET]).env("RUSTUP_MAX_RETRIES", "1");
    run_within(add, RUSTUP_LIMIT, &step).context("rustup target add")?;
    step.done("added");
    Ok(())
}

/// The way around an unreachable rustup server, on Debian and its kin.
fn assemble_on_debian() -> Result<()> {
    for needed in ["apt-get", "dpkg-deb", "bash"] {
        on_path([needed]).with_context(|| format!("assembling one needs Debian or Ubuntu with {needed}"))?;
    }
    let prefix = assembled_rust().context("neither XDG_CACHE_HOME nor HOME is set")?;
    let step = Step::start(format!(
        "assembling a Rust compiler for Wasm from Debian's packages in {} (once; some minutes, 1.2 GB)",
        prefix.display()
    ));
    let script = prefix.join("assemble.sh");
    std::fs::create_dir_all(&prefix).with_context(|| format!("cannot create {}", prefix.display()))?;
    std::fs::File::create(&script)?.write_all(ASSEMBLE.as_bytes())?;
    let mut bash = command(Path::new("bash"));
    bash.arg(&script).arg(&prefix);
    // What cargo tells its children about this build would confuse the other compiler.
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "RUSTC", "RUSTC_WRAPPER"] {
        bash.env_remove(variable);
    }
    run_within(bash, ASSEMBLE_LIMIT, &step).context("assembling one from Debian's packages")?;
    step.done("ready");
    Ok(())
}

/// A C compiler for Wasm.
pub(crate) fn clang() -> Result<Clang> {
    let missing = match Clang::find() {
        Ok(found) => return Ok(found),
        Err(missing) => missing,
    };
    apt_install(&["clang", "lld"]).with_context(|| missing.to_string())?;
    Ok(Clang::find()?)
}

/// What builds librdkafka and OpenSSL, which come as sources with their crates.
pub(crate) fn host() -> Result<()> {
    const NEEDED: [(&[&str], &str); 5] = [
        (&["cc", "gcc", "clang"], "gcc"),
        (&["c++", "g++", "clang++"], "g++"),
        (&["cmake"], "cmake"),
        (&["make"], "make"),
        (&["perl"], "perl"),
    ];
    programs(&NEEDED, "building Pelton takes a C and a C++ compiler, CMake, make and Perl")
}

/// What fetches and runs the Kafka broker and the S3 store of the tests.
pub(crate) fn java() -> Result<()> {
    const NEEDED: [(&[&str], &str); 2] = [(&["java"], "openjdk-17-jre-headless"), (&["mvn"], "maven")];
    programs(&NEEDED, "the tests' Kafka broker and S3 store come from Maven and run on Java 17 or later")
}

/// Programs, by any of their names, and the packages that have them.
fn programs(needed: &[(&[&str], &str)], why: &str) -> Result<()> {
    let missing = || {
        let missing = needed.iter().filter(|(names, _)| on_path(names.iter().copied()).is_none());
        missing.map(|(_, package)| *package).collect::<Vec<_>>()
    };
    let packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    apt_install(&packages).context(why.to_owned())?;
    let still = missing();
    ensure!(still.is_empty(), "{} installed, but not found in PATH", still.join(", "));
    Ok(())
}

/// PostgreSQL's server, which the tests of its sink start themselves.
pub(crate) fn postgres() -> Result<()> {
    if has_postgres() {
        return Ok(());
    }
    apt_install(&["postgresql"]).context("the tests need PostgreSQL's programs (initdb, postgres, psql)")?;
    ensure!(has_postgres(), "the package postgresql is installed, but its initdb is not found");
    Ok(())
}

/// Debian keeps the server's programs out of PATH, a folder for each version.
fn has_postgres() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    on_path(["initdb"]).is_some()
        || versions.into_iter().any(|version| version.path().join("bin/initdb").is_file())
}

/// Installs packages if that needs no password.
fn apt_install(packages: &[&str]) -> Result<()> {
    let apt = on_path(["apt-get"]).context("there is no apt-get here")?;
    let by_hand = format!("apt-get install {}", packages.join(" "));
    let step = Step::start(format!("installing {}", packages.join(", ")));
    let privileged = privileged(&apt).with_context(|| format!("run as root: {by_hand}"))?;
    // Package lists may be missing or old; installing tells whether that mattered.
    run_within(privileged(&["update"]), APT_LIMIT, &step).ok();
    let install = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    run_within(privileged(&install), APT_LIMIT, &step).with_context(|| by_hand)?;
    step.done("installed");
    Ok(())
}

/// How to call apt-get with the right to install: as root, or by a sudo that asks nothing.
fn privileged(apt: &Path) -> Result<impl Fn(&[&str]) -> Command + use<>> {
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    let sudo = if root { None } else { Some(passwordless_sudo()?) };
    let apt = apt.to_owned();
    Ok(move |arguments: &[&str]| {
        let mut call = match &sudo {
            None => command(&apt),
            Some(sudo) => {
                let mut call = command(sudo);
                call.arg("-n").arg(&apt);
                call
            }
        };
        call.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        call
    })
}

fn passwordless_sudo() -> Result<PathBuf> {
    let sudo = on_path(["sudo"]).context("not root, and there is no sudo")?;
    let allowed = command(&sudo).args(["-n", "true"]).output().is_ok_and(|asked| asked.status.success());
    if !allowed {
        bail!("not root, and sudo wants a password");
    }
    Ok(sudo)
}
