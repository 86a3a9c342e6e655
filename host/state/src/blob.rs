//! A key or value of the working copy. Short ones stand where they are used: a search through an ordered map then
//! compares keys without following a pointer for each, which is most of its time once the state is larger than the
//! processor's caches. Called by the tables alone.

use std::borrow::Borrow;
use std::cmp::Ordering;

/// The longest that needs no memory of its own: chosen so that a [`Blob`] is three words.
const INLINE_MAX: usize = 22;

/// Some bytes, ordered as slices are.
#[derive(Debug, Clone)]
pub(crate) enum Blob {
    Inline(u8, [u8; INLINE_MAX]),
    Heap(Box<[u8]>),
}

impl Blob {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline(length, bytes) => bytes.get(..usize::from(*length)).unwrap_or(bytes),
            Self::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE_MAX {
            return Self::Heap(bytes.into());
        }
        let mut inline = [0; INLINE_MAX];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self::Inline(bytes.len() as u8, inline)
    }
}

impl Borrow<[u8]> for Blob {
    fn borrow(&self) -> &[u8] {
        self.as_slice()
    }
}

impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Blob {}

impl PartialOrd for Blob {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Blob {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_stay_themselves_and_in_order() {
        assert_eq!(size_of::<Blob>(), 24);
        let all: Vec<Vec<u8>> = (0..40).map(|length| vec![7; length]).collect();
        let blobs: Vec<Blob> = all.iter().map(|bytes| Blob::from(bytes.as_slice())).collect();
        assert!(blobs.is_sorted() && blobs.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(blobs.iter().zip(&all).all(|(blob, bytes)| blob.as_slice() == bytes.as_slice()));
    }
}
