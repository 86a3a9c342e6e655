//! The Kafka source and sink of a pipeline file to the connectors' options.

use super::located;
use super::source::{file_format, format_options};
use arrow::datatypes::SchemaRef;
use pelton_connectors::kafka::{ClientOptions, Role};
use pelton_connectors::sink::kafka::{
    DeadLetterTopic, DeadLetterTopicOptions, Delivery, KafkaSinkOptions, Undecided,
};
use pelton_connectors::source::kafka::{Boundary, KafkaSource, KafkaSourceOptions, Subscription};
use pelton_core::{Error, MemoryFiles, Result};
use pelton_plan::PipelineFile;
use pelton_plan::file::{self as spec, Duration, FormatOptions, NoRecordStrategy, Spanned};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn source_options(
    file: &PipelineFile,
    name: &str,
    source: &spec::KafkaSource,
) -> Result<KafkaSourceOptions> {
    let default = KafkaSourceOptions::new("", "");
    let schema =
        source.schema.as_ref().map(|schema| schema.schema(file.text(), file.time_zone())).transpose()?;
    if let (None, Some(_)) = (&source.format, source.on_malformed) {
        return Err(Error::invalid(
            "on_malformed is about values that are decoded, and without `format` a value is bytes",
        )
        .hint("leave it out, or add a line 'format: json'"));
    }
    let limit = |limit: &Option<Spanned<u64>>| limit.as_ref().map(|limit| limit.value);
    Ok(KafkaSourceOptions {
        client: client(file, Role::Source, &source.bootstrap_servers, &source.kafka, source.broker_timeout)?,
        subscription: subscription(file, source)?,
        starting: starting(file, source)?.unwrap_or(default.starting),
        no_record_is_latest: source.starting_offsets_by_timestamp_strategy == NoRecordStrategy::Latest,
        ending: ending(file, source)?,
        fail_on_data_loss: source.fail_on_data_loss,
        max_offsets_per_trigger: limit(&source.max_offsets_per_trigger),
        min_offsets_per_trigger: limit(&source.min_offsets_per_trigger),
        max_trigger_delay: source.max_trigger_delay.map_or(default.max_trigger_delay, Duration::interval),
        min_partitions: limit(&source.min_partitions),
        include_headers: source.include_headers,
        group_id: match &source.group_id {
            Some(group) => group.value.clone(),
            None => format!("pelton-{}-{name}", file.name.value),
        },
        format: source
            .format
            .as_ref()
            .map(|format| (file_format(format.value), format_options(&source.options))),
        schema,
        metadata_columns: source.metadata_columns.iter().map(|column| column.value.clone()).collect(),
        on_malformed: source.on_malformed.unwrap_or_default(),
        time_zone: file.time_zone().to_owned(),
    })
}

/// The columns of a Kafka source, without asking the cluster.
pub(crate) fn schema(file: &PipelineFile, name: &str, source: &spec::KafkaSource) -> Result<SchemaRef> {
    let options = source_options(file, name, source)?;
    Ok(KafkaSource::new(name, &options, Arc::new(MemoryFiles::new()))?.full_schema())
}

pub(super) fn sink_options(file: &PipelineFile, sink: &spec::KafkaSink) -> Result<KafkaSinkOptions> {
    let default = KafkaSinkOptions::new("", "");
    let text = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.value.clone());
    Ok(KafkaSinkOptions {
        client: client(file, Role::Sink, &sink.bootstrap_servers, &sink.kafka, sink.broker_timeout)?,
        topic: text(&sink.topic),
        key: text(&sink.key),
        format: sink.format.as_ref().map(|format| (file_format(format.value), format_options(&sink.options))),
        delivery: match sink.delivery {
            spec::Delivery::ExactlyOnce => Delivery::ExactlyOnce,
            spec::Delivery::AtLeastOnce => Delivery::AtLeastOnce,
        },
        transactional_id: text(&sink.transactional_id),
        transaction_timeout: sink.transaction_timeout.map_or(default.transaction_timeout, Duration::interval),
        commit_topic: text(&sink.commit_topic),
        undecided: sink.undecided.map(|undecided| match undecided {
            spec::Undecided::Write => Undecided::Write,
            spec::Undecided::Skip => Undecided::Skip,
        }),
        of_letters: false,
    })
}

