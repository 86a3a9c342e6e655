//! Avro: container files, and records that come one by one as Spark's `from_avro` reads them, in single-object encoding
//! or in the wire format of a schema registry. A record's writer schema is resolved to the reader's, if one is given, and
//! then to the columns, by name.

mod plan;
mod run;
#[cfg(test)]
mod tests;

use super::fault::{FileFault, damaged};
use super::options::{Bag, OptionMap};
use super::rows::{RowSettings, Rows};
use super::{Decoder, DecoderSettings, Input, check_size};
use crate::avro::container::{Header, RawBlock};
use crate::avro::to_spark::{RECURSION_MAX, columns};
use crate::avro::wire::{Cursor, Fault};
use crate::avro::{AvroSchema, CONFLUENT_MAGIC, SINGLE_OBJECT_MAGIC, fingerprint};
use crate::registry::{Registry, RegistrySchema};
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use parking_lot::RwLock;
use pelton_core::{Decoded, Error, ErrorKind, Result};
use plan::RecordSteps;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The format's name in messages.
pub(crate) const FORMAT: &str = "Avro";

/// How Avro is read.
#[derive(Debug, Clone, Default)]
pub struct AvroOptions {
    schema: Option<Arc<AvroSchema>>,
    recursion: Option<usize>,
    framing: Framing,
    subject: Option<String>,
}

/// What stands before the value of a record.
#[derive(Debug, Clone, Default)]
enum Framing {
    #[default]
    Plain,
    SingleObject,
    Registry(Registry),
}

impl AvroOptions {
    /// Reads the options of the pipeline file. Unknown ones, wrong types and schemas that are none are errors of kind
    /// `Invalid`.
    pub fn from_map(map: &OptionMap) -> Result<Self> {
        let mut bag = Bag::new("avro", map);
        let schema = schema_option(&mut bag)?.map(|text| AvroSchema::parse(&text)).transpose()?;
        let recursion = bag.count("recursive_field_max_depth", 1, RECURSION_MAX)?;
        let single_object = bag.flag("single_object_encoding", false)?;
        let registry = bag.text("schema_registry")?;
        let subject = bag.text("subject")?;
        bag.finish()?;
        let framing = match (registry, single_object) {
            (Some(_), true) => {
                return Err(Error::invalid("schema_registry and single_object_encoding exclude each other"));
            }
            (Some(url), false) => Framing::Registry(Registry::new(&url)?),
            (None, true) => Framing::SingleObject,
            (None, false) => Framing::Plain,
        };
        if subject.is_some() && !matches!(framing, Framing::Registry(_)) {
            return Err(Error::invalid("option 'subject' of format avro needs schema_registry"));
        }
        Ok(Self { schema: schema.map(Arc::new), recursion, framing, subject })
    }

    /// Refuses what container files have no place for.
    pub(crate) fn check_files(&self) -> Result<()> {
        match self.framing {
            Framing::Plain => Ok(()),
            _ => Err(Error::invalid(
                "schema_registry and single_object_encoding are for records that come one by one",
            )
            .hint("an Avro file has its schema in itself: leave them out")),
        }
    }

    /// The columns of the reader's schema, if it is given.
    pub(crate) fn columns(&self, time_zone: &str) -> Result<Option<Schema>> {
        self.schema.as_ref().map(|schema| columns(schema, time_zone, self.recursion)).transpose()
    }

    /// The columns of a file's schema.
    pub(crate) fn columns_of(&self, file: &AvroSchema, time_zone: &str) -> Result<Schema> {
        columns(self.schema.as_deref().unwrap_or(file), time_zone, self.recursion)
    }

    /// The columns of the records of a topic: the reader's schema, or else the newest one of the registry.
    pub(crate) async fn columns_of_topic(&self, time_zone: &str, topic: &str) -> Result<Option<Schema>> {
        match (&self.schema, &self.framing) {
            (None, Framing::Registry(registry)) => {
                let subject = self.subject.clone().unwrap_or_else(|| format!("{topic}-value"));
                let latest = parsed(&registry.latest(&subject).await?)?;
                Ok(Some(columns(&latest, time_zone, self.recursion)?))
            }
            _ => self.columns(time_zone),
        }
    }
}

