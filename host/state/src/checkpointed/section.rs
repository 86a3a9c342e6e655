//! The bytes of a section of a state file: entries of tables, and ranges that were cleared.
//!
//! A section is a sequence of groups: shard (a byte), table (sized), length of what follows in the group (u64, from
//! format 3 on), number of ranges that are cleared (u32), number of entries that are set (u32), the ranges (begin,
//! end), the entries (key, value (sized)). The end of a range is excluded, an empty one is the end of the table.
//! *Sized*: the length as varint, then the bytes. A key, a begin and an end: how many bytes it has in common with the
//! one before it in the group (the first entry with the last end), as varint, then the others (sized).
//!
//! Called by the store and by its restoration; never does I/O, never trusts a length.

use super::file::SectionInfo;
use crate::blob::common_prefix;
use crate::changes::Changes;
use crate::tables::Table;
use crate::varint;
use pelton_core::{Result, SHARDS};

/// As many entries are decoded before they are set.
const ENTRIES_AT_ONCE: usize = 1024;
/// From this version on groups say how long they are.
const FORMAT_WITH_LENGTHS: u32 = 3;

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

    /// Appends what changed in a table; nothing takes no room.
    pub(super) fn push(&mut self, shard: usize, table: &str, changes: &Changes<'_>) {
        let mut group = self.group(shard, table);
        group.section.reserve(changes.bytes() as usize + 4 * (changes.cleared.len() * 2 + changes.set.len()));
        for (from, to) in &changes.cleared {
            group.clear(from, to);
        }
        for (key, value) in &changes.set {
            group.set(key, value);
        }
        group.finish();
    }

    /// Begins a group.
    pub(super) fn group(&mut self, shard: usize, table: &str) -> Group<'_> {
        if self.parts.is_empty() {
            self.parts.push(Vec::new());
        }
        let Self { parts, records } = self;
        let at = parts.len() - 1;
        let section = &mut parts[at];
        let begin = section.len();
        section.push(shard as u8);
        varint::push_sized(table.as_bytes(), section);
        section.extend_from_slice(&[0; 16]);
        let body = section.len() - 8;
        Group { section, records, begin, body, counts: [0, 0], last: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    /// Its bytes, in pieces.
    pub(super) fn into_parts(self) -> impl Iterator<Item = Vec<u8>> {
        self.parts.into_iter()
    }

    pub(super) fn info(&self) -> SectionInfo {
        let mut crc32 = crc32fast::Hasher::new();
        self.parts.iter().for_each(|part| crc32.update(part));
        SectionInfo { bytes: self.len() as u64, crc32: crc32.finalize(), records: self.records }
    }
}

/// A group being written: first all ranges, then all entries.
pub(super) struct Group<'a> {
    section: &'a mut Vec<u8>,
    records: &'a mut u64,
    /// Where it begins, and where its counts are.
    begin: usize,
    body: usize,
    /// Ranges and entries.
    counts: [u32; 2],
    last: Vec<u8>,
}

impl Group<'_> {
    fn clear(&mut self, from: &[u8], to: &[u8]) {
        self.push_key(from);
        self.push_key(to);
        self.counts[0] += 1;
    }

    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) {
        self.push_key(key);
        varint::push_sized(value, self.section);
        self.counts[1] += 1;
    }

    fn push_key(&mut self, key: &[u8]) {
        let common = common_prefix(&self.last, key);
        varint::push(common, self.section);
        varint::push_sized(&key[common..], self.section);
        self.last.truncate(common);
        self.last.extend_from_slice(&key[common..]);
    }

    /// Without ranges and entries there is no group.
    pub(super) fn finish(self) {
        if self.counts == [0, 0] {
            return self.section.truncate(self.begin);
        }
        *self.records += self.counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        let length = (self.section.len() - self.body) as u64;
        self.section[self.body - 8..self.body].copy_from_slice(&length.to_le_bytes());
        for (at, count) in [self.body, self.body + 4].into_iter().zip(self.counts) {
            self.section[at..at + 4].copy_from_slice(&count.to_le_bytes());
        }
    }
}

