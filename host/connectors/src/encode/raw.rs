//! Records as they are: the one binary or string column of the rows, a record a row.

use super::Records;
use super::columns::{Column, Values};
use crate::decode::options::{Bag, OptionMap};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use pelton_core::types::columns_name;
use pelton_core::{Error, Result};

/// Writes the one column of the rows; null is an empty record.
#[derive(Debug, Clone)]
pub struct RawEncoder {}

impl RawEncoder {
    /// It has no options.
    pub fn new(schema: &Schema, options: &OptionMap) -> Result<Self> {
        Bag::new("raw", options).finish()?;
        match schema.fields().iter().map(|f| f.data_type()).collect::<Vec<_>>()[..] {
            [DataType::Binary | DataType::Utf8] => Ok(Self {}),
            _ => {
                let found = columns_name(schema.fields());
                Err(Error::invalid(format!("format raw writes one binary or string column, not ({found})"))
                    .hint("select that column in the last step, or choose a format such as json"))
            }
        }
    }

    /// Appends every row as a record of its own.
    pub(crate) fn encode_records(&self, batch: &RecordBatch, out: &mut Records) -> Result<()> {
        let columns = Column::of(batch)?;
        for row in 0..batch.num_rows() {
            match columns.first().map(|column| (column.is_null(row), &column.values)) {
                Some((true, _)) => {}
                Some((false, Values::Binary(values))) => out.bytes.extend_from_slice(values.value(row)),
                Some((false, Values::Utf8(values))) => {
                    out.bytes.extend_from_slice(values.value(row).as_bytes())
                }
                _ => return Err(Error::internal("a column that is not binary reached the raw encoder")),
            }
            out.close();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, BinaryArray, Int32Array};
    use std::sync::Arc;

    #[test]
    fn writes_values_as_they_are() {
        let column: ArrayRef = Arc::new(BinaryArray::from(vec![Some(&b"a\xFF"[..]), None, Some(b"\n")]));
        let batch = RecordBatch::try_from_iter([("value", column)]).unwrap();
        let encoder = RawEncoder::new(&batch.schema(), &OptionMap::new()).unwrap();
        let mut records = Records::default();
        encoder.encode_records(&batch, &mut records).unwrap();
        assert_eq!((records.bytes.as_slice(), &records.ends[..]), (&b"a\xFF\n"[..], &[2, 2, 3][..]));
        let number: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        let batch = RecordBatch::try_from_iter([("n", number)]).unwrap();
        let error = RawEncoder::new(&batch.schema(), &OptionMap::new()).unwrap_err();
        assert!(error.message().contains("not (n: int"), "{error}");
    }
}
