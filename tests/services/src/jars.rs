//! Servers that come as Java archives: fetched once by Maven into the user's cache, then found there.

use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is fetched: a program for the Java virtual machine with all that it needs at run time.
pub(crate) struct Jars {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Maven's project file, with the version left open.
    pub(crate) pom: &'static str,
}

impl Jars {
    /// The class path, after the archives have been fetched if they are not there yet. Any number of processes may ask
    /// at the same time: one fetches, the others wait.
    pub(crate) fn class_path(&self) -> Result<String> {
        let cache = cache_folder()?;
        let folder = cache.join(format!("{}-{}", self.name, self.version));
        if !folder.is_dir() {
            let path = cache.join(format!("{}.lock", self.name));
            let lock = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            lock.lock().with_context(|| format!("cannot lock {}", path.display()))?;
            if !folder.is_dir() {
                self.fetch(&cache, &folder)?;
            }
        }
        Ok(folder.join("*").display().to_string())
    }

    /// Into a folder beside it, which gets its name when it is whole.
    fn fetch(&self, cache: &Path, folder: &Path) -> Result<()> {
        let Self { name, version, pom } = self;
        let fetched = tempfile::Builder::new().prefix(&format!(".{name}-")).tempdir_in(cache)?;
        let (project, archives) = (fetched.path().join("pom.xml"), fetched.path().join("jars"));
        fs::write(&project, pom)?;
        let mut maven = Command::new("mvn");
        maven.args(["--batch-mode", "--quiet", "--file"]).arg(&project).arg("dependency:copy-dependencies");
        maven.arg("-DincludeScope=runtime").arg(format!("-DoutputDirectory={}", archives.display()));
        let output = maven.arg(format!("-Dserver.version={version}")).stdin(Stdio::null()).output();
        let output = output.context("Maven is missing; install it: apt-get install maven")?;
        let told = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "Maven could not fetch {name} {version}:\n{told}");
        fs::rename(&archives, folder).with_context(|| format!("cannot create {}", folder.display()))
    }
}

/// Where the archives are kept: `~/.cache/pelton`.
fn cache_folder() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let folder = cache.context("neither XDG_CACHE_HOME nor HOME is set")?.join("pelton");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// The Java virtual machine, of a version that the servers run on.
pub(crate) fn java() -> Result<PathBuf> {
    const VERSION_MIN: u32 = 17;
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let java = home.filter(|java| java.is_file()).unwrap_or_else(|| "java".into());
    let advice = format!("install it: apt-get install openjdk-{VERSION_MIN}-jre-headless");
    let told = Command::new(&java).arg("-version").stdin(Stdio::null()).output();
    let told = told.with_context(|| format!("Java is missing; {advice}"))?;
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    match version(&told) {
        Some(found) if found >= VERSION_MIN => Ok(java),
        Some(found) => bail!("Java {found} is too old, {VERSION_MIN} or newer is needed; {advice}"),
        None => bail!("`{} -version` does not tell its version: {told}", java.display()),
    }
}

/// `openjdk version "17.0.15" 2025-04-15` is version 17; `"1.8.0_402"` is 8.
fn version(told: &str) -> Option<u32> {
    let mut numbers = told.split('"').nth(1)?.split(['.', '-', '_']).map(|part| part.parse().ok());
    match numbers.next()?? {
        1 => numbers.next()?,
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn javas_version_is_read_in_its_old_and_its_new_form() {
        assert_eq!(version("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime"), Some(17));
        assert_eq!(version("openjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(version("openjdk version \"25-ea\" 2025-09-16"), Some(25));
        assert_eq!(version("java version \"1.8.0_402\""), Some(8));
        assert_eq!(version("no such thing"), None);
    }
}
