//! Generated pages are what the program would generate now; documents keep their promises of size.

use anyhow::{Context, Result, ensure};
use pelton_tests::{Pelton, plugin, repository};

fn is_current(page: &str, format: &str) -> Result<()> {
    let generated = Pelton::new(["schema", "--format", format])?.succeed()?.stdout;
    let page_path = repository().join(page);
    let kept = std::fs::read_to_string(&page_path).with_context(|| format!("cannot read {page}"))?;
    ensure!(
        kept == generated,
        "{page} is not what `pelton schema --format {format}` prints; run `cargo xtask docs`"
    );
    Ok(())
}

#[test]
fn the_pipeline_reference_is_current() -> Result<()> {
    is_current("docs/pipeline-reference.md", "markdown")
}

#[test]
fn the_json_schema_is_current() -> Result<()> {
    is_current("docs/pipeline.schema.json", "json")
}

#[test]
fn the_map_stays_short() -> Result<()> {
    let words = std::fs::read_to_string(repository().join("ARCHITECTURE.md"))?.split_whitespace().count();
    ensure!(words <= 3000, "ARCHITECTURE.md has {words} words; 3,000 are enough for a map");
    Ok(())
}

/// Every relative link of the documents leads somewhere.
#[test]
fn documents_link_to_what_exists() -> Result<()> {
    let mut broken = Vec::new();
    for page in markdown_files()? {
        let text = std::fs::read_to_string(&page)?;
        let folder = page.parent().context("a page lies in a folder")?;
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            let outside = path.is_empty() || path.contains("://") || path.contains(' ');
            if !outside && !folder.join(path).exists() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    ensure!(broken.is_empty(), "links that lead nowhere:\n  {}", broken.join("\n  "));
    Ok(())
}

/// Every fragment of the chapter on time is a part of a script that runs.
#[test]
fn the_chapter_on_time_shows_what_runs() -> Result<()> {
    let page = std::fs::read_to_string(repository().join("docs/time.md"))?;
    let fragments = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let fragments: Vec<String> = fragments.map(without_indentation).collect();
    let scripts = std::fs::read_dir(repository().join("examples/tests"))?
        .map(|entry| Ok(without_indentation(&std::fs::read_to_string(entry?.path())?)))
        .collect::<Result<Vec<_>>>()?;
    let runs = |fragment: &String| scripts.iter().any(|script| script.contains(fragment.as_str()));
    let others: Vec<String> = fragments.iter().filter(|fragment| !runs(fragment)).cloned().collect();
    ensure!(fragments.len() > 10, "only {} fragments found", fragments.len());
    ensure!(others.is_empty(), "in no script of examples/tests:\n{}", others.join("\n"));
    Ok(())
}

/// What the page on the contract quotes is what is said.
#[test]
fn the_page_on_the_contract_quotes_what_is_said() -> Result<()> {
    let page = std::fs::read_to_string(repository().join("docs/contract.md"))?;
    let quotes: Vec<&str> =
        page.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let folder = tempfile::tempdir()?;
    let inspect = |path: &std::path::Path| Pelton::new(["plugin", "inspect"])?.arg(path).output();
    let mut said = inspect(&plugin("flights-rust.wasm")?)?.stdout;
    let describes = |version: &str| format!("(export \"pelton:plugin/describe@{version}#describe\")");
    let asks = "(import \"pelton:plugin/queue@0.1.0\" \"send\" (func))";
    for (name, import, describe) in [
        ("future", "", describes("0.9.0")),
        ("past", "", describes("0.0.9")),
        ("asks", asks, describes("0.1.0")),
    ] {
        let path = folder.path().join(format!("{name}.wat"));
        let text = format!(
            "(module {import} (memory (export \"memory\") 1) (func {describe} (result i32) i32.const 0))"
        );
        std::fs::write(&path, text)?;
        let refused = inspect(&path)?;
        ensure!(refused.code == Some(2), "{refused:?}");
        said.push_str(&refused.stderr);
    }
    ensure!(quotes.len() == 4, "{quotes:#?}");
    let others: Vec<_> = quotes.iter().filter(|quote| !said.contains(*quote)).collect();
    ensure!(others.is_empty(), "not said: {others:#?}\nbut\n{said}");
    Ok(())
}

fn without_indentation(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim())).collect()
}

fn markdown_files() -> Result<Vec<std::path::PathBuf>> {
    let mut folders: Vec<_> =
        ["", "docs", "examples", "examples/data", "plugins"].map(|folder| repository().join(folder)).into();
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "md") {
                pages.push(path);
            } else if path.is_dir() && folder.ends_with("examples") {
                folders.push(path);
            }
        }
    }
    ensure!(pages.len() > 5, "only {} pages found", pages.len());
    Ok(pages)
}
