//! What librdkafka tells a client beside its answers: log lines, errors of connections, messages that were not delivered.

use super::Status;
use parking_lot::{Condvar, Mutex};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::ProducerContext;
use rdkafka::topic_partition_list::TopicPartitionList;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Of one client.
pub(crate) struct Context {
    pub(crate) status: Arc<Status>,
    refused: Mutex<Option<String>>,
    last: Mutex<Option<String>>,
    delivery: Mutex<Delivery>,
    delivered: Condvar,
    mirror_failed: AtomicBool,
}

/// What has become of the messages that were handed to a producer.
#[derive(Default)]
struct Delivery {
    /// Those of which nothing is known yet.
    outstanding: usize,
    first_lost: Option<Undelivered>,
}

/// The first message of a micro-batch that the cluster did not take.
#[derive(Debug, Clone)]
pub(crate) struct Undelivered {
    pub(crate) code: RDKafkaErrorCode,
    pub(crate) topic: String,
    pub(crate) bytes: usize,
}

impl Context {
    pub(crate) fn new(status: &Arc<Status>) -> Self {
        Self {
            status: Arc::clone(status),
            refused: Mutex::default(),
            last: Mutex::default(),
            delivery: Mutex::default(),
            delivered: Condvar::new(),
            mirror_failed: AtomicBool::new(false),
        }
    }

    /// Why the cluster will not have this client: wrong credentials, a certificate that does not hold.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.lock().clone()
    }

    /// What was last said about the connection.
    pub(crate) fn last(&self) -> Option<String> {
        self.last.lock().clone()
    }

    /// Forgets what was not delivered, and what was said of the connection before.
    pub(crate) fn begin_delivery(&self) {
        self.delivery.lock().first_lost = None;
        *self.last.lock() = None;
    }

    /// A message is about to be handed to the producer.
    pub(crate) fn sending(&self) {
        self.delivery.lock().outstanding += 1;
    }

    /// The producer did not take it after all.
    pub(crate) fn not_sent(&self) {
        let mut delivery = self.delivery.lock();
        delivery.outstanding = delivery.outstanding.saturating_sub(1);
    }

    /// Waits until all messages are delivered or one is lost, so long at most. How many are not yet.
    pub(crate) fn wait_for_delivery(&self, limit: Duration) -> usize {
        let mut delivery = self.delivery.lock();
        let is_open = |delivery: &mut Delivery| delivery.outstanding > 0 && delivery.first_lost.is_none();
        self.delivered.wait_while_for(&mut delivery, is_open, limit);
        delivery.outstanding
    }

    /// The first message since then that was not delivered.
    pub(crate) fn undelivered(&self) -> Option<Undelivered> {
        self.delivery.lock().first_lost.clone()
    }
}

impl ClientContext for Context {
    // Most of what matters comes as an error, too; that a connection was closed does not.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, "{message}");
        if facility == "FAIL" {
            *self.last.lock() = Some(why_closed(message));
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, "{reason}");
        let is_refused = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed) => true,
            // A connection that worked before breaks in many ways while a broker goes down.
            Some(RDKafkaErrorCode::SSL) => !self.status.has_answered(),
            _ => false,
        };
        let mut last = self.last.lock();
        match (is_refused, error.rdkafka_error_code()) {
            (true, _) => *self.refused.lock() = Some(reason.to_owned()),
            // That none is left says nothing of why.
            (false, Some(RDKafkaErrorCode::AllBrokersDown)) if last.is_some() => {}
            (false, _) => *last = Some(reason.to_owned()),
        }
    }
}

/// Of a log line: `[thrd:…]: host:port: Disconnected: … (after 0ms in state APIVERSION_QUERY)`.
fn why_closed(line: &str) -> String {
    let why = line.split_once("]: ").map_or(line, |(_, why)| why);
    // The state in which a client without encryption has sent its first request.
    match why.contains("Disconnected") && why.contains("APIVERSION_QUERY") {
        true => format!("{why}: does the listener want encryption? look at security.protocol under `kafka:`"),
        false => why.to_owned(),
    }
}

impl ConsumerContext for Context {
    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        let Err(failed) = result else { return };
        let benign = matches!(failed.rdkafka_error_code(), Some(RDKafkaErrorCode::NoOffset));
        if !benign && !self.mirror_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the consumer group cannot be told how far the query is ({failed}): lag tools do not see it; the query \
                 itself does not need it"
            );
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        let mut delivery = self.delivery.lock();
        delivery.outstanding = delivery.outstanding.saturating_sub(1);
        if let Err((failed, message)) = result {
            // What is thrown away with its transaction is no failure of its own.
            delivery.first_lost.get_or_insert_with(|| Undelivered {
                code: failed.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail),
                topic: message.topic().to_owned(),
                bytes: message.payload().map_or(0, <[u8]>::len) + message.key().map_or(0, <[u8]>::len),
            });
        }
        if delivery.outstanding == 0 || delivery.first_lost.is_some() {
            self.delivered.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::why_closed;

    #[test]
    fn a_connection_that_is_closed_at_once_is_told_with_what_it_may_be() {
        let closed = "127.0.0.1:9093/bootstrap: Disconnected: connection closed by peer (after 0ms in state APIVERSION_QUERY)";
        let told = why_closed(&format!("[thrd:127.0.0.1:9093/bootstrap]: {closed}"));
        assert!(told.starts_with(closed) && told.contains("security.protocol"), "{told}");
        assert_eq!(
            why_closed("[thrd:a:1/1]: a:1/1: Disconnected (after 7ms in state UP)"),
            "a:1/1: Disconnected (after 7ms in state UP)"
        );
    }
}
