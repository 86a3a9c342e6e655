//! The law of the house: which crate may stand on which, and where some crates of others may be named.
//! Cargo guards the direction; this test says which rule a new edge breaks.

use anyhow::{Context, Result, ensure};
use pelton_tests::repository;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// A crate of this workspace, what it may depend on here, and the rule in words.
const RULES: &[(&str, &[&str], &str)] = &[
    ("pelton-core", &[], "core is the ground floor: it stands on no crate of ours"),
    ("pelton-plan", &["pelton-core"], "plan stands on core alone"),
    ("pelton-checkpoint", &["pelton-core"], "checkpoint stands on core alone"),
    ("pelton-state", &["pelton-core"], "state stands on core alone"),
    ("pelton-wasm", &["pelton-core"], "wasm stands on core alone"),
    ("pelton-connectors", &["pelton-core"], "connectors stand on core alone"),
    (
        "pelton-operators",
        &["pelton-core", "pelton-plan", "pelton-state"],
        "operators stand on core, plan's expressions and state's encoding of rows",
    ),
    (
        "pelton-engine",
        &["pelton-core", "pelton-plan", "pelton-operators", "pelton-checkpoint"],
        "the engine stands on core, plan, operators and checkpoint; it gets sources, sinks and plugins through ports",
    ),
    ("pelton-sdk", &["pelton-sdk-macros"], "a plugin carries nothing of the host"),
    ("pelton-sdk-macros", &[], "a plugin carries nothing of the host"),
    ("pelton-toolchain", &[], "finding compilers needs nothing of the host"),
    ("pelton-services", &[], "starting real services needs nothing of the host"),
    ("xtask", &["pelton-toolchain", "pelton-services"], "xtask must build fast on a fresh clone"),
    ("flights-rust", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("redact", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("sessionize", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("running-total", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("top-k", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("dedup-key", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("webhook", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("pelton-bench-guest", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("pelton-groups-guest", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("pelton-failing-guest", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("pelton-totals-1-guest", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("pelton-totals-2-guest", &["pelton-sdk"], "a plugin knows the SDK alone"),
    ("pelton-totals-3-guest", &["pelton-sdk"], "a plugin knows the SDK alone"),
];

/// Those that may know everyone: the binary hands the engine its parts, the tests test all of it.
const EXEMPT: [&str; 3] = ["pelton", "pelton-tests", "conformance-guest"];

/// A crate of others, and the only crates of ours that may name it.
const OUTSIDERS: &[(&str, &[&str])] = &[
    ("wasmtime", &["pelton-wasm"]),
    ("wit-component", &["pelton-wasm"]),
    ("rdkafka", &["pelton-connectors", "pelton-tests"]),
    ("rocksdb", &["pelton-state"]),
    ("tokio-postgres", &["pelton-connectors"]),
    ("datafusion", &["pelton-plan", "pelton-operators"]),
    ("anyhow", &["pelton", "pelton-tests", "pelton-services", "xtask"]),
];

/// What a package names in its manifest, tests' needs left out.
fn dependencies() -> Result<BTreeMap<String, Vec<String>>> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version=1", "--offline"])
        .current_dir(repository())
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let needs = |package: &Value| -> Vec<String> {
        let all = package["dependencies"].as_array().into_iter().flatten();
        all.filter(|d| d["kind"].as_str() != Some("dev")).map(|d| text(&d["name"])).collect()
    };
    Ok(packages.iter().map(|package| (text(&package["name"]), needs(package))).collect())
}

#[test]
fn every_crate_stands_only_on_what_the_law_allows() -> Result<()> {
    let crates = dependencies()?;
    for (name, needs) in &crates {
        if EXEMPT.contains(&name.as_str()) {
            continue;
        }
        let rule = RULES.iter().find(|(of, ..)| of == name);
        let (_, allowed, why) =
            rule.with_context(|| format!("{name} is new: write its rule in {}", file!()))?;
        for need in needs.iter().filter(|need| crates.contains_key(*need)) {
            ensure!(allowed.contains(&need.as_str()), "{name} depends on {need}, but {why}");
        }
    }
    Ok(())
}

#[test]
fn engines_of_others_stay_behind_one_door() -> Result<()> {
    for (name, needs) in dependencies()? {
        for (outsider, doors) in OUTSIDERS {
            ensure!(
                !needs.iter().any(|need| need == outsider) || doors.contains(&name.as_str()),
                "{name} depends on {outsider}, which only {} may name",
                doors.join(", ")
            );
        }
    }
    Ok(())
}

#[test]
fn the_rules_name_crates_that_exist() -> Result<()> {
    let crates = dependencies()?;
    let named = RULES.iter().map(|(name, ..)| *name).chain(EXEMPT);
    let gone: Vec<&str> = named.filter(|name| !crates.contains_key(*name)).collect();
    ensure!(gone.is_empty(), "the law names crates that are gone: {gone:?}");
    Ok(())
}
