//! The schema that a sink registers, and the frame that its id makes in front of every message.

use super::Registry;
use crate::avro::CONFLUENT_MAGIC;
use crate::decode::options::Bag;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pelton_core::{Error, Result};
use prost_reflect::FileDescriptor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Files that every registry knows.
const WELL_KNOWN: &str = "google/protobuf/";

/// See the module.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Registry,
    subject: Option<String>,
    /// Known when it is registered.
    id: OnceLock<u32>,
}

/// What is registered.
pub(crate) enum NewSchema<'a> {
    /// As JSON.
    Avro(&'a str),
    /// The file that declares the message.
    Protobuf(FileDescriptor),
}

impl Registration {
    /// By options `schema_registry` and `subject`, if there is a registry.
    pub(crate) fn from_options(bag: &mut Bag<'_>, format: &str) -> Result<Option<Self>> {
        let (url, subject) = (bag.text("schema_registry")?, bag.text("subject")?);
        match url {
            Some(url) => Ok(Some(Self { registry: Registry::new(&url)?, subject, id: OnceLock::new() })),
            None if subject.is_some() => {
                Err(Error::invalid(format!("option 'subject' of format {format} needs schema_registry")))
            }
            None => Ok(None),
        }
    }

    /// Registers it once: under the subject of the options, or else under `<topic>-value`.
    pub(crate) async fn register(&self, topic: Option<&str>, schema: NewSchema<'_>) -> Result<()> {
        let subject = self.subject.clone().or_else(|| topic.map(|topic| format!("{topic}-value")));
        let subject = subject.ok_or_else(|| {
            Error::invalid("the schema's subject is not known: the rows go to more than one topic")
                .hint("name it by option subject of the format")
        })?;
        if self.id.get().is_some() {
            return Ok(());
        }
        let body = match schema {
            NewSchema::Avro(text) => json!({"schema": text}),
            NewSchema::Protobuf(file) => body(&file, &self.imported(&file).await?),
        };
        let id = self.registry.register(&subject, &body).await?;
        self.id.get_or_init(|| id);
        Ok(())
    }

    /// Registers what a file imports, each under its own name, and gives their versions.
    async fn imported(&self, file: &FileDescriptor) -> Result<BTreeMap<String, i64>> {
        let mut versions = BTreeMap::new();
        for file in imports(file) {
            let body = body(&file, &versions);
            self.registry.register(file.name(), &body).await?;
            versions.insert(file.name().to_owned(), self.registry.version(file.name(), &body).await?);
        }
        Ok(versions)
    }

    /// What stands before every message: a 0 and the schema's id.
    pub(crate) fn push_frame(&self, out: &mut Vec<u8>) -> Result<()> {
        let id = self.id.get().ok_or_else(|| Error::internal("the schema was not registered"))?;
        out.push(CONFLUENT_MAGIC);
        out.extend_from_slice(&id.to_be_bytes());
        Ok(())
    }
}

/// The request that registers a file: its descriptor, and the files that it imports.
fn body(file: &FileDescriptor, versions: &BTreeMap<String, i64>) -> Value {
    let known = file.dependencies().filter_map(|import| {
        let version = versions.get(import.name())?;
        Some(json!({"name": import.name(), "subject": import.name(), "version": version}))
    });
    let references: Vec<Value> = known.collect();
    json!({"schemaType": "PROTOBUF", "schema": BASE64.encode(file.encode_to_vec()), "references": references})
}

/// The files that one imports, those of others first; without those that every registry knows.
fn imports(file: &FileDescriptor) -> Vec<FileDescriptor> {
    let mut found = Vec::new();
    collect(file, &mut found);
    found
}

fn collect(file: &FileDescriptor, found: &mut Vec<FileDescriptor>) {
    for import in file.dependencies() {
        let is_known = import.name().starts_with(WELL_KNOWN) || found.contains(&import);
        if !is_known {
            collect(&import, found);
            found.push(import);
        }
    }
}
