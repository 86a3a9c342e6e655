//! What a failure of a client means: to be waited for, or to be told.

use super::Context;
use pelton_core::Error;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// Why a call to the cluster did not come to its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The cluster, or what of it is needed, does not answer: it may later.
    Unavailable(String),
    /// What went on in a transaction is lost, and the producer with it; with a new one it can be tried again.
    Producer(String),
    /// It does not get better by waiting.
    Permanent(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Permanent(error)
    }
}

impl Failure {
    /// What `failed` means, while the client did `what`: `listing offsets`.
    pub(crate) fn new(failed: &KafkaError, context: &Context, what: &str) -> Self {
        if let Some(why) = context.refused() {
            return Self::Permanent(refused(context, &why));
        }
        if let KafkaError::Transaction(error) = failed {
            let told = format!("{what}: {}", error.string());
            return match permanent(error.code(), context, what) {
                Some(error) => Self::Permanent(error),
                None if error.is_fatal() || error.txn_requires_abort() => Self::Producer(told),
                None if error.is_retriable() => Self::Unavailable(told),
                None => Self::of_code(error.code(), context, what),
            };
        }
        match failed.rdkafka_error_code() {
            Some(code) => Self::of_code(code, context, what),
            None => {
                Self::Permanent(Error::unavailable(format!("{}: {what}: {failed}", context.status.place())))
            }
        }
    }

    /// The same for a bare code.
    pub(crate) fn of_code(code: Code, context: &Context, what: &str) -> Self {
        if let Some(why) = context.refused() {
            return Self::Permanent(refused(context, &why));
        }
        if let Some(error) = permanent(code, context, what) {
            return Self::Permanent(error);
        }
        if is_of_producer(code) {
            return Self::Producer(format!("{what}: {code}"));
        }
        let last = context.last().map_or_else(String::new, |last| format!(" ({last})"));
        match is_passing(code) {
            true => Self::Unavailable(format!("{what}: {code}{last}")),
            false => {
                let place = context.status.place();
                Self::Permanent(Error::unavailable(format!("{place}: {what}: {code}{last}")))
            }
        }
    }
}

fn refused(context: &Context, why: &str) -> Error {
    Error::invalid(format!("{} refuses the connection: {why}", context.status.place()))
        .hint("look at security.protocol, sasl.* and ssl.* under `kafka:`")
}

/// What only a person can mend.
fn permanent(code: Code, context: &Context, what: &str) -> Option<Error> {
    let place = context.status.place();
    let invalid = |why: &str, hint: &str| Some(Error::invalid(format!("{place}: {what}: {why}")).hint(hint));
    match code {
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => {
            invalid("the topic or partition is not there", "create the topic, or correct its name")
        }
        Code::InvalidTopic => invalid("that is no name of a topic", "letters, digits, '.', '_' and '-' make a name"),
        Code::TopicAuthorizationFailed => {
            invalid("the user may not use the topic", "ask for Read and Describe (source), Write and Describe (sink)")
        }
        Code::GroupAuthorizationFailed => invalid("the user may not use the group", "ask for Read on it, or name another"),
        Code::TransactionalIdAuthorizationFailed => {
            invalid("the user may not use the transactional id", "ask for Write and Describe on it, or set `transactional_id`")
        }
        Code::ClusterAuthorizationFailed => {
            invalid("the user may not write idempotently", "ask for IdempotentWrite on the cluster")
        }
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => {
            invalid("the user's credentials are refused", "look at sasl.* under `kafka:`")
        }
        Code::InvalidTransactionTimeout => invalid(
            "transaction.timeout.ms is longer than the brokers' transaction.max.timeout.ms",
            "shorten `transaction_timeout`, or raise the brokers' limit",
        ),
        Code::UnsupportedFeature | Code::UnsupportedVersion => {
            invalid("the brokers are too old for it", "Kafka 2.5 or later is needed")
        }
        Code::MessageSizeTooLarge | Code::InvalidMessageSize => {
            Some(Error::data(format!("{place}: {what}: the message is larger than the topic takes")).hint(
                "raise the topic's max.message.bytes and message.max.bytes under `kafka:`, or make the rows smaller",
            ))
        }
        Code::PolicyViolation | Code::InvalidRecord | Code::InvalidMessage => {
            Some(Error::data(format!("{place}: {what}: the brokers refuse a record: {code}")))
        }
        _ => None,
    }
}

/// The producer can do no more, and a new one may go on.
fn is_of_producer(code: Code) -> bool {
    matches!(
        code,
        Code::ProducerFenced
            | Code::Fenced
            | Code::Fatal
            | Code::InvalidProducerEpoch
            | Code::InvalidProducerIdMapping
            | Code::InvalidTransactionalState
            | Code::UnknownProducerId
            | Code::OutOfOrderSequenceNumber
            | Code::DuplicateSequenceNumber
            | Code::TransactionCoordinatorFenced
            | Code::Inconsistent
            | Code::GaplessGuarantee
            | Code::State
            | Code::PurgeQueue
            | Code::PurgeInflight
            | Code::MessageTimedOut
    )
}

fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::OperationTimedOut
            | Code::Resolve
            | Code::TimedOutQueue
            | Code::WaitingForCoordinator
            | Code::WaitCache
            | Code::InProgress
            | Code::PreviousInProgress
            | Code::Conflict
            | Code::NodeUpdate
            | Code::Retry
            | Code::NoEnt
            | Code::RequestTimedOut
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::BrokerNotAvailable
            | Code::ReplicaNotAvailable
            | Code::NetworkException
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::NotEnoughReplicas
            | Code::NotEnoughReplicasAfterAppend
            | Code::ConcurrentTransactions
            | Code::KafkaStorageError
            | Code::OffsetNotAvailable
            | Code::PreferredLeaderNotAvailable
            | Code::EligibleLeadersNotAvailable
            | Code::ListenerNotFound
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::UnstableOffsetCommit
            | Code::ThrottlingQuotaExceeded
            | Code::Partial
    )
}
