//! `pelton plugin new`: a project that builds, has a test, cases and a pipeline to try. The SDK's sources come
//! along in the folder `pelton-sdk`, taken from this very binary, so that plugin and host fit together.

mod vendored;

use crate::cli::{Language, NewArgs};
use crate::report::say;
use include_dir::{Dir, include_dir};
use pelton_core::{Error, Result};
use std::path::{Path, PathBuf};

static RUST: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/rust");
static RUST_STATEFUL: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/rust-stateful");
static C: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/c");
static C_STATEFUL: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/c-stateful");

/// A file to be written: where in the project, and what.
type ProjectFile = (PathBuf, Vec<u8>);

/// Writes the project and says on stderr what to do next.
pub(crate) fn run(arguments: &NewArgs) -> Result<()> {
    let name = arguments.name.as_str();
    check_name(name)?;
    let folder = Path::new(name);
    if folder.exists() {
        return Err(Error::invalid(format!("{name} is there already")).hint("choose another name"));
    }
    for (path, contents) in project(name, arguments.lang, arguments.stateful) {
        write(&folder.join(path), &contents)?;
    }
    super::super::print_line(name)?;
    say(format_args!(
        "next:\n  cd {name}\n  pelton plugin build\n  pelton plugin test {name}.wasm cases/*.json\n  pelton run pipeline.yaml"
    ));
    Ok(())
}

/// A name that serves as folder, as package and, with underscores, in SQL.
fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(Error::invalid(format!("'{name}' cannot name a plugin"))
        .hint("begin with a lower-case letter; go on with lower-case letters, digits, - and _"))
}

/// Every file of a new project.
fn project(name: &str, language: Language, stateful: bool) -> Vec<ProjectFile> {
    let (template, sdk) = match (language, stateful) {
        (Language::Rust, false) => (&RUST, vendored::rust()),
        (Language::Rust, true) => (&RUST_STATEFUL, vendored::rust()),
        (Language::C, false) => (&C, vendored::c()),
        (Language::C, true) => (&C_STATEFUL, vendored::c()),
    };
    let mut files = Vec::new();
    collect(template, &mut |path, contents| {
        // `Cargo.toml.in` and the like: so that no tool takes a template for the thing itself.
        let path = path.to_string_lossy();
        let path = PathBuf::from(path.strip_suffix(".in").unwrap_or(&path));
        files.push((path, filled(contents, name).into_bytes()));
    });
    files.extend(sdk.into_iter().map(|(path, contents)| (Path::new("pelton-sdk").join(path), contents)));
    files
}

/// `{{name}}` is the name as given, `{{module}}` the same as an identifier.
fn filled(template: &[u8], name: &str) -> String {
    let text = String::from_utf8_lossy(template);
    text.replace("{{name}}", name).replace("{{module}}", &name.replace('-', "_"))
}

/// Every file below a folder, in the order of their paths.
fn collect(dir: &Dir<'_>, each: &mut dyn FnMut(&Path, &[u8])) {
    for file in dir.files() {
        each(file.path(), file.contents());
    }
    for below in dir.dirs() {
        collect(below, each);
    }
}

fn write(path: &Path, contents: &[u8]) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(path, contents))
        .map_err(|why| Error::unavailable(format!("cannot write {}: {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_not_build_are_refused() {
        assert!(check_name("word-count_2").is_ok());
        for wrong in ["", "2fast", "Words", "a b", "../x", "-x"] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_project_is_filled_in_and_carries_the_sdk() {
        for (language, stateful, source, sdk) in [
            (Language::Rust, false, "src/lib.rs", "pelton-sdk/rust/src/lib.rs"),
            (Language::Rust, true, "src/lib.rs", "pelton-sdk/rust/src/lib.rs"),
            (Language::C, false, "src/plugin.c", "pelton-sdk/pelton.h"),
            (Language::C, true, "src/plugin.c", "pelton-sdk/pelton_groups.h"),
        ] {
            let files = project("word-count", language, stateful);
            let has = |name: &str| files.iter().any(|(path, _)| path == Path::new(name));
            for name in [source, sdk, "README.md", "pipeline.yaml"] {
                assert!(has(name), "{name} is missing for {language:?}");
            }
            let unfilled = files.iter().find(|(_, text)| String::from_utf8_lossy(text).contains("{{name}}"));
            assert_eq!(unfilled.map(|(path, _)| path), None);
        }
    }
}
