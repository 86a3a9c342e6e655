//! That the binary starts. Being here it also makes `cargo test --workspace` build the binary, which the end-to-end
//! tests of the crate `pelton-tests` drive.

use std::process::Command;

#[test]
fn it_knows_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_pelton")).arg("--version").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text.trim(), concat!("pelton ", env!("CARGO_PKG_VERSION")));
}
