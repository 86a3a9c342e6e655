//! Dead letters as messages of a topic: each is the record that was lost, with its key, and headers that say why.
//!
//! They go through a sink of their own, exactly once as rows do: the letters of a micro-batch are one transaction, in which
//! the micro-batch is noted. A micro-batch without letters writes and notes nothing.

mod message;

use super::{KafkaSink, KafkaSinkOptions};
use crate::kafka::ClientOptions;
use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use message::Envelope;
use parking_lot::Mutex;
use pelton_core::{
    BatchInfo, DeadLetter, DeadLetterContext, DeadLetterSink, DeadLetterWriter, Error, Interval, OutputMode,
    PluginNames, Result, RowStream, Sink, SinkContext, SinkReport,
};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Pieces that wait to be sent.
const PIECES_AHEAD: usize = 4;
/// What librdkafka takes of a message unless `message.max.bytes` says otherwise.
const MESSAGE_BYTES_MAX: usize = 1_000_000;

/// A topic of dead letters as the pipeline file has it.
#[derive(Clone)]
pub struct DeadLetterTopicOptions {
    /// The cluster.
    pub client: ClientOptions,
    /// Where they go.
    pub topic: String,
    /// See [`KafkaSinkOptions::transactional_id`]; `pelton-`, the query's id and `-dead-letters` if it is not said.
    pub transactional_id: Option<String>,
    /// How long the letters of a micro-batch may take to be written.
    pub transaction_timeout: Interval,
}

/// See the module.
pub struct DeadLetterTopic {
    sink: Arc<KafkaSink>,
    message_bytes_max: usize,
    /// The query's name, known when it is opened.
    query: Mutex<Arc<str>>,
}

impl DeadLetterTopic {
    /// Reads the options. Nothing is connected before it is opened.
    pub fn new(options: DeadLetterTopicOptions) -> Result<Self> {
        let configured = options.client.settings.get("message.max.bytes");
        let message_bytes_max = configured.and_then(|bytes| bytes.parse().ok()).unwrap_or(MESSAGE_BYTES_MAX);
        let of_letters = KafkaSinkOptions {
            client: options.client,
            format: None,
            transactional_id: options.transactional_id,
            transaction_timeout: options.transaction_timeout,
            of_letters: true,
            ..KafkaSinkOptions::new("", &options.topic)
        };
        let sink = Arc::new(KafkaSink::new(of_letters)?);
        Ok(Self { sink, message_bytes_max, query: Mutex::new("".into()) })
    }
}

#[async_trait]
impl DeadLetterSink for DeadLetterTopic {
    async fn open(&self, context: DeadLetterContext) -> Result<()> {
        *self.query.lock() = context.query_name.into();
        let context = SinkContext {
            query_id: context.query_id,
            schema: message::schema(),
            output_mode: OutputMode::Append,
            last_committed: context.last_committed,
            unfinished: context.unfinished,
        };
        self.sink.open(context).await
    }

    fn waits_for(&self) -> Option<String> {
        self.sink.waits_for()
    }

    fn begin(&self, batch: &Arc<BatchInfo>, plugins: &PluginNames) -> Box<dyn DeadLetterWriter> {
        let query = Arc::clone(&self.query.lock());
        let envelope = Envelope::new(query, Arc::clone(batch), Arc::clone(plugins), self.message_bytes_max);
        let (sink, batch) = (Arc::clone(&self.sink), Arc::clone(batch));
        Box::new(TopicWriter { sink, batch, envelope, writing: None })
    }
}

/// The letters of one micro-batch.
struct TopicWriter {
    sink: Arc<KafkaSink>,
    batch: Arc<BatchInfo>,
    envelope: Envelope,
    /// Not there before the first letter.
    writing: Option<Writing>,
}

/// The sink at work, on a task of its own.
struct Writing {
    pieces: mpsc::Sender<Fed>,
    done: JoinHandle<Result<SinkReport>>,
}

enum Fed {
    Rows(RecordBatch),
    End,
}

impl TopicWriter {
    fn start(&self) -> Writing {
        let (pieces, fed) = mpsc::channel(PIECES_AHEAD);
        let (sink, batch) = (Arc::clone(&self.sink), Arc::clone(&self.batch));
        let done = tokio::spawn(async move { sink.write(&batch, rows(fed)).await });
        Writing { pieces, done }
    }
}

/// What is fed. If nobody feeds it to its end the micro-batch has failed, and nothing of it may be seen.
fn rows(fed: mpsc::Receiver<Fed>) -> RowStream {
    let next = |fed: Option<mpsc::Receiver<Fed>>| async move {
        let mut fed = fed?;
        match fed.recv().await {
            Some(Fed::Rows(rows)) => Some((Ok(rows), Some(fed))),
            Some(Fed::End) => None,
            None => Some((Err(Error::unavailable("the micro-batch was given up")), None)),
        }
    };
    stream::unfold(Some(fed), next).boxed()
}

#[async_trait]
impl DeadLetterWriter for TopicWriter {
    async fn append(&mut self, letters: &[DeadLetter]) -> Result<()> {
        let rows = self.envelope.rows(letters)?;
        let writing = match self.writing.take() {
            Some(writing) => writing,
            None => self.start(),
        };
        // The sink leaves letters unread that it has from a run before, or has failed: the end tells.
        let _ = writing.pieces.send(Fed::Rows(rows)).await;
        self.writing = Some(writing);
        Ok(())
    }

    async fn finish(&mut self) -> Result<()> {
        let Some(Writing { pieces, done }) = self.writing.take() else { return Ok(()) };
        let _ = pieces.send(Fed::End).await;
        let done = done.await.map_err(|e| Error::internal(format!("writing dead letters: {e}")))?;
        done.map(drop).map_err(|failed| failed.context("dead_letters"))
    }
}
