//! Mistakes that people make in plugins, and what the compiler tells them.
//!
//! After an intended change: `TRYBUILD=overwrite cargo test -p pelton-sdk-macros`, and read what changed.

#[test]
fn mistakes_in_plugins_are_explained_by_the_compiler() {
    let tests = trybuild::TestCases::new();
    tests.compile_fail("tests/ui/*.rs");
}
