//! `kill -9` at random moments, restart until done: the committed output is that of an undisturbed run.

use crate::kills::{Kills, same_files, timed};
use anyhow::{Result, ensure};
use pelton_tests::{Pelton, committed_files, plugin};
use std::path::Path;
use std::time::{Duration, Instant};

/// A pipeline that is killed, with its output and its checkpoint in a folder.
type Case = fn(&Path) -> Result<Pelton>;

fn demo(folder: &Path) -> Result<Pelton> {
    Ok(Pelton::new(["run", "examples/01-flights/pipeline.yaml", "--trigger", "available_now"])?
        .arg("--plugin")
        .arg(format!("flights={}", plugin("flights-rust.wasm")?.display()))
        .set("sink.path", &folder.join("output"))
        .set("checkpoint", &folder.join("checkpoint")))
}

/// The same into files that rows of several micro-batches share. The interval is out of reach: time is not the same in every run.
fn rollover(folder: &Path) -> Result<Pelton> {
    Ok(demo(folder)?
        .args(["--set", "sink.rollover.size=64KiB"])
        .args(["--set", "sink.rollover.interval=1 day"]))
}

/// 104,000 real flights through user code that keeps state and waits for timeouts.
pub(crate) fn aircraft() -> Result<Pelton> {
    Ok(Pelton::new(["run", "tests/e2e/pipelines/aircraft.yaml", "--trigger", "available_now"])?
        .arg("--plugin")
        .arg(format!("sessionize={}", plugin("sessionize.wasm")?.display())))
}

fn aircraft_in(folder: &Path) -> Result<Pelton> {
    Ok(aircraft()?.set("sink.path", &folder.join("output")).set("checkpoint", &folder.join("checkpoint")))
}

/// The same with so little memory for the state that a part of it is on local disk all the time.
fn aircraft_on_disk(folder: &Path) -> Result<Pelton> {
    Ok(aircraft_in(folder)?
        .args(["--set", "state.memory=1MiB"])
        .set("state.directory", &folder.join("working-copy")))
}

#[test]
fn fifty_kills_change_no_byte_of_the_output() -> Result<()> {
    kills_change_nothing(demo, 50, 23)
}

#[test]
fn thirty_kills_change_no_byte_of_files_that_roll_over() -> Result<()> {
    kills_change_nothing(rollover, 30, 3)
}

#[test]
fn a_hundred_kills_change_no_byte_of_what_state_and_timeouts_give() -> Result<()> {
    kills_change_nothing(aircraft_in, 100, 30)
}

#[test]
fn eight_kills_change_no_byte_of_what_state_on_disk_gives() -> Result<()> {
    kills_change_nothing(aircraft_on_disk, 8, 30)?;
    // Where a part of the state goes to disk, a process that is killed leaves it there, and the next removes it.
    let folder = tempfile::tempdir()?;
    let copies = || Ok::<_, std::io::Error>(std::fs::read_dir(folder.path().join("working-copy"))?.count());
    let mut child = aircraft_on_disk(folder.path())?.start()?;
    let given_up = Instant::now() + Duration::from_secs(60);
    while !copies().is_ok_and(|copies| copies > 0) && Instant::now() < given_up {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    child.wait()?;
    ensure!(copies()? == 1, "the state of the process that was killed is not on disk");
    aircraft_on_disk(folder.path())?.succeed()?;
    ensure!(copies()? == 0, "a working copy of the state is left");
    Ok(())
}

/// Kills in all, over as many runs from nothing as it takes.
#[allow(clippy::print_stdout, reason = "who soaks wants to know")]
fn kills_change_nothing(case: Case, kills_max: usize, files_min: usize) -> Result<()> {
    // The first run may have to compile the plugin.
    case(tempfile::tempdir()?.path())?.succeed()?;
    let undisturbed = tempfile::tempdir()?;
    let whole_run = timed(case(undisturbed.path())?)?;
    let expected = committed_files(&undisturbed.path().join("output"))?;
    ensure!(expected.len() >= files_min, "there are enough files: {}", expected.len());
    let mut kills = Kills::new(kills_max, whole_run)?;
    while kills.are_left() {
        let folder = tempfile::tempdir()?;
        kills.until_done(|| case(folder.path()))?;
        same_files(&expected, &committed_files(&folder.path().join("output"))?, &kills)?;
    }
    println!("{kills}");
    Ok(())
}
