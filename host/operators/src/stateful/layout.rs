//! How keys of state are laid out: times as bytes that sort like the times, many keys in one buffer, ranges.
//!
//! Used by the operators that keep state; knows nothing of rows.

use bytes::Bytes;
use pelton_core::{AFTER_ALL_KEYS, Result, StateOp, StateShard};
use pelton_state::ordered_i64;
use std::ops::ControlFlow;

/// Stands for "no time": after all times, so that no watermark reaches it.
pub(crate) const NO_TIME: i64 = i64::MAX;

/// How many entries are looked at in one go.
const SCAN_ENTRIES: usize = 8192;

/// The end (excluded) of the keys that begin with a time `<= micros`. [`NO_TIME`] is never among them.
pub(crate) fn through_time(micros: i64) -> [u8; 8] {
    ordered_i64(micros.saturating_add(1))
}

/// The end (excluded) of the keys that begin with a prefix that has a byte less than 255.
pub(crate) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// Many byte strings in one buffer.
#[derive(Default)]
pub(crate) struct Arena {
    buffer: Vec<u8>,
    ends: Vec<usize>,
}

impl Arena {
    /// With room for so many strings of so many bytes.
    pub(crate) fn with_capacity(strings: usize, bytes: usize) -> Self {
        Self { buffer: Vec::with_capacity(strings * bytes), ends: Vec::with_capacity(strings) }
    }
    /// Adds a string made of parts.
    pub(crate) fn push(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
        self.ends.push(self.buffer.len());
    }
    /// The strings, in order.
    pub(crate) fn finish(self) -> Vec<Bytes> {
        let buffer = Bytes::from(self.buffer);
        let mut start = 0;
        let slice = |end| buffer.slice(std::mem::replace(&mut start, end)..end);
        self.ends.into_iter().map(slice).collect()
    }
}

/// In which order byte strings sort. Work on the state is done in this order: neighbours are cheap.
pub(crate) fn sorted_order(keys: &[Bytes]) -> Vec<u32> {
    let start = |key: &[u8]| {
        let mut start = [0; 16];
        let length = key.len().min(16);
        start[..length].copy_from_slice(&key[..length]);
        u128::from_be_bytes(start)
    };
    let mut order: Vec<(u128, u32)> = keys.iter().map(|key| start(key)).zip(0..).collect();
    // Equal keys stay in order.
    order.sort_unstable_by(|(a, i), (b, j)| {
        a.cmp(b).then_with(|| keys[*i as usize].cmp(&keys[*j as usize])).then(i.cmp(j))
    });
    order.into_iter().map(|(_, at)| at).collect()
}

/// Entries to put, in the order of their keys.
pub(crate) fn sorted_puts(keys: Vec<Bytes>, values: &[Bytes]) -> Vec<StateOp> {
    let put = |at: u32| StateOp::Put(keys[at as usize].clone(), values[at as usize].clone());
    sorted_order(&keys).into_iter().map(put).collect()
}

/// Keys to remove, in their order.
pub(crate) fn sorted_removals(keys: &[Bytes]) -> Vec<StateOp> {
    sorted_order(keys).into_iter().map(|at| StateOp::Remove(keys[at as usize].clone())).collect()
}

/// Gives all entries of a key range to `body`, some at a time, in order; `body` may remove what it is given.
pub(crate) fn for_entries(
    state: &mut dyn StateShard,
    table: &str,
    from: &[u8],
    to: &[u8],
    mut body: impl FnMut(&mut dyn StateShard, Vec<(Bytes, Bytes)>) -> Result<()>,
) -> Result<()> {
    entries_until(state, table, from, to, |state, entries| body(state, entries).map(ControlFlow::Continue))
}

/// Gives the entries of a table to `body`, as long as it goes on.
pub(crate) fn entries_while(
    state: &mut dyn StateShard,
    table: &str,
    body: impl FnMut(&mut dyn StateShard, Vec<(Bytes, Bytes)>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    entries_until(state, table, &[], &AFTER_ALL_KEYS, body)
}

fn entries_until(
    state: &mut dyn StateShard,
    table: &str,
    from: &[u8],
    to: &[u8],
    mut body: impl FnMut(&mut dyn StateShard, Vec<(Bytes, Bytes)>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut from = from.to_vec();
    loop {
        let entries = state.scan(table, &from[..]..to, SCAN_ENTRIES)?;
        let Some((last, _)) = entries.last() else {
            return Ok(());
        };
        let is_last = entries.len() < SCAN_ENTRIES;
        from.clear();
        from.extend_from_slice(last);
        from.push(0);
        if body(state, entries)?.is_break() || is_last {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::StateStore;
    use pelton_state::MemoryStateStore;

    #[test]
    fn entries_are_read_as_long_as_they_are_wanted() {
        let mut store = MemoryStateStore::new();
        let mut shards = store.shards();
        let put = |n: u32| StateOp::Put(Bytes::copy_from_slice(&n.to_be_bytes()), Bytes::new());
        shards[0].apply("t", (0..3 * SCAN_ENTRIES as u32).map(put).collect()).expect("applies");
        for (calls, read) in [(1, 1), (2, 2), (9, 3)] {
            let mut came = 0;
            let body = |_: &mut dyn StateShard, entries: Vec<_>| {
                assert!(entries.len() == SCAN_ENTRIES);
                came += 1;
                Ok(if came == calls { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            entries_while(&mut *shards[0], "t", body).expect("reads");
            assert_eq!(came, read);
        }
    }

    #[test]
    fn times_sort_as_bytes_and_no_watermark_reaches_the_rows_without_one() {
        let times = [i64::MIN, -1_000_001, -1, 0, 1, 1_767_225_600_000_000, i64::MAX - 1];
        assert!(times.windows(2).all(|pair| ordered_i64(pair[0]) < ordered_i64(pair[1])));
        for time in times {
            assert!(ordered_i64(time) < through_time(time));
            assert!(through_time(time) <= ordered_i64(time + 1));
            assert!(ordered_i64(NO_TIME) >= through_time(time));
        }
        assert!(ordered_i64(NO_TIME) >= through_time(i64::MAX));
    }

    #[test]
    fn keys_are_put_in_order() {
        let long = [7u8; 16];
        let keys = [&long[..], b"b", &[7; 18], b"", b"a\0", b"a", b"b"].map(Bytes::copy_from_slice);
        assert_eq!(sorted_order(&keys), [3, 0, 2, 5, 4, 1, 6]);
    }

    #[test]
    fn the_end_of_a_prefix_is_after_all_that_begins_with_it() {
        assert_eq!(prefix_end(&[1, 2]), [1, 3]);
        assert_eq!(prefix_end(&[1, 255, 255]), [2]);
    }
}
