//! Formats by way of the binary: what one query writes, another reads with the same types.

use anyhow::{Result, ensure};
use pelton_tests::{Finished, Pelton};
use std::path::Path;

const COLUMNS: &str = "id long, name string, price decimal(10,2), at timestamp, tags array<string>, \
                       place struct<x: double, y: double>";
const ROWS: &str = r#"{"id":1,"name":"tea","price":2.50,"at":"2026-01-01T08:00:00.000Z","tags":["hot","drink"],"place":{"x":1.5,"y":-2.0}}
{"id":2,"name":"häuser","tags":[]}
{"id":3,"price":-0.01,"at":"1969-12-31T23:59:59.999Z","place":{"x":0.0}}
"#;

fn run(folder: &Path, name: &str, source: &str, rest: &str) -> Result<Finished> {
    let shown = folder.display();
    let file = folder.join(format!("{name}.yaml"));
    let text = format!(
        "name: {name}\nsources:\n  rows: {{connector: file, path: '{shown}/{source}}}\n{rest}\ncheckpoint: \
         '{shown}/checkpoints/{name}'\n"
    );
    std::fs::write(&file, text.replace("FOLDER", &shown.to_string()))?;
    Pelton::new(["run"])?.arg(&file).args(["--trigger", "available_now"]).output()
}

#[test]
fn rows_go_through_avro_and_arrow_files_unchanged() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    std::fs::create_dir_all(folder.join("in"))?;
    std::fs::write(folder.join("in/a.jsonl"), ROWS)?;
    let declared = format!("in/*.jsonl', format: json, schema: '{COLUMNS}'");
    let sink = "sink: {connector: file, path: FOLDER/avro, format: avro, options: {compression: zstandard}}";
    ensure!(run(folder, "to-avro", &declared, sink)?.code == Some(0));
    let sink = "sink: {connector: file, path: FOLDER/arrow, format: arrow}";
    ensure!(run(folder, "to-arrow", "avro/*.avro', format: avro, infer_schema: true", sink)?.code == Some(0));
    let sink = "sink: {connector: console, format: json}";
    let shown = run(folder, "show", "arrow/*.arrow', format: arrow, infer_schema: true", sink)?;
    ensure!(shown.stdout == ROWS, "{shown:?}");
    // The same files as tables: the side of a join that does not stream.
    let join = "tables:\n  a: {path: 'FOLDER/avro/*.avro', format: avro}\n  b: {path: 'FOLDER/arrow/*.arrow', format: \
                arrow}\nsteps:\n  - sql: SELECT r.id, a.name, b.place.x FROM rows r JOIN a ON r.id = a.id JOIN b ON r.id = \
                b.id\nsink: {connector: console, format: json}";
    let joined = run(folder, "join", &declared, join)?;
    let expected =
        "{\"id\":1,\"name\":\"tea\",\"x\":1.5}\n{\"id\":2,\"name\":\"häuser\"}\n{\"id\":3,\"x\":0.0}\n";
    ensure!(joined.stdout == expected, "{joined:?}");
    Ok(())
}

#[test]
fn what_a_format_cannot_do_is_said_before_the_start() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let data = pelton_tests::repository().join("host/connectors/tests-data");
    std::fs::create_dir_all(folder.join("in"))?;
    std::fs::write(folder.join("in/a.avro"), "no Avro at all")?;
    let console = "sink: {connector: console, format: json}";
    let options =
        format!("{{message_name: test.pelton.All, desc_file_path: '{}/all_types.desc'}}", data.display());
    let protobuf = format!("in/*', format: protobuf, options: {options}");
    for (name, source, rest, code, words) in [
        ("protobuf", protobuf.as_str(), console, 2, "format protobuf is one of messages"),
        (
            "option",
            "in/*', format: avro, schema: 'a int', options: {avro_shema: int}",
            console,
            2,
            "did you mean 'avro_schema'?",
        ),
        (
            "damaged",
            "in/*', format: avro, schema: 'a int'",
            console,
            1,
            "in/a.avro: not readable as Avro: it does not begin as an Avro file does",
        ),
        (
            "raw",
            "in/*', format: raw",
            "sink: {connector: file, path: FOLDER/out, format: raw}",
            2,
            "write files as json",
        ),
        (
            "map",
            "in/*', format: parquet, schema: 'm map<int, int>'",
            "sink: {connector: file, path: FOLDER/out, format: avro}",
            2,
            "Avro's maps have strings as keys",
        ),
    ] {
        let refused = run(folder, name, source, rest)?;
        ensure!(refused.code == Some(code) && refused.stderr.contains(words), "{name}: {refused:?}");
    }
    Ok(())
}