/// A group of a section that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadGroup<'a> {
    pub(super) table: &'a str,
    body: &'a [u8],
}

/// The groups of a section by shard, in their order; none if the section is not one.
pub(super) fn groups(mut bytes: &[u8], version: u32) -> Option<Vec<Vec<ReadGroup<'_>>>> {
    let mut groups = vec![Vec::new(); SHARDS];
    while let Some((shard, rest)) = bytes.split_first() {
        bytes = rest;
        let table = std::str::from_utf8(take_sized(&mut bytes)?).ok()?;
        let body = if version >= FORMAT_WITH_LENGTHS {
            let (length, rest) = bytes.split_first_chunk::<8>()?;
            bytes = rest;
            take(&mut bytes, usize::try_from(u64::from_le_bytes(*length)).ok()?)?
        } else {
            let mut rest = bytes;
            skip(&mut rest)?;
            let length = bytes.len() - rest.len();
            take(&mut bytes, length)?
        };
        groups.get_mut(usize::from(*shard))?.push(ReadGroup { table, body });
    }
    Some(groups)
}

/// Passes a group that does not say how long it is.
fn skip(bytes: &mut &[u8]) -> Option<()> {
    let [cleared, set] = take_counts(bytes)?;
    for _ in 0..u64::from(cleared) * 2 {
        varint::take(bytes)?;
        take_sized(bytes)?;
    }
    for _ in 0..set {
        varint::take(bytes)?;
        take_sized(bytes)?;
        take_sized(bytes)?;
    }
    Some(())
}

impl ReadGroup<'_> {
    /// Applies it to its table; false if it is none, and nothing is said of how far that came.
    pub(super) fn replay(&self, table: &mut Table) -> Result<bool> {
        let mut bytes = self.body;
        let Some([cleared, mut left]) = take_counts(&mut bytes) else { return Ok(false) };
        let (mut key, mut first) = (Vec::new(), Vec::new());
        for _ in 0..cleared {
            let Some(()) = take_key(&mut bytes, &mut key) else { return Ok(false) };
            first.clone_from(&key);
            let Some(()) = take_key(&mut bytes, &mut key) else { return Ok(false) };
            table.clear(&first, &key)?;
        }
        while left > 0 {
            let count = left.min(ENTRIES_AT_ONCE as u32);
            let Some((keys, values)) = take_entries(&mut bytes, &mut key, count) else { return Ok(false) };
            let mut begin = 0;
            let ops: Vec<_> = values
                .into_iter()
                .map(|(end, value)| (&keys[std::mem::replace(&mut begin, end)..end], Some(value)))
                .collect();
            table.load(&ops);
            left -= count;
        }
        Ok(bytes.is_empty())
    }
}

/// The keys of entries one behind the other; where each ends, and its value.
type TakenEntries<'a> = (Vec<u8>, Vec<(usize, &'a [u8])>);

fn take_entries<'a>(bytes: &mut &'a [u8], key: &mut Vec<u8>, count: u32) -> Option<TakenEntries<'a>> {
    let (mut keys, mut values) = (Vec::new(), Vec::with_capacity(ENTRIES_AT_ONCE));
    for _ in 0..count {
        take_key(bytes, key)?;
        keys.extend_from_slice(key);
        values.push((keys.len(), take_sized(bytes)?));
    }
    Some((keys, values))
}

fn take_counts(bytes: &mut &[u8]) -> Option<[u32; 2]> {
    let (cleared, rest) = bytes.split_first_chunk::<4>()?;
    let (set, rest) = rest.split_first_chunk::<4>()?;
    *bytes = rest;
    Some([cleared, set].map(|count| u32::from_le_bytes(*count)))
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
