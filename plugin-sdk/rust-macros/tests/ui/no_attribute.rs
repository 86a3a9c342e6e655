fn helper() {}

pelton::plugin!(functions: [helper]);

fn main() {}
