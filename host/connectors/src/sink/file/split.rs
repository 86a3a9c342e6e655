//! Which row goes to which file: by partition, in order, with bounded files and bounded memory.
//!
//! The decision depends on the rows and the limits alone; encoding, which may run on many threads, comes after.

use super::escape;
use crate::encode::{Column, FileFormat};
use arrow::array::{Array, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use pelton_core::suggest::did_you_mean;
use pelton_core::types::type_name;
use pelton_core::{Error, Result};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How much goes into a piece, a file, the memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Rows of a file.
    pub(super) file_rows: usize,
    /// Bytes (as Arrow) of a file, roughly: an object store copies no more than 5 GB in one request.
    pub(super) file_bytes: usize,
    /// Rows that are encoded in one piece.
    pub(super) piece_rows: usize,
    /// Bytes (as Arrow) that are encoded in one piece.
    pub(super) piece_bytes: usize,
    /// Bytes (as Arrow) that wait for their piece to be full, over all partitions.
    pub(super) waiting_bytes: usize,
    /// Files that are open at a time.
    pub(super) open_files: usize,
}

impl Limits {
    pub(super) fn for_format(format: FileFormat, file_rows: Option<u64>) -> Result<Self> {
        let file_rows = match file_rows {
            Some(0) => return Err(Error::invalid("max_records_per_file must be at least 1")),
            Some(rows) => usize::try_from(rows).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        let (piece_rows, piece_bytes) = match format {
            // A piece is a row group: readers want them large.
            FileFormat::Parquet => (131_072, 32 << 20),
            _ => (16_384, 8 << 20),
        };
        let (file_bytes, waiting_bytes) = (1 << 30, 64 << 20);
        Ok(Self { file_rows, file_bytes, piece_rows, piece_bytes, waiting_bytes, open_files: 32 })
    }
}

/// Rows that belong together in a file.
#[derive(Debug)]
pub(super) struct Piece {
    /// Number of the file within the micro-batch.
    pub(super) file: usize,
    /// The file's directory, empty for the top.
    pub(super) directory: Arc<str>,
    /// May be empty, if it only says that the file ends.
    pub(super) rows: Vec<RecordBatch>,
    /// The file ends with this piece.
    pub(super) last: bool,
}

/// File systems take no longer names.
const NAME_BYTES_MAX: usize = 255;

/// Splits the rows of one micro-batch. A fresh clone serves each micro-batch.
#[derive(Debug, Clone)]
pub(super) struct Splitter {
    names: Vec<String>,
    partition_columns: Vec<usize>,
    partition_types: Vec<DataType>,
    file_columns: Vec<usize>,
    file_schema: SchemaRef,
    limits: Limits,
}

impl Splitter {
    pub(super) fn new(schema: &Schema, partition_by: &[String], limits: Limits) -> Result<Self> {
        let column = |name: &String| partition_column(schema, name);
        let partition_columns = partition_by.iter().map(column).collect::<Result<Vec<_>>>()?;
        let file_columns: Vec<usize> =
            (0..schema.fields().len()).filter(|nth| !partition_columns.contains(nth)).collect();
        if file_columns.is_empty() {
            return Err(Error::invalid(
                "partition_by names all columns: nothing is left to be written to the files",
            ));
        }
        let file_schema = Arc::new(schema.project(&file_columns)?);
        let partition_types =
            partition_columns.iter().map(|nth| schema.field(*nth).data_type().clone()).collect();
        let names = partition_by.to_vec();
        Ok(Self { names, partition_columns, partition_types, file_columns, file_schema, limits })
    }

    /// The columns that the files have.
    pub(super) fn file_schema(&self) -> &SchemaRef {
        &self.file_schema
    }

