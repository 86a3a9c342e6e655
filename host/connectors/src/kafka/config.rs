//! The settings of a client: those of the pipeline file, checked by name, and those that the guarantees need.

use super::names::SETTINGS;
use super::{CALL, Context, limit};
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Interval, Result};
use rdkafka::ClientConfig;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a cluster is reached. What is in here may hold secrets: it is shown nowhere.
#[derive(Clone, Default)]
pub struct ClientOptions {
    /// `host:port`, several with commas between them.
    pub bootstrap_servers: Option<String>,
    /// librdkafka's own settings, by its names.
    pub settings: BTreeMap<String, String>,
    /// How long an unreachable cluster is waited for; without end if it is not said.
    pub broker_timeout: Option<Interval>,
}

/// What a client is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It reads the source's topics.
    Source,
    /// It writes the sink's.
    Sink,
}

impl Role {
    /// Checks one of librdkafka's settings by name and value, as far as can be said without the cluster. The error is of
    /// kind `Invalid` and does not show what may be a secret.
    pub fn check_setting(self, name: &str, value: &str) -> Result<()> {
        if let Some(hint) = refused(name, self) {
            return Err(Error::invalid(format!("the Kafka setting '{name}' cannot be set here")).hint(hint));
        }
        if let Some(hint) = java(name) {
            return Err(Error::invalid(format!("there is no Kafka setting '{name}'")).hint(hint));
        }
        let mut config = ClientConfig::new();
        config.set(name, value);
        config.create_native_config().map(drop).map_err(|failed| wrong_setting(name, failed))
    }
}

impl ClientOptions {
    /// The bootstrap servers, wherever they are said.
    pub(crate) fn place(&self) -> Result<String> {
        match (&self.bootstrap_servers, self.settings.get("bootstrap.servers")) {
            (Some(servers), None) | (None, Some(servers)) if !servers.trim().is_empty() => {
                Ok(servers.clone())
            }
            (Some(_), Some(_)) => Err(Error::invalid(
                "bootstrap_servers and the setting bootstrap.servers say the same: leave one of them out",
            )),
            _ => Err(Error::invalid("the Kafka cluster is not named")
                .hint("add a line 'bootstrap_servers: localhost:9092'")),
        }
    }

    /// How long one call to the cluster takes at most, before it is made again.
    pub(crate) fn call(&self) -> Duration {
        limit(self.broker_timeout).map_or(CALL, |limit| limit.clamp(Duration::from_secs(1), CALL))
    }

    /// Checks every setting by name and value, as far as can be said without the cluster.
    pub(crate) fn check(&self, role: Role) -> Result<()> {
        self.place()?;
        self.settings.iter().try_for_each(|(name, value)| role.check_setting(name, value))
    }

    /// The settings that the pipeline file may change come first in `defaults`; `fixed` are those that it may not.
    pub(crate) fn config(&self, defaults: &[(&str, &str)], fixed: &[(&str, &str)]) -> Result<ClientConfig> {
        let mut config = ClientConfig::new();
        // That a connection was closed is told on this level. It all goes to the context, which shows it to who asks.
        let is_debugged = self.settings.contains_key("debug");
        config.set_log_level(if is_debugged { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Info });
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        config.set("client.id", "pelton").set("bootstrap.servers", self.place()?);
        for (name, value) in &self.settings {
            config.set(name, value);
        }
        for (name, value) in fixed {
            config.set(*name, *value);
        }
        Ok(config)
    }
}

/// Makes a client of the settings. Nothing is connected yet.
pub(crate) fn client<C: FromClientConfigAndContext<Context>>(
    config: &ClientConfig,
    context: Context,
) -> Result<C> {
    config.create_with_context(context).map_err(|failed| match failed {
        KafkaError::ClientCreation(why) => Error::invalid(format!("the Kafka client cannot be made: {why}"))
            .hint("look at the settings under `kafka:`"),
        KafkaError::ClientConfig(_, _, name, _) => {
            Error::invalid(format!("the Kafka setting '{name}' has a value that it cannot have"))
        }
        other => Error::internal(format!("the Kafka client cannot be made: {other}")),
    })
}

fn wrong_setting(name: &str, failed: KafkaError) -> Error {
    match failed {
        KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..) => {
            let near = did_you_mean(name, SETTINGS);
            Error::invalid(format!("there is no Kafka setting '{name}'{near}"))
                .hint("the settings are those of librdkafka")
        }
        // Its words may hold the value.
        _ if is_secret(name) => {
            Error::invalid(format!("the Kafka setting '{name}' has a value that it cannot have"))
        }
        KafkaError::ClientConfig(_, why, ..) => Error::invalid(format!("the Kafka setting '{name}': {why}")),
        other => Error::invalid(format!("the Kafka setting '{name}': {other}")),
    }
}

fn is_secret(name: &str) -> bool {
    ["password", "secret", ".pem", "oauthbearer.config"].iter().any(|part| name.contains(part))
}

