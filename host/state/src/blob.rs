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
    /// Whether making a [`Blob`] of these bytes costs no memory.
    pub(crate) fn is_cheap(bytes: &[u8]) -> bool {
        bytes.len() <= INLINE_MAX
    }

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
        match (self, other) {
            // Beyond their length both have zeros, so the shorter of two that are otherwise alike is the lesser.
            (Self::Inline(left_len, left), Self::Inline(right_len, right)) => {
                let [left, right] = [left, right].map(words);
                left.cmp(&right).then(left_len.cmp(right_len))
            }
            _ => self.as_slice().cmp(other.as_slice()),
        }
    }
}

/// Numbers that are ordered as the bytes are. The last two overlap, which changes nothing.
fn words(bytes: &[u8; INLINE_MAX]) -> [u64; 3] {
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
    [word(0), word(8), word(INLINE_MAX - 8)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blobs_are_ordered_as_slices_are(
            left in prop::collection::vec(0_u8..2, 0..26), right in prop::collection::vec(0_u8..2, 0..26),
            common in prop::collection::vec(any::<u8>(), 0..22),
        ) {
            let [left, right] = [left, right].map(|end| [common.as_slice(), &end].concat());
            let blobs = [&left, &right].map(|bytes| Blob::from(bytes.as_slice()));
            prop_assert_eq!(blobs[0].cmp(&blobs[1]), left.cmp(&right));
            prop_assert_eq!(blobs[0] == blobs[1], left == right);
        }
    }

    #[test]
    fn bytes_of_every_length_stay_themselves_and_in_order() {
        assert_eq!(size_of::<Blob>(), 24);
        let all: Vec<Vec<u8>> = (0..40).map(|length| vec![7; length]).collect();
        let blobs: Vec<Blob> = all.iter().map(|bytes| Blob::from(bytes.as_slice())).collect();
        assert!(blobs.is_sorted() && blobs.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(blobs.iter().zip(&all).all(|(blob, bytes)| blob.as_slice() == bytes.as_slice()));
    }
}
