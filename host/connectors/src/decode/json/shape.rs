//! What objects look like: which fields are wanted, and which key is likely to come next.
//!
//! Records of a stream mostly have the same fields in the same order. A shape remembers the bytes between
//! one value and the next (`,"price":`) and which of them followed which, so that an expected key costs a
//! comparison of a few words instead of a search. Wrong guesses cost time, never correctness.

use super::scan::{Fault, Kind, Scanner, Span};
use super::text::unescape;
use std::collections::HashMap;

/// Keys remembered, at most: objects that are maps in disguise must not fill the memory.
const KEYS_MAX: usize = 4096;
/// A key that nobody wants.
const UNWANTED: usize = usize::MAX;

/// The fields of one struct, as objects show them.
#[derive(Debug)]
pub(super) struct Shape {
    columns: HashMap<Box<[u8]>, usize>,
    /// The first is not a key: it stands for the beginning of an object.
    keys: Vec<Key>,
    /// Where a key's lead stands in `keys`.
    known: HashMap<Box<[u8]>, usize>,
    scratch: Vec<u8>,
}

#[derive(Debug, Default)]
struct Key {
    /// From the end of the value before (or the opening brace) to the beginning of this key's value.
    lead: Vec<u8>,
    words: [u64; 4],
    masks: [u64; 4],
    column: usize,
    /// The key that followed last time.
    next: usize,
}

impl Key {
    #[inline]
    fn leads(&self, rest: &[u8]) -> bool {
        match rest.first_chunk::<32>() {
            Some(chunk) if self.lead.len() <= 32 => {
                let mut different = 0;
                for (i, word) in chunk.chunks_exact(8).enumerate() {
                    let word = word.first_chunk::<8>().map_or(0, |w| u64::from_le_bytes(*w));
                    different |= (word ^ self.words[i]) & self.masks[i];
                }
                different == 0
            }
            _ => rest.starts_with(&self.lead),
        }
    }

    fn new(lead: &[u8], column: usize) -> Self {
        let mut key = Self { lead: lead.to_vec(), column, ..Self::default() };
        for (i, byte) in lead.iter().take(32).enumerate() {
            key.words[i / 8] |= u64::from(*byte) << (i % 8 * 8);
            key.masks[i / 8] |= 0xFF << (i % 8 * 8);
        }
        key
    }
}

impl Shape {
    /// Of a struct with these fields, by name and index.
    pub(super) fn new<'n>(fields: impl Iterator<Item = (&'n str, usize)>) -> Self {
        let columns = fields.map(|(name, index)| (name.as_bytes().into(), index)).collect();
        Self { columns, keys: vec![Key::default()], known: HashMap::new(), scratch: Vec::new() }
    }

    /// Reads the object at which `scanner` stands and puts the wanted values into `spans`; of a key that comes
    /// twice the last value counts.
    #[inline]
    pub(super) fn read(&mut self, scanner: &mut Scanner<'_>, spans: &mut [Span]) -> Result<(), Fault> {
        spans.fill(Span::MISSING);
        let mut last = 0;
        let mut first = true;
        loop {
            let guess = self.keys[last].next;
            let key = &self.keys[guess];
            // A key that could not be remembered leaves `last` at the beginning, whose next key opens an object.
            let column = if guess != 0 && first == (last == 0) && key.leads(&scanner.text[scanner.at..]) {
                scanner.at += key.lead.len();
                // There may be more white space than the last time.
                scanner.spaces();
                last = guess;
                key.column
            } else {
                match self.search(scanner, first, &mut last)? {
                    Some(column) => column,
                    None => return Ok(()),
                }
            };
            first = false;
            let span = scanner.value()?;
            if let Some(slot) = spans.get_mut(column) {
                *slot = span;
            }
            if scanner.peek() == b'}' {
                scanner.at += 1;
                return Ok(());
            }
        }
    }

    /// Reads the next key step by step and remembers it. `None`: the object ends here.
    #[cold]
    fn search(
        &mut self,
        scanner: &mut Scanner<'_>,
        first: bool,
        last: &mut usize,
    ) -> Result<Option<usize>, Fault> {
        let start = scanner.at;
        scanner.spaces();
        match (scanner.peek(), first) {
            (b'{', true) | (b',', false) => scanner.at += 1,
            (b'}', false) => {
                scanner.at += 1;
                return Ok(None);
            }
            (b'\n', _) => return scanner.fault("the record ends too early"),
            _ => return scanner.fault("expected ',' or '}'"),
        }
        scanner.spaces();
        if first && scanner.peek() == b'}' {
            scanner.at += 1;
            return Ok(None);
        }
        let name = scanner.key()?;
        let column = self.column(name, scanner.text);
        self.remember(&scanner.text[start..scanner.at], column, last);
        Ok(Some(column))
    }

    fn column(&mut self, name: Span, text: &[u8]) -> usize {
        let bytes = name.of(text);
        if name.kind == Kind::Text {
            return self.columns.get(bytes).copied().unwrap_or(UNWANTED);
        }
        self.scratch.clear();
        unescape(bytes, &mut self.scratch);
        self.columns.get(self.scratch.as_slice()).copied().unwrap_or(UNWANTED)
    }

    fn remember(&mut self, lead: &[u8], column: usize, last: &mut usize) {
        let at = match self.known.get(lead) {
            Some(at) => *at,
            None if self.keys.len() < KEYS_MAX => {
                self.known.insert(lead.into(), self.keys.len());
                self.keys.push(Key::new(lead, column));
                self.keys.len() - 1
            }
            None => return,
        };
        self.keys[*last].next = at;
        *last = at;
    }
}
