//! What the pipeline file says of calls of plugins that fail, and of instances that have served long enough.

use super::{ByteSize, Duration, Spanned};
use pelton_core::{FailurePolicy, PoisonBudget};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// What follows when a call of a plugin's function fails: it traps, overruns a limit, or says that it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OnPluginFailure(FailurePolicy);

impl OnPluginFailure {
    /// As core has it.
    pub fn policy(self) -> FailurePolicy {
        self.0
    }
}

/// How many guilty rows a micro-batch may have.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterBudget {
    /// At most so many rows on which the function fails (of a stateful function: groups) in a micro-batch.
    #[serde(default = "rows_max")]
    pub rows_max: u64,
    /// At most so many calls in a micro-batch to find them. A row among 8,192 takes 26.
    #[serde(default = "calls_max")]
    pub calls_max: u64,
}

fn rows_max() -> u64 {
    PoisonBudget::default().rows_max
}

fn calls_max() -> u64 {
    PoisonBudget::default().calls_max
}

/// When an instance of a plugin is replaced by a new one, which gives back the memory that it has grown by. No result depends
/// on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecycleLimits {
    /// After so many calls. Unless said: 100,000.
    pub calls: Option<Spanned<u64>>,
    /// When its memory has grown by so much, for example `16MiB`. Unless said: 64 MiB, or half of what was left to the limit
    /// when the function was opened, if that is less.
    pub memory: Option<Spanned<ByteSize>>,
    /// After so long, for example `10 minutes`. Unless said: 1 hour.
    pub age: Option<Duration>,
}

const WORDS: &[&str] = &["fail", "dead_letter", "retry"];

impl<'de> Deserialize<'de> for OnPluginFailure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Policy).map(Self)
    }
}

struct Policy;

impl<'de> Visitor<'de> for Policy {
    type Value = FailurePolicy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fail, dead_letter or 'retry 3'")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<FailurePolicy, E> {
        let (word, number) =
            text.trim().split_once(' ').map_or((text.trim(), None), |(word, n)| (word, Some(n)));
        match (word, number.map(|number| number.trim().parse::<u32>())) {
            ("fail", None) => Ok(FailurePolicy::Fail),
            ("dead_letter", None) => Ok(FailurePolicy::DeadLetter(PoisonBudget::default())),
            ("retry", Some(Ok(times))) => retry(times),
            ("retry", _) => {
                Err(E::custom(format!("'{text}' does not say how often; write for example 'retry 3'")))
            }
            _ => Err(E::unknown_variant(text, WORDS)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FailurePolicy, A::Error> {
        let Some(word) = map.next_key::<String>()? else {
            return Err(de::Error::custom("expected fail, dead_letter or 'retry 3', found an empty map"));
        };
        let policy = match word.as_str() {
            "retry" => retry::<A::Error>(map.next_value()?)?,
            "dead_letter" => {
                let DeadLetterBudget { rows_max, calls_max } = map.next_value()?;
                FailurePolicy::DeadLetter(PoisonBudget { rows_max, calls_max })
            }
            other => return Err(de::Error::unknown_field(other, &["dead_letter", "retry"])),
        };
        match map.next_key::<String>()? {
            None => Ok(policy),
            Some(other) => Err(de::Error::custom(format!("'{word}' and '{other}' exclude each other"))),
        }
    }
}

fn retry<E: de::Error>(times: u32) -> Result<FailurePolicy, E> {
    match times {
        0 => Err(E::custom("0 retries are none; write 'fail'")),
        times => Ok(FailurePolicy::Retry(times)),
    }
}

impl JsonSchema for OnPluginFailure {
    fn schema_name() -> Cow<'static, str> {
        "OnPluginFailure".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let budget = generator.subschema_for::<DeadLetterBudget>();
        json_schema!({
            "description": "What follows when a call of a plugin's function fails: it traps, overruns a limit, or says that it \
                failed. Calls of scalar, transform and stateful functions; what aggregate and sink functions fail on always \
                fails the micro-batch.",
            "oneOf": [
                {"const": "fail", "description": "The micro-batch fails, and the query with it (the default)."},
                {"const": "dead_letter", "description": "The call is cut by halves until the rows are found on which the \
                    function fails; they go to the dead letters as `poison`, all others go on. Of a stateful function: the \
                    groups, whose state stays as it was before the call."},
                {"type": "string", "pattern": "^retry [1-9][0-9]*$", "description": "For example `retry 3`: the same call \
                    again, so many times at most, each on a new instance; then the micro-batch fails."},
                {"type": "object", "properties": {"dead_letter": budget}, "required": ["dead_letter"],
                    "additionalProperties": false, "description": "As `dead_letter`, with another budget."},
                {"type": "object", "properties": {"retry": {"type": "integer", "minimum": 1}}, "required": ["retry"],
                    "additionalProperties": false, "description": "As `retry`."},
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::PipelineFile;
    use pelton_core::{FailurePolicy, PoisonBudget};

    fn read(policy: &str) -> Result<FailurePolicy, String> {
        let text = format!(
            "name: q\nplugins:\n  p:\n    path: p.wasm\n    on_plugin_failure: {policy}\nsources:\n  s: {{connector: rate}}\n\
             sink: {{connector: console}}\n"
        );
        let file = PipelineFile::read(&text, "p.yaml", &[]);
        let first_line =
            |error: pelton_core::Error| error.message().lines().next().unwrap_or_default().to_owned();
        file.map(|file| file.plugins["p"].options().on_plugin_failure.policy()).map_err(first_line)
    }

    #[test]
    fn every_way_to_write_it() {
        let dead_letter =
            |rows_max, calls_max| FailurePolicy::DeadLetter(PoisonBudget { rows_max, calls_max });
        for (written, policy) in [
            ("fail", FailurePolicy::Fail),
            ("retry 3", FailurePolicy::Retry(3)),
            ("{retry: 2}", FailurePolicy::Retry(2)),
            ("dead_letter", dead_letter(100, 3_000)),
            ("{dead_letter: {rows_max: 5}}", dead_letter(5, 3_000)),
            ("{dead_letter: {rows_max: 5, calls_max: 60}}", dead_letter(5, 60)),
        ] {
            assert_eq!(read(written), Ok(policy), "{written}");
        }
    }

    #[test]
    fn what_is_written_wrongly_is_told_with_its_place() {
        for (written, says) in [
            ("dead_leter", "p.yaml:5:24: 'dead_leter' is not possible here; did you mean 'dead_letter'?"),
            ("retry", "p.yaml:5:24: 'retry' does not say how often; write for example 'retry 3'"),
            ("retry 0", "p.yaml:5:24: 0 retries are none; write 'fail'"),
            ("{retry: 1, dead_letter: {}}", "p.yaml:5:24: 'retry' and 'dead_letter' exclude each other"),
            (
                "{dead_letter: {rows: 1}}",
                "p.yaml:5:39: there is no key 'rows' here; did you mean 'rows_max'?",
            ),
            (
                "5",
                "p.yaml:5:24: expected fail, dead_letter or 'retry 3', found the number 5 (put it in quotes if text is meant)",
            ),
        ] {
            assert_eq!(read(written).expect_err(written), says, "{written}");
        }
    }
}
