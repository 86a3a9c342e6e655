//! Running totals in the first of three versions, for tests that swap them. The version's mark is text in the module, so
//! that a test can make another version of it.

#![allow(missing_docs, private_interfaces, reason = "a guest for tests")]

use pelton::{GroupState, Row, Rows, State};
use std::hint::black_box;

#[derive(Row)]
pub struct Amount {
    amount: i64,
}

#[derive(State, Clone, Copy, Default)]
pub struct Total {
    total: i64,
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
    let before = state.get_option().copied().unwrap_or_default();
    let total = rows.fold(before.total, |total, row| total + row.amount);
    state.update(Total { total });
    Some(Standing { key, total, version: black_box("version-1") })
}

pelton::plugin!(name: "totals", functions: [total]);
