//! As much of the FlatBuffers format as Arrow's messages need: a bounds-checked reader of tables, and a writer
//! that goes forward, parents before children.
//!
//! Used by `ipc` alone. It never trusts an offset: whatever does not fit the buffer reads as "not there".

/// Bytes `at..at + N`, if they exist.
pub(crate) fn bytes<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
    buffer.get(at..)?.first_chunk().copied()
}

fn u32_at(buffer: &[u8], at: usize) -> Option<usize> {
    bytes(buffer, at).map(|b| u32::from_le_bytes(b) as usize)
}

/// A table in a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a> {
    buffer: &'a [u8],
    at: usize,
    vtable: usize,
    vtable_bytes: usize,
}

impl<'a> Table<'a> {
    /// The buffer's root table.
    pub(crate) fn root(buffer: &'a [u8]) -> Option<Self> {
        Self::at(buffer, u32_at(buffer, 0)?)
    }

    fn at(buffer: &'a [u8], at: usize) -> Option<Self> {
        let back = i32::from_le_bytes(bytes(buffer, at)?);
        let vtable = usize::try_from(i64::try_from(at).ok()? - i64::from(back)).ok()?;
        let vtable_bytes = usize::from(u16::from_le_bytes(bytes(buffer, vtable)?));
        Some(Self { buffer, at, vtable, vtable_bytes })
    }

    /// Where the value of a slot lies; `None` means its default.
    fn slot(&self, slot: usize) -> Option<usize> {
        let entry = 4 + 2 * slot;
        if entry + 2 > self.vtable_bytes {
            return None;
        }
        match u16::from_le_bytes(bytes(self.buffer, self.vtable + entry)?) {
            0 => None,
            offset => Some(self.at + usize::from(offset)),
        }
    }

    pub(crate) fn u8(&self, slot: usize, default: u8) -> u8 {
        self.slot(slot).and_then(|at| self.buffer.get(at).copied()).unwrap_or(default)
    }
    pub(crate) fn i16(&self, slot: usize, default: i16) -> i16 {
        self.slot(slot).and_then(|at| bytes(self.buffer, at)).map_or(default, i16::from_le_bytes)
    }
    pub(crate) fn i32(&self, slot: usize, default: i32) -> i32 {
        self.slot(slot).and_then(|at| bytes(self.buffer, at)).map_or(default, i32::from_le_bytes)
    }
    pub(crate) fn i64(&self, slot: usize, default: i64) -> i64 {
        self.slot(slot).and_then(|at| bytes(self.buffer, at)).map_or(default, i64::from_le_bytes)
    }
    pub(crate) fn has(&self, slot: usize) -> bool {
        self.slot(slot).is_some()
    }

    fn target(&self, slot: usize) -> Option<usize> {
        let at = self.slot(slot)?;
        at.checked_add(u32_at(self.buffer, at)?)
    }

    pub(crate) fn table(&self, slot: usize) -> Option<Table<'a>> {
        Table::at(self.buffer, self.target(slot)?)
    }

    pub(crate) fn text(&self, slot: usize) -> Option<&'a str> {
        let at = self.target(slot)?;
        let bytes = self.buffer.get(at + 4..)?.get(..u32_at(self.buffer, at)?)?;
        core::str::from_utf8(bytes).ok()
    }

    /// The tables of a vector, in order.
    pub(crate) fn tables(&self, slot: usize) -> Option<Vec<Table<'a>>> {
        let at = self.target(slot)?;
        let count = u32_at(self.buffer, at)?;
        let entries = self.buffer.get(at + 4..)?.get(..count.checked_mul(4)?)?;
        let (entries, _) = entries.as_chunks::<4>();
        let table = |(i, entry): (usize, &[u8; 4])| {
            Table::at(self.buffer, at + 4 + 4 * i + u32::from_le_bytes(*entry) as usize)
        };
        entries.iter().enumerate().map(table).collect()
    }

    /// A vector of structs of two 64-bit numbers.
    pub(crate) fn pairs(&self, slot: usize) -> Option<&'a [[u8; 16]]> {
        let at = self.target(slot)?;
        let count = u32_at(self.buffer, at)?;
        Some(self.buffer.get(at + 4..)?.get(..count.checked_mul(16)?)?.as_chunks().0)
    }
}

