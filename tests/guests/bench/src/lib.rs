//! What the benchmarks measure: functions that do next to nothing, for the cost of crossing the sandbox, and query A
//! of the file benchmark (two conditions, a product, an upper-cased text), which also runs as SQL beside it; and a count
//! and a sum for each user.

use pelton::{GroupState, Row, Rows, State, Timestamp};

/// A bid.
#[derive(Row)]
pub struct Bid<'a> {
    auction: i64,
    bidder: i64,
    price: i64,
    channel: &'a str,
    date_time: Timestamp,
}

/// A bid worth looking at.
#[derive(Row)]
pub struct Priced {
    auction: i64,
    bidder: i64,
    price: f64,
    channel: String,
    date_time: Timestamp,
}

/// Keeps bids that cost something and do not come from one channel, and converts their price.
#[pelton::map]
pub fn priced(bid: Bid<'_>) -> Option<Priced> {
    (bid.price > 10_000 && bid.channel != "Apple").then(|| Priced {
        auction: bid.auction,
        bidder: bid.bidder,
        price: bid.price as f64 * 0.908,
        channel: bid.channel.to_ascii_uppercase(),
        date_time: bid.date_time,
    })
}

/// Two numbers.
#[derive(Row)]
pub struct Pair {
    a: i64,
    b: i64,
}

/// Gives back what it gets.
#[pelton::map]
pub fn identity(pair: Pair) -> Pair {
    pair
}

/// The sum of two columns.
#[pelton::scalar]
pub fn add(a: i64, b: i64) -> i64 {
    a.wrapping_add(b)
}

/// An amount of a user.
#[derive(Row)]
pub struct Amount {
    v: i64,
}

/// What a user's amounts come to.
#[derive(State, Clone, Copy, Default)]
pub struct Totals {
    count: i64,
    sum: i64,
}

/// The same with the user.
#[derive(Row)]
pub struct UserTotals {
    k: i64,
    count: i64,
    sum: i64,
}

/// Counts and sums each user's amounts.
#[pelton::map_groups]
pub fn count_sum(k: i64, amounts: Rows<'_, Amount>, state: &mut GroupState<Totals>) -> UserTotals {
    let Totals { mut count, mut sum } = state.get_option().copied().unwrap_or_default();
    for amount in amounts {
        count += 1;
        sum += amount.v;
    }
    state.update(Totals { count, sum });
    UserTotals { k, count, sum }
}

pelton::plugin!(functions: [identity, add, priced, count_sum]);