fn parsed(schema: &RegistrySchema) -> Result<AvroSchema> {
    AvroSchema::parse_with(&schema.text, &schema.references)
}

/// The text of the schema that options `avro_schema` or `avro_schema_file` give.
pub(crate) fn schema_option(bag: &mut Bag<'_>) -> Result<Option<String>> {
    match (bag.text("avro_schema")?, bag.text("avro_schema_file")?) {
        (Some(_), Some(_)) => Err(Error::invalid("avro_schema and avro_schema_file exclude each other")),
        (None, Some(path)) => match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(e) => Err(Error::invalid(format!("avro_schema_file '{path}' cannot be read: {e}"))),
        },
        (text, None) => Ok(text),
    }
}

/// How values of one writer's schema become rows.
#[derive(Debug)]
pub(crate) struct Plan {
    schema: Arc<AvroSchema>,
    steps: RecordSteps,
}

/// A schema of the registry: a plan, or why its records are malformed.
type Known = Arc<Result<Plan, String>>;

/// Decodes Avro to rows.
#[derive(Debug)]
pub struct AvroDecoder {
    rows: RowSettings,
    reader: Option<Arc<AvroSchema>>,
    framing: Framing,
    /// For records whose schema is the given one, and its fingerprint.
    own: Option<(Plan, u64)>,
    /// By the id in the registry. What the registry does not know is not kept: it may come to know it.
    known: RwLock<BTreeMap<u32, Known>>,
}

impl AvroDecoder {
    /// A decoder of files, or of records if the options say where their schemas are.
    pub fn new(settings: &DecoderSettings, options: &AvroOptions) -> Result<Self> {
        let mut decoder = Self {
            rows: RowSettings::new(settings, "")?,
            reader: options.schema.clone(),
            framing: options.framing.clone(),
            own: None,
            known: RwLock::default(),
        };
        if let (Some(schema), Framing::Plain | Framing::SingleObject) = (&options.schema, &options.framing) {
            let plan =
                decoder.plan(schema.clone()).map_err(|why| Error::invalid(format!("avro_schema: {why}")))?;
            decoder.own = Some((plan, fingerprint_of(&options.framing, schema)?));
        }
        Ok(decoder)
    }

    /// A decoder of records.
    pub(crate) fn of_records(settings: &DecoderSettings, options: &AvroOptions) -> Result<Self> {
        let decoder = Self::new(settings, options)?;
        if decoder.own.is_none() && !matches!(decoder.framing, Framing::Registry(_)) {
            return Err(Error::invalid("records of format avro need a schema").hint(
                "give the writer's schema by option avro_schema or avro_schema_file, or the URL of a schema_registry",
            ));
        }
        Ok(decoder)
    }

    /// How to read what was written with a schema.
    pub(crate) fn plan(&self, writer: Arc<AvroSchema>) -> Result<Plan, String> {
        let steps = plan::plan(&writer, self.reader.as_ref(), self.rows.schema.fields())?;
        Ok(Plan { schema: writer, steps })
    }

    /// The rows of blocks of a file. Whatever is wrong is the file's damage.
    pub(crate) fn decode_blocks(
        &self,
        name: &str,
        header: &Header,
        plan: &Plan,
        blocks: &[RawBlock],
    ) -> Result<Decoded> {
        let position = |_: u64| name.to_owned();
        let mut rows = Rows::new(&self.rows, &position)?;
        for block in blocks {
            let value = |cursor: &mut Cursor<'_>| -> Result<(), Fault> {
                run::record(&plan.schema, &plan.steps, cursor, &mut rows.columns)?;
                rows.good(1).map_err(|e| e.message().to_owned().into())
            };
            header.each(block, value).map_err(|why| damaged(name, FORMAT, &why))?;
        }
        rows.finish()
    }

    /// The value of a record, and its schema if that is one of the registry.
    fn framed<'r>(&self, record: &'r [u8]) -> Result<(Option<Known>, &'r [u8]), Fault> {
        match &self.framing {
            Framing::Plain => Ok((None, record)),
            Framing::SingleObject => {
                let body =
                    record.strip_prefix(&SINGLE_OBJECT_MAGIC).ok_or("it is not in single-object encoding")?;
                let (found, value) = body.split_first_chunk::<8>().ok_or("it ends within its fingerprint")?;
                match self.own.as_ref().is_some_and(|(_, own)| found == &own.to_le_bytes()) {
                    true => Ok((None, value)),
                    false => Err(format!(
                        "it was written with another schema, of fingerprint {:016x}",
                        u64::from_le_bytes(*found)
                    )
                    .into()),
                }
            }
            Framing::Registry(_) => {
                let (id, value) = registry_frame(record)?;
                let known = self.known.read().get(&id).cloned();
                Ok((Some(known.ok_or_else(|| format!("the registry has no schema {id}"))?), value))
            }
        }
    }

    fn record(&self, rows: &mut Rows<'_>, record: &[u8]) -> Result<(), Fault> {
        let (known, value) = self.framed(record)?;
        let plan = match (known.as_deref(), &self.own) {
            (Some(Ok(plan)), _) | (None, Some((plan, _))) => plan,
            (Some(Err(why)), _) => return Err(why.clone().into()),
            (None, None) => return Err("records need a schema".into()),
        };
        run::record(&plan.schema, &plan.steps, &mut Cursor::new(value), &mut rows.columns)
    }
}

