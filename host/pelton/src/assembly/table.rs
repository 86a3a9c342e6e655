//! The static tables of a pipeline file to core's `Table`.

use super::source::{file_format, format_options};
use pelton_connectors::source::Stores;
use pelton_connectors::source::file::FileSourceOptions;
use pelton_connectors::table::{FileTable, GivenTable};
use pelton_core::{Error, MalformedPolicy, Result, Table};
use pelton_plan::PipelineFile;
use pelton_plan::file::{Spanned, TableSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads all of them.
pub(crate) async fn open_all(
    file: &PipelineFile,
    stores: &Stores,
) -> Result<BTreeMap<String, Arc<dyn Table>>> {
    let mut tables = BTreeMap::new();
    for (name, spec) in &file.tables {
        let table = open(file, name, spec, stores).await;
        tables.insert(name.clone(), table?);
    }
    Ok(tables)
}

async fn open(
    file: &PipelineFile,
    name: &str,
    spec: &Spanned<TableSpec>,
    stores: &Stores,
) -> Result<Arc<dyn Table>> {
    let table = &spec.value;
    let wrong = |what: &str| file.text().error(spec.span, what.to_owned());
    let schema =
        table.schema.as_ref().map(|schema| schema.schema(file.text(), file.time_zone())).transpose()?;
    match (&table.rows, &table.path, table.format) {
        (Some(rows), None, None) => {
            let schema =
                schema.ok_or_else(|| wrong("rows need a `schema`, which says their columns and types"))?;
            let in_rows =
                |e: Error| super::located(file, spec.span, e.context(format_args!("table '{name}'")));
            let text = |row: &serde_json::Value| match row {
                serde_json::Value::String(text) => text.clone(),
                row => row.to_string(),
            };
            let rows: Vec<String> = rows.iter().map(text).collect();
            let table = GivenTable::from_json(&rows, schema, file.time_zone(), name);
            Ok(Arc::new(table.map_err(in_rows)?))
        }
        (None, Some(path), Some(format)) => {
            let options = FileSourceOptions {
                options: format_options(&table.options),
                schema,
                on_malformed: MalformedPolicy::Fail,
                time_zone: file.time_zone().to_owned(),
                ..FileSourceOptions::new([path.value.clone()], file_format(format))
            };
            let in_files =
                |e: Error| super::located(file, path.span, e.context(format_args!("table '{name}'")));
            Ok(Arc::new(FileTable::open(name, options, table.reload, stores).await.map_err(in_files)?))
        }
        _ => Err(wrong("a table has either a `path` and a `format`, or `rows` and a `schema`")),
    }
}
