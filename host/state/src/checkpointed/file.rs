//! The bytes of a state file: what one micro-batch changed, and a piece of what there is.
//!
//! ```text
//! "PELTONST"  version u32  header length u32  CRC32 of the header u32  header (JSON)  changes  sweep
//! ```
//! Numbers are little-endian. The header names the lengths and the CRC32 of both sections. A section is a sequence of
//! groups: shard (a byte), table (sized), number of ranges that are cleared (u32), number of entries that are set
//! (u32), the ranges (begin, end), the entries (key, value (sized)). The end of a range is excluded, an empty one is the
//! end of the table. *Sized*: the length as varint, then the bytes. A key, a begin and an end: how many bytes it has in
//! common with the one before it in the group, as varint, then the others (sized).
//!
//! Called by the store and by its restoration; never does I/O, never trusts a length.

use crate::blob::{Blob, common_prefix};
use crate::tables::Tables;
use crate::varint;
use pelton_core::BatchId;
use serde::{Deserialize, Serialize};

/// The version that is written, and the only one that is read.
pub(super) const FORMAT: u32 = 2;
const MAGIC: &[u8; 8] = b"PELTONST";
const HEAD: usize = MAGIC.len() + 12;

/// How a file is named by its follower or by a commit: nothing else with its name counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) batch: BatchId,
    /// Of the whole file.
    pub(super) bytes: u64,
    /// Of the header, and so of everything.
    pub(super) crc32: u32,
}

impl Link {
    pub(super) fn path(self) -> String {
        path(self.batch)
    }
}

/// Where the file of a micro-batch lies.
pub(super) fn path(batch: BatchId) -> String {
    format!("{DIRECTORY}/{batch}")
}

/// Where all of them lie.
pub(super) const DIRECTORY: &str = "deltas";

/// What a file says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) batch: BatchId,
    /// The file before; none is the beginning, with empty state.
    pub(super) previous: Option<Link>,
    pub(super) changes: SectionInfo,
    pub(super) sweep: SectionInfo,
    /// The file in which the sweep began that this one's belongs to.
    pub(super) sweep_began: BatchId,
    /// The file in which the last complete sweep before that one began; none: the beginning.
    pub(super) sweep_before: Option<BatchId>,
    /// How far the sweep is after this file; none: it is complete.
    pub(super) sweep_at: Option<Position>,
}

impl Header {
    /// The file from which on all must be replayed to have the state after this one; none: the beginning.
    pub(super) fn base(&self) -> Option<BatchId> {
        if self.sweep_at.is_none() { Some(self.sweep_began) } else { self.sweep_before }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SectionInfo {
    pub(super) bytes: u64,
    pub(super) crc32: u32,
    pub(super) records: u64,
}

/// A key among all keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) shard: usize,
    pub(super) table: String,
    pub(super) key: Vec<u8>,
}

/// A section being written.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// One after the other, its bytes.
    parts: Vec<Vec<u8>>,
    records: u64,
}

impl Section {
    /// Puts another section behind this one.
    pub(super) fn append(&mut self, mut other: Self) {
        self.parts.append(&mut other.parts);
        self.records += other.records;
    }

