//! The way to the tests' S3 store. All ways together let one conditional write through at a time, so that of two writers who
//! create the same object one loses: S3 keeps that promise, S3Proxy by itself does not. A way may be slow and fail now and
//! then, before or after the store has acted, as networks and object stores do; what happens to the n-th request follows
//! from a seed.

use crate::events::Chance;
use anyhow::Result;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One request in so many does not go well.
const FAILS_ONE_IN: u64 = 12;
const DELAY_MS_MAX: u64 = 12;
/// One in so many takes far longer.
const STALLS_ONE_IN: u64 = 100;
const STALL_MS: u64 = 400;

/// Listens on a port of its own until it is dropped.
#[derive(Debug)]
pub struct StoreWay {
    port: u16,
    shared: Arc<Shared>,
}

/// Whose turn it is to write on a condition: one for all ways to a store.
pub(crate) type Turn = Arc<Mutex<()>>;

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    /// What decides of failures, if there are any.
    chance: Option<Mutex<Chance>>,
    /// Held by a conditional write.
    turn: Turn,
    requests: AtomicU64,
    failures: AtomicU64,
    over: AtomicBool,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    /// The server never hears of it, and the connection breaks.
    Lost,
    /// `503 Slow Down`; the server never hears of it.
    Refused,
    /// The server has acted, and the connection breaks.
    AnswerLost,
    /// The server has acted, and the answer breaks off in the middle.
    AnswerCut,
    /// The server has acted, and `500 Internal Error` comes back.
    AnswerFailed,
}

const FAILURES: [Fate; 5] =
    [Fate::Lost, Fate::Refused, Fate::AnswerLost, Fate::AnswerCut, Fate::AnswerFailed];

impl StoreWay {
    /// To a store on the loopback device; with a seed, one that is slow and fails.
    pub(crate) fn open(server_port: u16, turn: &Turn, seed: Option<u64>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            server: SocketAddr::from((Ipv4Addr::LOCALHOST, server_port)),
            chance: seed.map(|seed| Mutex::new(Chance::new(seed))),
            turn: Arc::clone(turn),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if of_thread.over.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&of_thread);
                // Clients break off as they like, too.
                std::thread::spawn(move || shared.serve(&client).ok());
            }
        });
        Ok(Self { port, shared })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Requests that came, and those of them that did not go well.
    pub fn requests_and_failures(&self) -> (u64, u64) {
        (self.shared.requests.load(Ordering::SeqCst), self.shared.failures.load(Ordering::SeqCst))
    }
}

impl Drop for StoreWay {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Shared {
    /// The requests of one connection, one after the other, until something breaks.
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        let server = TcpStream::connect(self.server)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (mut to_client, mut to_server) = (client, &server);
        let (mut from_client, mut from_server) = (BufReader::new(client), BufReader::new(&server));
        loop {
            let request = Message::read(&mut from_client, |_| true)?;
            let (fate, delay) = self.decide();
            std::thread::sleep(delay);
            match fate {
                Fate::Lost => return client.shutdown(Shutdown::Both),
                Fate::Refused => {
                    answer(client, "503 Slow Down")?;
                    continue;
                }
                _ => {}
            }
            let turn = request.is_conditional();
            let turn = turn.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
            to_server.write_all(&request.bytes)?;
            let is_head = request.bytes.starts_with(b"HEAD ");
            let response = Message::read(&mut from_server, |status| !is_head && has_body(status))?;
            drop(turn);
            match fate {
                Fate::AnswerLost => return client.shutdown(Shutdown::Both),
                Fate::AnswerCut => {
                    to_client.write_all(&response.bytes[..response.bytes.len() / 2])?;
                    return client.shutdown(Shutdown::Both);
                }
                Fate::AnswerFailed => answer(client, "500 Internal Server Error")?,
                _ => to_client.write_all(&response.bytes)?,
            }
        }
    }

