//! What a query waits for, in words and as JSON: its plan laid over what its checkpoint has.
//!
//! Called by `explain --live`; reads nothing itself.

use pelton_checkpoint::PartitionMark;
use pelton_connectors::source::replay::split;
use pelton_core::{BatchId, WatermarkInfo};
use pelton_engine::live::{Holder, Live, Standing};
use pelton_engine::progress::iso8601;
use pelton_operators::{OperatorWait, waits};
use pelton_plan::PhysicalPlan;
use serde_json::{Value, json};
use std::fmt::Write;

/// A plan and how far its query is.
pub(super) struct View<'a> {
    pub(super) plan: &'a PhysicalPlan,
    pub(super) live: &'a Live,
}

impl View<'_> {
    /// For a person. (Writing to a string cannot fail.)
    pub(super) fn words(&self) -> String {
        let mut out = format!("query {}\n", self.plan.name);
        let _ = writeln!(out, "├─ {}", self.position());
        for (name, range) in &self.live.sources {
            let (replays, end) = split(range.end.as_ref());
            let end = end.map_or("nothing".to_owned(), |end| end.0.to_string());
            let fed_back = match replays {
                0 => String::new(),
                _ => format!(", and dead letters that were fed back up to replays/{replays}"),
            };
            let _ = writeln!(out, "├─ source {name}: read up to {end}{fed_back}");
        }
        self.watermark_words(&mut out);
        for info in &self.plan.watermarks {
            self.mark_words(&mut out, info);
        }
        for operator in waits(self.plan) {
            let _ = writeln!(out, "├─ {} ({})", operator.name, operator.kind);
            let _ = writeln!(out, "│    waits for {}", operator.waits_for);
            if let Some(at_ms) = self.watermark_of(&operator) {
                let _ = writeln!(out, "│    its watermark is {}", iso8601(at_ms));
            }
        }
        let _ = writeln!(out, "└─ sink {}, output mode {}", self.plan.sink, self.plan.output_mode);
        out
    }

    fn position(&self) -> String {
        match (self.live.last_committed, self.live.planned) {
            (None, None) => "has not run yet".to_owned(),
            (Some(done), None) => format!("micro-batch {done} is committed"),
            (None, Some(planned)) => format!("micro-batch {planned} runs, or will run again"),
            (Some(done), Some(planned)) => {
                format!("micro-batch {done} is committed; {planned} runs, or will run again")
            }
        }
    }

    fn since(&self, standing: &Standing) -> Option<BatchId> {
        standing.since.or(self.live.planned)
    }

    fn watermark_words(&self, out: &mut String) {
        let Some(standing) = &self.live.watermark else {
            let why = if self.plan.watermarks.is_empty() {
                "none: nothing is ever late or over"
            } else {
                "unknown"
            };
            let _ = writeln!(out, "├─ watermark: {why}");
            return;
        };
        let since = self.since(standing).map_or(String::new(), |id| format!(", since micro-batch {id}"));
        let _ = writeln!(out, "├─ watermark: {}{since}", iso8601(standing.at_ms));
        for Holder { watermark, partitions, since } in &self.live.holders {
            let part = match partitions.as_slice() {
                [] => String::new(),
                partitions => format!(", which waits for {}", partitions.join(", ")),
            };
            let _ = writeln!(out, "│    waits for '{watermark}'{part}, since micro-batch {since}");
        }
    }

    fn mark_words(&self, out: &mut String, info: &WatermarkInfo) {
        let at =
            self.live.watermarks.get(&info.name).map_or("no row seen".to_owned(), |at| iso8601(at.at_ms));
        let _ = writeln!(out, "├─ watermark of '{}': {at}", info.name);
        let follows = if info.per_partition.is_some() { "of the slowest partition" } else { "of all rows" };
        let _ = writeln!(out, "│    {} ms behind the latest {} {follows}", info.delay_ms, info.column);
        for (name, partition) in self.live.partitions.get(&info.name).into_iter().flatten() {
            let _ = writeln!(out, "│    {name}: {}", partition_words(partition));
        }
    }

    /// What an operator sees of the query's watermark.
    fn watermark_of(&self, operator: &OperatorWait) -> Option<i64> {
        let at_ms = self.live.watermark?.at_ms;
        operator.watermark_offset_ms.map(|offset_ms| at_ms.saturating_add(offset_ms).max(at_ms.min(0)))
    }

    /// For a program.
    pub(super) fn json(&self) -> Value {
        let at = |standing: &Standing| json!({"watermark": iso8601(standing.at_ms), "since_batch": self.since(standing)});
        let holders = self.live.holders.iter().map(|holder| {
            json!({
                "watermark": holder.watermark, "partitions": holder.partitions, "since_batch": holder.since,
            })
        });
        let sources = self.live.sources.iter().map(|(name, range)| {
            let (replays, end) = split(range.end.as_ref());
            json!({"name": name, "end_offset": end, "replays": replays})
        });
        let operators = waits(self.plan).into_iter().map(|operator| {
            let watermark = self.watermark_of(&operator).map(iso8601);
            json!({
                "operator_name": operator.name, "kind": operator.kind, "waits_for": operator.waits_for,
                "watermark": watermark,
            })
        });
        json!({
            "name": self.plan.name,
            "last_committed": self.live.last_committed,
            "planned": self.live.planned,
            "sources": sources.collect::<Vec<_>>(),
            "watermark_policy": self.live.policy,
            "event_time": self.live.watermark.as_ref().map(at),
            "held_by": holders.collect::<Vec<_>>(),
            "watermarks": self.plan.watermarks.iter().map(|info| self.mark_json(info)).collect::<Vec<_>>(),
            "operators": operators.collect::<Vec<_>>(),
        })
    }

    fn mark_json(&self, info: &WatermarkInfo) -> Value {
        let holds = |name: &String| {
            let mut holders = self.live.holders.iter().filter(|holder| holder.watermark == info.name);
            holders.any(|holder| holder.partitions.contains(name))
        };
        let partitions = self.live.partitions.get(&info.name).into_iter().flatten();
        let partitions = partitions.map(|(name, partition)| {
            json!({
                "name": name, "max": partition.latest_ms.map(iso8601), "caught_up": partition.caught_up,
                "idle": partition.idle, "holds": holds(name),
            })
        });
        let at = self.live.watermarks.get(&info.name);
        json!({
            "name": info.name, "column": info.column, "delay_ms": info.delay_ms,
            "watermark": at.map(|at| iso8601(at.at_ms)), "since_batch": at.and_then(|at| at.since),
            "partitions": partitions.collect::<Vec<_>>(),
        })
    }
}

fn partition_words(partition: &PartitionMark) -> String {
    let latest = partition
        .latest_ms
        .map_or("has delivered nothing".to_owned(), |ms| format!("latest {}", iso8601(ms)));
    let state = match (partition.idle, partition.caught_up) {
        (true, _) => ", idle: left out",
        (false, true) => ", caught up",
        (false, false) => ", has more to read",
    };
    format!("{latest}{state}")
}
