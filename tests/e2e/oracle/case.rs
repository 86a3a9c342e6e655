//! Cases as files.

use anyhow::{Context, Result};
use pelton_tests::repository;
use serde_json::Value;
use std::path::PathBuf;

/// One case.
pub(super) struct Case {
    /// `02_window_agg/tumbling_late_rows`.
    pub(super) id: String,
    pub(super) value: Value,
}

impl Case {
    /// The micro-batches' steps, in order.
    pub(super) fn steps(&self) -> impl Iterator<Item = &Value> {
        self.value["batches"].as_array().into_iter().flatten()
    }

    /// A text of the case.
    pub(super) fn text(&self, key: &str) -> &str {
        self.value[key].as_str().unwrap_or_default()
    }

    /// The query, as text to look for words in.
    pub(super) fn query_text(&self) -> String {
        self.value["query"].to_string()
    }

    /// Whether a plan of the query has an operator.
    pub(super) fn has(&self, op: &str) -> bool {
        self.query_text().contains(&format!("\"op\":\"{op}\""))
    }

    /// Whether the query ends in an error without a restart before: then nothing need have run.
    pub(super) fn is_refused_from_the_start(&self) -> bool {
        self.value["error"].is_object() && self.steps().all(|step| step["restart"].is_null())
    }
}

/// A file of the oracle.
pub(super) fn read(name: &str) -> Result<Value> {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}

fn folder() -> PathBuf {
    repository().join("tests/oracle")
}

/// The cases of a group, by name.
pub(super) fn group(name: &str) -> Result<Vec<Case>> {
    let mut files: Vec<String> = std::fs::read_dir(folder().join(name))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    files.sort();
    let cases = files.iter().map(|file| {
        let id = format!("{name}/{}", file.trim_end_matches(".json"));
        Ok(Case { value: read(&format!("{name}/{file}"))?, id })
    });
    cases.collect()
}
