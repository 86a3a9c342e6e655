//! Arrow's IPC format: files, and every row a record, each a whole stream.

use super::Records;
use crate::decode::options::{Bag, OptionMap};
use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use pelton_core::{Error, Result};
use std::sync::Arc;

/// Writes rows as Arrow IPC.
#[derive(Debug, Clone)]
pub struct ArrowEncoder {
    schema: SchemaRef,
}

impl ArrowEncoder {
    /// It has no options.
    pub fn new(schema: &Schema, options: &OptionMap) -> Result<Self> {
        Bag::new("arrow", options).finish()?;
        Ok(Self { schema: Arc::new(schema.clone()) })
    }

    /// Starts a file in memory.
    pub(crate) fn file(&self) -> Result<ArrowFile> {
        let writer = FileWriter::try_new(Vec::new(), &self.schema).map_err(failed)?;
        Ok(ArrowFile { writer })
    }

    /// Appends every row as a record of its own.
    pub(crate) fn encode_records(&self, batch: &RecordBatch, out: &mut Records) -> Result<()> {
        for row in 0..batch.num_rows() {
            let mut writer = StreamWriter::try_new(&mut out.bytes, &self.schema).map_err(failed)?;
            writer.write(&batch.slice(row, 1)).map_err(failed)?;
            writer.finish().map_err(failed)?;
            drop(writer);
            out.close();
        }
        Ok(())
    }
}

/// An Arrow file of which only what was not yet taken is in memory.
pub(crate) struct ArrowFile {
    writer: FileWriter<Vec<u8>>,
}

impl ArrowFile {
    /// Puts rows at the end and gives the bytes since the last call.
    pub(crate) fn append(&mut self, rows: &[RecordBatch]) -> Result<Vec<u8>> {
        rows.iter().try_for_each(|batch| self.writer.write(batch)).map_err(failed)?;
        Ok(std::mem::take(self.writer.get_mut()))
    }

    /// Writes the footer.
    pub(crate) fn finish(&mut self) -> Result<Vec<u8>> {
        self.writer.finish().map_err(failed)?;
        Ok(std::mem::take(self.writer.get_mut()))
    }
}

fn failed(e: ArrowError) -> Error {
    Error::internal(format!("writing Arrow failed: {e}")).caused_by(e)
}
