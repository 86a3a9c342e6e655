//! Help, exit codes, errors, completions.

use super::fails;
use anyhow::{Result, ensure};
use pelton_tests::Pelton;

#[test]
fn every_command_explains_itself_with_an_example() -> Result<()> {
    let commands: [&[&str]; 12] = [
        &["run"],
        &["status"],
        &["stop"],
        &["check"],
        &["explain"],
        &["test"],
        &["pipe"],
        &["plugin", "new"],
        &["plugin", "inspect"],
        &["plugin", "test"],
        &["schema"],
        &["completions"],
    ];
    for command in commands {
        let help = Pelton::new(command.iter().copied())?.arg("--help").succeed()?.stdout;
        ensure!(help.contains("Example"), "{command:?} --help shows no example:\n{help}");
    }
    Ok(())
}

#[test]
fn a_wrong_request_exits_with_2_and_says_what_is_right() -> Result<()> {
    fails(&["rum"], 2, &["run"])?;
    fails(&["check", "nowhere.yaml"], 2, &["nowhere.yaml"])?;
    fails(&["run", "pipeline.yaml", "--trigger", "sometimes"], 2, &["available_now"])?;
    fails(&["plugin", "inspect", "nowhere.wasm"], 2, &["nowhere.wasm"])?;
    fails(&["plugin", "new", "Wrong Name"], 2, &["lower-case"])?;
    fails(&["plugin", "build", "docs"], 2, &["Cargo.toml"])
}

#[test]
fn nothing_is_coloured_where_no_terminal_is() -> Result<()> {
    let finished = Pelton::new(["check", "nowhere.yaml"])?.output()?;
    ensure!(!finished.stderr.contains('\x1b'), "{:?}", finished.stderr);
    Ok(())
}

#[test]
fn every_shell_gets_its_completions() -> Result<()> {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = Pelton::new(["completions", shell])?.succeed()?.stdout;
        ensure!(script.contains("inspect"), "{shell} does not know `plugin inspect`:\n{script}");
    }
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_printed_is_told_and_a_reader_who_leaves_is_no_failure() -> Result<()> {
    for command in
        [&["completions", "bash"][..], &["--help"], &["run", "--help"], &["--version"], &["schema"]]
    {
        let folder = tempfile::tempdir()?;
        let told = folder.path().join("stderr");
        let full = std::fs::File::options().write(true).open("/dev/full")?;
        let pelton = || Pelton::new(command.iter().copied());
        let code = pelton()?.start_to(full, std::fs::File::create(&told)?)?.wait()?.code();
        let told = std::fs::read_to_string(told)?;
        ensure!(code == Some(1) && told.contains("cannot write to stdout"), "{command:?}: {code:?}, {told}");
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let code = pelton()?.start_to(writer, std::process::Stdio::null())?.wait()?.code();
        ensure!(code == Some(0), "{command:?}: {code:?}");
    }
    Ok(())
}
