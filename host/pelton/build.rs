//! Tells cargo which files outside this crate are embedded in the binary for `pelton plugin new`.

fn main() {
    for path in ["templates", "../../plugin-sdk/rust", "../../plugin-sdk/rust-macros", "../../plugin-sdk/c"] {
        println!("cargo::rerun-if-changed={path}");
    }
}
