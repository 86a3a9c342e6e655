//! A way to the tests' server that breaks where a test says: the counterpart of `FaultyFiles` for a connection.
#![allow(clippy::unwrap_used, reason = "a test ends where something goes wrong")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// Where it breaks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// At this message of the client, from 1, counted over all connections.
    pub(super) at: u64,
    /// The server has acted on it, but its answer is lost; otherwise it never hears of it.
    pub(super) after_effect: bool,
    /// Nobody can connect any more either.
    pub(super) for_good: bool,
}

/// Listens on a port of its own until it is dropped.
pub(super) struct Proxy {
    pub(super) port: u16,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    socket: PathBuf,
    cut: Option<Cut>,
    messages: AtomicU64,
    was_cut: AtomicBool,
}

impl Proxy {
    pub(super) async fn start(socket: PathBuf, cut: Option<Cut>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared =
            Arc::new(Shared { socket, cut, messages: AtomicU64::new(0), was_cut: AtomicBool::new(false) });
        let of_task = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&of_task).serve(client));
            }
        });
        Self { port, shared, task }
    }

    pub(super) fn url(&self) -> String {
        format!("postgresql://pelton@127.0.0.1:{}/postgres", self.port)
    }

    pub(super) fn was_cut(&self) -> bool {
        self.shared.was_cut.load(SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, mut client: TcpStream) {
        let is_dead = self.was_cut.load(SeqCst) && self.cut.is_some_and(|cut| cut.for_good);
        if is_dead {
            return;
        }
        let Ok(mut server) = UnixStream::connect(&self.socket).await else { return };
        let (mut from_client, mut from_server) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            tokio::select! {
                read = client.read(&mut from_client) => {
                    let Ok(size @ 1..) = read else { return };
                    let message = self.messages.fetch_add(1, SeqCst) + 1;
                    let cut = self.cut.filter(|cut| cut.at == message);
                    if cut.is_some_and(|cut| !cut.after_effect) {
                        return self.was_cut.store(true, SeqCst);
                    }
                    if server.write_all(&from_client[..size]).await.is_err() {
                        return;
                    }
                    if cut.is_some() {
                        // Rows being copied get no answer.
                        let answer = server.read(&mut from_server);
                        let _ = tokio::time::timeout(Duration::from_millis(50), answer).await;
                        return self.was_cut.store(true, SeqCst);
                    }
                }
                read = server.read(&mut from_server) => {
                    let Ok(size @ 1..) = read else { return };
                    if client.write_all(&from_server[..size]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}
