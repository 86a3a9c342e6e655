//! A source whose rows a script adds: it takes the place of a source of the pipeline file.
//!
//! The additions outlive the query; its offset is how many lists of rows are read. A list is one micro-batch, as a
//! file is with `max_files_per_trigger: 1`. Rows are decoded as the pipeline's JSON sources decode theirs.

use super::script::Row;
use crate::assembly::{GivenSource, columns_of_lines, format_options, kafka_schema};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use futures::StreamExt;
use pelton_connectors::decode::json::{JsonDecoder, JsonOptions};
use pelton_connectors::decode::{Decoder, DecoderSettings};
use pelton_core::{
    BatchId, Block, BlockStream, Decoded, Error, Offset, OffsetRange, ReadLimit, Result, Source,
};
use pelton_plan::PipelineFile;
use pelton_plan::file::{Format, SourceSpec};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The rows of one micro-batch, each as its JSON text.
type List = Arc<Vec<String>>;

/// Everything that a script has added so far, by source.
#[derive(Clone)]
pub(super) struct Additions {
    lists: Arc<Mutex<BTreeMap<String, Vec<List>>>>,
    rows_per_block: usize,
}

impl Additions {
    /// None yet. So many rows are decoded and worked on together.
    pub(super) fn new(rows_per_block: usize) -> Self {
        Self { lists: Arc::default(), rows_per_block }
    }

    fn lists(&self) -> MutexGuard<'_, BTreeMap<String, Vec<List>>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more micro-batch's rows.
    pub(super) fn add(&self, source: &str, rows: &[Row]) {
        let text = |row: &Row| match &row.value {
            Value::String(text) => text.clone(),
            object => object.to_string(),
        };
        let list = Arc::new(rows.iter().map(text).collect());
        self.lists().entry(source.to_owned()).or_default().push(list);
    }

    fn len(&self, source: &str) -> u64 {
        self.lists().get(source).map_or(0, |lists| lists.len() as u64)
    }

    fn between(&self, source: &str, start: u64, end: u64) -> Option<Vec<List>> {
        let lists = self.lists();
        lists.get(source)?.get(start as usize..end as usize).map(<[List]>::to_vec)
    }
}

/// The columns that rows of a source have.
pub(super) fn schema_of(file: &PipelineFile, name: &str, spec: &SourceSpec) -> Result<SchemaRef> {
    match spec {
        SourceSpec::File(source) => match &source.schema {
            Some(schema) => schema.schema(file.text(), file.time_zone()),
            None => Err(Error::invalid(format!(
                "{}: the source '{name}' has no `schema:`, so it is not known what rows a script gives it",
                file.text().name()
            ))
            .hint("declare its columns in the pipeline file")),
        },
        SourceSpec::Kafka(source) => kafka_schema(file, name, source),
        SourceSpec::Memory(source) => source.schema.schema(file.text(), file.time_zone()),
        SourceSpec::Http(_) | SourceSpec::Socket(_) | SourceSpec::Stdin(_) => columns_of_lines(file, spec),
        SourceSpec::Rate(_) => {
            let zone = Some(Arc::from(file.time_zone()));
            Ok(Arc::new(Schema::new(vec![
                Field::new("timestamp", DataType::Timestamp(TimeUnit::Microsecond, zone), true),
                Field::new("value", DataType::Int64, true),
            ])))
        }
    }
}

/// The source of a script, before it is known which columns the plan reads.
pub(super) struct ScriptSource {
    name: String,
    settings: DecoderSettings,
    options: JsonOptions,
    additions: Additions,
}

impl ScriptSource {
    /// In the place of this source of the file.
    pub(super) fn new(
        file: &PipelineFile,
        name: &str,
        spec: &SourceSpec,
        additions: Additions,
    ) -> Result<Self> {
        let mut settings = DecoderSettings::new(schema_of(file, name, spec)?);
        settings.time_zone = file.time_zone().to_owned();
        settings.origin = name.to_owned();
        let mut options = JsonOptions::default();
        if let SourceSpec::File(source) = spec {
            settings.on_malformed = source.on_malformed;
            if source.format == Format::Json {
                options = JsonOptions::from_map(&format_options(&source.options))?;
            }
        }
        if let SourceSpec::Kafka(source) = spec {
            settings.on_malformed = source.on_malformed.unwrap_or_default();
            if source.format.as_ref().is_some_and(|format| format.value == Format::Json) {
                options = JsonOptions::from_map(&format_options(&source.options))?;
            }
        }
        Ok(Self { name: name.to_owned(), settings, options, additions })
    }
}

