//! Running totals in the third of three versions, which cannot take over from the others: it gives other columns.

#![allow(missing_docs, private_interfaces, reason = "a guest for tests")]

use pelton::{GroupState, Row, Rows};

#[derive(Row)]
pub struct Amount {
    amount: i64,
}

#[derive(Row)]
pub struct Standing<'a> {
    key: &'a str,
    average: f64,
}

/// What each key comes to on average.
#[pelton::flat_map_groups]
pub fn total<'a>(key: &'a str, rows: Rows<'_, Amount>, state: &mut GroupState<i64>) -> Option<Standing<'a>> {
    let (sum, count) = rows.fold((0, 0_i64), |(sum, count), row| (sum + row.amount, count + 1));
    state.update(sum);
    Some(Standing { key, average: sum as f64 / count.max(1) as f64 })
}

pelton::plugin!(name: "totals", functions: [total]);
