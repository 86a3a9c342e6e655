//! Neighbouring entries in two pieces of memory: an index in the order of keys, and keys and values in the order in
//! which they came. Called by the entries alone.
//!
//! The index holds the first bytes of each key behind those that all keys of the block have in common: a search
//! compares numbers that stand close together, and looks at whole keys only where these are alike.

use crate::blob::common_prefix;
use crate::varint;

/// More entries are divided.
const ENTRIES_MAX: usize = 128;
/// More bytes are divided, unless they are of one entry.
const BYTES_MAX: usize = 16 << 10;
/// More bytes that keys have in common are not made use of.
const COMMON_MAX: usize = 27;
/// A block gets room for at least so many entries at a time.
const GROWTH_MIN: usize = 8;
/// What a block takes beside its two pieces of memory: itself, its lowest key, and what an allocator adds.
const OVERHEAD: usize = size_of::<Block>() + 48 + 32;

/// What is known of an entry.
pub(crate) mod flags {
    /// It differs from what lies on disk.
    pub(crate) const DIRTY: u8 = 1;
    /// Something lies on disk under its key.
    pub(crate) const STORED: u8 = 2;
    /// It is gone, which hides what lies on disk.
    pub(crate) const REMOVED: u8 = 4;
    /// It was asked for again since the last look.
    pub(crate) const HOT: u8 = 8;
}

/// The length of a key is in the lower bits, the flags are in the others.
const LENGTH_BITS: u32 = 28;
/// No key may be longer.
pub(crate) const KEY_BYTES_MAX: usize = (1 << LENGTH_BITS) - 1;

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// See [`Block::head`].
    head: u64,
    /// Where the key begins; the length of the value follows as varint, then the value.
    at: u32,
    length_and_flags: u32,
}

/// See above.
#[derive(Debug, Default)]
pub(super) struct Block {
    index: Vec<Slot>,
    data: Vec<u8>,
    /// Bytes of `data` that belong to nothing any more.
    garbage: u32,
    /// How many bytes all keys have in common, or more of them.
    common: u8,
    /// What they have in common: one look less at the data for each search.
    prefix: [u8; COMMON_MAX],
}

/// An entry as it is in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) flags: u8,
}

impl<'a> Entry<'a> {
    /// The value, if it is not marked as removed.
    pub(crate) fn live(self) -> Option<&'a [u8]> {
        (self.flags & flags::REMOVED == 0).then_some(self.value)
    }
}

impl Slot {
    fn key<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        let at = self.at as usize;
        &data[at..at + self.key_len()]
    }
    fn key_len(&self) -> usize {
        (self.length_and_flags & ((1 << LENGTH_BITS) - 1)) as usize
    }
    fn set_flags(&mut self, flags: u8) {
        self.length_and_flags = self.key_len() as u32 | u32::from(flags) << LENGTH_BITS;
    }
    /// Where the value begins and ends.
    fn value(&self, data: &[u8]) -> (usize, usize) {
        let mut rest = &data[self.at as usize + self.key_len()..];
        let length = varint::take(&mut rest).unwrap_or(0);
        let begin = data.len() - rest.len();
        (begin, begin + length)
    }
}

