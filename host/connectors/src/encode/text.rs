//! Lines of text: one string column, a line a row, as Spark's text writer.

use super::compress::Compression;
use crate::decode::options::{Bag, OptionMap};
use arrow::array::{AsArray, RecordBatch};
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
        let lines = batch.column(0).as_string_opt::<i32>();
        let lines =
            lines.ok_or_else(|| Error::internal("a column that is no string reached the text encoder"))?;
        for line in lines {
            out.extend_from_slice(line.unwrap_or_default().as_bytes());
            out.extend_from_slice(&self.line_end);
        }
        Ok(())
    }
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
        let two = RecordBatch::try_from_iter([("a", Arc::clone(&column)), ("b", column)]).unwrap();
        let error = TextEncoder::new(&two.schema(), &OptionMap::new()).unwrap_err();
        assert!(error.message().contains("not (a: string, b: string"), "{error}");
    }
}
