//! What of the state does not fit into memory: a RocksDB of the query's own, on local disk.
//!
//! Each shard is a column family; a key is the number of its table (four bytes, the highest first) and the table's
//! key. Entries come as files in key order that RocksDB takes in whole, so nothing passes through its write buffers
//! or its log; its block cache has a fixed share of the memory that the state may take and holds its indexes and
//! filters, too. The directory is worth nothing without the process: the truth is in the checkpoint.
//!
//! Called by the tables, which know what in memory hides what is here. Nothing else in Pelton names RocksDB.

mod directory;

use crate::StateOptions;
use bytes::Bytes;
use directory::Directory;
use pelton_core::{Error, Result, SHARDS};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRawIterator,
    IngestExternalFileOptions, LogLevel, Options, ReadOptions, SstFileWriter, WaitForCompactOptions,
};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The share of the memory that goes to the block cache.
const CACHE_SHARE: u64 = 6;
/// Without room for the indexes and filters of a few files each look reads them again.
const CACHE_BYTES_MIN: u64 = 4 << 20;
/// How many keys are looked up at a time.
const KEYS_AT_ONCE: usize = 512;
/// New files wait until compaction has made fewer than so many of those that overlap.
const FILES_UNSORTED_MAX: u64 = 16;
/// Bits of filter a key: about one look in a hundred finds nothing.
const FILTER_BITS: f64 = 10.0;

/// The working copy on disk. Dropping it deletes it.
pub(crate) struct Spill {
    // Before its directory: in this order they are dropped.
    db: DB,
    options: Options,
    files: AtomicU64,
    directory: Directory,
}

impl std::fmt::Debug for Spill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spill").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl Spill {
    /// Makes an empty one. `query` tells queries apart.
    pub(crate) fn open(options: &StateOptions, query: &str) -> Result<Self> {
        let directory = Directory::make(&options.directory, query)?;
        let options = rocksdb_options(options.memory_bytes_max);
        let families =
            (0..SHARDS).map(|shard| ColumnFamilyDescriptor::new(shard.to_string(), options.clone()));
        let db = DB::open_cf_descriptors(&options, directory.path().join("rocksdb"), families)
            .map_err(|e| failed(&directory, &e))?;
        Ok(Self { db, options, files: AtomicU64::new(0), directory })
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.directory.path()
    }

    fn family(&self, shard: usize) -> Result<&ColumnFamily> {
        let family = self.db.cf_handle(&shard.to_string());
        family.ok_or_else(|| Error::internal(format!("the working copy of the state has no shard {shard}")))
    }

    fn failed(&self, error: &rocksdb::Error) -> Error {
        failed(&self.directory, error)
    }
}

fn failed(directory: &Directory, error: &rocksdb::Error) -> Error {
    let path = directory.path().display();
    Error::unavailable(format!("the working copy of the state in {path} cannot be used: {error}"))
        .hint("see that the disk is sound and has room, then start again: nothing is lost, the state is in the checkpoint")
}

fn rocksdb_options(memory_bytes_max: u64) -> Options {
    let cache = Cache::new_lru_cache((memory_bytes_max / CACHE_SHARE).max(CACHE_BYTES_MIN) as usize);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_bloom_filter(FILTER_BITS, false);
    table.set_format_version(6);
    table.set_block_size(4 << 10);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    // A file is one shard's share; two or three levels hold all of them.
    let file = (memory_bytes_max / SHARDS as u64).clamp(1 << 20, 32 << 20);
    options.set_target_file_size_base(file);
    options.set_max_bytes_for_level_base(file * 4);
    options.set_compaction_readahead_size((file / 16) as usize);
    // Unused, but there is one a column family.
    options.set_write_buffer_size(64 << 10);
    options.set_max_background_jobs(2);
    options.set_max_open_files(512);
    options.set_log_level(LogLevel::Error);
    options.set_keep_log_file_num(1);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}

/// What of a table lies on disk, in one shard.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    spill: Arc<Spill>,
    shard: usize,
    prefix: [u8; 4],
}

