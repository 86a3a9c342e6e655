//! What the HTTP servers of a process share: how many connections are open at a time, how long a request may take to arrive, and
//! whether it was meant for this machine.
//!
//! Without these limits, clients that send half a request and rest would take one file descriptor after the other, until the
//! query has none left.

use axum::Router;
use axum::extract::{ConnectInfo, Request, connect_info::Connected};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// What a server gives to its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Open connections; more wait until one of them is closed.
    pub connections: usize,
    /// From the opening of a connection, or the answer before, until a request's head is there; then until its body is.
    pub arrival: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, arrival: Duration::from_secs(60) }
    }
}

/// Serves until `close`, then ends with the requests that are under way.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    close: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let free = Arc::new(Semaphore::new(limits.connections));
    let listener = Limited { listener, free, arrival: limits.arrival };
    let router = router.layer(middleware::from_fn(note_answering));
    let service = router.into_make_service_with_connect_info::<Answering>();
    axum::serve(listener, service).with_graceful_shutdown(close).await
}

/// Whether the `Host` of a request is this machine. A name that its owner points at 127.0.0.1 (DNS rebinding) is not.
pub fn is_for_this_machine(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    host.and_then(|host| host.parse::<Authority>().ok()).is_some_and(|host| {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

/// A listener with so many connections at a time.
struct Limited {
    listener: TcpListener,
    free: Arc<Semaphore>,
    arrival: Duration,
}

impl Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // It is never closed.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let deadline = Box::pin(sleep(self.arrival));
        let answering = Answering::default();
        (Connection { stream, deadline, arrival: self.arrival, answering, _permit: permit }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether a request of this connection has its head and no answer yet: that may take as long as it takes.
#[derive(Debug, Clone, Default)]
struct Answering(Arc<AtomicBool>);

impl Connected<IncomingStream<'_, Limited>> for Answering {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Self {
        stream.io().answering.clone()
    }
}

async fn note_answering(
    ConnectInfo(answering): ConnectInfo<Answering>,
    request: Request,
    next: Next,
) -> Response {
    answering.0.store(true, Relaxed);
    let response = next.run(request).await;
    answering.0.store(false, Relaxed);
    response
}

/// A connection that looks closed if nothing whole comes in time.
struct Connection {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    arrival: Duration,
    answering: Answering,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Connection {
    fn begin_again(&mut self) {
        self.deadline.as_mut().reset(Instant::now() + self.arrival);
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, into) {
            return Poll::Ready(read);
        }
        if this.answering.0.load(Relaxed) {
            this.begin_again();
        }
        this.deadline.as_mut().poll(cx).map(Ok)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.begin_again();
        Pin::new(&mut this.stream).poll_write(cx, from)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.begin_again();
        Pin::new(&mut this.stream).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn server(limits: Limits, answers_after: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route(
            "/",
            get(move || async move {
                sleep(answers_after).await;
                "done"
            }),
        );
        tokio::spawn(serve(listener, router, limits, std::future::pending()));
        address
    }

    async fn sent(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn clients_that_rest_make_room_for_others() {
        let limits = Limits { connections: 2, arrival: Duration::from_millis(200) };
        let address = server(limits, Duration::ZERO).await;
        let mut resting = Vec::new();
        for head in ["GET / HT", "", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
            resting.push(sent(address, head).await);
        }
        let answer = reqwest::get(format!("http://{address}/")).await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "done");
        let mut said = Vec::new();
        for mut stream in resting {
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            said.push(text.contains("done"));
        }
        assert_eq!(said, [false, false, true], "the server has closed all of them");
    }

    #[tokio::test]
    async fn an_answer_may_take_longer_than_a_request() {
        let limits = Limits { connections: 1, arrival: Duration::from_millis(50) };
        let address = server(limits, Duration::from_millis(400)).await;
        let client = reqwest::Client::new();
        for _ in 0..2 {
            let answer = client.get(format!("http://{address}/")).send().await.unwrap();
            assert_eq!(answer.text().await.unwrap(), "done");
        }
    }
}
