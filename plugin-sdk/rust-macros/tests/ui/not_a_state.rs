use pelton::{GroupState, Row, Rows, State};

#[derive(Row)]
struct Amount {
    amount: i64,
}

#[derive(Row)]
struct Total {
    sum: i64,
}

#[derive(State)]
struct Borrows<'a> {
    name: &'a str,
}

#[pelton::map_groups]
fn not_derived(user: &str, rows: Rows<'_, Amount>, state: &mut GroupState<Total>) -> Total {
    Total { sum: 0 }
}

#[pelton::map_groups]
fn not_a_row(user: &str, rows: Rows<'_, Amount>) -> i64 {
    0
}

fn main() {}
