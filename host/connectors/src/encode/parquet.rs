//! Parquet, by the `parquet` crate: row groups are encoded apart from each other and put into the file in order.

use crate::decode::options::{Bag, OptionMap};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::TypePtr;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use std::sync::Arc;

/// Never a version number: the same rows give the same bytes with every release.
const CREATED_BY: &str = "pelton";
const CODECS: [&str; 8] = ["none", "uncompressed", "snappy", "gzip", "zstd", "lz4", "lz4_raw", "brotli"];

/// Writes rows as Parquet. The schema of the Arrow columns is not embedded: the file says no more than Spark's.
#[derive(Debug, Clone)]
pub struct ParquetEncoder {
    schema: SchemaRef,
    root: TypePtr,
    properties: WriterPropertiesPtr,
}

impl ParquetEncoder {
    /// Spark's option: `compression` (snappy).
    pub fn new(schema: &Schema, options: &OptionMap) -> Result<Self> {
        let mut bag = Bag::new("parquet", options);
        let codec = codec(bag.text("compression")?)?;
        bag.finish()?;
        Self::with_codec(schema, codec)
    }

    /// For rows of a file that is there, compressed as that is.
    pub(crate) fn like(schema: &Schema, codec: Option<Compression>) -> Result<Self> {
        Self::with_codec(schema, codec.unwrap_or(Compression::SNAPPY))
    }

    fn with_codec(schema: &Schema, codec: Compression) -> Result<Self> {
        // Spark calls the root so.
        let converted = ArrowSchemaConverter::new().schema_root("spark_schema").convert(schema);
        let root = converted.map_err(failed)?.root_schema_ptr();
        let properties =
            WriterProperties::builder().set_created_by(CREATED_BY.into()).set_compression(codec).build();
        Ok(Self { schema: Arc::new(schema.clone()), root, properties: Arc::new(properties) })
    }

    /// The columns of its files.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Starts a file in memory.
    pub(crate) fn file(&self) -> Result<ParquetFile> {
        let writer =
            SerializedFileWriter::new(Vec::new(), Arc::clone(&self.root), Arc::clone(&self.properties));
        Ok(ParquetFile { writer: writer.map_err(failed)? })
    }

    /// Encodes rows as one row group.
    pub(crate) fn row_group(&self, rows: &[RecordBatch]) -> Result<Vec<ArrowColumnChunk>> {
        let file = self.file()?;
        let factory = ArrowRowGroupWriterFactory::new(&file.writer, Arc::clone(&self.schema));
        let mut writers = factory.create_column_writers(0).map_err(failed)?;
        for batch in rows {
            let mut free = writers.iter_mut();
            for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
                for leaf in compute_leaves(field, column).map_err(failed)? {
                    let writer =
                        free.next().ok_or_else(|| Error::internal("a Parquet column without a writer"))?;
                    writer.write(&leaf).map_err(failed)?;
                }
            }
        }
        writers.into_iter().map(|writer| writer.close()).collect::<Result<_, _>>().map_err(failed)
    }
}

/// A Parquet file of which only what was not yet [taken](ParquetFile::take) is in memory.
pub(crate) struct ParquetFile {
    writer: SerializedFileWriter<Vec<u8>>,
}

impl ParquetFile {
    /// Puts a row group at the end.
    pub(crate) fn append(&mut self, columns: Vec<ArrowColumnChunk>) -> Result<()> {
        let mut row_group = self.writer.next_row_group().map_err(failed)?;
        for column in columns {
            column.append_to_row_group(&mut row_group).map_err(failed)?;
        }
        row_group.close().map_err(failed)?;
        Ok(())
    }

    /// The bytes since the last call. The writer counts what went through it, so it does not miss them.
    pub(crate) fn take(&mut self) -> Result<Vec<u8>> {
        self.writer.flush().map_err(|e| failed(e.into()))?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }

    /// Writes the footer.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>> {
        self.writer.finish().map_err(failed)?;
        Ok(std::mem::take(self.writer.inner_mut()))
    }
}

fn codec(name: Option<String>) -> Result<Compression> {
    Ok(match name.map(|name| name.to_ascii_lowercase()).as_deref() {
        None | Some("snappy") => Compression::SNAPPY,
        Some("none" | "uncompressed") => Compression::UNCOMPRESSED,
        Some("gzip") => Compression::GZIP(Default::default()),
        Some("zstd") => Compression::ZSTD(ZstdLevel::default()),
        Some("lz4" | "lz4_raw") => Compression::LZ4_RAW,
        Some("brotli") => Compression::BROTLI(Default::default()),
        Some(other) => {
            let near = did_you_mean(other, CODECS);
            return Err(Error::invalid(format!("parquet files cannot be compressed with '{other}'{near}")));
        }
    })
}

fn failed(e: ParquetError) -> Error {
    Error::internal(format!("writing Parquet failed: {e}")).caused_by(e)
}
