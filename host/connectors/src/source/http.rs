//! Source `http`: rows that others send by POST.
//!
//! A request is answered when its rows are durable: they are in the source's log in the checkpoint (`log.rs`), from where
//! micro-batches read them, and a crash loses nothing that was acknowledged. Whoever got no answer sends again; with an
//! `Idempotency-Key` that does not double the rows. What is committed is deleted. If more waits on disk than is allowed, requests
//! are told to come back later.
//!
//! The port is opened with the first micro-batch of a run that goes on; `once` and `available_now` read what is in the log.

mod log;
mod server;
#[cfg(test)]
mod tests;

use super::decoding::{LineOptions, again, number};
use crate::decode::{Decoder, Input};
use crate::http::Limits;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use log::{Inbox, Stored};
use pelton_core::{
    Backlog, BatchId, Block, BlockStream, Decoded, Error, FileManager, MalformedPolicy, Offset, OffsetRange,
    ReadLimit, Record, Result, Source,
};
use server::{Server, Settings};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::Mutex;

/// An offset before anything was sent.
const NOTHING: u64 = 0;
/// `frozen`: the source has no end.
const GOES_ON: u64 = u64::MAX;

/// What the pipeline file says of an HTTP source.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpSourceOptions {
    /// Address and port to listen on.
    pub listen: String,
    /// The path that takes requests.
    pub path: String,
    /// What a body holds.
    pub lines: LineOptions,
    /// Bytes of a body, at most.
    pub max_body_bytes: u64,
    /// Bytes that wait for their micro-batch on disk, at most; beyond that requests are refused for the moment.
    pub max_backlog_bytes: u64,
    /// Rows in a micro-batch, at most, to the nearest request; at least one request is taken.
    pub max_rows_per_trigger: Option<u64>,
    /// Bytes in a micro-batch, likewise.
    pub max_bytes_per_trigger: Option<u64>,
    /// What every request must have as `Authorization: Bearer …`. Without, the source listens to this machine alone.
    pub token: Option<String>,
    /// Connections, and the time for a request.
    pub limits: Limits,
}

impl HttpSourceOptions {
    /// A source of JSON lines with the usual limits.
    pub fn new(listen: impl Into<String>) -> Self {
        Self {
            listen: listen.into(),
            path: "/".into(),
            lines: LineOptions::new(super::FileFormat::Json),
            max_body_bytes: 8 << 20,
            max_backlog_bytes: 256 << 20,
            max_rows_per_trigger: None,
            max_bytes_per_trigger: None,
            token: None,
            limits: Limits::default(),
        }
    }

    /// Where to listen, if that is allowed. The error is of kind `Invalid`.
    fn address(&self) -> Result<SocketAddr> {
        let resolved = self.listen.to_socket_addrs().ok().and_then(|mut all| all.next());
        let address = resolved.ok_or_else(|| {
            Error::invalid(format!("cannot listen on '{}': it is not an address and a port", self.listen))
                .hint("write for example `listen: 127.0.0.1:8080`")
        })?;
        if !address.ip().is_loopback() && self.token.as_deref().is_none_or(str::is_empty) {
            return Err(Error::invalid(format!("whoever reaches {address} could send rows: it needs a token"))
                .hint("set the environment variable PELTON_HTTP_TOKEN (or the one that `token_env` names), or listen on 127.0.0.1"));
        }
        Ok(address)
    }

    fn check(&self) -> Result<()> {
        for (name, limit) in [
            ("max_rows_per_trigger", self.max_rows_per_trigger),
            ("max_bytes_per_trigger", self.max_bytes_per_trigger),
            ("max_body", Some(self.max_body_bytes)),
            ("max_backlog", Some(self.max_backlog_bytes)),
        ] {
            if limit == Some(0) {
                return Err(Error::invalid(format!("{name} must be at least 1")));
            }
        }
        if !self.path.starts_with('/') || self.path.contains(['{', '}', '*', '?', '#']) {
            return Err(Error::invalid(format!("'{}' is not the path of a URL", self.path))
                .hint("write for example `path: /events`"));
        }
        self.address().map(drop)
    }
}

/// An HTTP source. Built with [`HttpSource::open`]; nothing listens before its first micro-batch.
pub struct HttpSource {
    name: String,
    options: HttpSourceOptions,
    schema: SchemaRef,
    decoder: Arc<dyn Decoder>,
    has_header: bool,
    log: Arc<dyn FileManager>,
    running: Mutex<Option<Running>>,
    /// The last offset of `available_now`.
    frozen: AtomicU64,
}

/// From the first question on.
struct Running {
    inbox: Arc<Inbox>,
    server: Option<Server>,
}

impl HttpSource {
    /// The source `name`, whose log is in `log` (the checkpoint's `sources/<name>`).
    pub fn open(name: &str, options: &HttpSourceOptions, log: Arc<dyn FileManager>) -> Result<Self> {
        options.check()?;
        let decoder = options.lines.decoder(name, None, options.lines.on_malformed)?;
        Ok(Self {
            name: name.to_owned(),
            options: options.clone(),
            schema: decoder.schema(),
            decoder,
            has_header: options.lines.has_header()?,
            log,
            running: Mutex::new(None),
            frozen: AtomicU64::new(GOES_ON),
        })
    }

    /// The same source, decoding only these columns.
    pub fn with_columns(self, columns: &[String]) -> Result<Self> {
        let lines = &self.options.lines;
        let decoder = lines.decoder(&self.name, Some(columns.to_vec()), lines.on_malformed)?;
        Ok(Self { schema: decoder.schema(), decoder, ..self })
    }

    /// Where it listens, once it does.
    pub async fn address(&self) -> Option<SocketAddr> {
        self.running.lock().await.as_ref()?.server.as_ref().map(Server::address)
    }