/// A value of a table under construction.
#[derive(Clone, Copy)]
pub(crate) enum Slot {
    Absent,
    U8(u8),
    I16(i16),
    I32(i32),
    I64(i64),
    /// An offset to something written later; see [`Writer::target`].
    Later,
}

impl Slot {
    fn size(self) -> usize {
        match self {
            Slot::Absent => 0,
            Slot::U8(_) => 1,
            Slot::I16(_) => 2,
            Slot::I32(_) | Slot::Later => 4,
            Slot::I64(_) => 8,
        }
    }
}

/// Writes a buffer from its root forward.
pub(crate) struct Writer {
    buffer: Vec<u8>,
}

impl Writer {
    /// A buffer whose first table becomes its root.
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; 4] }
    }

    /// Writes a table; returns where its `Later` offsets lie, in slot order.
    pub(crate) fn table(&mut self, slots: &[Slot]) -> Vec<usize> {
        self.pad(2);
        let vtable = self.buffer.len();
        self.buffer.resize(vtable + 4 + 2 * slots.len(), 0);
        // The table starts 4 bytes off a multiple of 8, so that its first values may be 8 bytes wide.
        while self.buffer.len() % 8 != 4 {
            self.buffer.push(0);
        }
        let table = self.buffer.len();
        self.put_i32((table - vtable) as i32);
        let mut later = vec![0; slots.len()];
        for size in [8, 4, 2, 1] {
            for (i, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.size() == size) {
                let at = self.buffer.len();
                let entry = vtable + 4 + 2 * i;
                self.buffer[entry..entry + 2].copy_from_slice(&((at - table) as u16).to_le_bytes());
                later[i] = at;
                self.put(*slot);
            }
        }
        let table_bytes = (self.buffer.len() - table) as u16;
        self.buffer[vtable..vtable + 2].copy_from_slice(&((4 + 2 * slots.len()) as u16).to_le_bytes());
        self.buffer[vtable + 2..vtable + 4].copy_from_slice(&table_bytes.to_le_bytes());
        if vtable == 4 {
            self.buffer[..4].copy_from_slice(&(table as u32).to_le_bytes());
        }
        let is_later = |i: &usize| matches!(slots[*i], Slot::Later);
        (0..slots.len()).filter(is_later).map(|i| later[i]).collect()
    }

    /// Makes the offset at `from` point to the table that is written next.
    pub(crate) fn child(&mut self, from: usize, slots: &[Slot]) -> Vec<usize> {
        self.pad(2);
        let vtable_end = self.buffer.len() + 4 + 2 * slots.len();
        let table = vtable_end + (12 - vtable_end % 8) % 8;
        self.point(from, table);
        self.table(slots)
    }

    /// Writes a text for the offset at `from`.
    pub(crate) fn text(&mut self, from: usize, text: &str) {
        self.pad(4);
        self.point(from, self.buffer.len());
        self.put_i32(text.len() as i32);
        self.buffer.extend_from_slice(text.as_bytes());
        self.buffer.push(0);
    }

    /// Writes a vector of offsets for the offset at `from`; returns where they lie.
    pub(crate) fn offsets(&mut self, from: usize, count: usize) -> Vec<usize> {
        self.pad(4);
        self.point(from, self.buffer.len());
        self.put_i32(count as i32);
        let first = self.buffer.len();
        self.buffer.resize(first + 4 * count, 0);
        (0..count).map(|i| first + 4 * i).collect()
    }

    /// The buffer, padded to a multiple of 8.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.pad(8);
        self.buffer
    }

    fn point(&mut self, from: usize, to: usize) {
        self.buffer[from..from + 4].copy_from_slice(&((to - from) as u32).to_le_bytes());
    }
    fn put(&mut self, slot: Slot) {
        match slot {
            Slot::Absent => {}
            Slot::U8(v) => self.buffer.push(v),
            Slot::I16(v) => self.buffer.extend_from_slice(&v.to_le_bytes()),
            Slot::I32(v) => self.put_i32(v),
            Slot::I64(v) => self.buffer.extend_from_slice(&v.to_le_bytes()),
            Slot::Later => self.put_i32(0),
        }
    }
    fn put_i32(&mut self, value: i32) {
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }
    fn pad(&mut self, align: usize) {
        while !self.buffer.len().is_multiple_of(align) {
            self.buffer.push(0);
        }
    }
}
