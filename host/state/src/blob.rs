//! A key or value of the working copy. Short ones stand where they are used, and long ones with their first bytes: a
//! search through an ordered map then compares most keys without following a pointer for each, which is most of its
//! time once the state is larger than the processor's caches. Called by the tables alone.

use std::cmp::Ordering;

/// The longest that needs no memory of its own: chosen so that a [`Blob`] is four words.
const INLINE_MAX: usize = 30;
/// How many bytes of a longer one stand before the pointer to it.
const HEAD: usize = 15;

/// Some bytes, ordered as slices are.
#[derive(Debug, Clone)]
pub(crate) enum Blob<'a> {
    Inline(u8, [u8; INLINE_MAX]),
    Heap([u8; HEAD], Box<[u8]>),
    /// A key that is looked for.
    Borrowed([u8; HEAD], &'a [u8]),
}

/// What tables hold.
pub(crate) type Owned = Blob<'static>;

impl<'a> Blob<'a> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline(length, bytes) => bytes.get(..usize::from(*length)).unwrap_or(bytes),
            Self::Heap(_, bytes) => bytes,
            Self::Borrowed(_, bytes) => bytes,
        }
    }

    /// Without a copy of what is long.
    pub(crate) fn borrowed(bytes: &'a [u8]) -> Self {
        match bytes.first_chunk() {
            Some(head) if bytes.len() > INLINE_MAX => Self::Borrowed(*head, bytes),
            _ => Self::inline(bytes),
        }
    }

    fn inline(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE_MAX];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self::Inline(bytes.len() as u8, inline)
    }

    /// Numbers that are ordered as the first bytes are, with zeros where there are none. They overlap, which changes
    /// nothing.
    fn head(&self) -> [u64; 2] {
        match self {
            Self::Inline(_, bytes) => [word(bytes, 0), word(bytes, HEAD - 8)],
            Self::Heap(head, _) | Self::Borrowed(head, _) => [word(head, 0), word(head, HEAD - 8)],
        }
    }
}

impl From<&[u8]> for Owned {
    fn from(bytes: &[u8]) -> Self {
        match bytes.first_chunk() {
            Some(head) if bytes.len() > INLINE_MAX => Self::Heap(*head, bytes.into()),
            _ => Self::inline(bytes),
        }
    }
}

impl PartialEq for Blob<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Blob<'_> {}

impl PartialOrd for Blob<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Blob<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        // Zeros beyond the end: the shorter of two that are otherwise alike is not the greater.
        self.head().cmp(&other.head()).then_with(|| match (self, other) {
            (Self::Inline(left_len, left), Self::Inline(right_len, right)) => {
                let [left, right] =
                    [left, right].map(|bytes| [word(bytes, HEAD), word(bytes, INLINE_MAX - 8)]);
                left.cmp(&right).then(left_len.cmp(right_len))
            }
            _ => self.as_slice().cmp(other.as_slice()),
        })
    }
}

/// Eight bytes as a number that is ordered as they are.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word))
}

/// How many bytes two keys have in common at their beginnings.
pub(crate) fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let [(left_words, _), (right_words, _)] = [left, right].map(<[u8]>::as_chunks::<8>);
    let words = left_words.iter().zip(right_words).take_while(|(left, right)| left == right).count() * 8;
    words + left[words..].iter().zip(&right[words..]).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blobs_are_ordered_as_slices_are(
            left in prop::collection::vec(0_u8..2, 0..36), right in prop::collection::vec(0_u8..2, 0..36),
            common in prop::collection::vec(any::<u8>(), 0..36),
        ) {
            let [left, right] = [left, right].map(|end| [common.as_slice(), &end].concat());
            let blobs = [&left, &right].map(|bytes| Blob::from(bytes.as_slice()));
            prop_assert_eq!(blobs[0].cmp(&blobs[1]), left.cmp(&right));
            prop_assert_eq!(blobs[0].cmp(&Blob::borrowed(&right)), left.cmp(&right));
            prop_assert_eq!(blobs[0] == blobs[1], left == right);
            let same = left.iter().zip(&right).take_while(|(left, right)| left == right).count();
            prop_assert_eq!(common_prefix(&left, &right), same);
        }
    }

    #[test]
    fn bytes_of_every_length_stay_themselves_and_in_order() {
        assert_eq!(size_of::<Blob<'_>>(), 32);
        for byte in [0, 7] {
            let all: Vec<Vec<u8>> = (0..50).map(|length| vec![byte; length]).collect();
            let blobs: Vec<Owned> = all.iter().map(|bytes| Blob::from(bytes.as_slice())).collect();
            assert!(blobs.is_sorted() && blobs.windows(2).all(|pair| pair[0] != pair[1]));
            assert!(blobs.iter().zip(&all).all(|(blob, bytes)| blob.as_slice() == bytes.as_slice()));
        }
    }
}
