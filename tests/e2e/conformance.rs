//! The conformance cases against plugins in every language that this repository has an SDK or an example for.

use anyhow::{Result, ensure};
use pelton_tests::{Pelton, plugin};

fn passes(file: &str, cases: &str) -> Result<()> {
    let finished = Pelton::new(["plugin", "test"])?.arg(plugin(file)?).arg(cases).output()?;
    ensure!(finished.code == Some(0), "{file} against {cases}:\n{}{}", finished.stdout, finished.stderr);
    Ok(())
}

const FLIGHTS: &str = "plugin-sdk/conformance/cases/flights.json";

#[test]
fn the_flights_plugin_in_rust_conforms() -> Result<()> {
    passes("flights-rust.wasm", FLIGHTS)
}

#[test]
fn the_flights_plugin_in_c_conforms() -> Result<()> {
    passes("flights-c.wasm", FLIGHTS)
}

#[test]
fn the_flights_plugin_in_wat_conforms() -> Result<()> {
    passes("flights-wat.wat", FLIGHTS)
}

#[test]
fn every_service_of_the_rust_sdk_conforms() -> Result<()> {
    passes("conformance.wasm", "plugin-sdk/conformance/cases/sdk.json")
}

/// A test that cannot fail is none: the flights cases must not pass on another plugin.
#[test]
fn cases_fail_on_a_plugin_that_answers_otherwise() -> Result<()> {
    let finished = Pelton::new(["plugin", "test"])?.arg(plugin("conformance.wasm")?).arg(FLIGHTS).output()?;
    ensure!(finished.code == Some(1), "exit {:?}\n{}", finished.code, finished.stdout);
    Ok(())
}
