//! Starts other programs: with a time limit, with their last line shown, or simply.
#![allow(clippy::disallowed_methods, reason = "time limits of other programs; no row depends on them")]

use crate::progress::Step;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A command that never waits for input.
///
/// What `cargo run` tells us of our own package is not passed on: build scripts that look at it (ring's does) would
/// run again in every cargo that we start, and most of the dependencies with them.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(ours)) {
        command.env_remove(name);
    }
    command
}

/// Runs it with its output going where ours goes, and fails with it.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let name = name(&command);
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    if !status.success() {
        bail!("{name} failed ({status}); its own messages stand above");
    }
    Ok(())
}

/// Runs it with its lines shown in the step, at most for `limit`. The error holds the last lines.
pub(crate) fn run_within(mut command: Command, limit: Duration, step: &Step) -> Result<()> {
    let name = name(&command);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let lines = follow(&mut child);
    let deadline = Instant::now() + limit;
    let mut tail = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left.min(Duration::from_millis(200))) {
            Ok(line) => {
                step.detail(&line);
                tail.push(line);
            }
            Err(mpsc::RecvTimeoutError::Timeout) if left.is_zero() => {
                child.kill().ok();
                child.wait()?;
                bail!("{name} did not end within {} s", limit.as_secs());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            // Both pipes are closed: the program has ended, or soon will.
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    finished(&name, wait_until(&mut child, deadline)?, &tail)
}

fn finished(name: &str, status: ExitStatus, tail: &[String]) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let last = tail.iter().rev().take(8).rev().map(|line| format!("\n    {line}")).collect::<String>();
    bail!("{name} failed ({status}){last}")
}

fn wait_until(child: &mut Child, deadline: Instant) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            child.kill().ok();
            return Ok(child.wait()?);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The lines of both pipes, as they come.
fn follow(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout.take().map(|p| Box::new(p) as _), child.stderr.take().map(|p| Box::new(p) as _)];
    for pipe in pipes.into_iter().flatten() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}
