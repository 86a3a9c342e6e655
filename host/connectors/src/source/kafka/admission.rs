//! How much of what there is a micro-batch takes: Spark's arithmetic, over offsets alone.

use super::offsets::{PartitionOffsets, TopicPartition};

/// Records between two offsets of each partition. A partition that is not in `begins` has none.
fn size(begins: &PartitionOffsets, ends: &PartitionOffsets, at: &TopicPartition) -> i64 {
    match (begins.get(at), ends.get(at)) {
        (Some(begin), Some(end)) => end.saturating_sub(*begin).max(0),
        _ => 0,
    }
}

/// All of them.
pub(super) fn total(begins: &PartitionOffsets, ends: &PartitionOffsets) -> i64 {
    ends.keys().fold(0, |sum, at| i64::saturating_add(sum, size(begins, ends, at)))
}

/// Ends such that about `limit` offsets lie between, dealt out in proportion to what each partition has; a partition with
/// little is not starved: it gives at least one. Spark's `rateLimit`.
pub(super) fn rate_limit(limit: u64, begins: &PartitionOffsets, ends: &PartitionOffsets) -> PartitionOffsets {
    let total = total(begins, ends) as f64;
    if total < 1.0 {
        return ends.clone();
    }
    let limited = ends.iter().map(|(at, end)| {
        let Some(begin) = begins.get(at) else { return (at.clone(), *end) };
        let size = size(begins, ends, at);
        if size == 0 {
            return (at.clone(), *end);
        }
        let share = limit as f64 * (size as f64 / total);
        let share = if share < 1.0 { share.ceil() } else { share.floor() };
        // Beyond 64 bits the cast ends at the largest number.
        (at.clone(), (*end).min(begin.saturating_add(share as i64)))
    });
    limited.collect()
}

/// Whether the micro-batch waits for more. `triggered_ms` is when the last one was taken. Spark's `delayBatch`.
pub(super) fn is_delayed(
    (min, max_delay_ms): (u64, i64),
    new_records: i64,
    triggered_ms: Option<i64>,
    now_ms: i64,
) -> bool {
    let waited_long = triggered_ms.is_none_or(|then| now_ms.saturating_sub(then) >= max_delay_ms);
    !waited_long && new_records.unsigned_abs() < min
}

/// A partition's offsets `begin..end` cut into so many parts that all partitions together have `parts` at least, each in
/// proportion to what it has. What it gives are the parts' ends. Spark's `minPartitions`.
pub(super) fn cuts(begin: i64, end: i64, total: i64, parts: u64) -> Vec<i64> {
    let size = end.saturating_sub(begin).max(0);
    if size == 0 {
        return Vec::new();
    }
    let share = (size as f64 / total.max(1) as f64 * parts as f64).round() as i64;
    let count = share.clamp(1, size);
    let mut ends = Vec::with_capacity(count as usize);
    let mut at = begin;
    for left in (1..=count).rev() {
        at += (end - at) / left;
        ends.push(at);
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offsets(of: &[i64]) -> PartitionOffsets {
        of.iter().enumerate().map(|(n, offset)| (TopicPartition::new("t", n as i32), *offset)).collect()
    }

    fn limited(limit: u64, begins: &[i64], ends: &[i64]) -> Vec<i64> {
        rate_limit(limit, &offsets(begins), &offsets(ends)).into_values().collect()
    }

    #[test]
    fn the_limit_is_dealt_out_in_proportion() {
        assert_eq!(limited(10, &[0, 0], &[100, 300]), [2, 7]);
        assert_eq!(limited(1000, &[0, 0], &[100, 300]), [100, 300]);
        assert_eq!(limited(10, &[5, 5, 5], &[5, 6, 105]), [5, 6, 14]);
        assert_eq!(limited(10, &[5], &[5]), [5]);
        assert_eq!(limited(u64::MAX, &[0], &[i64::MAX]), [i64::MAX]);
    }

    #[test]
    fn a_partition_with_little_gives_one_at_least() {
        assert_eq!(limited(1, &[0, 0, 0], &[1, 1, 1_000_000]), [1, 1, 1]);
    }

    #[test]
    fn a_minimum_is_waited_for_up_to_the_delay() {
        let delayed = |new, then, now| is_delayed((10, 1_000), new, then, now);
        assert!(!delayed(1, None, 0), "the first micro-batch does not wait");
        assert!(delayed(9, Some(0), 999));
        assert!(!delayed(10, Some(0), 999));
        assert!(!delayed(9, Some(0), 1_000));
        assert!(!delayed(9, Some(i64::MIN), i64::MAX));
    }

    #[test]
    fn parts_are_in_proportion_and_complete() {
        assert_eq!(cuts(0, 10, 10, 3), [3, 6, 10]);
        assert_eq!(cuts(5, 7, 2, 100), [6, 7]);
        assert_eq!(cuts(0, 100, 400, 4), [100]);
        assert_eq!(cuts(0, 300, 400, 4), [100, 200, 300]);
        assert!(cuts(3, 3, 10, 4).is_empty());
    }

    proptest! {
        #[test]
        fn ends_never_pass_what_is_there_and_always_move(
            limit in 1_u64..1_000, sizes in proptest::collection::vec(0_i64..1_000, 1..6)
        ) {
            let begins = offsets(&vec![7; sizes.len()]);
            let ends = offsets(&sizes.iter().map(|size| 7 + size).collect::<Vec<_>>());
            let taken = rate_limit(limit, &begins, &ends);
            for (at, end) in &ends {
                prop_assert!(taken[at] <= *end);
                prop_assert!(size(&begins, &ends, at) == 0 || taken[at] > 7);
            }
            prop_assert!(total(&begins, &taken) <= (limit as i64).max(sizes.len() as i64) + sizes.len() as i64);
        }
    }
}