/// Settings that would break what source and sink promise, with what to do instead. Spark refuses the same.
fn refused(name: &str, role: Role) -> Option<&'static str> {
    Some(match (name, role) {
        ("group.id", Role::Source) => "the group that shows how far the query is has the key `group_id`",
        ("group.id", Role::Sink) => "a sink reads no topic: leave it out",
        ("enable.auto.commit" | "enable.auto.offset.store" | "auto.commit.interval.ms", _) => {
            "the checkpoint remembers how far the query is: leave it out"
        }
        ("auto.offset.reset", _) => {
            "`starting_offsets` says where a new query begins, and `fail_on_data_loss` what happens when offsets are gone"
        }
        ("enable.partition.eof" | "group.instance.id" | "group.protocol", _) => "leave it out",
        ("transactional.id", _) => "the sink has the key `transactional_id`",
        ("enable.idempotence" | "enable.gapless.guarantee", Role::Sink) => {
            "`delivery` says how the sink writes: exactly_once or at_least_once"
        }
        ("delivery.report.only.error", Role::Sink) => "the sink has to hear of every delivery: leave it out",
        ("isolation.level", Role::Sink) => "a sink reads no topic: leave it out",
        ("key.deserializer" | "value.deserializer", _) => {
            "keys and values are bytes; `format` decodes the value"
        }
        ("key.serializer" | "value.serializer", _) => {
            "keys and values are strings or bytes; `format` encodes the value"
        }
        ("interceptor.classes", _) => "there is no Java in Pelton: leave it out",
        _ => return None,
    })
}

/// Settings of Kafka's Java clients that librdkafka has under another name.
fn java(name: &str) -> Option<&'static str> {
    Some(match name {
        "ssl.truststore.location" | "ssl.truststore.certificates" => {
            "librdkafka reads PEM: name the authorities' certificates by ssl.ca.location"
        }
        "ssl.truststore.password" | "ssl.truststore.type" => {
            "ssl.ca.location names a PEM file, which has no password"
        }
        "ssl.keystore.type" => {
            "ssl.keystore.location names a PKCS#12 file; PEM is ssl.certificate.location and ssl.key.location"
        }
        "sasl.jaas.config" => "say it by sasl.mechanism, sasl.username and sasl.password",
        "sasl.login.callback.handler.class" | "sasl.login.class" => {
            "sasl.oauthbearer.config is what librdkafka has"
        }
        "max.poll.records" => "the key `max_offsets_per_trigger` says how much a micro-batch takes",
        "buffer.memory" => "librdkafka has queue.buffering.max.kbytes",
        "max.block.ms" | "request.timeout.ms.producer" => "librdkafka has message.timeout.ms",
        "fetch.max.wait.ms" => "librdkafka has fetch.wait.max.ms",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, value: &str, role: Role) -> String {
        let options = ClientOptions {
            bootstrap_servers: Some("localhost:9092".into()),
            settings: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            broker_timeout: None,
        };
        options.check(role).map_or_else(|e| e.to_string(), |()| "fine".into())
    }

    #[test]
    fn settings_are_checked_by_name() {
        assert_eq!(checked("security.protocol", "ssl", Role::Source), "fine");
        assert_eq!(checked("isolation.level", "read_uncommitted", Role::Source), "fine");
        let near = checked("securty.protocol", "ssl", Role::Sink);
        assert!(
            near.starts_with(
                "there is no Kafka setting 'securty.protocol'; did you mean 'security.protocol'?"
            ),
            "{near}"
        );
        let java = checked("ssl.truststore.location", "/etc/trust.jks", Role::Source);
        assert!(java.contains("hint: librdkafka reads PEM"), "{java}");
        for (name, role, hint) in [
            ("enable.auto.commit", Role::Source, "the checkpoint remembers"),
            ("auto.offset.reset", Role::Source, "`starting_offsets`"),
            ("group.id", Role::Source, "`group_id`"),
            ("transactional.id", Role::Sink, "`transactional_id`"),
            ("enable.idempotence", Role::Sink, "`delivery`"),
            ("delivery.report.only.error", Role::Sink, "every delivery"),
            ("value.deserializer", Role::Source, "`format`"),
        ] {
            let told = checked(name, "x", role);
            assert!(told.contains("cannot be set here") && told.contains(hint), "{told}");
        }
    }

    #[test]
    fn values_are_checked_and_secrets_not_shown() {
        let told = checked("security.protocol", "tls", Role::Source);
        assert!(told.starts_with("the Kafka setting 'security.protocol': "), "{told}");
        let told = checked("ssl.key.pem", "not a key: hunter2", Role::Source);
        assert!(!told.contains("hunter2"), "{told}");
    }

    #[test]
    fn the_cluster_is_named_once() {
        let place = |servers: Option<&str>, setting: Option<&str>| {
            let settings =
                setting.map(|s| ("bootstrap.servers".to_owned(), s.to_owned())).into_iter().collect();
            let options = ClientOptions {
                bootstrap_servers: servers.map(str::to_owned),
                settings,
                broker_timeout: None,
            };
            options.place().map_err(|e| e.message().to_owned())
        };
        assert_eq!(place(Some("a:1"), None), Ok("a:1".into()));
        assert_eq!(place(None, Some("b:1,c:2")), Ok("b:1,c:2".into()));
        assert!(place(Some("a:1"), Some("b:1")).is_err_and(|e| e.contains("say the same")));
        assert!(place(None, None).is_err_and(|e| e.contains("not named")));
    }
}
