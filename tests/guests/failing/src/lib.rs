//! Functions that fail: on the number 13 they trap, at 14 they take too much memory, at 15 they never end. What tests of
//! poison rows, of recycling and of replays run. Some have the names of functions of other test plugins and answer
//! otherwise, as another build of a plugin would.

use pelton::{Error, GroupState, Row, Rows, State, Timestamp};
use std::time::Duration;

/// A number.
#[derive(Row)]
pub struct Number {
    n: i64,
}

/// Fails as the number says.
fn try_it(n: i64) {
    match n {
        13 => panic!("13 is bad luck"),
        14 => std::mem::forget(std::hint::black_box(vec![1_u8; 1 << 30])),
        15 => loop {
            std::hint::black_box(n);
        },
        _ => {}
    }
}

/// Gives back the numbers on which it does not fail; refuses negative ones.
#[pelton::map]
pub fn work(row: Number) -> Result<Number, String> {
    try_it(row.n);
    match row.n {
        n if n < 0 => Err(format!("{n} is negative")),
        _ => Ok(row),
    }
}

/// Whether a number is even, if it does not fail on it.
#[pelton::scalar]
pub fn is_even(n: i64) -> bool {
    try_it(n);
    n % 2 == 0
}

/// The square of a number, if it does not fail on it.
#[pelton::scalar]
pub fn square(n: i64) -> i64 {
    try_it(n);
    n * n
}

/// Keeps so many bytes for ever with each call.
const LEAK_BYTES: usize = 1 << 20;

/// Gives back the numbers and forgets to give back memory.
#[pelton::scalar]
pub fn leak(n: i64) -> i64 {
    if n == 0 {
        std::mem::forget(std::hint::black_box(vec![1_u8; LEAK_BYTES]));
    }
    n
}

/// As the conformance plugin's function of this name, but it refuses nothing, and takes 4 for 40.
#[pelton::map]
pub fn even(row: Number) -> Option<Number> {
    match row.n {
        4 => Some(Number { n: 40 }),
        n => (n >= 0 && n % 2 == 0).then_some(Number { n }),
    }
}

/// A number of a user.
#[derive(Row)]
pub struct Amount {
    n: i64,
    ts: Timestamp,
}

/// What a user's numbers come to.
#[derive(State, Clone, Copy, Default)]
pub struct Total {
    sum: i64,
}

/// The same with the user, and why.
#[derive(Row)]
pub struct UserTotal<'a> {
    user: &'a str,
    sum: i64,
    timed_out: bool,
}

/// Adds up each user's numbers and tells the sum again ten seconds after the last. Fails on a user's numbers as on others,
/// and on the timeout of a user whose sum is 100.
#[pelton::flat_map_groups(timeout = "event_time")]
pub fn totals<'a>(
    user: &'a str,
    amounts: Rows<'_, Amount>,
    state: &mut GroupState<Total>,
) -> Result<Option<UserTotal<'a>>, Error> {
    let Total { mut sum } = state.get_option().copied().unwrap_or_default();
    if state.has_timed_out() {
        assert!(sum != 100, "100 is not to be told");
        return Ok(Some(UserTotal { user, sum, timed_out: true }));
    }
    let mut last = state.current_watermark();
    for amount in amounts {
        try_it(amount.n);
        sum += amount.n;
        last = last.max(amount.ts);
    }
    state.update(Total { sum });
    state.set_timeout_timestamp(last + Duration::from_secs(10))?;
    Ok(Some(UserTotal { user, sum, timed_out: false }))
}

pelton::plugin!(name: "failing", functions: [work, is_even, square, leak, even, totals]);
