use pelton::{Emit, GroupState, ListState, Row, Rows, Timers, ValueState};

#[derive(Row)]
struct Amount {
    amount: i64,
}

#[derive(Row)]
struct Total {
    sum: i64,
}

#[pelton::map_groups]
fn no_rows(user: &str, state: &mut GroupState<i64>) -> Total {
    Total { sum: 0 }
}

#[pelton::map_groups]
fn no_key(rows: Rows<'_, Amount>, state: &mut GroupState<i64>) -> Total {
    Total { sum: 0 }
}

#[pelton::map_groups(timeout = "event")]
fn unknown_timeout(user: &str, rows: Rows<'_, Amount>) -> Total {
    Total { sum: 0 }
}

#[pelton::map_groups(time_mode = "event_time")]
fn unknown_setting(user: &str, rows: Rows<'_, Amount>) -> Total {
    Total { sum: 0 }
}

#[pelton::map_groups]
fn shared_state(user: &str, rows: Rows<'_, Amount>, state: &GroupState<i64>) -> Total {
    Total { sum: 0 }
}

#[pelton::map_groups]
fn a_value_state(user: &str, rows: Rows<'_, Amount>, sum: &mut ValueState<i64>) -> Total {
    Total { sum: 0 }
}

#[pelton::processor]
fn a_group_state(user: &str, rows: Rows<'_, Amount>, sum: &mut GroupState<i64>) -> Vec<Total> {
    Vec::new()
}

#[pelton::flat_map_groups]
fn with_timers(user: &str, rows: Rows<'_, Amount>, timers: &mut Timers) -> Vec<Total> {
    Vec::new()
}

#[pelton::map_groups]
fn emits(user: &str, rows: Rows<'_, Amount>, emit: &mut Emit<Total>) {}

#[pelton::flat_map_groups]
fn returns_nothing(user: &str, rows: Rows<'_, Amount>) {}

#[pelton::processor]
fn unknown_load(
    user: &str,
    rows: Rows<'_, Amount>,
    #[state(load = first(3))] recent: &mut ListState<i64>,
) -> Vec<Total> {
    Vec::new()
}

#[pelton::sink]
fn sink_with_state(rows: Rows<'_, Amount>, state: &mut GroupState<i64>) {}

fn main() {}
