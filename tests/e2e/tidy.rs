//! Sizes, headers and words, checked over every source file of the repository.

use anyhow::{Result, ensure};
use pelton_tests::repository;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Built things and what belongs to others' programs.
const NOT_OURS: [&str; 3] = ["target", ".git", "node_modules"];

fn rust_files() -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    let mut folders = vec![repository()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !NOT_OURS.contains(&name.as_str()) {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path)?;
                files.push((path.strip_prefix(repository())?.to_owned(), text));
            }
        }
    }
    files.sort();
    ensure!(files.len() > 50, "only {} source files found", files.len());
    Ok(files)
}

/// Tells all at once what is wrong, a line each.
fn none(wrong: Vec<String>, rule: &str) -> Result<()> {
    ensure!(wrong.is_empty(), "{rule}:\n  {}", wrong.join("\n  "));
    Ok(())
}

#[test]
fn no_file_is_longer_than_a_reader_bears() -> Result<()> {
    let long = rust_files()?.into_iter().filter_map(|(path, text)| {
        let lines = text.lines().count();
        (lines > FILE_LINES_MAX).then(|| format!("{}: {lines} lines", path.display()))
    });
    none(long.collect(), &format!("a file has at most {FILE_LINES_MAX} lines; split these by what they do"))
}

#[test]
fn no_function_is_longer_than_a_screen() -> Result<()> {
    let long = rust_files()?.into_iter().flat_map(|(path, text)| {
        long_functions(&text).into_iter().map(move |found| format!("{}:{found}", path.display()))
    });
    none(long.collect(), &format!("a function has at most {FUNCTION_LINES_MAX} lines"))
}

/// In formatted code a function ends at the first closing brace that is indented as its `fn` line.
fn long_functions(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let starts = lines.iter().enumerate().filter(|(_, line)| is_function(line));
    starts
        .filter_map(|(start, line)| {
            let indent = &line[..line.len() - line.trim_start().len()];
            let end = lines[start..].iter().position(|line| {
                line.strip_prefix(indent)
                    .is_some_and(|rest| rest == "}" || rest.ends_with(";") && rest.starts_with("fn"))
            })?;
            (end > FUNCTION_LINES_MAX).then(|| format!("{}: {} lines: {}", start + 1, end + 1, line.trim()))
        })
        .collect()
}

fn is_function(line: &str) -> bool {
    const BEFORE: [&str; 9] = [
        "pub ",
        "pub(crate) ",
        "pub(super) ",
        "const ",
        "async ",
        "unsafe ",
        "extern ",
        "\"C\" ",
        "default ",
    ];
    let mut rest = line.trim_start();
    while let Some(after) = BEFORE.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = after;
    }
    rest.starts_with("fn ") && line.trim_end().ends_with('{')
}

#[test]
fn every_file_says_what_it_is() -> Result<()> {
    let silent = rust_files()?.into_iter().filter_map(|(path, text)| {
        // What a compile test feeds to the compiler, and templates of users' files, are shown as they are.
        let shown =
            path.components().any(|part| ["ui", "templates"].contains(&&*part.as_os_str().to_string_lossy()));
        (!shown && !text.starts_with("//!")).then(|| path.display().to_string())
    });
    none(silent.collect(), "a file starts with `//!`: what it is, who calls it, what it never does")
}

#[test]
fn the_code_speaks_of_the_project_alone() -> Result<()> {
    // Spelled in two halves, so that this file does not contain them.
    let words = [["/wo", "rk/"], ["/ro", "ot/"], ["TO", "DO"], ["FIX", "ME"]].map(|halves| halves.concat());
    let found = rust_files()?.into_iter().flat_map(|(path, text)| {
        let lines = text.lines().enumerate().filter(|(_, line)| words.iter().any(|word| line.contains(word)));
        lines.map(|(at, line)| format!("{}:{}: {}", path.display(), at + 1, line.trim())).collect::<Vec<_>>()
    });
    none(found.collect(), "no path of one machine, no unfinished business")
}

#[test]
fn a_long_function_is_found() {
    let body = "    x();\n".repeat(FUNCTION_LINES_MAX);
    assert_eq!(long_functions(&format!("pub(crate) async fn f() {{\n{body}}}\n")).len(), 1);
    assert_eq!(long_functions("fn f() {\n    x();\n}\n"), Vec::<String>::new());
    assert!(Path::new(file!()).ends_with("tidy.rs"));
}
