//! Sink `kafka`: messages into topics, exactly once or at least once.
//!
//! Exactly once, a micro-batch is one transaction, and the micro-batch's number is committed in it as the offset of a
//! group of the sink's own. So whether the rows are there is decided by the cluster alone, whatever breaks: after any
//! failure whose outcome is not known the note is read, and a micro-batch that comes again is passed over. Two runs of a
//! query are told apart by a token in the note: the one that was opened last may write. A producer that lost its
//! transaction is replaced by a new one, which sends the rows that were kept again.
//!
//! At least once, messages are sent without transactions, and a micro-batch ends when all are acknowledged.

mod letters;
mod messages;
mod options;
mod session;
mod standing;

#[cfg(test)]
mod tests;

pub use letters::{DeadLetterTopic, DeadLetterTopicOptions};
pub use options::{Delivery, KafkaSinkOptions, Undecided};

use super::parallelism;
use crate::kafka::{Failure, Status, Waiting, blocking, limit};
use arrow::datatypes::Schema;
use async_trait::async_trait;
use messages::{MessageEncoder, Messages, Pieces};
use pelton_core::{BatchId, BatchInfo, Error, OutputMode, Result, RowStream, Sink, SinkContext, SinkReport};
use session::{Note, Place, Session};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// After so long without a micro-batch the last one is noted again before the next, because brokers forget offsets of
/// groups that are not used.
const NOTE_AGAIN_MS: i64 = 24 * 60 * 60 * 1000;
/// How long nothing is acknowledged before that is told.
const LONG_SILENCE: Duration = Duration::from_secs(5);

/// The Kafka sink. It takes every output mode.
pub struct KafkaSink {
    options: KafkaSinkOptions,
    status: Arc<Status>,
    run: Mutex<Option<Run>>,
}

/// Between `open` and the next one.
struct Run {
    encoder: Arc<MessageEncoder>,
    /// Where micro-batches are noted, if they are.
    place: Option<Place>,
    /// Which run this is.
    token: String,
    /// The last micro-batch that is written.
    written: Option<BatchId>,
    /// The time of the last that was noted by this run since it was opened.
    noted_ms: Option<i64>,
    /// None after a failure.
    session: Option<Arc<Session>>,
}

impl KafkaSink {
    /// Reads the options. Nothing is connected before [`Sink::open`].
    pub fn new(options: KafkaSinkOptions) -> Result<Self> {
        options.check()?;
        let status = Arc::new(Status::new(options.client.place()?));
        Ok(Self { options, status, run: Mutex::new(None) })
    }

    /// Whether rows of this schema can be written, as far as can be said without the cluster.
    pub fn check(&self, schema: &Schema) -> Result<()> {
        MessageEncoder::new(&self.options, schema).map(drop)
    }