/// The topic of the query's dead letters, if they go to one.
pub(super) fn dead_letters(file: &PipelineFile) -> Result<Option<DeadLetterTopic>> {
    let Some(spec) = file.dead_letters.as_ref().and_then(spec::DeadLettersSpec::topic) else {
        return Ok(None);
    };
    check_not_read(file, spec)?;
    check_not_shared(file, spec)?;
    let default = KafkaSinkOptions::new("", "");
    let options = DeadLetterTopicOptions {
        client: client(file, Role::Sink, &spec.bootstrap_servers, &spec.kafka, spec.broker_timeout)?,
        topic: spec.topic.value.clone(),
        transactional_id: spec.transactional_id.as_ref().map(|id| id.value.clone()),
        transaction_timeout: spec.transaction_timeout.map_or(default.transaction_timeout, Duration::interval),
    };
    DeadLetterTopic::new(options).map(Some).map_err(|error| located(file, spec.topic.span, error))
}

/// Two producers with one name would end each other's transactions.
fn check_not_shared(file: &PipelineFile, letters: &spec::DeadLetterTopic) -> Result<()> {
    let spec::SinkSpec::Kafka(sink) = &file.sink else { return Ok(()) };
    match (&letters.transactional_id, &sink.transactional_id) {
        (Some(of_letters), Some(of_sink)) if of_letters.value == of_sink.value => {
            let what = format!("the sink has the transactional_id '{}', too", of_sink.value);
            let error = Error::invalid(what).hint("give the dead letters another one, or leave it out");
            Err(located(file, of_letters.span, error))
        }
        _ => Ok(()),
    }
}

/// What is read from the topic that it goes to when it is lost would come for ever.
fn check_not_read(file: &PipelineFile, letters: &spec::DeadLetterTopic) -> Result<()> {
    // Whatever the servers: a cluster has many addresses.
    let reads = |source: &spec::SourceSpec| match source {
        spec::SourceSpec::Kafka(source) => match subscription(file, source)? {
            Subscription::Topics(topics) => Ok(topics.contains(&letters.topic.value)),
            Subscription::Pattern(pattern) => Ok(pattern.is_match(&letters.topic.value)),
            Subscription::Assign(assigned) => Ok(assigned.contains_key(&letters.topic.value)),
        },
        _ => Ok::<_, Error>(false),
    };
    for (name, source) in &file.sources.value {
        if reads(source)? {
            let what = format!(
                "the source '{name}' reads the topic of the dead letters: a lost record would come back for ever"
            );
            return Err(located(
                file,
                letters.topic.span,
                Error::invalid(what).hint("send them to another topic"),
            ));
        }
    }
    Ok(())
}

fn client(
    file: &PipelineFile,
    role: Role,
    bootstrap_servers: &Option<Spanned<String>>,
    given: &FormatOptions,
    broker_timeout: Option<Duration>,
) -> Result<ClientOptions> {
    let mut settings = BTreeMap::new();
    for (name, value) in &given.0 {
        let here = |error: Error| located(file, value.span, error);
        let text =
            from_environment(&value.value.to_string(), &|name| std::env::var(name).ok()).map_err(here)?;
        role.check_setting(name, &text).map_err(here)?;
        settings.insert(name.clone(), text);
    }
    let bootstrap_servers = bootstrap_servers.as_ref().map(|servers| {
        from_environment(&servers.value, &|name| std::env::var(name).ok())
            .map_err(|error| located(file, servers.span, error))
    });
    Ok(ClientOptions {
        bootstrap_servers: bootstrap_servers.transpose()?,
        settings,
        broker_timeout: broker_timeout.map(Duration::interval),
    })
}

/// The text with the values of variables in the place of `${NAME}`.
fn from_environment(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or_else(|| {
            Error::invalid("'${' begins the name of an environment variable, and '}' ends it")
        })?;
        let value = variable(name).ok_or_else(|| {
            Error::invalid(format!("there is no environment variable '{name}'"))
                .hint(format!("export {name}=…"))
        })?;
        out.push_str(before);
        out.push_str(&value);
        rest = behind;
    }
    Ok(out + rest)
}

