//! What decodes records that come one by one: lines from elsewhere than files (sources `http`, `socket`, `stdin`), and records
//! of any source that are decoded once more.

use super::file::{FileFormat, FormatOptions};
use crate::decode::csv::CsvDecoder;
use crate::decode::json::JsonDecoder;
use crate::decode::options::OptionMap;
use crate::decode::text::{TextDecoder, text_schema};
use crate::decode::{Decoder, DecoderSettings};
use arrow::datatypes::SchemaRef;
use pelton_core::{Block, Decoded, Error, MalformedPolicy, Record, Result};
use std::sync::Arc;

/// What a line holds.
#[derive(Debug, Clone, PartialEq)]
pub struct LineOptions {
    /// JSON, CSV or text.
    pub format: FileFormat,
    /// The format's own options.
    pub options: OptionMap,
    /// The columns; text has its own.
    pub schema: Option<SchemaRef>,
    /// What becomes of a line that does not decode.
    pub on_malformed: MalformedPolicy,
    /// The session's time zone.
    pub time_zone: String,
}

impl LineOptions {
    /// Lines of this format with Spark's defaults.
    pub fn new(format: FileFormat) -> Self {
        Self {
            format,
            options: OptionMap::new(),
            schema: None,
            on_malformed: MalformedPolicy::default(),
            time_zone: "UTC".into(),
        }
    }

    /// The columns of a line. The error is of kind `Invalid`.
    pub(crate) fn columns(&self) -> Result<SchemaRef> {
        match (&self.schema, self.format) {
            (Some(schema), _) => Ok(schema.clone()),
            (None, FileFormat::Text) => Ok(text_schema()),
            (None, format) => Err(Error::invalid(format!("lines of {} need a schema", format.as_str()))
                .hint("declare the columns: `schema: {id: long, name: string}`")),
        }
    }

    /// Whether the first line of what begins anew names the columns.
    pub(crate) fn has_header(&self) -> Result<bool> {
        Ok(matches!(FormatOptions::read(self.format, &self.options)?, FormatOptions::Csv(csv) if csv.header))
    }

    /// A decoder of some of the columns, or of all, for the source `name`.
    pub(crate) fn decoder(
        &self,
        name: &str,
        columns: Option<Vec<String>>,
        on_malformed: MalformedPolicy,
    ) -> Result<Arc<dyn Decoder>> {
        let settings = DecoderSettings {
            schema: self.columns()?,
            columns,
            on_malformed,
            time_zone: self.time_zone.clone(),
            origin: name.to_owned(),
        };
        Ok(match FormatOptions::read(self.format, &self.options)? {
            FormatOptions::Json(json) => Arc::new(JsonDecoder::new(&settings, &json)?),
            FormatOptions::Csv(csv) if csv.multi_line => {
                return Err(Error::invalid("option 'multi_line' is for files: here a line is a record"));
            }
            FormatOptions::Csv(csv) => Arc::new(CsvDecoder::new(&settings, &csv)?),
            FormatOptions::Text(text) if text.whole_text || text.line_sep.is_some() => {
                return Err(Error::invalid(
                    "options 'whole_text' and 'line_sep' are for files: here a line is a record",
                ));
            }
            FormatOptions::Text(text) => Arc::new(TextDecoder::new(&settings, &text)?),
            FormatOptions::Parquet
            | FormatOptions::Avro(_)
            | FormatOptions::Arrow
            | FormatOptions::Protobuf(_)
            | FormatOptions::Raw => {
                let format = self.format.as_str();
                return Err(Error::invalid(format!("format {format} cannot be read line by line"))
                    .hint("use format json, csv or text"));
            }
        })
    }
}

/// Records that a decoder of the source decodes.
pub(crate) fn again(decoder: &Arc<dyn Decoder>, records: Vec<Record>) -> Box<dyn Block> {
    Box::new(Again { decoder: Arc::clone(decoder), records })
}

struct Again {
    decoder: Arc<dyn Decoder>,
    records: Vec<Record>,
}

impl Block for Again {
    fn input_bytes(&self) -> u64 {
        self.records.iter().map(|record| record.payload.len() as u64).sum()
    }

    fn decode(self: Box<Self>) -> Result<Decoded> {
        let records: Vec<&[u8]> = self.records.iter().map(|record| record.payload.as_ref()).collect();
        self.decoder.decode_records(&records, &|n| {
            let record = usize::try_from(n).ok().and_then(|n| self.records.get(n));
            record.map(|record| record.position.clone()).unwrap_or_default()
        })
    }
}

/// The number of a checkpoint's offset.
pub(crate) fn number(offset: &pelton_core::Offset, kind: &str) -> Result<u64> {
    offset.0.as_u64().ok_or_else(|| {
        Error::data(format!("{} is not an offset of a {kind} source", offset.0))
            .hint("the checkpoint belongs to another kind of source: start with a new one")
    })
}
