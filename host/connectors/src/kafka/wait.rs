//! Waiting for a cluster: what is said of it, and for how long.

use super::Failure;
use pelton_core::{Error, Interval, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether a cluster answers, told once when it changes.
#[derive(Debug)]
pub(crate) struct Status {
    place: String,
    is_away: AtomicBool,
    has_answered: AtomicBool,
}

impl Status {
    pub(crate) fn new(place: String) -> Self {
        Self { place, is_away: AtomicBool::new(false), has_answered: AtomicBool::new(false) }
    }

    /// The bootstrap servers.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn away(&self, why: &str) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            tracing::warn!("waiting for Kafka at {}: {why}", self.place);
        }
    }

    /// Whether it ever has.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    pub(crate) fn back(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
        if self.is_away.swap(false, Ordering::Relaxed) {
            tracing::warn!("Kafka at {} answers again", self.place);
        }
    }
}

/// The tries of one call.
pub(crate) struct Waiting<'a> {
    status: &'a Status,
    limit: Option<Duration>,
    since: Option<Instant>,
    pause: Duration,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(status: &'a Status, limit: Option<Interval>) -> Self {
        let limit = limit.map(|limit| Duration::from_millis(limit.as_millis().max(0).unsigned_abs()));
        Self { status, limit, since: None, pause: FIRST_PAUSE }
    }

    /// Waits for a while, if there is something to wait for; otherwise the failure is the caller's answer.
    pub(crate) async fn after(&mut self, failure: Failure) -> Result<()> {
        let why = match failure {
            Failure::Permanent(error) => return Err(error),
            Failure::Unavailable(why) | Failure::Producer(why) => why,
        };
        self.status.away(&why);
        let since = *self.since.get_or_insert_with(Instant::now);
        if self.limit.is_some_and(|limit| since.elapsed() >= limit) {
            let what = format!("Kafka at {} did not answer within broker_timeout: {why}", self.status.place);
            return Err(Error::unavailable(what).hint("a new start goes on where this one stood"));
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}
