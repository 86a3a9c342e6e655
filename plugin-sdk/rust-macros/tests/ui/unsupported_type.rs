#[derive(pelton::Row)]
struct Flight {
    carrier: String,
    number: u32,
}

fn main() {}