fn subscription(file: &PipelineFile, source: &spec::KafkaSource) -> Result<Subscription> {
    match (&source.subscribe, &source.subscribe_pattern, &source.assign) {
        (Some(topics), None, None) => {
            let names = topics.names();
            match names.is_empty() || names.iter().any(String::is_empty) {
                true => Err(Error::invalid("subscribe: a topic has no name")),
                false => Ok(Subscription::Topics(names.into_iter().collect())),
            }
        }
        (None, Some(pattern), None) => {
            Subscription::pattern(&pattern.value).map_err(|error| located(file, pattern.span, error))
        }
        (None, None, Some(assigned)) => {
            if assigned.value.values().flatten().any(|partition| *partition < 0) || assigned.value.is_empty()
            {
                let wrong = Error::invalid("assign names partitions by numbers from 0: {orders: [0, 1]}");
                return Err(located(file, assigned.span, wrong));
            }
            let numbers = |(topic, of): (&String, &Vec<i32>)| (topic.clone(), of.iter().copied().collect());
            Ok(Subscription::Assign(assigned.value.iter().map(numbers).collect()))
        }
        (None, None, None) => {
            Err(Error::invalid("a Kafka source needs one of: subscribe, subscribe_pattern, assign")
                .hint("subscribe: orders"))
        }
        _ => Err(Error::invalid("subscribe, subscribe_pattern and assign exclude each other")),
    }
}

fn starting(file: &PipelineFile, source: &spec::KafkaSource) -> Result<Option<Boundary>> {
    let (offsets, time) = (&source.starting_offsets, &source.starting_timestamp);
    boundary(file, "starting", offsets, time, &source.starting_offsets_by_timestamp)
}

fn ending(file: &PipelineFile, source: &spec::KafkaSource) -> Result<Option<Boundary>> {
    let (offsets, time) = (&source.ending_offsets, &source.ending_timestamp);
    boundary(file, "ending", offsets, time, &source.ending_offsets_by_timestamp)
}

fn boundary(
    file: &PipelineFile,
    which: &str,
    offsets: &Option<Spanned<spec::OffsetsSpec>>,
    timestamp: &Option<Spanned<spec::OptionValue>>,
    timestamps: &Option<Spanned<spec::OffsetsSpec>>,
) -> Result<Option<Boundary>> {
    let keys = ["offsets", "timestamp", "offsets_by_timestamp"].map(|key| format!("{which}_{key}"));
    let (read, span) = match (offsets, timestamp, timestamps) {
        (None, None, None) => return Ok(None),
        (Some(offsets), None, None) => (Boundary::parse(&keys[0], &offsets.value.to_json()), offsets.span),
        (None, Some(time), None) => {
            let value = time.value.to_string().into();
            (Boundary::timestamp(&keys[1], &value, file.time_zone()), time.span)
        }
        (None, None, Some(times)) => {
            let json = match &times.value {
                spec::OffsetsSpec::Word(text) => serde_json::from_str(text).unwrap_or_default(),
                offsets => offsets.to_json(),
            };
            (Boundary::offsets(&keys[2], &json).map(Boundary::Timestamps), times.span)
        }
        _ => return Err(Error::invalid(format!("{} exclude each other", keys.join(", ")))),
    };
    read.map(Some).map_err(|error| located(file, span, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_come_from_the_environment() {
        let variable = |name: &str| (name == "SECRET").then(|| "s3cr3t".to_owned());
        let read = |text: &str| from_environment(text, &variable).map_err(|e| e.message().to_owned());
        assert_eq!(read("plain"), Ok("plain".into()));
        assert_eq!(read("a${SECRET}b${SECRET}"), Ok("as3cr3tbs3cr3t".into()));
        assert_eq!(read("${OTHER}"), Err("there is no environment variable 'OTHER'".into()));
        assert!(read("${SECRET").is_err());
    }
}