impl Block {
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() > ENTRIES_MAX || (self.len() > 1 && self.bytes() > BYTES_MAX)
    }

    /// Whether this block with another would be far from full.
    pub(super) fn may_take(&self, other: &Self) -> bool {
        self.len() + other.len() <= ENTRIES_MAX / 2 && self.bytes() + other.bytes() <= BYTES_MAX / 2
    }

    fn bytes(&self) -> usize {
        self.data.len() - self.garbage as usize
    }

    pub(super) fn memory(&self) -> usize {
        self.index.capacity() * size_of::<Slot>() + self.data.capacity() + OVERHEAD
    }

    pub(super) fn entry(&self, at: usize) -> Entry<'_> {
        let slot = &self.index[at];
        let (begin, end) = slot.value(&self.data);
        let flags = (slot.length_and_flags >> LENGTH_BITS) as u8;
        Entry { key: slot.key(&self.data), value: &self.data[begin..end], flags }
    }

    /// Where a key is, or where it belongs.
    pub(super) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let common = usize::from(self.common);
        match key[..common.min(key.len())].cmp(&self.prefix[..common]) {
            std::cmp::Ordering::Less => return Err(0),
            std::cmp::Ordering::Greater => return Err(self.len()),
            std::cmp::Ordering::Equal => {}
        }
        let head = head(key, common);
        let first = self.index.partition_point(|slot| slot.head < head);
        let alike = self.index[first..].iter().take_while(|slot| slot.head == head).count();
        let found = self.index[first..first + alike].binary_search_by(|slot| slot.key(&self.data).cmp(key));
        found.map(|at| first + at).map_err(|at| first + at)
    }

    pub(super) fn insert(&mut self, at: usize, key: &[u8], value: &[u8], flags: u8) {
        let common = match self.is_empty() {
            true => key.len().min(COMMON_MAX),
            false => common_prefix(&self.prefix[..usize::from(self.common)], key),
        };
        if self.is_empty() || common != usize::from(self.common) {
            self.set_common(&key[..common]);
        }
        let mut slot = Slot { head: head(key, common), at: 0, length_and_flags: key.len() as u32 };
        slot.at = self.append_bytes(key, value);
        slot.set_flags(flags);
        if self.index.len() == self.index.capacity() {
            self.index.reserve_exact((self.index.len() / 4).max(GROWTH_MIN));
        }
        self.index.insert(at, slot);
    }

    pub(super) fn replace(&mut self, at: usize, key: &[u8], value: &[u8], flags: u8) {
        let slot = self.index[at];
        let (begin, end) = slot.value(&self.data);
        self.index[at].set_flags(flags);
        if end - begin == value.len() {
            self.data[begin..end].copy_from_slice(value);
            return;
        }
        self.forget(slot);
        self.index[at].at = self.append_bytes(key, value);
        self.tidy();
    }

    pub(super) fn remove(&mut self, at: usize) {
        let slot = self.index.remove(at);
        self.forget(slot);
        self.tidy();
    }

    /// Keeps the entries before one; gives the others.
    pub(super) fn split(&mut self, at: usize) -> Self {
        let right = self.part(at, self.len());
        if at + 1 == self.len() {
            let slot = self.index.pop();
            slot.into_iter().for_each(|slot| self.forget(slot));
            self.tidy();
            self.index.shrink_to_fit();
            self.data.shrink_to_fit();
        } else {
            *self = self.part(0, at);
        }
        right
    }

    /// Adds the entries of the block behind.
    pub(super) fn append(&mut self, right: &Self) {
        for at in 0..right.len() {
            let Entry { key, value, flags } = right.entry(at);
            self.insert(self.len(), key, value, flags);
        }
    }

    /// Some of the entries, without unused room.
    fn part(&self, from: usize, to: usize) -> Self {
        let mut part = Self { index: Vec::with_capacity(to - from), ..Self::default() };
        let bytes = |slot: &Slot| slot.value(&self.data).1 - slot.at as usize;
        part.data.reserve_exact(self.index[from..to].iter().map(bytes).sum());
        for slot in &self.index[from..to] {
            let at = part.data.len() as u32;
            part.data.extend_from_slice(&self.data[slot.at as usize..slot.value(&self.data).1]);
            part.index.push(Slot { at, ..*slot });
        }
        if let (Some(first), Some(last)) = (part.index.first(), part.index.last()) {
            let (first, last) = (first.key(&part.data), last.key(&part.data));
            let common = common_prefix(first, last).min(COMMON_MAX);
            let prefix = first[..common].to_vec();
            part.set_common(&prefix);
        }
        part
    }

    fn set_common(&mut self, prefix: &[u8]) {
        self.common = prefix.len() as u8;
        self.prefix[..prefix.len()].copy_from_slice(prefix);
        let data = &self.data;
        self.index.iter_mut().for_each(|slot| slot.head = head(slot.key(data), prefix.len()));
    }

    fn append_bytes(&mut self, key: &[u8], value: &[u8]) -> u32 {
        let more = key.len() + varint::length(value.len()) + value.len();
        if self.data.capacity() - self.data.len() < more {
            self.data.reserve_exact(more.max(self.data.len() / 4).max(GROWTH_MIN * size_of::<Slot>()));
        }
        let at = self.data.len();
        self.data.extend_from_slice(key);
        varint::push_sized(value, &mut self.data);
        at as u32
    }

    fn forget(&mut self, slot: Slot) {
        let bytes = slot.value(&self.data).1 - slot.at as usize;
        self.garbage += bytes as u32;
    }

    fn tidy(&mut self) {
        if self.garbage as usize > self.data.len() / 2 {
            *self = self.part(0, self.len());
        }
    }
}

/// Eight bytes of a key behind the common ones as a number that is ordered as they are, with zeros where there are
/// none.
fn head(key: &[u8], common: usize) -> u64 {
    let rest = &key[common..];
    rest.first_chunk().map_or_else(
        || {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(word)
        },
        |word| u64::from_be_bytes(*word),
    )
}
