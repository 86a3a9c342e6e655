//! `/metrics`: what the registry knows, in the OpenMetrics text format that Prometheus reads.
//!
//! Nothing is kept for it but the sums in `totals`: a scrape walks the table of metrics (`metrics::table`) and asks for
//! the value of each.

mod table;

use super::registry::{Registry, Seen};
use super::status::Rates;
use crate::runner::ShadowCounts;
use pelton_core::{Clock, Error, Result};
use pelton_engine::{PluginProgress, SystemClock};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::BTreeMap;
use std::fmt;

/// Of what [`text`] gives.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A scrape.
pub(super) fn text(registry: &Registry) -> Result<String> {
    let mut collectors = prometheus_client::registry::Registry::default();
    collectors.register_collector(Box::new(Scrape::of(registry)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &collectors)
        .map_err(|why| Error::internal(format!("the metrics cannot be written: {why}")))?;
    Ok(text)
}

/// What is scraped: all queries as they are at one moment.
struct Scrape {
    now_ms: i64,
    started_ms: i64,
    queries: Vec<ScrapedQuery>,
}

struct ScrapedQuery {
    name: String,
    now_ms: i64,
    seen: Seen,
    rates: Rates,
    swaps: BTreeMap<String, PluginProgress>,
    shadows: BTreeMap<String, ShadowCounts>,
}

/// A metric: as Prometheus shows it, and where its samples come from.
struct Metric {
    /// Without the suffix that its type adds.
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    samples: Samples,
}

enum Samples {
    Process(fn(&Scrape, &mut Out<'_>) -> fmt::Result),
    Query(fn(&ScrapedQuery, &mut Out<'_>) -> fmt::Result),
}

/// Where the samples of a metric go.
struct Out<'a> {
    encoder: MetricEncoder<'a>,
    query: Option<&'a str>,
}

impl Scrape {
    fn of(registry: &Registry) -> Self {
        let now_ms = SystemClock.now_ms();
        let queries = registry.queries().iter().map(|query| {
            let seen = query.seen();
            let runner = query.runner();
            let swaps = runner.as_ref().map(|runner| runner.plugins()).unwrap_or_default();
            let shadows = runner.map(|runner| runner.shadow_counts()).unwrap_or_default();
            let rates = Rates::of(&seen, now_ms);
            ScrapedQuery { name: query.name.clone(), now_ms, rates, seen, swaps, shadows }
        });
        Self { now_ms, started_ms: registry.started_ms, queries: queries.collect() }
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").field("now_ms", &self.now_ms).finish_non_exhaustive()
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Metric { name, help, kind, samples } in table::METRICS {
            let encoder = encoder.encode_descriptor(name, help, None, *kind)?;
            let mut out = Out { encoder, query: None };
            match samples {
                Samples::Process(samples) => samples(self, &mut out)?,
                Samples::Query(samples) => {
                    for query in &self.queries {
                        out.query = Some(&query.name);
                        samples(query, &mut out)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Out<'_> {
    fn count(&mut self, labels: &[(&'static str, &str)], value: u64) -> fmt::Result {
        let labels = self.labels(labels);
        self.encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    fn seconds(&mut self, labels: &[(&'static str, &str)], value: f64) -> fmt::Result {
        let labels = self.labels(labels);
        self.encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    fn gauge(&mut self, labels: &[(&'static str, &str)], value: f64) -> fmt::Result {
        let labels = self.labels(labels);
        self.encoder.encode_family(&labels)?.encode_gauge(&value)
    }

    fn histogram(&mut self, labels: &[(&'static str, &str)], value: &Histogram) -> fmt::Result {
        let labels = self.labels(labels);
        value.encode(self.encoder.encode_family(&labels)?)
    }

    fn info(&mut self, labels: &[(&'static str, &str)]) -> fmt::Result {
        let labels = self.labels(labels);
        self.encoder.encode_info(&labels)
    }

    /// The query first. The encoder leaves it to us to escape values.
    fn labels(&self, labels: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let all = self.query.map(|query| ("query", query)).into_iter().chain(labels.iter().copied());
        all.map(|(name, value)| (name, escaped(value))).collect()
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_prometheus_own_and_each_is_there_once() {
        let names: BTreeSet<&str> = table::METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), table::METRICS.len());
        for Metric { name, help, .. } in table::METRICS {
            assert!(name.starts_with("pelton_") || name.starts_with("process_"), "{name}");
            assert!(!name.ends_with("_total") && !name.ends_with("_info"), "{name}: the encoder adds it");
            assert!(!help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
        }
    }

    #[test]
    fn what_a_guest_calls_its_counters_stays_within_its_quotes() {
        assert_eq!(escaped("a\"} 1\nb \\"), "a\\\"} 1\\nb \\\\");
    }
}
