//! The schema of a file source: declared or inferred, with the columns of `key=value` directories behind.
//!
//! What was inferred at the first start is written into the source's log, so that a restart has the same
//! schema whatever files have come since.

use super::containers;
use super::cut::Boundary;
use super::location::Location;
use super::log::FileEntry;
use super::options::{FileSourceOptions, FormatOptions};
use super::parquet::describe;
use super::partition::{infer, pairs};
use super::read::{Opening, sample};
use super::{by_age, list, opening};
use crate::decode::column::nullable;
use crate::decode::csv::infer_csv;
use crate::decode::json::infer_json;
use crate::decode::parquet::schema_of;
use arrow::datatypes::{Field, Fields, Schema, SchemaRef};
use bytes::Bytes;
use pelton_core::types::parse_type;
use pelton_core::types::type_name;
use pelton_core::{Error, FileManager, MalformedPolicy, Result, spark_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

const FILE: &str = "schema";
const VERSION: &str = "v1";
/// Bytes of the beginnings of files that inference looks at, all in all.
const SAMPLE_BYTES: usize = 16 << 20;

/// What a file source gives, before any projection.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    /// What the files themselves hold.
    pub(super) data: SchemaRef,
    /// What their directories say.
    pub(super) partition: Vec<Field>,
}

impl Resolved {
    /// All columns.
    pub(super) fn full(&self) -> Schema {
        let fields = self.data.fields().iter().cloned().chain(self.partition.iter().cloned().map(Arc::new));
        Schema::new(fields.collect::<Fields>())
    }
}

/// What is written down at the first start.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// The inferred columns of the files, in Spark's JSON form; absent if the columns are declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inferred: Option<Value>,
    /// Columns of directories and their inferred types, in order.
    #[serde(default)]
    partition_columns: Vec<(String, String)>,
}

/// Finds the schema. Files are listed and looked into only at the first start.
pub(super) async fn resolve(
    options: &FileSourceOptions,
    format: &FormatOptions,
    locations: &[Location],
    log: &Arc<dyn FileManager>,
) -> Result<Resolved> {
    let declared = match &options.schema {
        None => format.own_schema(&options.time_zone)?,
        declared => declared.clone(),
    };
    if declared.is_none() && !options.infer_schema {
        return Err(Error::invalid(format!("a source of format {} needs a schema", options.format.as_str()))
            .hint("declare the columns with schema: {name: type, …}, or set infer_schema: true"));
    }
    let written = match read(log).await? {
        Some(written) if declared.is_some() || written.inferred.is_some() => written,
        _ => {
            let written = look(options, format, locations, declared.is_some()).await?;
            write(log, &written).await?;
            written
        }
    };
    let zone = &options.time_zone;
    let inferred = written.inferred.as_ref().map(|json| spark_schema::from_json(json, zone)).transpose()?;
    let all = match (declared, inferred) {
        (Some(declared), _) => declared.as_ref().clone(),
        (None, Some(inferred)) => inferred,
        (None, None) => Schema::empty(),
    };
    let fixed = matches!(format, FormatOptions::Text(_) | FormatOptions::Raw);
    split(&all, &written.partition_columns, zone, fixed)
}

/// Tells the columns of directories from those of files; a declared type goes before an inferred one.
fn split(all: &Schema, partition: &[(String, String)], zone: &str, fixed: bool) -> Result<Resolved> {
    let same = |field: &Field, name: &str| field.name().eq_ignore_ascii_case(name);
    let column = |(name, inferred): &(String, String)| {
        let declared = all.fields().iter().find(|f| same(f, name) && !(fixed && name == "value"));
        if let Some(field) = declared {
            if field.data_type().is_nested() {
                let found = type_name(field.data_type());
                return Err(Error::invalid(format!(
                    "column '{name}' comes from directories and cannot be {found}"
                )));
            }
            return Ok(field.as_ref().clone().with_nullable(true));
        }
        let inferred = parse_type(inferred, zone).map_err(|e| Error::data(format!("file '{FILE}': {e}")))?;
        Ok(Field::new(name, inferred, true))
    };
    let partition = partition.iter().map(column).collect::<Result<Vec<_>>>()?;
    let of_files = all.fields().iter().filter(|f| !partition.iter().any(|p| same(p, f.name())));
    let data = Arc::new(Schema::new(of_files.map(nullable).collect::<Fields>()));
    Ok(Resolved { data, partition })
}

async fn read(log: &Arc<dyn FileManager>) -> Result<Option<Written>> {
    let Some(content) = log.read(FILE).await? else { return Ok(None) };
    let damaged = |why: String| {
        Error::data(format!("{}/{FILE} cannot be used: {why}", log.url()))
            .hint("restore the checkpoint, use the Pelton that wrote it, or start with a new one")
    };
    let text = String::from_utf8_lossy(&content);
    match text.split_once('\n') {
        Some((VERSION, json)) => serde_json::from_str(json).map(Some).map_err(|e| damaged(e.to_string())),
        _ => Err(damaged(format!("its first line is not {VERSION}"))),
    }
}