    fn waiting(&self) -> Waiting<'_> {
        Waiting::new(&self.status, self.options.client.broker_timeout)
    }

    /// A new producer with what was noted, however long that takes.
    async fn session(&self, place: Option<&Place>) -> Result<(Arc<Session>, Option<Note>)> {
        let mut waiting = self.waiting();
        loop {
            let (options, status, place) = (self.options.clone(), Arc::clone(&self.status), place.cloned());
            let opened = waiting.call(move || {
                let session = Session::open(&options, &status, place.as_ref())?;
                let note = session.noted()?;
                Ok((Arc::new(session), note))
            });
            match opened.await? {
                Ok(opened) => {
                    self.status.back();
                    return Ok(opened);
                }
                Err(failure) => waiting.after(failure).await?,
            }
        }
    }

    /// Does something with the producer, again as long as it only has to wait.
    async fn steadily<T: Send + 'static>(
        &self,
        session: &Arc<Session>,
        work: impl Fn(&Session) -> Result<T, Failure> + Clone + Send + 'static,
    ) -> Result<T, Failure> {
        let mut waiting = self.waiting();
        loop {
            let (session, work) = (Arc::clone(session), work.clone());
            match waiting.call(move || work(&session)).await? {
                Err(Failure::Unavailable(why)) => waiting.after(Failure::Unavailable(why)).await?,
                done => {
                    if done.is_ok() {
                        self.status.back();
                    }
                    return done;
                }
            }
        }
    }

    async fn send(&self, session: &Arc<Session>, messages: Arc<Messages>) -> Result<(), Failure> {
        let mut from = 0;
        let mut silence = Duration::ZERO;
        while from < messages.count {
            let (session_, messages_) = (Arc::clone(session), Arc::clone(&messages));
            let next = blocking(move || session_.send(&messages_, from)).await??;
            silence = self.still(session, silence, next == from)?;
            from = next;
        }
        Ok(())
    }

    async fn delivered(&self, session: &Arc<Session>) -> Result<(), Failure> {
        let (mut silence, mut before) = (Duration::ZERO, usize::MAX);
        loop {
            let session_ = Arc::clone(session);
            let outstanding = blocking(move || session_.deliver()).await??;
            if outstanding == 0 {
                self.status.back();
                return Ok(());
            }
            silence = self.still(session, silence, outstanding >= before)?;
            before = outstanding;
        }
    }

    /// How long nothing has moved, a second more if it has not now.
    fn still(&self, session: &Session, silence: Duration, is_still: bool) -> Result<Duration, Failure> {
        if !is_still {
            return Ok(Duration::ZERO);
        }
        let silence = silence + Duration::from_secs(1);
        if silence >= LONG_SILENCE {
            self.status.away(&session.last_failure());
        }
        if limit(self.options.client.broker_timeout).is_some_and(|limit| silence >= limit) {
            let place = self.status.place();
            let what = format!(
                "Kafka at {place} acknowledged nothing within broker_timeout: {}",
                session.last_failure()
            );
            return Err(Error::unavailable(what).hint("a new start goes on where this one stood").into());
        }
        Ok(silence)
    }

    /// Notes in a transaction of its own which run may write, and what is written.
    async fn note_alone(&self, session: &Arc<Session>, note: &Note) -> Result<(), Failure> {
        let note = note.clone();
        self.steadily(session, Session::begin).await?;
        self.steadily(session, move |session| session.note(&note)).await?;
        self.steadily(session, Session::commit).await
    }

    /// Makes this run the one that may write.
    async fn claim(&self, context: &SinkContext, encoder: MessageEncoder) -> Result<Run> {
        let mut run = Run {
            encoder: Arc::new(encoder),
            place: None,
            token: run_token(),
            written: context.last_committed,
            noted_ms: None,
            session: None,
        };
        if self.options.delivery == Delivery::AtLeastOnce {
            run.session = Some(self.session(None).await?.0);
            return Ok(run);
        }
        let id = self.options.transactional_id.clone();
        let suffix = if self.options.of_letters { "-dead-letters" } else { "" };
        let id = id.unwrap_or_else(|| format!("pelton-{}{suffix}", context.query_id.as_str()));
        let topic = self.options.noted_in().unwrap_or_default().to_owned();
        let place = Place { id, topic };
        let mut waiting = self.waiting();
        loop {
            let (session, note) = self.session(Some(&place)).await?;
            let known = (place.id.as_str(), self.status.place());
            run.written = match self.options.of_letters {
                true => standing::written_letters(note.as_ref(), context),
                false => standing::written(note.as_ref(), context, self.options.undecided, known)?,
            };
            let note = Note { batch: run.written, run: run.token.clone() };
            match self.note_alone(&session, &note).await {
                Ok(()) => {
                    (run.place, run.session) = (Some(place), Some(session));
                    return Ok(run);
                }
                Err(failure) => waiting.after(failure).await?,
            }
        }
    }

    /// The session to write with. After a failure it is a new one, and what is noted says what has become of the failed
    /// transaction and whether this run may still write.
    async fn ready(&self, run: &mut Run) -> Result<Arc<Session>> {
        if let Some(session) = &run.session {
            return Ok(Arc::clone(session));
        }
        let (session, note) = self.session(run.place.as_ref()).await?;
        if let Some(place) = &run.place {
            match note {
                Some(note) if note.run != run.token => {
                    let at = self.status.place();
                    return Err(Error::fenced(format!("another run of this query has taken over at {at}"))
                        .hint("let only one of the two runs go on"));
                }
                Some(note) => run.written = note.batch,
                // Brokers forget notes that nobody used for a long time, and never one that was written just now: so
                // nothing was written since this run last knew, and it notes that before the next micro-batch.
                None => {
                    tracing::warn!("the offset of the group '{}' is gone; it is noted anew", place.id);
                    run.noted_ms = None;
                }
            }
        }
        run.session = Some(Arc::clone(&session));
        Ok(session)
    }

    /// One try to write a micro-batch.
    async fn try_write(&self, run: &mut Run, batch: &BatchInfo, pieces: &mut Pieces) -> Result<(), Failure> {
        let session = self.ready(run).await?;
        if run.place.is_some() && run.written >= Some(batch.batch_id) {
            return Ok(());
        }
        let is_old = |noted_ms: i64| batch.time_ms.saturating_sub(noted_ms) > NOTE_AGAIN_MS;
        if run.place.is_some() && run.noted_ms.is_none_or(is_old) {
            self.note_alone(&session, &Note { batch: run.written, run: run.token.clone() }).await?;
        }
        self.steadily(&session, Session::begin).await?;
        for messages in pieces.sent() {
            self.send(&session, messages).await?;
        }
        while let Some(messages) = pieces.next().await? {
            self.send(&session, messages).await?;
        }
        let note = Note { batch: Some(batch.batch_id), run: run.token.clone() };
        self.steadily(&session, move |session| session.note(&note)).await?;
        self.delivered(&session).await?;
        self.steadily(&session, Session::commit).await?;
        (run.written, run.noted_ms) = (Some(batch.batch_id), Some(batch.time_ms));
        Ok(())
    }
}

