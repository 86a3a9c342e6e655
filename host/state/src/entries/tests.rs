//! Packed entries against an ordered map.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, (Vec<u8>, u8)>;

fn check(entries: &Entries, model: &Model) {
    let all = entries.from(Bound::Unbounded).map(|e| (e.key.to_vec(), (e.value.to_vec(), e.flags)));
    assert!(all.eq(model.clone()));
    let blocks = entries.runs.iter().flat_map(|run| &run.blocks);
    assert_eq!(entries.memory(), blocks.map(Block::memory).sum::<usize>());
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let common = prop::sample::select(vec![&b""[..], b"aaaaaaaaaa", b"aaaaaaaaab", b"b\0\0"]);
    (common, prop::collection::vec(0_u8..6, 0..8)).prop_map(|(common, rest)| [common, &rest].concat())
}

proptest! {
    #[test]
    fn packed_entries_are_an_ordered_map(
        steps in prop::collection::vec((key(), prop::option::weighted(0.7, (any::<u8>(), 0_usize..200, 0_u8..16))), 0..2000),
        probes in prop::collection::vec(key(), 8),
    ) {
        let (mut entries, mut model) = (Entries::default(), Model::new());
        for (key, value) in steps {
            let value = value.map(|(fill, length, flags)| (vec![fill; length], flags));
            entries.set(&key, |before| {
                assert_eq!(before.map(|e| (e.value.to_vec(), e.flags)), model.get(&key).cloned());
                value.as_ref().map_or(Set::Remove, |(value, flags)| Set::Put(value, *flags))
            });
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
        check(&entries, &model);
        for probe in probes {
            assert_eq!(entries.get(&probe).map(|e| e.value), model.get(&probe).map(|(value, _)| &value[..]));
            for bound in [Bound::Included(&probe[..]), Bound::Excluded(&probe[..])] {
                let found = entries.from(bound).map(|e| e.key.to_vec());
                let wanted = model.range::<[u8], _>((bound, Bound::Unbounded)).map(|(key, _)| key.clone());
                assert!(found.eq(wanted));
            }
            let found = entries.before(&probe).map(|e| e.key.to_vec());
            assert!(found.eq(model.range(..probe.clone()).rev().map(|(key, _)| key.clone())));
        }
        for key in model.into_keys() {
            entries.set(&key, |_| Set::Remove);
        }
        check(&entries, &Model::new());
    }
}

#[test]
fn many_keys_in_any_order_come_and_go() {
    let number = |n: u32| [&b"key "[..], &n.to_be_bytes()].concat();
    for factor in [1, 7_919, u32::MAX] {
        let order = (0..100_000_u32).map(|n| n.wrapping_mul(factor));
        let mut entries = Entries::default();
        let mut model = Model::new();
        for n in order.clone() {
            let value = n.to_le_bytes();
            entries.set(&number(n), |_| Set::Put(&value, 0));
            model.insert(number(n), (n.to_le_bytes().to_vec(), 0));
        }
        check(&entries, &model);
        assert!(entries.memory() < 48 * model.len(), "{} bytes an entry", entries.memory() / model.len());
        for n in order {
            if n % 11 != 0 {
                entries.set(&number(n), |_| Set::Remove);
                model.remove(&number(n));
            }
        }
        check(&entries, &model);
        assert!(entries.memory() < 120 * model.len(), "{} bytes an entry", entries.memory() / model.len());
    }
}

#[test]
fn long_values_are_no_burden_on_their_neighbours() {
    let mut entries = Entries::default();
    for n in 0..200_u8 {
        let value = vec![n; 10_000];
        entries.set(&[n], |_| Set::Put(&value, 0));
    }
    for round in 0..5_usize {
        for n in 0..200_u8 {
            let length = (usize::from(n) * 991 + round * 7_777) % 30_000;
            let value = vec![n; length];
            entries.set(&[n], |_| Set::Put(&value, 0));
        }
    }
    let bytes: usize = entries.from(Bound::Unbounded).map(|e| e.value.len()).sum();
    assert!(entries.memory() < 3 * bytes, "{} bytes for {bytes}", entries.memory());
}