async fn write(log: &Arc<dyn FileManager>, written: &Written) -> Result<()> {
    let json = serde_json::to_string(written)
        .map_err(|e| Error::internal(format!("a schema cannot be written: {e}")))?;
    log.replace(FILE, Bytes::from(format!("{VERSION}\n{json}"))).await
}

/// Looks at the files that are there.
async fn look(
    options: &FileSourceOptions,
    format: &FormatOptions,
    locations: &[Location],
    declared: bool,
) -> Result<Written> {
    let mut files = list(locations, options.recursive, Arc::new(|_| false)).await?;
    files.sort_unstable_by(by_age);
    let partition_columns = if options.recursive { vec![] } else { directories(options, locations, &files) };
    if declared {
        return Ok(Written { inferred: None, partition_columns });
    }
    let places: Vec<String> = locations.iter().map(Location::shown_base).collect();
    let schema = of_files(options, format, locations, &files)
        .await
        .map_err(|e| e.context(format!("source of {}", places.join(", "))))?;
    Ok(Written { inferred: Some(spark_schema::to_json(&schema)), partition_columns })
}

fn directories(
    options: &FileSourceOptions,
    locations: &[Location],
    files: &[FileEntry],
) -> Vec<(String, String)> {
    let mut names: Vec<String> = Vec::new();
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let below = |file: &FileEntry| locations.iter().find_map(|l| l.below(&file.path)).map(str::to_owned);
    for (name, value) in files.iter().filter_map(below).flat_map(|below| pairs(&below)) {
        if !names.contains(&name) {
            names.push(name.clone());
        }
        values.entry(name).or_default().extend(value);
    }
    let column = |name: String| {
        let values = values.get(&name).map(Vec::as_slice).unwrap_or_default();
        let inferred = type_name(&infer(values.iter().map(String::as_str), &options.time_zone));
        (name, inferred)
    };
    names.into_iter().map(column).collect()
}

async fn of_files(
    options: &FileSourceOptions,
    format: &FormatOptions,
    locations: &[Location],
    files: &[FileEntry],
) -> Result<Schema> {
    let none = || {
        Error::invalid("no schema can be inferred: there are no files yet")
            .hint("declare the columns with schema: {name: type, …}")
    };
    let zone = &options.time_zone;
    match format {
        FormatOptions::Parquet => {
            let file = opening(locations, files.first().ok_or_else(none)?.clone())?;
            schema_of(&file.shown, &describe(&file).await?, zone)
        }
        FormatOptions::Json(json) => {
            let sample = samples(locations, files, Boundary::LineFeed).await?;
            let sample: Vec<&[u8]> = sample.iter().map(Vec::as_slice).collect();
            let keep_malformed = options.on_malformed == MalformedPolicy::Null;
            if files.is_empty() { Err(none()) } else { infer_json(&sample, json, zone, keep_malformed) }
        }
        FormatOptions::Csv(csv) => {
            let boundary = if csv.multi_line { Boundary::Quoted(csv.splitter()) } else { Boundary::LineFeed };
            let sample = samples(locations, files, boundary).await?;
            let sample: Vec<&[u8]> = sample.iter().map(Vec::as_slice).collect();
            if files.is_empty() { Err(none()) } else { infer_csv(&sample, csv, zone) }
        }
        FormatOptions::Avro(avro) => {
            let file = opening(locations, files.first().ok_or_else(none)?.clone())?;
            avro.columns_of(&containers::avro_header(file).await?.schema, zone)
        }
        FormatOptions::Arrow => {
            let file = opening(locations, files.first().ok_or_else(none)?.clone())?;
            containers::arrow_schema(file, zone.clone()).await
        }
        FormatOptions::Text(_) | FormatOptions::Raw | FormatOptions::Protobuf(_) => {
            Err(Error::internal(format!("format {} has columns of its own", options.format.as_str())))
        }
    }
}

/// The first block of each of the first files, up to a bound.
async fn samples(locations: &[Location], files: &[FileEntry], boundary: Boundary) -> Result<Vec<Vec<u8>>> {
    let mut pieces = Vec::new();
    let mut held = 0;
    for file in files {
        let file: Opening = opening(locations, file.clone())?;
        if let Some(piece) = sample(file, boundary.clone()).await? {
            held += piece.len();
            pieces.push(piece);
        }
        if held >= SAMPLE_BYTES {
            break;
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::types::{columns_name, parse_columns};

    #[test]
    fn declared_types_of_directories_go_before_inferred_ones() {
        let declared = Schema::new(parse_columns("Year: string, a: long", "UTC").unwrap());
        let partition = [("year".to_owned(), "int".to_owned()), ("k".to_owned(), "date".to_owned())];
        let resolved = split(&declared, &partition, "UTC", false).unwrap();
        assert_eq!(columns_name(resolved.full().fields()), "a: long, Year: string, k: date");
        assert!(split(&declared, &[("a".into(), "int".into())], "UTC", false).is_ok());
        assert_eq!(resolved.partition[1].data_type(), &arrow::datatypes::DataType::Date32);
    }
}
