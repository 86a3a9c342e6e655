//! Static tables over a crash: a micro-batch that runs again sees them as they were, or is refused.

use anyhow::{Result, ensure};
use pelton_tests::{Finished, Pelton};
use std::path::{Path, PathBuf};

/// Orders joined with a table of items in a folder, to stdout; one micro-batch has run and its commit is lost.
fn crashed(folder: &Path, reload: bool) -> Result<PathBuf> {
    let shown = folder.display();
    for sub in ["in", "items"] {
        std::fs::create_dir_all(folder.join(sub))?;
    }
    std::fs::write(folder.join("in/0.jsonl"), "{\"item\":\"tea\"}\n{\"item\":\"milk\"}\n")?;
    std::fs::write(folder.join("items/a.jsonl"), "{\"item\":\"tea\",\"price\":2}\n")?;
    let file = folder.join("orders.yaml");
    let text = format!(
        "name: orders\nsources:\n  orders: {{connector: file, path: '{shown}/in/*.jsonl', format: json, schema: 'item \
         string'}}\ntables:\n  items: {{path: '{shown}/items/*.jsonl', format: json, schema: 'item string, price long', \
         reload: {reload}}}\nsteps:\n  - sql: SELECT o.item, price FROM orders o JOIN items i ON o.item = i.item\nsink: \
         {{connector: console, format: json}}\ncheckpoint: '{shown}/checkpoint'\n"
    );
    std::fs::write(&file, text)?;
    let first = run(&file, &[])?;
    ensure!(first.stdout == "{\"item\":\"tea\",\"price\":2}\n", "{first:?}");
    std::fs::remove_file(folder.join("checkpoint/commits/0"))?;
    Ok(file)
}

fn run(file: &Path, arguments: &[&str]) -> Result<Finished> {
    Pelton::new(["run"])?.arg(file).args(["--trigger", "available_now"]).args(arguments).output()
}

#[test]
fn a_rerun_reads_the_table_as_it_was_and_what_follows_as_it_is() -> Result<()> {
    for reload in [true, false] {
        let folder = tempfile::tempdir()?;
        let file = crashed(folder.path(), reload)?;
        std::fs::write(folder.path().join("items/b.jsonl"), "{\"item\":\"milk\",\"price\":1}\n")?;
        std::fs::write(folder.path().join("in/1.jsonl"), "{\"item\":\"milk\"}\n")?;
        let again = run(&file, &[])?;
        let expected = "{\"item\":\"tea\",\"price\":2}\n{\"item\":\"milk\",\"price\":1}\n";
        ensure!(again.code == Some(0) && again.stdout == expected, "reload {reload}: {again:?}");
    }
    Ok(())
}

#[test]
fn a_table_whose_file_has_changed_is_refused_for_the_rerun_unless_it_is_meant() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = crashed(folder.path(), true)?;
    std::fs::write(folder.path().join("items/a.jsonl"), "{\"item\":\"tea\",\"price\":333}\n")?;
    let refused = run(&file, &[])?;
    ensure!(refused.code == Some(1) && refused.stdout.is_empty(), "{refused:?}");
    for word in ["table 'items'", "has changed since it was listed", "--rerun-with-current-tables"] {
        ensure!(refused.stderr.contains(word), "no '{word}' in\n{}", refused.stderr);
    }
    let meant = run(&file, &["--rerun-with-current-tables"])?;
    ensure!(meant.stdout == "{\"item\":\"tea\",\"price\":333}\n", "{meant:?}");
    Ok(())
}
