//! Waiting for a cluster: what is said of it, and for how long.

use super::{Failure, blocking};
use parking_lot::Mutex;
use pelton_core::{Error, Interval, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether a cluster answers, told once when it changes.
#[derive(Debug)]
pub(crate) struct Status {
    place: String,
    /// Why it is waited for.
    away: Mutex<Option<String>>,
    has_answered: AtomicBool,
}

impl Status {
    pub(crate) fn new(place: String) -> Self {
        Self { place, away: Mutex::default(), has_answered: AtomicBool::new(false) }
    }

    /// The bootstrap servers.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn away(&self, why: &str) {
        if self.away.lock().replace(why.to_owned()).is_none() {
            tracing::warn!("waiting for Kafka at {}: {why}", self.place);
        }
    }

    /// What is waited for, and why, if it is.
    pub(crate) fn waits_for(&self) -> Option<String> {
        self.away.lock().as_ref().map(|why| format!("Kafka at {}: {why}", self.place))
    }

    /// Whether it ever has.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    pub(crate) fn back(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
        if self.away.lock().take().is_some() {
            tracing::warn!("Kafka at {} answers again", self.place);
        }
    }
}

/// A limit in the pipeline file as a duration.
pub(crate) fn limit(limit: Option<Interval>) -> Option<Duration> {
    limit.map(|limit| Duration::from_millis(limit.as_millis().max(0).unsigned_abs()))
}

/// The tries of one call.
pub(crate) struct Waiting<'a> {
    status: &'a Status,
    limit: Option<Duration>,
    /// Since when there is no answer.
    since: Option<Instant>,
    pause: Duration,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(status: &'a Status, broker_timeout: Option<Interval>) -> Self {
        Self { status, limit: limit(broker_timeout), since: None, pause: FIRST_PAUSE }
    }

    /// Makes the call on a thread that may block. It has until the limit: what comes later is nobody's.
    pub(crate) async fn call<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<Result<T, Failure>> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let Some(limit) = self.limit else { return blocking(work).await };
        match timeout_at(since + limit, blocking(work)).await {
            Ok(answered) => answered,
            Err(_) => Err(self.timed_out("no answer")),
        }
    }

    /// Waits for a while, if there is something to wait for; otherwise the failure is the caller's answer.
    pub(crate) async fn after(&mut self, failure: Failure) -> Result<()> {
        let why = match failure {
            Failure::Permanent(error) => return Err(error),
            Failure::Unavailable(why) | Failure::Producer(why) => why,
        };
        self.status.away(&why);
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        let left = self.limit.map_or(Duration::MAX, |limit| limit.saturating_sub(waited));
        if left.is_zero() {
            return Err(self.timed_out(&why));
        }
        tokio::time::sleep(self.pause.min(left)).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// There was an answer: what fails from now on is waited for anew.
    pub(crate) fn answered(&mut self) {
        (self.since, self.pause) = (None, FIRST_PAUSE);
    }

    fn timed_out(&self, why: &str) -> Error {
        let why = self.status.waits_for().unwrap_or_else(|| why.to_owned());
        let place = format!("Kafka at {}", self.status.place());
        let why = why.strip_prefix(&format!("{place}: ")).unwrap_or(&why);
        Error::unavailable(format!("{place} did not answer within broker_timeout: {why}"))
            .hint("a new start goes on where this one stood")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_limit_ends_a_call_that_takes_longer() {
        let status = Status::new("nowhere:1".into());
        let mut waiting = Waiting::new(&status, Some(Interval::from_millis(300)));
        let begun = Instant::now();
        let slow = || {
            std::thread::sleep(Duration::from_secs(3));
            Ok(())
        };
        let told = waiting.call(slow).await.err().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(told.message(), "Kafka at nowhere:1 did not answer within broker_timeout: no answer");
    }

    #[tokio::test]
    async fn the_limit_counts_from_the_first_failure_and_anew_after_an_answer() {
        let status = Status::new("nowhere:1".into());
        let mut waiting = Waiting::new(&status, Some(Interval::from_millis(400)));
        for _ in 0..2 {
            let begun = Instant::now();
            while waiting.after(Failure::Unavailable("it is down".into())).await.is_ok() {}
            assert!((400..4_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
            assert_eq!(status.waits_for().unwrap(), "Kafka at nowhere:1: it is down");
            waiting.answered();
            status.back();
            assert_eq!(status.waits_for(), None);
        }
    }
}