    /// Begins a micro-batch.
    pub(super) fn start(&self) -> Result<Split> {
        let mut split = Split {
            plan: self.clone(),
            converter: None,
            partitions: Vec::new(),
            by_key: HashMap::new(),
            waiting_bytes: 0,
            next_file: 0,
            open: VecDeque::new(),
        };
        if !self.partition_columns.is_empty() {
            let fields = self.partition_types.iter().cloned().map(SortField::new).collect();
            split.converter = Some(RowConverter::new(fields)?);
        } else {
            split.partitions.push(Partition::new("".into()));
        }
        Ok(split)
    }
}

fn partition_column(schema: &Schema, name: &String) -> Result<usize> {
    let Ok(nth) = schema.index_of(name) else {
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let near = did_you_mean(name, names);
        return Err(Error::invalid(format!("partition_by: there is no column '{name}'{near}")));
    };
    match schema.field(nth).data_type() {
        nested if nested.is_nested() || nested == &DataType::Binary => Err(Error::invalid(format!(
            "partition_by: column '{name}' of type {} cannot name a directory",
            type_name(nested)
        ))),
        _ => Ok(nth),
    }
}

/// The rows of one micro-batch on their way to files.
pub(super) struct Split {
    plan: Splitter,
    converter: Option<RowConverter>,
    partitions: Vec<Partition>,
    /// Where a partition stands in `partitions`, by its columns' values.
    by_key: HashMap<Box<[u8]>, usize>,
    waiting_bytes: usize,
    next_file: usize,
    /// Partitions with an open file, the one written to last at the end.
    open: VecDeque<usize>,
}

struct Partition {
    directory: Arc<str>,
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: usize,
    file: Option<usize>,
    file_rows: usize,
    file_bytes: usize,
}

impl Partition {
    fn new(directory: Arc<str>) -> Self {
        Self {
            directory,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            file: None,
            file_rows: 0,
            file_bytes: 0,
        }
    }
}

impl Split {
    /// Takes rows; pieces that are full go to `ready`.
    pub(super) fn push(&mut self, rows: &RecordBatch, ready: &mut VecDeque<Piece>) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        if self.converter.is_none() {
            self.add(0, rows.clone(), ready);
            return Ok(());
        }
        let groups = self.groups(rows)?;
        let columns = rows.project(&self.plan.file_columns)?;
        for (partition, indices) in groups {
            let rows = match indices.len() == columns.num_rows() {
                true => columns.clone(),
                false => take_record_batch(&columns, &UInt32Array::from(indices))?,
            };
            self.add(partition, rows, ready);
        }
        Ok(())
    }

    /// No more rows come.
    pub(super) fn finish(&mut self, ready: &mut VecDeque<Piece>) {
        for partition in 0..self.partitions.len() {
            self.emit(partition, ready);
        }
    }

    /// The rows' partitions, in the order of their first rows, each with its rows in order.
    fn groups(&mut self, rows: &RecordBatch) -> Result<Vec<(usize, Vec<u32>)>> {
        let keys = rows.project(&self.plan.partition_columns)?;
        let converter = self.converter.as_ref().ok_or_else(|| Error::internal("no partition columns"))?;
        let encoded = converter.convert_columns(keys.columns())?;
        let columns = Column::of(&keys)?;
        let mut groups: Vec<(usize, Vec<u32>)> = Vec::new();
        let mut group_of: HashMap<usize, usize> = HashMap::new();
        let mut previous = None;
        for row in 0..rows.num_rows() {
            let key = encoded.row(row);
            let group = match previous {
                Some((same, group)) if same == key => group,
                _ => {
                    let partition = self.partition(key.as_ref(), &columns, row)?;
                    *group_of.entry(partition).or_insert_with(|| {
                        groups.push((partition, Vec::new()));
                        groups.len() - 1
                    })
                }
            };
            groups[group].1.push(row as u32);
            previous = Some((key, group));
        }
        Ok(groups)
    }

