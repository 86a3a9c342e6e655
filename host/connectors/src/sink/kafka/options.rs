//! What the pipeline file says of a Kafka sink.

use crate::decode::options::OptionMap;
use crate::encode::FileFormat;
use crate::kafka::{ClientOptions, Role};
use pelton_core::{Error, Interval, Result};

/// A Kafka sink as the pipeline file has it.
#[derive(Clone)]
pub struct KafkaSinkOptions {
    /// The cluster.
    pub client: ClientOptions,
    /// Where all rows go; otherwise each names its topic.
    pub topic: Option<String>,
    /// The column that becomes the key, if it is not called `key`.
    pub key: Option<String>,
    /// How values are written, with the format's own options. Without it there is a column `value`.
    pub format: Option<(FileFormat, OptionMap)>,
    /// How often a row may be there.
    pub delivery: Delivery,
    /// By it the brokers tell the query's producers from others, and so is the group called that knows the micro-batches.
    /// `pelton-` and the query's id if it is not said.
    pub transactional_id: Option<String>,
    /// How long a micro-batch may take to be written.
    pub transaction_timeout: Interval,
    /// The topic by whose name micro-batches are noted, if it is not `topic`.
    pub commit_topic: Option<String>,
    /// What becomes of a micro-batch of which nobody knows any more whether it was written. Without it the query fails.
    pub undecided: Option<Undecided>,
    /// It is one of dead letters: not every micro-batch comes, so what is noted may lie behind what is committed.
    pub of_letters: bool,
}

/// How often a row may be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// Once, for those who read what is committed.
    #[default]
    ExactlyOnce,
    /// Once or, after a failure, more often.
    AtLeastOnce,
}

/// What becomes of a micro-batch of which nobody knows any more whether it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecided {
    /// It is written: its rows may be there twice.
    Write,
    /// It is taken to be written.
    Skip,
}

impl KafkaSinkOptions {
    /// A sink of one topic that writes JSON, exactly once.
    pub fn new(bootstrap_servers: &str, topic: &str) -> Self {
        Self {
            client: ClientOptions {
                bootstrap_servers: Some(bootstrap_servers.into()),
                ..ClientOptions::default()
            },
            topic: Some(topic.into()),
            key: None,
            format: Some((FileFormat::Json, OptionMap::new())),
            delivery: Delivery::ExactlyOnce,
            transactional_id: None,
            transaction_timeout: Interval::from_millis(5 * 60 * 1000),
            commit_topic: None,
            undecided: None,
            of_letters: false,
        }
    }

    /// What can be said to be wrong without the cluster and the rows.
    pub(super) fn check(&self) -> Result<()> {
        self.client.check(Role::Sink)?;
        if self.transaction_timeout.as_millis() < 1_000 {
            return Err(Error::invalid("transaction_timeout must be at least 1 second"));
        }
        if self.delivery == Delivery::ExactlyOnce && self.noted_in().is_none() {
            return Err(Error::invalid(
                "rows that name their topics are written exactly once only if micro-batches can be noted by the name of a \
                 topic that is always there",
            )
            .hint("name one by `commit_topic` (nothing is written into it), or set delivery: at_least_once"));
        }
        match &self.format {
            Some((FileFormat::Parquet, _)) => {
                Err(Error::invalid("format parquet is one of files, not of messages"))
            }
            Some((_, options)) if options.contains_key("compression") => Err(Error::invalid(
                "option 'compression' is one of files; messages are compressed by the producer",
            )
            .hint("kafka: {compression.type: zstd}")),
            Some((_, options)) if options.get("header").is_some_and(|header| header != false) => {
                Err(Error::invalid("option 'header' is one of files: a message is one row"))
            }
            _ => Ok(()),
        }
    }

    /// The topic by whose name micro-batches are noted.
    pub(super) fn noted_in(&self) -> Option<&str> {
        self.commit_topic.as_deref().or(self.topic.as_deref())
    }
}
