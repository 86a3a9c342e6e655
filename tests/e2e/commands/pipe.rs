//! `pelton pipe`: JSON lines in, JSON lines out.

use super::fails;
use anyhow::{Result, ensure};
use pelton_tests::{Finished, Pelton, plugin};

fn pipe(functions: &[&str], options: &[&str], input: &str) -> Result<Finished> {
    let flights = plugin("flights-rust.wasm")?;
    let targets = functions.iter().map(|function| format!("{}:{function}", flights.display()));
    Pelton::new(["pipe"])?.args(targets).args(options).input(input).output()
}

const DEPARTURES: &str = "\
{\"carrier\":\"UA\",\"dep_delay\":20}

{\"carrier\":\"AA\",\"dep_delay\":-3}
no json
{\"carrier\":\"B6\",\"dep_delay\":99}";

#[test]
fn a_filter_keeps_rows_and_a_damaged_line_is_named() -> Result<()> {
    let finished = pipe(
        &["is_delayed(dep_delay)"],
        &["--input-schema", "carrier string, dep_delay double"],
        DEPARTURES,
    )?;
    ensure!(finished.code == Some(0), "{finished:?}");
    let expected = "{\"carrier\":\"UA\",\"dep_delay\":20.0}\n{\"carrier\":\"B6\",\"dep_delay\":99.0}\n";
    ensure!(finished.stdout == expected, "{}", finished.stdout);
    ensure!(finished.stderr.contains("stdin:4"), "{}", finished.stderr);
    Ok(())
}

#[test]
fn no_input_gives_no_output() -> Result<()> {
    let finished = pipe(&["is_delayed"], &[], "")?;
    ensure!(finished.code == Some(0) && finished.stdout.is_empty(), "{finished:?}");
    Ok(())
}

#[test]
fn a_wrong_function_is_answered_with_the_right_ones() -> Result<()> {
    let flights = plugin("flights-rust.wasm")?.display().to_string();
    fails(&["pipe", &format!("{flights}:is_delaid")], 2, &["is_delayed"])?;
    fails(&["pipe", &flights], 2, &["say which function", "is_delayed"])
}
