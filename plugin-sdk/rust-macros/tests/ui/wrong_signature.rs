#[derive(pelton::Row)]
struct Flight {
    delay: Option<f64>,
}

#[pelton::map]
fn nothing_in() -> Flight {
    Flight { delay: None }
}

#[pelton::map]
fn nothing_out(flight: Flight) {
    drop(flight);
}

#[pelton::flat_map]
fn two_rows(a: Flight, b: Flight) -> Vec<Flight> {
    vec![a, b]
}

#[pelton::map]
async fn later(flight: Flight) -> Flight {
    flight
}

#[pelton::map]
fn generic<T>(flight: Flight) -> Flight {
    flight
}

#[pelton::filter(name = "x")]
fn named(flight: Flight) -> bool {
    flight.delay.is_some()
}

fn main() {}