    async fn listen(&self, inbox: &Arc<Inbox>) -> Result<Server> {
        let lines = &self.options.lines;
        // A row that would end the query is refused at the door.
        let check = match lines.on_malformed {
            MalformedPolicy::Fail => Some(lines.decoder(&self.name, None, MalformedPolicy::Fail)?),
            _ => None,
        };
        let settings = Settings {
            path: self.options.path.clone(),
            max_body_bytes: usize::try_from(self.options.max_body_bytes).unwrap_or(usize::MAX),
            token: self.options.token.clone().filter(|token| !token.is_empty()),
            has_header: self.has_header,
            check,
            limits: self.options.limits,
        };
        Server::start(&self.name, self.options.address()?, settings, Arc::clone(inbox)).await
    }

    /// The end of the next micro-batch among what is stored.
    fn admit(&self, stored: &[(u64, Stored)], limit: ReadLimit) -> Option<u64> {
        let (rows_max, bytes_max) = match limit {
            ReadLimit::All => (None, None),
            ReadLimit::Configured => (self.options.max_rows_per_trigger, self.options.max_bytes_per_trigger),
        };
        let (mut rows, mut bytes, mut end) = (0, 0, None);
        for (number, entry) in stored.iter().take_while(|(n, _)| *n <= self.frozen.load(Relaxed)) {
            (rows, bytes) = (rows + entry.rows, bytes + entry.bytes);
            let fits = rows_max.is_none_or(|max| rows <= max) && bytes_max.is_none_or(|max| bytes <= max);
            if end.is_some() && !fits {
                break;
            }
            end = Some(*number);
        }
        end
    }
}

#[async_trait]
impl Source for HttpSource {
    fn description(&self) -> String {
        format!("http {}{}", self.options.listen, self.options.path)
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// What is in the log is all there is: nobody listens.
    async fn prepare_for_available_now(&self) -> Result<()> {
        self.frozen.store(log::last(&*self.log).await?.unwrap_or(NOTHING), Relaxed);
        Ok(())
    }

    async fn latest_offset(
        &self,
        start: Option<&Offset>,
        limit: ReadLimit,
        _now_ms: i64,
    ) -> Result<Option<Offset>> {
        let start = start.map(|start| number(start, "http")).transpose()?.unwrap_or(NOTHING);
        let mut running = self.running.lock().await;
        let running = match &mut *running {
            Some(running) => running,
            none => {
                let inbox = Inbox::open(Arc::clone(&self.log), start, self.options.max_backlog_bytes).await?;
                none.insert(Running { inbox: Arc::new(inbox), server: None })
            }
        };
        running.inbox.failure()?;
        let goes_on = self.frozen.load(Relaxed) == GOES_ON && limit == ReadLimit::Configured;
        if goes_on && running.server.is_none() {
            running.server = Some(self.listen(&running.inbox).await?);
        }
        let end = self.admit(&running.inbox.after(start), limit);
        Ok(end.map(|end| Offset(end.into())))
    }

    async fn read(&self, _batch_id: BatchId, range: &OffsetRange) -> Result<BlockStream> {
        let start = range.start.as_ref().map(|start| number(start, "http")).transpose()?.unwrap_or(NOTHING);
        let end = number(&range.end, "http")?;
        let (log, decoder, has_header) = (Arc::clone(&self.log), self.decoder.clone(), self.has_header);
        let blocks = stream::iter(start + 1..=end).then(move |number| {
            let (log, decoder) = (Arc::clone(&log), decoder.clone());
            async move {
                let (requests, body) = log::read(&*log, number).await?;
                let requests = if has_header { requests } else { vec![body.len()] };
                let block: Box<dyn Block> = Box::new(Rows { number, requests, body, decoder });
                Ok::<_, Error>(block)
            }
        });
        Ok(blocks.boxed())
    }

    async fn commit(&self, end: &Offset) -> Result<()> {
        let end = number(end, "http")?;
        match &*self.running.lock().await {
            Some(running) => running.inbox.committed(end).await,
            None => Ok(()),
        }
    }

    fn decode_again(&self, records: Vec<Record>) -> Option<Box<dyn Block>> {
        Some(again(&self.decoder, records))
    }

    async fn backlog(&self, position: Option<&Offset>) -> Option<Backlog> {
        let start = position.and_then(|position| position.0.as_u64()).unwrap_or(NOTHING);
        let waiting = self.running.lock().await.as_ref()?.inbox.after(start);
        let records = waiting.iter().map(|(_, entry)| entry.rows).sum();
        let bytes = waiting.iter().map(|(_, entry)| entry.bytes).sum();
        Some(Backlog { records: Some(records), bytes: Some(bytes), ..Backlog::default() })
    }
}

/// An entry of the log.
struct Rows {
    number: u64,
    /// The lengths of what is decoded by itself.
    requests: Vec<usize>,
    body: Bytes,
    decoder: Arc<dyn Decoder>,
}

impl Block for Rows {
    fn input_bytes(&self) -> u64 {
        self.body.len() as u64
    }

    fn decode(self: Box<Self>) -> Result<Decoded> {
        let file = format!("request-{}", self.number);
        let (mut all, mut from, mut first_line) = (Decoded::default(), 0, 1);
        for length in self.requests {
            let bytes = &self.body[from..from + length];
            let input = Input { bytes, file: &file, first_line, starts_file: true };
            let decoded = self.decoder.decode(&input)?;
            all.batches.extend(decoded.batches);
            all.dead_letters.extend(decoded.dead_letters);
            all.dropped_rows += decoded.dropped_rows;
            from += length;
            first_line += memchr::memchr_iter(b'\n', bytes).count() as u64;
        }
        Ok(all)
    }
}
