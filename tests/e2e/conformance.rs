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

const TOTALS: &str = "plugin-sdk/conformance/cases/totals.json";
const GROUPS: &str = "plugin-sdk/conformance/cases/groups.json";

#[test]
fn functions_over_groups_in_rust_conform() -> Result<()> {
    passes("conformance.wasm", TOTALS)?;
    passes("conformance.wasm", GROUPS)
}

#[test]
fn functions_over_groups_in_c_conform() -> Result<()> {
    passes("totals-c.wasm", TOTALS)?;
    passes("visits-c.wasm", GROUPS)
}

#[test]
fn a_function_over_groups_in_wat_conforms() -> Result<()> {
    passes("totals-wat.wat", TOTALS)
}

/// What a function keeps, sets and deletes is compared, and not what it puts out alone.
#[test]
fn cases_of_groups_fail_if_state_or_times_differ() -> Result<()> {
    let cases = std::fs::read_to_string(pelton_tests::repository().join(TOTALS))?;
    let folder = tempfile::tempdir()?;
    for (was, is, differs) in [
        (
            "\"minutes\": 3.75, \"last\": \"2013-01-01T10",
            "\"minutes\": 3.75, \"last\": \"2013-01-01T11",
            "state of group 0",
        ),
        ("\"timeout\": \"2013-01-01T11", "\"timeout\": \"2013-01-01T12", "timeout of group 1"),
        ("\"groups\": [{}, {}]", "\"groups\": [{}]", "number of groups"),
    ] {
        ensure!(cases.contains(was), "{was} is not in the cases");
        let file = folder.path().join("cases.json");
        std::fs::write(&file, cases.replace(was, is))?;
        let finished =
            Pelton::new(["plugin", "test"])?.arg(plugin("conformance.wasm")?).arg(&file).output()?;
        ensure!(finished.code == Some(1) && finished.stdout.contains(differs), "{was}:\n{}", finished.stdout);
    }
    Ok(())
}

#[test]
fn what_a_function_over_groups_keeps_is_shown() -> Result<()> {
    let inspect = |more: &[&str]| {
        let columns = [
            "--key",
            "user: string NOT NULL",
            "--input-schema",
            "page: string NOT NULL, at: timestamp NOT NULL",
        ];
        let command = Pelton::new(["plugin", "inspect", "--function", "visits"])?;
        Ok::<_, anyhow::Error>(
            command
                .args(columns)
                .args(more.iter().copied())
                .arg(plugin("conformance.wasm")?)
                .succeed()?
                .stdout,
        )
    };
    let words = inspect(&[])?;
    for line in [
        "  form    processor: any number of rows a group",
        "  time    named timers by processing time",
        "  reads   page, at",
        "  keeps   count: value v1 (value: long)",
        "  keeps   recent: list v1 (value: string); loads last 2",
        "  keeps   pages: map v2 (key: string) to (visits: long, last: timestamp); loads keyed by page; gone 86400000 ms after \
         its last write",
    ] {
        ensure!(words.lines().any(|found| found == line), "{line}\nis not in\n{words}");
    }
    let json: serde_json::Value = serde_json::from_str(&inspect(&["--format", "json"])?)?;
    ensure!(json["form"] == "processor" && json["variables"][2]["ttl_ms"] == 86_400_000, "{json}");
    Ok(())
}

/// A test that cannot fail is none: the flights cases must not pass on another plugin.
#[test]
fn cases_fail_on_a_plugin_that_answers_otherwise() -> Result<()> {
    let finished = Pelton::new(["plugin", "test"])?.arg(plugin("conformance.wasm")?).arg(FLIGHTS).output()?;
    ensure!(finished.code == Some(1), "exit {:?}\n{}", finished.code, finished.stdout);
    Ok(())
}
