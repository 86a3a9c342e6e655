struct Flight {
    carrier: String,
}

#[derive(pelton::Row)]
struct Carrier {
    carrier: String,
}

#[pelton::map]
fn carrier(flight: Flight) -> Carrier {
    Carrier { carrier: flight.carrier }
}

fn main() {}