#[async_trait]
impl Sink for KafkaSink {
    fn description(&self) -> String {
        format!("kafka {}", self.options.topic.as_deref().unwrap_or("(topics of the rows)"))
    }

    fn output_modes(&self) -> &[OutputMode] {
        &[OutputMode::Append, OutputMode::Update, OutputMode::Complete]
    }

    fn waits_for(&self) -> Option<String> {
        self.status.waits_for()
    }

    async fn open(&self, context: SinkContext) -> Result<()> {
        let encoder = MessageEncoder::new(&self.options, &context.schema)?;
        encoder.prepare().await?;
        let mut run = self.run.lock().await;
        *run = None;
        *run = Some(self.claim(&context, encoder).await?);
        Ok(())
    }

    async fn write(&self, batch: &BatchInfo, rows: RowStream) -> Result<SinkReport> {
        let mut run = self.run.lock().await;
        let run = run.as_mut().ok_or_else(|| Error::internal("the Kafka sink was not opened"))?;
        if run.place.is_some() && run.written >= Some(batch.batch_id) {
            return Ok(SinkReport { already_committed: true, ..SinkReport::default() });
        }
        let mut pieces = Pieces::new(rows, &run.encoder, parallelism());
        let mut waiting = self.waiting();
        loop {
            let failure = match self.try_write(run, batch, &mut pieces).await {
                Ok(()) => return Ok(SinkReport { rows: pieces.rows, ..SinkReport::default() }),
                Err(failure) => failure,
            };
            if let Some(session) = run.session.take() {
                blocking(move || session.abort()).await?;
            }
            let why = match failure {
                Failure::Permanent(error) => return Err(error),
                Failure::Unavailable(why) | Failure::Producer(why) => why,
            };
            // Whether it is there already can be told whatever was kept; so that is asked first.
            waiting.after(Failure::Unavailable(why.clone())).await?;
            self.ready(run).await?;
            waiting.answered();
            let is_written = run.place.is_some() && run.written >= Some(batch.batch_id);
            if !is_written && !pieces.can_repeat() {
                return Err(Error::unavailable(format!("Kafka at {}: {why}", self.status.place())).hint(
                    "the micro-batch is too large to be sent again from memory: a new start runs it again",
                ));
            }
        }
    }
}

/// That two living runs draw the same is out of the question.
#[allow(clippy::disallowed_methods, reason = "no row depends on it")]
fn run_token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
