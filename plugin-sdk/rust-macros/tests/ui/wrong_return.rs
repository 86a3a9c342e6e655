#[derive(pelton::Row)]
struct Flight {
    delay: Option<f64>,
}

#[pelton::filter]
fn is_late(flight: Flight) -> f64 {
    flight.delay.unwrap_or_default()
}

#[pelton::map]
fn delay(flight: Flight) -> f64 {
    flight.delay.unwrap_or_default()
}

fn main() {}
