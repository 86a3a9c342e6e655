//! The port of an HTTP source: takes requests, hands them to the one task that writes the log, and answers when they are durable.

use super::log::{Inbox, Receipt, Sent};
use crate::decode::{Decoder, Input};
use crate::http::{Limits, is_for_this_machine, serve};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use pelton_core::{Error, Result};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Requests that wait to be written: beyond that, connections wait.
const WAITING_MAX: usize = 256;
/// Bytes of an entry, at least if so many wait.
const ENTRY_BYTES: usize = 4 << 20;
/// Characters of an idempotency key.
const KEY_LENGTH_MAX: usize = 255;

/// How requests are taken.
pub(super) struct Settings {
    pub(super) path: String,
    pub(super) max_body_bytes: usize,
    pub(super) token: Option<String>,
    /// The first line of each body names the columns.
    pub(super) has_header: bool,
    /// Refuses bodies with a malformed row, if that is the source's policy.
    pub(super) check: Option<Arc<dyn Decoder>>,
    pub(super) limits: Limits,
}

/// An open port; dropping it closes it.
pub(super) struct Server {
    address: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

type Waiting = (Sent, oneshot::Sender<std::result::Result<Receipt, String>>);

struct Door {
    settings: Settings,
    inbox: Arc<Inbox>,
    writer: mpsc::Sender<Waiting>,
}

impl Server {
    /// Opens the port.
    pub(super) async fn start(
        name: &str,
        address: SocketAddr,
        settings: Settings,
        inbox: Arc<Inbox>,
    ) -> Result<Self> {
        let failed = |e: std::io::Error| {
            Error::unavailable(format!("source '{name}' cannot listen on {address}: {e}"))
                .hint("is another process using the port?")
                .caused_by(e)
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        tracing::info!("source '{name}' listens on http://{address}{}", settings.path);
        let (writer, waiting) = mpsc::channel(WAITING_MAX);
        let writing = tokio::spawn(write(Arc::clone(&inbox), waiting));
        let (path, limits) = (settings.path.clone(), settings.limits);
        let router =
            Router::new().route(&path, post(take)).with_state(Arc::new(Door { settings, inbox, writer }));
        let serving = tokio::spawn(async move {
            if let Err(e) = serve(listener, router, limits, std::future::pending()).await {
                tracing::error!("the HTTP server has ended: {e}");
            }
        });
        Ok(Self { address, tasks: [writing, serving] })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Writes what waits, many requests at a time: one sync of the disk serves them all.
async fn write(inbox: Arc<Inbox>, mut waiting: mpsc::Receiver<Waiting>) {
    while let Some((sent, answer)) = waiting.recv().await {
        let (mut bytes, mut group, mut answers) = (sent.body.len(), vec![sent], vec![answer]);
        while bytes < ENTRY_BYTES
            && let Ok((sent, answer)) = waiting.try_recv()
        {
            bytes += sent.body.len();
            group.push(sent);
            answers.push(answer);
        }
        // Whoever does not wait any more does not want to know.
        match inbox.add(group).await {
            Ok(receipts) => {
                answers
                    .into_iter()
                    .zip(receipts)
                    .for_each(|(answer, receipt)| drop(answer.send(Ok(receipt))));
            }
            Err(e) => {
                tracing::error!("rows could not be stored: {}", e.message());
                answers.into_iter().for_each(|answer| drop(answer.send(Err(e.message().to_owned()))));
            }
        }
    }
}

/// Why a request was not taken.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, error) = self;
        let mut response = answer(status, &json!({ "error": error }));
        let headers = response.headers_mut();
        match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

fn answer(status: StatusCode, body: &serde_json::Value) -> Response {
    let mut response = Response::new(Body::from(format!("{body}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn take(State(door): State<Arc<Door>>, request: Request) -> Response {
    match door.take(request).await {
        Ok(Receipt::Stored(rows)) => answer(StatusCode::OK, &json!({"rows": rows, "repeated": false})),
        Ok(Receipt::Repeated(rows)) => answer(StatusCode::OK, &json!({"rows": rows, "repeated": true})),
        Ok(Receipt::OtherBody) => {
            let why = "this Idempotency-Key came before with another body, and nothing was taken: send new rows with a new key";
            Refusal(StatusCode::UNPROCESSABLE_ENTITY, why.into()).into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

impl Door {
    async fn take(&self, request: Request) -> std::result::Result<Receipt, Refusal> {
        let (parts, body) = request.into_parts();
        self.let_in(&parts.headers)?;
        if !self.inbox.has_room() {
            let why = "too many rows wait to be processed: try again later";
            return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, why.into()));
        }
        let key = key(&parts.headers)?;
        let max = self.settings.max_body_bytes;
        let arrived = tokio::time::timeout(self.settings.limits.arrival, to_bytes(body, max)).await;
        let slow = |_| {
            Refusal(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time: send less at once".into())
        };
        let body = arrived.map_err(slow)?.map_err(|_| {
            let why = format!("the body could not be read; it may have at most {max} bytes");
            Refusal(StatusCode::PAYLOAD_TOO_LARGE, why)
        })?;
        self.check(&body).await?;
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
        let rows = lines.saturating_sub(usize::from(self.settings.has_header));
        let (sender, receiver) = oneshot::channel();
        let gone = || Refusal(StatusCode::SERVICE_UNAVAILABLE, "the query is ending".into());
        self.writer.send((Sent { body, rows: rows as u64, key }, sender)).await.map_err(|_| gone())?;
        let stored = receiver.await.map_err(|_| gone())?;
        stored.map_err(|why| Refusal(StatusCode::SERVICE_UNAVAILABLE, why))
    }

    fn let_in(&self, headers: &HeaderMap) -> std::result::Result<(), Refusal> {
        if self.settings.token.is_none() {
            keep_browsers_out(headers)?;
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        if self.settings.token.as_ref().is_some_and(|token| !same(token.as_bytes(), given.trim().as_bytes()))
        {
            let why = "the header 'Authorization: Bearer …' is missing or has another token";
            return Err(Refusal(StatusCode::UNAUTHORIZED, why.into()));
        }
        if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            let why = "a compressed body cannot be read: send it as it is";
            return Err(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, why.into()));
        }
        Ok(())
    }

    /// Decoding is work for a thread that may block.
    async fn check(&self, body: &Bytes) -> std::result::Result<(), Refusal> {
        let Some(decoder) = self.settings.check.clone() else { return Ok(()) };
        let bytes = body.clone();
        let work = move || {
            let input = Input { bytes: &bytes, file: "body", first_line: 1, starts_file: true };
            decoder.decode(&input).map(drop)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(Refusal(StatusCode::BAD_REQUEST, e.message().to_owned())),
            Err(e) => Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, e.to_string())),
        }
    }
}

/// Without a token, whatever runs on this machine may send rows, but no page that a browser shows: it says where it comes from, or
/// it has a name for this machine that others gave.
fn keep_browsers_out(headers: &HeaderMap) -> std::result::Result<(), Refusal> {
    let why = if headers.contains_key(header::ORIGIN) {
        "pages in a browser cannot send rows to a source without a token: leave out the header 'Origin', or set a token"
    } else if !is_for_this_machine(headers) {
        "a source without a token takes requests to this machine alone: ask 127.0.0.1 or localhost, or set a token"
    } else {
        return Ok(());
    };
    Err(Refusal(StatusCode::FORBIDDEN, why.into()))
}

fn key(headers: &HeaderMap) -> std::result::Result<Option<String>, Refusal> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=KEY_LENGTH_MAX).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => {
            let why = format!("an Idempotency-Key is plain text of at most {KEY_LENGTH_MAX} characters");
            Err(Refusal(StatusCode::BAD_REQUEST, why))
        }
    }
}

/// Compares in a time that tells nothing but the length.
fn same(expected: &[u8], given: &[u8]) -> bool {
    let differs = expected.iter().zip(given).fold(0, |differs, (a, b)| differs | (a ^ b));
    expected.len() == given.len() && differs == 0
}
