//! Rows from and to JSON lines, by the connectors' own decoder and encoder: what `pipe` and `plugin test` need.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use arrow::datatypes::SchemaRef;
use pelton_connectors::decode::json::{JsonDecoder, JsonOptions, infer_json};
use pelton_connectors::decode::{Decoder, DecoderSettings, Input};
use pelton_connectors::encode::JsonEncoder;
use pelton_core::{Decoded, Error, MalformedPolicy, Result};
use std::sync::Arc;

/// Decodes JSON lines; what is malformed comes back as dead letters.
pub(crate) struct LineDecoder {
    decoder: JsonDecoder,
}

impl LineDecoder {
    /// For these columns.
    pub(crate) fn new(schema: &SchemaRef) -> Result<Self> {
        let settings = DecoderSettings {
            on_malformed: MalformedPolicy::DeadLetter,
            origin: "stdin".to_owned(),
            ..DecoderSettings::new(schema.clone())
        };
        Ok(Self { decoder: JsonDecoder::new(&settings, &JsonOptions::default())? })
    }

    /// Whole lines, of which the first has this number.
    pub(crate) fn decode(&self, lines: &[u8], first_line: u64) -> Result<Decoded> {
        self.decoder.decode(&Input { bytes: lines, file: "stdin", first_line, starts_file: first_line == 1 })
    }
}

/// All lines in one batch of exactly this schema; a line that does not fit is an error.
pub(crate) fn one_batch(lines: &[u8], schema: &SchemaRef) -> Result<RecordBatch> {
    let decoder = JsonDecoder::new(&DecoderSettings::new(schema.clone()), &JsonOptions::default())?;
    let decoded = decoder.decode(&Input { bytes: lines, file: "row", first_line: 0, starts_file: true })?;
    let rows = concat_batches(&decoder.schema(), &decoded.batches)?;
    // The decoder's columns are nullable whatever was declared.
    RecordBatch::try_new(schema.clone(), rows.columns().to_vec())
        .map_err(|why| Error::data(format!("the rows do not fit the schema: {why}")))
}

/// The columns of a sample of lines, by Spark's rules.
pub(crate) fn infer(lines: &[u8]) -> Result<SchemaRef> {
    infer_json(&[lines], &JsonOptions::default(), "UTC", false).map(Arc::new).map_err(|error| {
        Error::invalid(error.message()).hint("name the columns: --input-schema 'name type, …'")
    })
}

/// Rows as JSON lines, for those who read on.
pub(crate) fn lines(rows: &RecordBatch) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    JsonEncoder::default().encode(rows, &mut out)?;
    Ok(out)
}

/// Rows as JSON lines in which a null is to be seen.
pub(crate) fn lines_with_nulls(rows: &RecordBatch) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    JsonEncoder::default().with_null_fields().encode(rows, &mut out)?;
    Ok(out)
}

/// A time as ISO 8601 text, in milliseconds since the Unix epoch.
pub(crate) fn timestamp_ms(text: &str) -> Result<i64, String> {
    let nanos = string_to_timestamp_nanos(text)
        .map_err(|_| format!("'{text}' is no time such as 2013-01-01T00:00:00Z"))?;
    Ok(nanos.div_euclid(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, Schema};

    fn schema(nullable: bool) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, nullable)]))
    }

    #[test]
    fn lines_make_a_batch_and_back() -> Result<()> {
        let rows = one_batch(b"{\"a\":1}\n{}\n", &schema(true))?;
        assert_eq!(lines_with_nulls(&rows)?, b"{\"a\":1}\n{\"a\":null}\n");
        assert_eq!(one_batch(b"", &schema(false))?.num_rows(), 0);
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(one_batch(b"{\"a\":\"x\"}\n", &schema(true)).is_err());
        assert!(one_batch(b"{}\n", &schema(false)).is_err());
    }

    #[test]
    fn times_are_read() {
        assert_eq!(timestamp_ms("2013-01-01T00:00:00Z"), Ok(1_356_998_400_000));
        assert!(timestamp_ms("soon").is_err());
    }
}
