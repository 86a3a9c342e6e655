//! Lines of text: one string column, a line a row, as Spark's text writer.

use super::Records;
use super::compress::Compression;
use crate::decode::options::{Bag, OptionMap};
use arrow::array::{AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Schema};
use pelton_core::types::columns_name;
use pelton_core::{Error, Result};

/// Writes the one string column of the rows; null is an empty line.
#[derive(Debug, Clone)]
pub struct TextEncoder {
    line_end: Vec<u8>,
    compression: Compression,
}

impl TextEncoder {
    /// Spark's options: `line_sep`, `compression`.
    pub fn new(schema: &Schema, options: &OptionMap) -> Result<Self> {
        let one_string = schema.fields().len() == 1 && schema.field(0).data_type() == &DataType::Utf8;
        if !one_string {
            let found = columns_name(schema.fields());
            return Err(Error::invalid(format!("format text writes one string column, not ({found})")).hint(
                "build the line in the last step, for example select: [concat_ws(' ', a, b) AS value]",
            ));
        }
        let mut bag = Bag::new("text", options);
        let line_end =
            bag.text("line_sep")?.unwrap_or_else(|| "\n".into()).replace("\\n", "\n").replace("\\r", "\r");
        let compression = Compression::from_options(&mut bag)?;
        bag.finish()?;
        Ok(Self { line_end: line_end.into_bytes(), compression })
    }

    pub(crate) fn compression(&self) -> Compression {
        self.compression
    }

    /// Appends every row as a line.
    pub fn encode(&self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        for line in lines(batch)? {
            out.extend_from_slice(line.unwrap_or_default().as_bytes());
            out.extend_from_slice(&self.line_end);
        }
        Ok(())
    }

    /// Appends every row as a record of its own.
    pub(crate) fn encode_records(&self, batch: &RecordBatch, out: &mut Records) -> Result<()> {
        for line in lines(batch)? {
            out.bytes.extend_from_slice(line.unwrap_or_default().as_bytes());
            out.close();
        }
        Ok(())
    }
}

fn lines(batch: &RecordBatch) -> Result<&StringArray> {
    let lines = batch.column(0).as_string_opt::<i32>();
    lines.ok_or_else(|| Error::internal("a column that is no string reached the text encoder"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, StringArray};
    use std::sync::Arc;

    #[test]
    fn writes_a_line_a_row_and_refuses_other_schemas() {
        let column: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b c")]));
        let batch = RecordBatch::try_from_iter([("value", Arc::clone(&column))]).unwrap();
        let mut out = Vec::new();
        TextEncoder::new(&batch.schema(), &OptionMap::new()).unwrap().encode(&batch, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a\n\nb c\n");
        let mut records = Records::default();
        let encoder = TextEncoder::new(&batch.schema(), &OptionMap::new()).unwrap();
        encoder.encode_records(&batch, &mut records).unwrap();
        let records = (0..4).map(|nth| records.get(nth)).collect::<Vec<_>>();
        assert_eq!(records, [Some(&b"a"[..]), Some(b""), Some(b"b c"), None]);
        let two = RecordBatch::try_from_iter([("a", Arc::clone(&column)), ("b", column)]).unwrap();
        let error = TextEncoder::new(&two.schema(), &OptionMap::new()).unwrap_err();
        assert!(error.message().contains("not (a: string, b: string"), "{error}");
    }
}