    /// Appends a group; without ranges and entries there is none.
    pub(super) fn push(&mut self, shard: usize, table: &str, cleared: &[Pair<'_>], set: &[Pair<'_>]) {
        if cleared.is_empty() && set.is_empty() {
            return;
        }
        self.records += (cleared.len() + set.len()) as u64;
        if self.parts.is_empty() {
            self.parts.push(Vec::new());
        }
        let Some(out) = self.parts.last_mut() else { return };
        let bytes = |(left, right): &Pair<'_>| left.len() + right.len() + 4;
        out.reserve(table.len() + 16 + cleared.iter().chain(set).map(bytes).sum::<usize>());
        out.push(shard as u8);
        varint::push_sized(table.as_bytes(), out);
        for count in [cleared.len(), set.len()] {
            out.extend_from_slice(&(count as u32).to_le_bytes());
        }
        let mut before = &[][..];
        for (first, last) in cleared {
            push_key(std::mem::replace(&mut before, first), first, out);
            push_key(std::mem::replace(&mut before, last), last, out);
        }
        for (key, value) in set {
            push_key(std::mem::replace(&mut before, key), key, out);
            varint::push_sized(value, out);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    fn len(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    pub(super) fn info(&self) -> SectionInfo {
        let mut crc32 = crc32fast::Hasher::new();
        self.parts.iter().for_each(|part| crc32.update(part));
        SectionInfo { bytes: self.len() as u64, crc32: crc32.finalize(), records: self.records }
    }
}

/// An entry, or the ends of a range of keys.
pub(super) type Pair<'a> = (&'a [u8], &'a [u8]);

fn push_key(before: &[u8], key: &[u8], out: &mut Vec<u8>) {
    let common = common_prefix(before, key);
    varint::push(common, out);
    varint::push_sized(&key[common..], out);
}

/// The bytes of a file, and how it is named.
pub(super) fn write(
    header: &Header,
    changes: &Section,
    sweep: &Section,
) -> serde_json::Result<(Vec<u8>, Link)> {
    let json = serde_json::to_vec(header)?;
    let crc32 = crc32fast::hash(&json);
    let mut bytes = Vec::with_capacity(HEAD + json.len() + changes.len() + sweep.len());
    bytes.extend_from_slice(MAGIC);
    for number in [FORMAT, json.len() as u32, crc32] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&json);
    for part in changes.parts.iter().chain(&sweep.parts) {
        bytes.extend_from_slice(part);
    }
    let link = Link { batch: header.batch, bytes: bytes.len() as u64, crc32 };
    Ok((bytes, link))
}

/// A file that was read: its header and sections.
#[derive(Debug)]
pub(super) struct File<'a> {
    pub(super) header: Header,
    pub(super) changes: &'a [u8],
    /// None: it is damaged.
    pub(super) sweep: Option<&'a [u8]>,
}

/// Reads a file that a link names, or says what is wrong with it.
pub(super) fn read(bytes: &[u8], link: Link) -> Result<File<'_>, String> {
    let short = || "is cut off".to_owned();
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    if magic != MAGIC {
        return Err("is not a state file".to_owned());
    }
    let version = u32::from_le_bytes(*version);
    if version != FORMAT {
        return Err(format!("is of format {version}, this version of Pelton reads format {FORMAT}"));
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (crc32, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (json, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
    if crc32fast::hash(json) != u32::from_le_bytes(*crc32) {
        return Err("has a damaged header".to_owned());
    }
    if u32::from_le_bytes(*crc32) != link.crc32 {
        return Err("is another file than the one that was committed".to_owned());
    }
    let header: Header =
        serde_json::from_slice(json).map_err(|e| format!("has an unreadable header: {e}"))?;
    let (changes, rest) = split(rest, header.changes).ok_or_else(short)?;
    if crc32fast::hash(changes) != header.changes.crc32 {
        return Err("is damaged where the changes are".to_owned());
    }
    let sweep = split(rest, header.sweep).filter(|(_, rest)| rest.is_empty()).map(|(sweep, _)| sweep);
    let sweep = sweep.filter(|sweep| crc32fast::hash(sweep) == header.sweep.crc32);
    Ok(File { header, changes, sweep })
}

fn split(bytes: &[u8], info: SectionInfo) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(usize::try_from(info.bytes).ok()?)
}

/// Applies the records of a section, in order; nothing is said of how far it came if the section is damaged.
pub(super) fn replay(mut bytes: &[u8], tables: &mut Tables) -> Option<()> {
    while let Some((shard, rest)) = bytes.split_first() {
        bytes = rest;
        let name = std::str::from_utf8(take_sized(&mut bytes)?).ok()?;
        let table = tables.shards.get_mut(usize::from(*shard))?.table(name);
        let (cleared, rest) = bytes.split_first_chunk::<4>()?;
        let (set, rest) = rest.split_first_chunk::<4>()?;
        bytes = rest;
        let (mut key, mut first) = (Vec::new(), Vec::new());
        for _ in 0..u32::from_le_bytes(*cleared) {
            take_key(&mut bytes, &mut key)?;
            first.clone_from(&key);
            take_key(&mut bytes, &mut key)?;
            table.clear(&first, &key);
        }
        for _ in 0..u32::from_le_bytes(*set) {
            take_key(&mut bytes, &mut key)?;
            table.set(&key, Some(Blob::from(take_sized(&mut bytes)?)));
        }
    }
    Some(())
}

/// Makes of a key the one after it.
fn take_key(bytes: &mut &[u8], key: &mut Vec<u8>) -> Option<()> {
    let common = varint::take(bytes)?;
    if common > key.len() {
        return None;
    }
    key.truncate(common);
    key.extend_from_slice(take_sized(bytes)?);
    Some(())
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn take_sized<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = varint::take(bytes)?;
    take(bytes, length)
}
