#[derive(pelton::Row)]
struct Flight {
    delay: Option<f64>,
}

struct Settings;

#[pelton::filter]
fn is_late(flight: Flight, settings: &Settings) -> bool {
    flight.delay.is_some()
}

fn main() {}
