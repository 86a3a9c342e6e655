//! Records as they are: one column `value` of type binary, a row for each record or for each file.

use super::options::{Bag, OptionMap};
use super::rows::{RowSettings, Rows};
use super::{Decoder, DecoderSettings, Input, check_only_column, check_size};
use crate::decode::column::Values;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use pelton_core::{Decoded, Result};
use std::sync::Arc;

/// The only schema that raw has.
pub fn raw_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", DataType::Binary, true)]))
}

/// The options of format `raw`: it has none.
pub(crate) fn check_raw_options(map: &OptionMap) -> Result<()> {
    Bag::new("raw", map).finish()
}

/// Takes records as they are.
#[derive(Debug)]
pub struct RawDecoder {
    rows: RowSettings,
}

impl RawDecoder {
    /// A decoder of anything. A schema other than `value: binary` is an error of kind `Invalid`.
    pub fn new(settings: &DecoderSettings) -> Result<Self> {
        check_only_column(settings, "raw", &raw_schema())?;
        Ok(Self { rows: RowSettings::new(settings, "")? })
    }

    fn push(rows: &mut Rows<'_>, record: &[u8]) -> Result<()> {
        if let Some(column) = rows.columns.first_mut()
            && let Values::Binary(pieces) = &mut column.values
        {
            pieces.push(record);
            column.valid();
        }
        rows.good(1)
    }
}

impl Decoder for RawDecoder {
    fn schema(&self) -> SchemaRef {
        self.rows.schema.clone()
    }

    /// The piece is a whole file.
    fn decode(&self, input: &Input<'_>) -> Result<Decoded> {
        check_size(input.bytes.len(), input.file)?;
        let position = |_: u64| input.file.to_owned();
        let mut rows = Rows::new(&self.rows, &position)?;
        Self::push(&mut rows, input.bytes)?;
        rows.finish()
    }

    fn decode_records(&self, records: &[&[u8]], position: &dyn Fn(u64) -> String) -> Result<Decoded> {
        let mut rows = Rows::new(&self.rows, position)?;
        for (n, record) in records.iter().enumerate() {
            check_size(record.len(), &position(n as u64))?;
            rows.begin_record(n);
            Self::push(&mut rows, record)?;
        }
        rows.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;

    #[test]
    fn every_record_is_a_row_whatever_it_holds() {
        let decoder = RawDecoder::new(&DecoderSettings::new(raw_schema())).unwrap();
        let decoded = decoder.decode_records(&[b"a\nb", b"", b"\xFF"], &|n| n.to_string()).unwrap();
        let values: Vec<_> = decoded.batches[0].column(0).as_binary::<i32>().iter().flatten().collect();
        assert_eq!(values, [&b"a\nb"[..], b"", b"\xFF"]);
        assert_eq!(decoded.records, [0, 1, 2]);
        let whole = Input { bytes: b"a\nb\n", file: "f", first_line: 1, starts_file: true };
        assert_eq!(decoder.decode(&whole).unwrap().batches[0].num_rows(), 1);
        let other = DecoderSettings::new(super::super::text::text_schema());
        assert!(RawDecoder::new(&other).unwrap_err().message().contains("'value: binary'"));
    }
}