impl Stored {
    /// A table by its number.
    pub(crate) fn new(spill: &Arc<Spill>, shard: usize, table: u32) -> Self {
        Self { spill: Arc::clone(spill), shard, prefix: table.to_be_bytes() }
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix, key].concat()
    }

    /// The values of ascending keys.
    pub(crate) fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let family = self.spill.family(self.shard)?;
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let keys: Vec<Vec<u8>> = keys.iter().map(|key| self.key(key)).collect();
            for found in self.spill.db.batched_multi_get_cf(family, &keys, true) {
                let found = found.map_err(|e| self.spill.failed(&e))?;
                values.push(found.map(|value| Bytes::copy_from_slice(&value)));
            }
        }
        Ok(values)
    }

    /// The entries between two keys, the second excluded; none is the end of the table.
    pub(crate) fn iter(&self, from: Bound<&[u8]>, to: Option<&[u8]>) -> Result<StoredIter<'_>> {
        let end = match to {
            Some(key) => self.key(key),
            // The numbers of tables are far from the greatest.
            None => (u32::from_be_bytes(self.prefix) + 1).to_be_bytes().to_vec(),
        };
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(end);
        let mut inner = self.spill.db.raw_iterator_cf_opt(self.spill.family(self.shard)?, options);
        match from {
            Bound::Unbounded => inner.seek(self.prefix),
            Bound::Included(key) => inner.seek(self.key(key)),
            Bound::Excluded(key) => inner.seek([&self.prefix, key, &[0]].concat()),
        }
        let iter = StoredIter { spill: &self.spill, inner };
        iter.check()?;
        Ok(iter)
    }
}

/// Entries on disk in key order.
pub(crate) struct StoredIter<'a> {
    spill: &'a Spill,
    inner: DBRawIterator<'a>,
}

impl StoredIter<'_> {
    /// The entry at which it stands; none: it is at the end.
    pub(crate) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.inner.item().and_then(|(key, value)| Some((key.get(4..)?, value)))
    }

    /// Goes on to the next.
    pub(crate) fn next(&mut self) -> Result<()> {
        self.inner.next();
        self.check()
    }

    fn check(&self) -> Result<()> {
        match self.inner.valid() {
            true => Ok(()),
            false => self.inner.status().map_err(|e| self.spill.failed(&e)),
        }
    }
}

/// Writes changes of a shard, in ascending order of table and key; they count once it is finished.
pub(crate) struct Writer<'a> {
    spill: &'a Spill,
    shard: usize,
    path: PathBuf,
    file: SstFileWriter<'a>,
    key: Vec<u8>,
    records: u64,
}

impl<'a> Writer<'a> {
    /// For a shard.
    pub(crate) fn new(spill: &'a Spill, shard: usize) -> Result<Self> {
        let number = spill.files.fetch_add(1, Ordering::Relaxed);
        let path = spill.path().join(format!("{number}.sst"));
        let file = SstFileWriter::create(&spill.options);
        file.open(&path).map_err(|e| spill.failed(&e))?;
        Ok(Self { spill, shard, path, file, key: Vec::new(), records: 0 })
    }

    /// A key's value; none removes it.
    pub(crate) fn set(&mut self, table: u32, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(&table.to_be_bytes());
        self.key.extend_from_slice(key);
        self.records += 1;
        let written = match value {
            Some(value) => self.file.put(&self.key, value),
            None => self.file.delete(&self.key),
        };
        written.map_err(|e| self.spill.failed(&e))
    }

    /// Lets what was written count.
    pub(crate) fn finish(mut self) -> Result<()> {
        if self.records == 0 {
            // Without a key there is nothing that could be taken in. Left behind, it goes with the directory.
            drop(std::fs::remove_file(&self.path));
            return Ok(());
        }
        let (spill, family) = (self.spill, self.spill.family(self.shard)?);
        self.file.finish().map_err(|e| spill.failed(&e))?;
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        spill
            .db
            .ingest_external_file_cf_opts(family, &options, vec![&self.path])
            .map_err(|e| spill.failed(&e))?;
        let unsorted = spill.db.property_int_value_cf(family, "rocksdb.num-files-at-level0");
        if unsorted.map_err(|e| spill.failed(&e))?.unwrap_or(0) > FILES_UNSORTED_MAX {
            let options = WaitForCompactOptions::default();
            spill.db.wait_for_compact(&options).map_err(|e| spill.failed(&e))?;
        }
        Ok(())
    }
}
