//! Running totals in the second of three versions: its state counts rows, too, and comes from the first one's. It fails in
//! every way there is, if the rows ask for it: the key `trap` makes it trap, `loop` never end; an old total of 13 cannot be
//! migrated. With another mark in the module it bears all keys.

#![allow(missing_docs, private_interfaces, reason = "a guest for tests")]

use pelton::{GroupState, Row, Rows, State};
use std::hint::black_box;

#[derive(Row)]
pub struct Amount {
    amount: i64,
}

#[derive(State)]
pub struct Older {
    total: i64,
}

#[derive(State, Clone, Copy, Default)]
#[state(version = 2, from = Older)]
pub struct Total {
    total: i64,
    rows: i64,
}

impl From<Older> for Total {
    fn from(old: Older) -> Self {
        assert_ne!(old.total, 13, "13 is no total");
        Self { total: old.total, rows: 0 }
    }
}

#[derive(Row)]
pub struct Standing<'a> {
    key: &'a str,
    total: i64,
    version: &'static str,
}

/// What each key comes to.
#[pelton::flat_map_groups]
pub fn total<'a>(
    key: &'a str,
    rows: Rows<'_, Amount>,
    state: &mut GroupState<Total>,
) -> Option<Standing<'a>> {
    let version = black_box("version-2");
    if version == "version-2" {
        assert_ne!(key, "trap", "the key 'trap' is too much");
        while black_box(key) == "loop" {}
    }
    let mut now = state.get_option().copied().unwrap_or_default();
    for row in rows {
        now.total += row.amount;
        now.rows += 1;
    }
    state.update(now);
    Some(Standing { key, total: now.total, version })
}

pelton::plugin!(name: "totals", functions: [total]);
