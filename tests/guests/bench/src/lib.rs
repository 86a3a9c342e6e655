//! What the benchmarks measure: functions that do next to nothing, for the cost of crossing the sandbox, and query A
//! of the file benchmark (two conditions, a product, an upper-cased text), which also runs as SQL beside it; and a count
//! and a sum for each user.

use pelton::{Error, GroupState, Row, Rows, State, Timestamp};
use std::time::Duration;

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

/// A payment of a user.
#[derive(Row)]
pub struct Payment {
    price: i64,
    date_time: Timestamp,
}

/// What a user has paid so far.
#[derive(State, Clone, Copy, Default)]
pub struct Paid {
    n: i64,
    total: i64,
}

/// As it comes out.
#[derive(Row)]
pub struct UserTotal {
    user: i64,
    n: i64,
    total: i64,
}

/// Counts and adds up what each user pays, until nothing comes for an hour.
#[pelton::flat_map_groups(timeout = "event_time")]
pub fn paid_by_user(
    user: i64,
    payments: Rows<'_, Payment>,
    paid: &mut GroupState<Paid>,
) -> Result<Option<UserTotal>, Error> {
    if paid.has_timed_out() {
        paid.remove();
        return Ok(None);
    }
    let mut sum = paid.get_option().copied().unwrap_or_default();
    let mut last = Timestamp(i64::MIN);
    for payment in payments {
        sum.n += 1;
        sum.total += payment.price;
        last = last.max(payment.date_time);
    }
    paid.update(sum);
    paid.set_timeout_timestamp(last + Duration::from_secs(3600))?;
    Ok(Some(UserTotal { user, n: sum.n, total: sum.total }))
}

/// A number.
#[derive(Row)]
pub struct Number {
    a: i64,
}

/// Takes rows as long as no number is negative.
#[pelton::sink]
pub fn swallow(numbers: Rows<'_, Number>) -> Result<(), String> {
    for number in numbers {
        if number.a < 0 {
            return Err(format!("{} is negative", number.a));
        }
    }
    Ok(())
}

pelton::plugin!(functions: [identity, add, priced, count_sum, paid_by_user, swallow]);
