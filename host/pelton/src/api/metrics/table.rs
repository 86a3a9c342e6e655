//! All metrics, in the order in which they are shown. `docs/operations.md` has the same table for people; a test
//! compares the names.

use super::Samples::{Process, Query};
use super::{Metric, Out, Scrape, ScrapedQuery};
use crate::api::QueryState;
use crate::api::status::{delay_seconds, lag_seconds, watermark_ms};
use pelton_core::function::PluginMetrics;
use pelton_engine::progress::{SourceProgress, StateOperatorProgress};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge, Info};
use std::fmt;

type OfQuery = fn(&ScrapedQuery, &mut Out<'_>) -> fmt::Result;

const fn of_query(kind: MetricType, name: &'static str, help: &'static str, samples: OfQuery) -> Metric {
    Metric { name, help, kind, samples: Query(samples) }
}

const fn counter(name: &'static str, help: &'static str, samples: OfQuery) -> Metric {
    of_query(Counter, name, help, samples)
}

const fn gauge(name: &'static str, help: &'static str, samples: OfQuery) -> Metric {
    of_query(Gauge, name, help, samples)
}

const fn histogram(name: &'static str, help: &'static str, samples: OfQuery) -> Metric {
    of_query(MetricType::Histogram, name, help, samples)
}

const fn process(
    kind: MetricType,
    name: &'static str,
    help: &'static str,
    samples: fn(&Scrape, &mut Out<'_>) -> fmt::Result,
) -> Metric {
    Metric { name, help, kind, samples: Process(samples) }
}

/// See above.
pub(super) const METRICS: &[Metric] = &[
    process(Info, "pelton_build", "The version of Pelton", |_, out| {
        out.info(&[("version", env!("CARGO_PKG_VERSION"))])
    }),
    process(
        Gauge,
        "process_start_time_seconds",
        "When the process started, since the Unix epoch",
        |of, out| out.gauge(&[], of.started_ms as f64 / 1e3),
    ),
    process(Gauge, "process_resident_memory_bytes", "Memory of the process", |_, out| {
        match resident_bytes() {
            Some(bytes) => out.gauge(&[], bytes as f64),
            None => Ok(()),
        }
    }),
    gauge("pelton_query_state", "1 for the state that the query is in, 0 for the others", |of, out| {
        QueryState::ALL.iter().try_for_each(|(state, name)| {
            out.gauge(&[("state", name)], f64::from(u8::from(*state == of.seen.state)))
        })
    }),
    // Micro-batches.
    counter("pelton_batches", "Micro-batches committed", |of, out| out.count(&[], of.seen.totals.batches)),
    counter("pelton_batch_reruns", "Of these, micro-batches that a dead run had begun", |of, out| {
        out.count(&[], of.seen.totals.reruns)
    }),
    gauge("pelton_batch_id", "The last micro-batch that is committed", |of, out| {
        of.seen.last_committed.map_or(Ok(()), |batch| out.gauge(&[], batch.0 as f64))
    }),
    gauge("pelton_last_commit_timestamp_seconds", "When this run last committed a micro-batch", |of, out| {
        of.seen.recent.back().map_or(Ok(()), |last| out.gauge(&[], last.at_ms as f64 / 1e3))
    }),
    histogram("pelton_batch_duration_seconds", "How long micro-batches took", |of, out| {
        out.histogram(&[], &of.seen.totals.duration)
    }),
    histogram(
        "pelton_batch_stage_duration_seconds",
        "Where the time of micro-batches went; decode, segments and sink are summed over threads",
        |of, out| {
            let stages = &of.seen.totals.stages;
            stages.iter().try_for_each(|(stage, spent)| out.histogram(&[("stage", stage)], spent))
        },
    ),
    // Rows.
    gauge("pelton_input_rows_per_second", "Rows decoded a second since the micro-batch before", |of, out| {
        out.gauge(&[], of.rates.input)
    }),
    gauge("pelton_processed_rows_per_second", "Rows decoded a second while a micro-batch ran", |of, out| {
        out.gauge(&[], of.rates.processed)
    }),
    counter("pelton_source_rows", "Rows decoded", |of, out| {
        let sources = &of.seen.totals.sources;
        sources.iter().try_for_each(|(name, source)| out.count(&[("source", name)], source.rows))
    }),
    counter("pelton_source_bytes", "Bytes read", |of, out| {
        let sources = &of.seen.totals.sources;
        sources.iter().try_for_each(|(name, source)| out.count(&[("source", name)], source.bytes))
    }),
    counter(
        "pelton_source_lost_offsets",
        "Offsets that were gone before they could be read, of sources that may lose some",
        |of, out| {
            let sources = of.seen.totals.sources.iter();
            let mut lost = sources.filter_map(|(name, source)| Some((name, source.lost_offsets?)));
            lost.try_for_each(|(name, lost)| out.count(&[("source", name)], lost))
        },
    ),
    counter(
        "pelton_source_malformed_rows",
        "Records that did not decode and were dropped or kept",
        |of, out| {
            let sources = &of.seen.totals.sources;
            sources
                .iter()
                .try_for_each(|(name, source)| out.count(&[("source", name)], source.malformed_rows))
        },
    ),
    gauge("pelton_source_backlog_rows", "Rows that wait, as the last micro-batch left them", |of, out| {
        of.backlog(out, |source| source.metrics.num_records_outstanding)
    }),
    gauge("pelton_source_backlog_bytes", "Bytes that wait, as the last micro-batch left them", |of, out| {
        of.backlog(out, |source| source.metrics.num_bytes_outstanding)
    }),
    gauge("pelton_source_backlog_files", "Files that wait, as the last micro-batch left them", |of, out| {
        of.backlog(out, |source| source.metrics.num_files_outstanding)
    }),
    gauge("pelton_source_lag_seconds", "How long the oldest of it has been there", |of, out| {
        of.sources().try_for_each(|source| {
            let lag = lag_seconds(source, of.now_ms);
            lag.map_or(Ok(()), |lag| out.gauge(&[("source", &source.name)], lag))
        })
    }),
    counter("pelton_sink_rows", "Rows that the sink took", |of, out| {
        out.count(&[], of.seen.totals.output_rows)
    }),
    counter("pelton_sink_bytes", "Bytes that the sink wrote", |of, out| {
        out.count(&[], of.seen.totals.output_bytes)
    }),
    counter("pelton_sink_files", "Files that the sink made visible", |of, out| {
        out.count(&[], of.seen.totals.output_files)
    }),
    counter("pelton_refused_rows", "Rows that a function refused", |of, out| {
        out.count(&[], of.seen.totals.refused_rows)
    }),
    counter("pelton_late_rows", "Rows behind the watermark", |of, out| {
        out.count(&[], of.seen.totals.late_rows)
    }),
    counter("pelton_dead_letters", "Rows written to the dead letters", |of, out| {
        out.count(&[], of.seen.totals.dead_letters)
    }),
    // Event time.
    gauge("pelton_watermark_timestamp_seconds", "The watermark of the last micro-batch", |of, out| {
        of.watermark_ms().map_or(Ok(()), |at_ms| out.gauge(&[], at_ms as f64 / 1e3))
    }),
    gauge("pelton_watermark_delay_seconds", "How far it is behind the time of day", |of, out| {
        of.watermark_ms().map_or(Ok(()), |at_ms| out.gauge(&[], delay_seconds(of.now_ms, at_ms)))
    }),
    // State.
    gauge("pelton_state_rows", "Rows of state", |of, out| {
        of.operators().try_for_each(|operator| {
            out.gauge(&[("operator", &operator.operator_name)], operator.num_rows_total as f64)
        })
    }),
    gauge("pelton_state_bytes", "Keys and values of the state, in memory or on local disk", |of, out| {
        of.operators().try_for_each(|operator| {
            out.gauge(&[("operator", &operator.operator_name)], operator.state_bytes as f64)
        })
    }),
    gauge("pelton_state_memory_bytes", "Memory that they take", |of, out| {
        of.operators().try_for_each(|operator| {
            out.gauge(&[("operator", &operator.operator_name)], operator.memory_used_bytes as f64)
        })
    }),
    counter("pelton_state_updated_rows", "Rows of state written", |of, out| {
        let operators = &of.seen.totals.operators;
        operators.iter().try_for_each(|(name, did)| out.count(&[("operator", name)], did.updated_rows))
    }),
    counter("pelton_state_removed_rows", "Rows of state removed", |of, out| {
        let operators = &of.seen.totals.operators;
        operators.iter().try_for_each(|(name, did)| out.count(&[("operator", name)], did.removed_rows))
    }),
    counter(
        "pelton_state_late_rows",
        "Rows behind the watermark, by the operator that they came to",
        |of, out| {
            let operators = &of.seen.totals.operators;
            operators.iter().try_for_each(|(name, did)| out.count(&[("operator", name)], did.late_rows))
        },
    ),
    // Plugins.
    of_query(Info, "pelton_plugin", "Which plugins are called", |of, out| {
        of.seen.plugins.iter().try_for_each(|(name, plugin)| {
            let (digest, version) = (plugin.digest().as_str(), plugin.manifest().version.as_str());
            out.info(&[("plugin", name), ("digest", digest), ("version", version)])
        })
    }),
    counter("pelton_plugin_calls", "Calls of functions", |of, out| {
        of.plugins(|name, cost| out.count(&[("plugin", name)], cost.calls))
    }),
    counter("pelton_plugin_rows", "Rows that they were called with", |of, out| {
        of.plugins(|name, cost| out.count(&[("plugin", name)], cost.rows))
    }),
    counter("pelton_plugin_busy_seconds", "Time inside calls, summed over threads", |of, out| {
        of.plugins(|name, cost| out.seconds(&[("plugin", name)], cost.busy_nanos as f64 / 1e9))
    }),
    counter("pelton_plugin_instances", "Instances made", |of, out| {
        of.plugins(|name, cost| out.count(&[("plugin", name)], cost.instances))
    }),
    gauge("pelton_plugin_memory_max_bytes", "The largest guest memory seen", |of, out| {
        of.plugins(|name, cost| out.gauge(&[("plugin", name)], cost.memory_bytes_max as f64))
    }),
    counter("pelton_plugin_errors", "Calls that gave no answer", |of, out| {
        of.plugins(|name, cost| out.count(&[("plugin", name)], cost.errors))
    }),
    counter("pelton_plugin_traps", "Of these, calls that trapped or overran a limit", |of, out| {
        of.plugins(|name, cost| out.count(&[("plugin", name)], cost.traps))
    }),
    counter("pelton_plugin_refused_rows", "Rows that functions refused", |of, out| {
        of.plugins(|name, cost| out.count(&[("plugin", name)], cost.refused_rows))
    }),
    counter("pelton_plugin_swaps", "Swaps by outcome: took_over, refused, rolled_back", |of, out| {
        of.swaps.iter().try_for_each(|(name, plugin)| {
            let counts = &plugin.counts;
            let outcomes = [
                ("took_over", counts.swaps),
                ("refused", counts.refused),
                ("rolled_back", counts.rolled_back),
            ];
            let count = |(outcome, n)| out.count(&[("plugin", name.as_str()), ("outcome", outcome)], n);
            outcomes.into_iter().try_for_each(count)
        })
    }),
    counter(
        "pelton_shadow_batches",
        "Micro-batches that a version of a plugin ran beside the query",
        |of, out| {
            of.shadows.iter().try_for_each(|(name, shadow)| out.count(&[("plugin", name)], shadow.batches))
        },
    ),
    counter("pelton_shadow_differing_rows", "Rows and dead letters that differed there", |of, out| {
        of.shadows.iter().try_for_each(|(name, shadow)| out.count(&[("plugin", name)], shadow.differing_rows))
    }),
    counter("pelton_plugin_counter", "The plugins' own counters", |of, out| {
        of.plugins(|name, cost| {
            let counters = &cost.counters;
            counters
                .iter()
                .try_for_each(|(counter, n)| out.count(&[("plugin", name), ("counter", counter)], *n))
        })
    }),
];

impl ScrapedQuery {
    fn watermark_ms(&self) -> Option<i64> {
        self.seen.recent.back().and_then(|last| watermark_ms(&last.progress))
    }

    fn sources(&self) -> impl Iterator<Item = &SourceProgress> {
        self.seen.recent.back().into_iter().flat_map(|last| &last.progress.sources)
    }

    fn backlog(&self, out: &mut Out<'_>, count: fn(&SourceProgress) -> Option<u64>) -> fmt::Result {
        self.sources().try_for_each(|source| match count(source) {
            Some(count) => out.gauge(&[("source", &source.name)], count as f64),
            None => Ok(()),
        })
    }

    fn operators(&self) -> impl Iterator<Item = &StateOperatorProgress> {
        self.seen.recent.back().into_iter().flat_map(|last| &last.progress.state_operators)
    }

    fn plugins(&self, mut each: impl FnMut(&str, PluginMetrics) -> fmt::Result) -> fmt::Result {
        self.seen.plugins.iter().try_for_each(|(name, plugin)| each(name, plugin.metrics()))
    }
}

/// What Linux says.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
