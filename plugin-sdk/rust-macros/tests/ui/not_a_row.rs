#[derive(pelton::Row)]
struct Pair(i64, i64);

#[derive(pelton::Row)]
enum Choice {
    A,
}

#[derive(pelton::Row)]
struct Generic<T> {
    value: T,
}

#[derive(pelton::Row)]
struct Twice {
    #[row(name = "a")]
    b: i64,
    a: i64,
}

#[derive(pelton::Row)]
struct Renamed {
    #[row(rename = "b")]
    a: i64,
}

fn main() {}
