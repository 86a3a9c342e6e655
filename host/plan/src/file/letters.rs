//! Where the pipeline file sends dead letters.

use super::values::{Duration, FormatOptions, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

/// Where dead letters go: a directory, or a topic beside the checkpoint.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(untagged)]
pub enum DeadLettersSpec {
    /// A directory: a path or an `object_store` URL.
    Directory(Spanned<String>),
    /// A connector, beside the files in the checkpoint.
    Connector(DeadLetterConnector),
}

impl DeadLettersSpec {
    /// The directory, if they do not go into the checkpoint.
    pub fn directory(&self) -> Option<&Spanned<String>> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Connector(_) => None,
        }
    }

    /// The topic that they go to, too.
    pub fn topic(&self) -> Option<&DeadLetterTopic> {
        match self {
            Self::Directory(_) => None,
            Self::Connector(DeadLetterConnector::Kafka(topic)) => Some(topic),
        }
    }
}

/// What takes dead letters: the key `connector` says which, the others are its options.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(tag = "connector")]
pub enum DeadLetterConnector {
    /// Writes them into a Kafka topic, exactly once, beside the files in the checkpoint.
    Kafka(Box<DeadLetterTopic>),
}

/// Writes dead letters into a Kafka topic, exactly once, beside the files in the checkpoint: the lost record is the value, its key
/// the key, and headers say why and where it was lost.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterTopic {
    /// The cluster: `host:port`, several with commas between them. It may also be `bootstrap.servers` under `kafka`.
    #[serde(default)]
    pub bootstrap_servers: Option<Spanned<String>>,
    /// The topic.
    pub topic: Spanned<String>,
    /// The name of the transactions, and of the group that knows the micro-batches whose letters are written. Unless said:
    /// `pelton-<id of the query>-dead-letters`.
    #[serde(default)]
    pub transactional_id: Option<Spanned<String>>,
    /// How long the letters of a micro-batch may take to be written; not longer than the brokers' `transaction.max.timeout.ms`.
    /// Unless said: 5 minutes.
    #[serde(default)]
    pub transaction_timeout: Option<Duration>,
    /// How long a cluster that does not answer is waited for. Unless said: without end.
    #[serde(default)]
    pub broker_timeout: Option<Duration>,
    /// Settings of librdkafka, by its names, as at a Kafka sink.
    #[serde(default)]
    pub kafka: FormatOptions,
}

#[cfg(test)]
mod tests {
    use crate::PipelineFile;

    fn read(dead_letters: &str) -> Result<PipelineFile, String> {
        let text = format!(
            "name: q\nsources: {{s: {{connector: rate}}}}\nsink: {{connector: console}}\ndead_letters: {dead_letters}\n"
        );
        PipelineFile::read(&text, "p.yaml", &[]).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn letters_go_to_a_directory_or_a_topic() {
        let letters = read("./dead").unwrap().dead_letters.unwrap();
        assert_eq!(
            (letters.directory().unwrap().value.as_str(), letters.topic().is_none()),
            ("./dead", true)
        );
        let letters =
            read("{connector: kafka, bootstrap_servers: b, topic: lost}").unwrap().dead_letters.unwrap();
        assert_eq!((letters.topic().unwrap().topic.value.as_str(), letters.directory()), ("lost", None));
    }

    #[test]
    fn what_is_no_place_for_letters_is_told_with_its_place() {
        for (text, told) in [
            ("{connector: kafka}", "p.yaml:4:15: the key 'topic' is missing here"),
            (
                "{connector: kafkka, topic: t}",
                "p.yaml:4:27: 'kafkka' is not possible here; did you mean 'kafka'?",
            ),
            ("{topic: t}", "p.yaml:4:15: the key 'connector' is missing here; there are: kafka"),
            (
                "{connector: kafka, topc: t}",
                "p.yaml:4:34: there is no key 'topc' here; did you mean 'topic'?",
            ),
            ("[a]", "p.yaml:4:15: expected text or a map of keys, found a list"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.lines().next(), Some(told));
        }
    }
}
