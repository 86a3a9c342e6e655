//! What the Kafka source and the Kafka sink have in common: the settings of a client, what its failures mean, and how an
//! unreachable cluster is waited for.
//!
//! Settings may hold secrets, so they are shown nowhere: messages name the cluster by its bootstrap servers.

mod config;
mod context;
mod failure;
mod names;
mod wait;

pub use config::{ClientOptions, Role};

pub(crate) use config::client;
pub(crate) use context::Context;
pub(crate) use failure::Failure;
pub(crate) use wait::{Status, Waiting, limit};

use pelton_core::{Error, Result};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use std::time::Duration;

/// How long one call to the cluster takes, before it is made again: so that a query can be ended meanwhile.
pub(crate) const CALL: Duration = Duration::from_secs(5);

/// How long a client that has failed is listened to: what it says of its connections comes one by one, among its log lines.
pub(crate) const HEARING: Duration = Duration::from_millis(10);

/// Lets a client that only asks tell why it has failed.
pub(crate) fn hear<C: ConsumerContext>(client: &BaseConsumer<C>) {
    for _ in 0..16 {
        if client.poll(HEARING).is_none() {
            break;
        }
    }
}

/// Runs what blocks on a thread that may.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|e| Error::internal(format!("a call to Kafka: {e}")).caused_by(e))
}