fn fingerprint_of(framing: &Framing, schema: &AvroSchema) -> Result<u64> {
    match framing {
        Framing::SingleObject => fingerprint(schema),
        _ => Ok(0),
    }
}

/// The id of a record's schema, and its value.
fn registry_frame(record: &[u8]) -> Result<(u32, &[u8]), Fault> {
    let body = match record.split_first() {
        Some((&CONFLUENT_MAGIC, body)) => body,
        _ => return Err("it does not begin with the 0 of a schema registry's wire format".into()),
    };
    let (id, value) = body.split_first_chunk::<4>().ok_or("it ends within its schema's id")?;
    Ok((u32::from_be_bytes(*id), value))
}

#[async_trait]
impl Decoder for AvroDecoder {
    fn schema(&self) -> SchemaRef {
        self.rows.schema.clone()
    }

    /// The piece is a whole file.
    fn decode(&self, input: &Input<'_>) -> Result<Decoded> {
        check_size(input.bytes.len(), input.file)?;
        let fault = |fault: FileFault| fault.of(input.file, FORMAT);
        let mut bytes = input.bytes;
        let header = Header::read(&mut bytes).map_err(fault)?;
        let plan =
            self.plan(Arc::new(header.schema.clone())).map_err(|why| damaged(input.file, FORMAT, &why))?;
        let mut blocks = Vec::new();
        while let Some(block) = header.next(&mut bytes).map_err(fault)? {
            blocks.push(block);
        }
        self.decode_blocks(input.file, &header, &plan, &blocks)
    }

    fn decode_records(&self, records: &[&[u8]], position: &dyn Fn(u64) -> String) -> Result<Decoded> {
        let mut rows = Rows::new(&self.rows, position)?;
        for (n, record) in records.iter().enumerate() {
            check_size(record.len(), &position(n as u64))?;
            rows.begin_record(n);
            match self.record(&mut rows, record) {
                Ok(()) => rows.good(1)?,
                Err(why) => {
                    rows.discard();
                    rows.malformed(n as u64, record, 0, format!("not readable as Avro: {why}"))?;
                }
            }
        }
        rows.finish()
    }

    async fn prepare(&self, records: &[&[u8]]) -> Result<()> {
        let Framing::Registry(registry) = &self.framing else { return Ok(()) };
        let ids: BTreeSet<u32> =
            records.iter().filter_map(|record| registry_frame(record).ok()).map(|(id, _)| id).collect();
        for id in ids {
            if self.known.read().contains_key(&id) {
                continue;
            }
            let plan = match registry.schema(id).await {
                Ok(None) => continue,
                // Of another kind than Avro: the record's fault.
                Err(e) if e.kind() == ErrorKind::Data => Err(e.message().to_owned()),
                Err(e) => return Err(e),
                Ok(Some(schema)) => {
                    let schema = parsed(&schema).map_err(|e| e.message().to_owned());
                    schema.and_then(|schema| self.plan(Arc::new(schema)))
                }
            };
            let plan = plan.map_err(|why| format!("schema {id} of the registry: {why}"));
            self.known.write().insert(id, Arc::new(plan));
        }
        Ok(())
    }
}
