struct Airport;

#[derive(pelton::Row)]
struct Flight<'a> {
    carrier: &'a str,
    origin: Airport,
}

fn main() {}