impl GivenSource for ScriptSource {
    fn full_schema(&self) -> SchemaRef {
        Arc::clone(&self.settings.schema)
    }

    fn cut(mut self: Box<Self>, columns: Option<&[String]>) -> Result<Arc<dyn Source>> {
        self.settings.columns = columns.map(<[String]>::to_vec);
        let decoder = JsonDecoder::new(&self.settings, &self.options)?;
        let Self { name, additions, .. } = *self;
        Ok(Arc::new(OpenScriptSource { name, decoder: Arc::new(decoder), additions, end: Mutex::default() }))
    }
}

struct OpenScriptSource {
    name: String,
    decoder: Arc<JsonDecoder>,
    additions: Additions,
    /// Where `available_now` ends.
    end: Mutex<Option<u64>>,
}

fn number(offset: &Offset) -> Result<u64> {
    offset
        .0
        .as_u64()
        .ok_or_else(|| Error::data(format!("{} is not an offset of a script's source", offset.0)))
}

#[async_trait]
impl Source for OpenScriptSource {
    fn description(&self) -> String {
        "script".into()
    }

    fn schema(&self) -> SchemaRef {
        self.decoder.schema()
    }

    async fn prepare_for_available_now(&self) -> Result<()> {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.additions.len(&self.name));
        Ok(())
    }

    async fn latest_offset(
        &self,
        start: Option<&Offset>,
        limit: ReadLimit,
        _now_ms: i64,
    ) -> Result<Option<Offset>> {
        let start = start.map_or(Ok(0), number)?;
        let end = *self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let there = end.unwrap_or_else(|| self.additions.len(&self.name));
        let admitted = match limit {
            ReadLimit::All => there,
            ReadLimit::Configured => there.min(start + 1),
        };
        Ok((admitted > start).then(|| Offset(admitted.into())))
    }

    async fn read(&self, _batch_id: BatchId, range: &OffsetRange) -> Result<BlockStream> {
        let start = range.start.as_ref().map_or(Ok(0), number)?;
        let end = number(&range.end)?;
        let lists = self.additions.between(&self.name, start, end).ok_or_else(|| {
            Error::data(format!("the script has not added the lists {start} to {end} of '{}'", self.name))
        })?;
        let blocks: Vec<_> =
            (start..).zip(&lists).flat_map(|(number, rows)| self.blocks(number, rows)).collect();
        Ok(futures::stream::iter(blocks).map(Ok).boxed())
    }

    async fn commit(&self, _end: &Offset) -> Result<()> {
        Ok(())
    }
}

impl OpenScriptSource {
    fn blocks(&self, list: u64, rows: &List) -> Vec<Box<dyn Block>> {
        let size = self.additions.rows_per_block;
        let block = |(at, rows): (usize, &[String])| {
            let first_row = (at * size) as u64;
            let (name, decoder) = (self.name.clone(), Arc::clone(&self.decoder));
            Box::new(ListBlock { name, list, first_row, rows: rows.to_vec(), decoder }) as Box<dyn Block>
        };
        rows.chunks(size).enumerate().map(block).collect()
    }
}

struct ListBlock {
    name: String,
    list: u64,
    first_row: u64,
    rows: Vec<String>,
    decoder: Arc<JsonDecoder>,
}

impl Block for ListBlock {
    fn input_bytes(&self) -> u64 {
        self.rows.iter().map(|row| row.len() as u64).sum()
    }

    fn decode(self: Box<Self>) -> Result<Decoded> {
        let records: Vec<&[u8]> = self.rows.iter().map(String::as_bytes).collect();
        let Self { name, list, first_row, .. } = &*self;
        let position = |row: u64| format!("{name}, list {}, row {}", list + 1, first_row + row + 1);
        self.decoder.decode_records(&records, &position)
    }
}
