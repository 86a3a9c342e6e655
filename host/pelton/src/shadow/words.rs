//! A report for a person.

use super::{DifferenceCounts, Sample, ShadowOutcome, ShadowReport, VersionReport};
use crate::commands::on_one_line;
use crate::report::counted;
use indicatif::{HumanBytes, HumanCount};
use serde_json::Value;

impl ShadowReport {
    /// How far it is, in a line.
    pub(crate) fn headline(&self, query: &str) -> String {
        let Self { plugin, batches, batches_wanted, .. } = self;
        let outcome = match self.outcome {
            ShadowOutcome::Running => "runs",
            ShadowOutcome::Done => "has run",
            ShadowOutcome::Failed => "failed",
            ShadowOutcome::Ended => "was ended",
        };
        let which = match (self.first_batch, self.last_batch) {
            (Some(first), Some(last)) if first < last => format!(" ({first} to {last})"),
            (Some(first), _) => format!(" ({first})"),
            _ => String::new(),
        };
        let message = self.message.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        format!(
            "{query}: version {} of plugin '{plugin}' {outcome} beside {}, {batches} of {}{which}, \
             {}{message}",
            short(&self.to),
            short(&self.from),
            counted(*batches_wanted, "micro-batch"),
            differing(self.differing_rows()),
        )
    }

    /// All that was found.
    pub(crate) fn words(&self, query: &str) -> Vec<String> {
        let key = match self.key.is_empty() {
            true => "compared as a whole".to_owned(),
            false => format!("by {}", self.key.join(", ")),
        };
        let mut lines = vec![self.headline(query)];
        if self.batches == 0 {
            return lines;
        }
        lines.push(format!("rows, {key}: {}", counts(&self.rows)));
        if self.dead_letters != DifferenceCounts::default() {
            lines.push(format!("dead letters: {}", counts(&self.dead_letters)));
        }
        if self.running.state_rows + self.new.state_rows > 0 {
            let differing = match self.differing_state {
                Some(0) => ", no entry differs".to_owned(),
                Some(1) => ", 1 entry differs".to_owned(),
                Some(entries) => format!(", {} entries differ", HumanCount(entries)),
                None if self.outcome == ShadowOutcome::Done => {
                    "; laid out otherwise, so its entries are not compared".to_owned()
                }
                None => String::new(),
            };
            lines.push(format!("state: {}{differing}", sides(self, state)));
        }
        if self.unlike_batches > 0 {
            lines.push(format!(
                "in {} the version that runs gave another number of rows than in the query",
                counted(self.unlike_batches, "micro-batch")
            ));
        }
        lines.push(format!("lost: {}", sides(self, lost)));
        lines.push(format!("cost: {}{}", sides(self, cost), self.ratio()));
        lines.extend(self.samples.iter().flat_map(sample));
        if let Some(swapped) = &self.promoted {
            lines.push(format!("the new version has taken over with micro-batch {}", swapped.batch_id));
        }
        if let Some(why) = &self.not_promoted {
            lines.push(format!("the new version does not take over: {why}"));
        }
        lines
    }

    /// What a row costs in the new version, if one costs anything in both.
    fn ratio(&self) -> String {
        let a_row = |version: &VersionReport| version.busy_seconds / version.rows as f64;
        match a_row(&self.new) / a_row(&self.running) {
            ratio if ratio.is_finite() => format!("; a row costs {ratio:.2} times as much"),
            _ => String::new(),
        }
    }
}

/// How many rows differ.
pub(crate) fn differing(rows: u64) -> String {
    match rows {
        0 => "no row differs".to_owned(),
        1 => "1 row differs".to_owned(),
        rows => format!("{} rows differ", HumanCount(rows)),
    }
}

fn counts(found: &DifferenceCounts) -> String {
    let sides = format!("{} running, {} new", HumanCount(found.running), HumanCount(found.new));
    match found.differing() {
        0 => format!("{sides}: no difference"),
        _ => format!(
            "{sides}: {} equal, {} changed, {} only running, {} only new",
            HumanCount(found.equal),
            HumanCount(found.changed),
            HumanCount(found.only_running),
            HumanCount(found.only_new)
        ),
    }
}

fn sides(report: &ShadowReport, of: fn(&VersionReport) -> String) -> String {
    format!("running {}; new {}", of(&report.running), of(&report.new))
}

fn state(version: &VersionReport) -> String {
    format!("{}, {}", counted(version.state_rows, "row"), HumanBytes(version.state_bytes))
}

fn lost(version: &VersionReport) -> String {
    let VersionReport { refused_rows, poison_rows, late_rows, .. } = version;
    format!("{refused_rows} refused, {poison_rows} poison, {late_rows} late")
}

fn cost(version: &VersionReport) -> String {
    format!(
        "{}, {}, {:.3} s, {} at most",
        counted(version.calls, "call"),
        counted(version.rows, "row"),
        version.busy_seconds,
        HumanBytes(version.memory_bytes_max)
    )
}

fn sample(sample: &Sample) -> Vec<String> {
    let what = match (sample.is_dead_letter, &sample.running, &sample.new) {
        (true, Some(_), _) => "a dead letter of the version that runs",
        (true, None, _) => "a dead letter of the new version",
        (false, Some(_), Some(_)) => "changed",
        (false, Some(_), None) => "only running",
        (false, None, _) => "only new",
    };
    let row = |sign: char, row: &Option<Value>| {
        row.as_ref().map(|row| format!("  {sign} {}", on_one_line(&row.to_string())))
    };
    let heading = format!("micro-batch {}, {what}:", sample.batch_id);
    [Some(heading), row('-', &sample.running), row('+', &sample.new)].into_iter().flatten().collect()
}

/// Enough of a digest for a person.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