    fn partition(&mut self, key: &[u8], columns: &[Column<'_>], row: usize) -> Result<usize> {
        if let Some(known) = self.by_key.get(key) {
            return Ok(*known);
        }
        let directory = escape::directory(&self.plan.names, columns, row);
        // Before anything of the micro-batch is decided: it could never be given its name.
        if let Some(name) = directory.split('/').find(|name| name.len() > NAME_BYTES_MAX) {
            let column = name.split('=').next().unwrap_or_default();
            return Err(Error::data(format!(
                "partition_by: a value of column '{column}' would name a directory with {} bytes, and a name has {NAME_BYTES_MAX} at most",
                name.len()
            ))
            .hint("partition by something shorter, such as substring(…) or sha1(…) of the column"));
        }
        self.partitions.push(Partition::new(directory.into()));
        self.by_key.insert(key.into(), self.partitions.len() - 1);
        Ok(self.partitions.len() - 1)
    }

    fn add(&mut self, nth: usize, rows: RecordBatch, ready: &mut VecDeque<Piece>) {
        let limits = self.plan.limits;
        let mut from = 0;
        while from < rows.num_rows() {
            let partition = &mut self.partitions[nth];
            let room =
                (limits.file_rows - partition.file_rows).min(limits.piece_rows) - partition.waiting_rows;
            let slice = rows.slice(from, room.min(rows.num_rows() - from));
            from += slice.num_rows();
            let bytes = size_bytes(&slice);
            partition.waiting_rows += slice.num_rows();
            partition.waiting_bytes += bytes;
            partition.waiting.push(slice);
            self.waiting_bytes += bytes;
            let file_is_full = partition.file_rows + partition.waiting_rows == limits.file_rows;
            if file_is_full
                || partition.waiting_rows == limits.piece_rows
                || partition.waiting_bytes >= limits.piece_bytes
            {
                self.emit(nth, ready);
            }
        }
        if self.waiting_bytes > limits.waiting_bytes {
            self.finish(ready);
        }
    }

    fn emit(&mut self, nth: usize, ready: &mut VecDeque<Piece>) {
        if self.partitions[nth].waiting.is_empty() {
            return;
        }
        let file = self.open_file(nth, ready);
        let partition = &mut self.partitions[nth];
        let bytes = std::mem::take(&mut partition.waiting_bytes);
        partition.file_rows += std::mem::take(&mut partition.waiting_rows);
        partition.file_bytes += bytes;
        self.waiting_bytes -= bytes;
        let rows = std::mem::take(&mut partition.waiting);
        let limits = self.plan.limits;
        let last = partition.file_rows == limits.file_rows || partition.file_bytes >= limits.file_bytes;
        ready.push_back(Piece { file, directory: Arc::clone(&partition.directory), rows, last });
        if last {
            self.close_file(nth);
        }
    }

    /// The partition's file. If too many are open, the one that was written to longest ago ends.
    fn open_file(&mut self, nth: usize, ready: &mut VecDeque<Piece>) -> usize {
        self.open.retain(|open| *open != nth);
        self.open.push_back(nth);
        if let Some(file) = self.partitions[nth].file {
            return file;
        }
        if self.open.len() > self.plan.limits.open_files
            && let Some(&oldest) = self.open.front()
            && let Some(file) = self.partitions[oldest].file
        {
            let directory = Arc::clone(&self.partitions[oldest].directory);
            ready.push_back(Piece { file, directory, rows: Vec::new(), last: true });
            self.close_file(oldest);
        }
        let file = self.next_file;
        self.next_file += 1;
        self.partitions[nth].file = Some(file);
        file
    }

    fn close_file(&mut self, nth: usize) {
        self.open.retain(|open| *open != nth);
        let partition = &mut self.partitions[nth];
        (partition.file, partition.file_rows, partition.file_bytes) = (None, 0, 0);
    }
}

/// What the rows take as Arrow, without what their buffers hold beside them.
fn size_bytes(rows: &RecordBatch) -> usize {
    let size = |column: &Arc<dyn Array>| column.to_data().get_slice_memory_size();
    // A type whose size is not known counts as its buffers.
    rows.columns().iter().map(|column| size(column).unwrap_or_else(|_| column.get_array_memory_size())).sum()
}
