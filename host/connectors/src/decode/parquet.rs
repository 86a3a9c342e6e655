//! Parquet row groups to rows of a declared schema: columns by name (case does not count, as in Spark), missing
//! ones null, other types an error unless they widen without loss. The file source fetches the bytes.

mod adapt;
mod sparse;

pub(crate) use adapt::adapt;
pub(crate) use sparse::SparseFile;

use super::{BATCH_ROWS, DecoderSettings, check_size, options};
use arrow::array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;
use pelton_core::types::normalize_schema;
use pelton_core::{Decoded, Error, Result};
use std::ops::Range;

/// Decodes row groups of Parquet files to rows of a schema.
#[derive(Debug)]
pub struct ParquetDecoder {
    schema: SchemaRef,
}

/// The options of format `parquet`: it has none.
pub fn check_parquet_options(map: &options::OptionMap) -> Result<()> {
    options::Bag::new("parquet", map).finish()
}

impl ParquetDecoder {
    /// A decoder for files that have (some of) the columns of `settings.schema`.
    pub fn new(settings: &DecoderSettings) -> Result<Self> {
        Ok(Self { schema: settings.wanted()? })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Which of the file's columns are read.
    pub(crate) fn mask(&self, file: &ArrowReaderMetadata) -> ProjectionMask {
        let wanted = |name: &str| self.schema.fields().iter().any(|f| f.name().eq_ignore_ascii_case(name));
        let columns = file.schema().fields().iter().enumerate().filter(|(_, f)| wanted(f.name()));
        ProjectionMask::roots(file.parquet_schema(), columns.map(|(i, _)| i))
    }

    /// Where the bytes of a row group lie that are read.
    pub(crate) fn ranges(&self, file: &ArrowReaderMetadata, row_group: usize) -> Vec<Range<u64>> {
        let mask = self.mask(file);
        let columns = file.metadata().row_group(row_group).columns().iter().enumerate();
        let range = |(start, len): (u64, u64)| start..start.saturating_add(len);
        columns.filter(|(i, _)| mask.leaf_included(*i)).map(|(_, c)| range(c.byte_range())).collect()
    }

    /// The rows of a row group whose ranges were fetched.
    pub(crate) fn decode(
        &self,
        name: &str,
        file: &ArrowReaderMetadata,
        row_group: usize,
        bytes: SparseFile,
    ) -> Result<Decoded> {
        let mask = self.mask(file);
        let mut batches = Vec::new();
        if self.ranges(file, row_group).is_empty() {
            let rows = usize::try_from(file.metadata().row_group(row_group).num_rows()).unwrap_or(0);
            for at in (0..rows).step_by(BATCH_ROWS) {
                batches.push(self.nulls(BATCH_ROWS.min(rows - at))?);
            }
            return Ok(Decoded { batches, ..Decoded::default() });
        }
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, file.clone())
            .with_row_groups(vec![row_group])
            .with_projection(mask)
            .with_batch_size(BATCH_ROWS)
            .build()
            .map_err(|e| damaged(name, &e))?;
        for batch in reader {
            let batch = batch.map_err(|e| Error::data(format!("{name}: not readable as Parquet: {e}")))?;
            batches.push(fit(&self.schema, name, &batch)?);
        }
        Ok(Decoded { batches, ..Decoded::default() })
    }

    fn nulls(&self, rows: usize) -> Result<RecordBatch> {
        let columns = self.schema.fields().iter().map(|f| new_null_array(f.data_type(), rows)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

/// A batch of a file as rows of the schema: columns by name, missing ones null.
pub(crate) fn fit(schema: &SchemaRef, name: &str, batch: &RecordBatch) -> Result<RecordBatch> {
    let found = |wanted: &str| {
        let fields = batch.schema_ref().fields();
        let exact = fields.iter().position(|f| f.name() == wanted);
        exact.or_else(|| fields.iter().position(|f| f.name().eq_ignore_ascii_case(wanted)))
    };
    let column = |field: &arrow::datatypes::FieldRef| match found(field.name()) {
        None => Ok(new_null_array(field.data_type(), batch.num_rows())),
        Some(i) => adapt(batch.column(i), field.data_type())
            .map_err(|e| e.context(format!("{name}: column '{}'", field.name()))),
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// How many bytes before the end of a file hold its description, given its last eight.
pub(crate) fn footer_bytes(name: &str, last: &[u8]) -> Result<u64> {
    let [length @ .., b'P', b'A', b'R', b'1'] = last else {
        return Err(Error::data(format!("{name}: not a Parquet file: its end does not say so")));
    };
    let length: [u8; 4] =
        length.try_into().map_err(|_| Error::data(format!("{name}: too short for Parquet")))?;
    check_size(u32::from_le_bytes(length) as usize, name)?;
    Ok(u64::from(u32::from_le_bytes(length)))
}

/// Reads a file's description.
pub(crate) fn metadata(name: &str, footer: &Bytes) -> Result<ArrowReaderMetadata> {
    let metadata = ParquetMetaDataReader::decode_metadata(footer).map_err(|e| damaged(name, &e))?;
    // The Arrow schema that the writer may have left is not used: Spark reads the Parquet types.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    ArrowReaderMetadata::try_new(std::sync::Arc::new(metadata), options).map_err(|e| damaged(name, &e))
}

/// A file's schema in Pelton's types.
pub(crate) fn schema_of(name: &str, file: &ArrowReaderMetadata, time_zone: &str) -> Result<Schema> {
    let schema = normalize_schema(file.schema(), time_zone).map_err(|e| e.context(name))?;
    Ok(Schema::new(schema.fields().iter().map(super::column::nullable).collect::<arrow::datatypes::Fields>()))
}

fn damaged(name: &str, e: &ParquetError) -> Error {
    Error::data(format!("{name}: not readable as Parquet: {e}"))
}