    fn decide(&self) -> (Fate, Duration) {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let Some(chance) = &self.chance else { return (Fate::Answered, Duration::ZERO) };
        let mut chance = chance.lock().unwrap_or_else(PoisonError::into_inner);
        let stalls = chance.below(STALLS_ONE_IN) == 0;
        let delay = Duration::from_millis(if stalls { STALL_MS } else { chance.below(DELAY_MS_MAX) });
        if chance.below(FAILS_ONE_IN) > 0 {
            return (Fate::Answered, delay);
        }
        self.failures.fetch_add(1, Ordering::SeqCst);
        (FAILURES[chance.below(FAILURES.len() as u64) as usize], delay)
    }
}

fn answer(mut client: &TcpStream, status: &str) -> io::Result<()> {
    write!(client, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")
}

/// Answers with these codes end with their head.
fn has_body(status: &str) -> bool {
    !(status.starts_with('1') || status.starts_with("204") || status.starts_with("304"))
}

/// A request or a response, whole.
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Whether it writes on a condition.
    fn is_conditional(&self) -> bool {
        let end = self.bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(self.bytes.len());
        let head = String::from_utf8_lossy(&self.bytes[..end]).to_ascii_lowercase();
        head.starts_with("put ") && ["\nif-none-match:", "\nif-match:"].iter().any(|name| head.contains(name))
    }

    /// `has_body` looks at what follows the first word of the first line: the status of a response.
    fn read(from: &mut impl BufRead, has_body: impl Fn(&str) -> bool) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let (mut length, mut chunked, mut first) = (0_u64, false, String::new());
        loop {
            let start = bytes.len();
            if from.read_until(b'\n', &mut bytes)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = String::from_utf8_lossy(&bytes[start..]).trim_end().to_ascii_lowercase();
            match line.split_once(':') {
                _ if start == 0 => first = line.split_once(' ').unwrap_or_default().1.to_owned(),
                _ if line.is_empty() => break,
                Some(("content-length", value)) => length = value.trim().parse().unwrap_or(0),
                Some(("transfer-encoding", value)) => chunked = value.contains("chunked"),
                _ => {}
            }
        }
        if has_body(&first) {
            match chunked {
                true => chunks(from, &mut bytes)?,
                false => exactly(from, length, &mut bytes)?,
            }
        }
        Ok(Self { bytes })
    }
}

fn exactly(from: &mut impl Read, length: u64, into: &mut Vec<u8>) -> io::Result<()> {
    let read = from.take(length).read_to_end(into)?;
    if read as u64 == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Each a line with its length and as many bytes; the last is empty.
fn chunks(from: &mut impl BufRead, into: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let start = into.len();
        from.read_until(b'\n', into)?;
        let line = String::from_utf8_lossy(&into[start..]).into_owned();
        let length = line.trim().split(';').next().unwrap_or_default();
        let length =
            u64::from_str_radix(length, 16).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
        // With the end of its line.
        exactly(from, length + 2, into)?;
        if length == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> io::Result<Vec<u8>> {
        Message::read(&mut text.as_bytes(), has_body).map(|message| message.bytes)
    }

    #[test]
    fn a_conditional_write_is_known_by_its_head() {
        let is_conditional = |text: &str| Message { bytes: text.into() }.is_conditional();
        assert!(is_conditional("PUT /a HTTP/1.1\r\nIf-None-Match: *\r\n\r\n"));
        assert!(!is_conditional("PUT /a HTTP/1.1\r\n\r\n\nif-none-match: *"));
        assert!(!is_conditional("GET /a HTTP/1.1\r\nIf-None-Match: *\r\n\r\n"));
    }

    #[test]
    fn a_message_ends_where_its_head_says() -> io::Result<()> {
        let messages = [
            "PUT /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
        ];
        for message in messages {
            assert_eq!(whole(&format!("{message}GET / HTTP/1.1\r\n"))?, message.as_bytes(), "{message}");
        }
        assert!(whole("PUT /a HTTP/1.1\r\nContent-Length: 3\r\n\r\na").is_err());
        Ok(())
    }
}
