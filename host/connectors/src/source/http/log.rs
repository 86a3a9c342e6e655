//! What was sent and is not committed yet, in the checkpoint.
//!
//! Entry `<n>` holds the bodies of a few requests that came at about the same time: a line with the format's version, a line
//! of JSON about the requests, then the bodies as they came, each with a line's end. `keys` holds the idempotency keys of
//! entries that are deleted. An offset is the number of the last entry; the first is 1.

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use pelton_core::{Created, Error, FileManager, Result, create_or_own};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

const VERSION: &[u8] = b"v1\n";
const KEYS: &str = "keys";
/// Keys that are remembered.
const KEYS_MAX: usize = 10_000;

/// A request's rows on their way to the log.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) body: Bytes,
    pub(super) rows: u64,
    pub(super) key: Option<String>,
}

impl Sent {
    fn known(&self) -> Known {
        Known::new(&self.body, self.rows)
    }
}

/// What the log knows of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) rows: u64,
    /// Of the bodies.
    pub(super) bytes: u64,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receipt {
    /// So many rows are durable.
    Stored(u64),
    /// Its key and body had been there before: nothing was added.
    Repeated(u64),
    /// Its key had been there before with another body: nothing was added.
    OtherBody,
}

/// What is remembered of the request that came with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    rows: u64,
    bytes: usize,
    crc32: u32,
}

impl Known {
    /// An end of the last line that is missing does not count.
    fn new(body: &[u8], rows: u64) -> Self {
        let body = body.strip_suffix(b"\n").unwrap_or(body);
        Self { rows, bytes: body.len(), crc32: crc32fast::hash(body) }
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    requests: Vec<Request>,
    /// Of the bodies.
    crc32: u32,
}

#[derive(Serialize, Deserialize)]
struct Request {
    bytes: usize,
    rows: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

/// The log, and what is known of it. One task writes to it (`server.rs`), the engine reads and deletes.
pub(super) struct Inbox {
    log: Arc<dyn FileManager>,
    max_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Entries that are there.
    entries: BTreeMap<u64, Stored>,
    last: u64,
    bytes: u64,
    keys: Keys,
    /// Somebody else writes to the log.
    fenced: Option<String>,
}

/// The last keys and what came with each.
#[derive(Default)]
struct Keys {
    known: HashMap<String, Known>,
    order: VecDeque<String>,
}

impl Keys {
    fn add(&mut self, key: String, known: Known) {
        if self.known.insert(key.clone(), known).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > KEYS_MAX {
            self.order.pop_front().map(|old| self.known.remove(&old));
        }
    }

    fn text(&self) -> Result<Bytes> {
        let pairs: Vec<(&str, Known)> =
            self.order.iter().filter_map(|key| Some((key.as_str(), *self.known.get(key)?))).collect();
        let mut text = VERSION.to_vec();
        serde_json::to_writer(&mut text, &pairs).map_err(unwritable)?;
        Ok(text.into())
    }
}

impl Inbox {
    /// Reads what is there. What lies up to `start` is committed.
    pub(super) async fn open(log: Arc<dyn FileManager>, start: u64, max_bytes: u64) -> Result<Self> {
        let mut state = State { last: start, ..State::default() };
        if let Some(content) = log.read(KEYS).await? {
            let pairs: Vec<(String, Known)> = content
                .strip_prefix(VERSION)
                .and_then(|json| serde_json::from_slice(json).ok())
                .ok_or_else(|| damaged(&*log, KEYS, "it is not a list of keys"))?;
            pairs.into_iter().for_each(|(key, known)| state.keys.add(key, known));
        }
        for number in numbers(&*log).await? {
            let (header, body) = parse(&*log, number).await?;
            let rows = header.requests.iter().map(|request| request.rows).sum();
            let mut from = 0;
            for request in header.requests {
                let known = Known::new(&body[from..from + request.bytes], request.rows);
                request.key.into_iter().for_each(|key| state.keys.add(key, known));
                from += request.bytes;
            }
            state.entries.insert(number, Stored { rows, bytes: body.len() as u64 });
            state.bytes += body.len() as u64;
            state.last = state.last.max(number);
        }
        let inbox = Self { log, max_bytes, state: Mutex::new(state) };
        inbox.committed(start).await?;
        Ok(inbox)
    }

    /// Whether there is room for a body.
    pub(super) fn has_room(&self) -> bool {
        self.state.lock().bytes < self.max_bytes
    }

    /// What came after an offset.
    pub(super) fn after(&self, start: u64) -> Vec<(u64, Stored)> {
        self.state.lock().entries.range(start + 1..).map(|(number, stored)| (*number, *stored)).collect()
    }

    /// An error if another run has written to the log.
    pub(super) fn failure(&self) -> Result<()> {
        match &self.state.lock().fenced {
            Some(message) => Err(Error::fenced(message.clone()).hint("stop one of the two runs")),
            None => Ok(()),
        }
    }

    /// Writes requests as the next entry; when it returns they are durable. Called by one task alone.
    pub(super) async fn add(&self, sent: Vec<Sent>) -> Result<Vec<Receipt>> {
        let (mut receipts, mut new) = (Vec::new(), Vec::<Sent>::new());
        for sent in sent {
            let known = sent.key.as_ref().and_then(|key| {
                let before = self.state.lock().keys.known.get(key).copied();
                before.or_else(|| new.iter().find(|other| other.key.as_ref() == Some(key)).map(Sent::known))
            });
            receipts.push(match known {
                None => Receipt::Stored(sent.rows),
                Some(known) if known == sent.known() => Receipt::Repeated(known.rows),
                Some(_) => Receipt::OtherBody,
            });
            if known.is_none() && sent.rows > 0 {
                new.push(sent);
            }
        }
        if !new.is_empty() {
            self.append(new).await?;
        }
        Ok(receipts)
    }

    async fn append(&self, new: Vec<Sent>) -> Result<()> {
        let number = self.state.lock().last + 1;
        let (content, bytes) = text(&new)?;
        if create_or_own(&*self.log, &number.to_string(), content).await? == Created::Exists {
            let message = format!("{}/{number} was written by another run of this query", self.log.url());
            self.state.lock().fenced = Some(message.clone());
            return Err(Error::fenced(message));
        }
        let mut state = self.state.lock();
        let rows = new.iter().map(|sent| sent.rows).sum();
        state.entries.insert(number, Stored { rows, bytes });
        (state.last, state.bytes) = (number, state.bytes + bytes);
        for sent in new {
            let known = sent.known();
            sent.key.into_iter().for_each(|key| state.keys.add(key, known));
        }
        Ok(())
    }

    /// Deletes entries that are committed, their keys remembered.
    pub(super) async fn committed(&self, end: u64) -> Result<()> {
        let (gone, keys) = {
            let state = self.state.lock();
            let gone: Vec<u64> = state.entries.range(..=end).map(|(number, _)| *number).collect();
            (gone, state.keys.text()?)
        };
        if gone.is_empty() {
            return Ok(());
        }
        if keys.len() > VERSION.len() + 2 {
            self.log.replace(KEYS, keys).await?;
        }
        for number in gone {
            self.log.delete(&number.to_string()).await?;
            let mut state = self.state.lock();
            let bytes = state.entries.remove(&number).map_or(0, |stored| stored.bytes);
            state.bytes -= bytes;
        }
        Ok(())
    }
}

/// The number of the last entry.
pub(super) async fn last(log: &dyn FileManager) -> Result<Option<u64>> {
    Ok(numbers(log).await?.pop())
}

/// The lengths of the requests of an entry, and their bodies.
pub(super) async fn read(log: &dyn FileManager, number: u64) -> Result<(Vec<usize>, Bytes)> {
    let (header, body) = parse(log, number).await?;
    Ok((header.requests.iter().map(|request| request.bytes).collect(), body))
}

async fn numbers(log: &dyn FileManager) -> Result<Vec<u64>> {
    let files = log.list("").await?;
    let mut numbers: Vec<u64> = files.iter().filter_map(|file| file.path.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

async fn parse(log: &dyn FileManager, number: u64) -> Result<(Header, Bytes)> {
    let name = number.to_string();
    let content = log.read(&name).await?.ok_or_else(|| gone(log, &name))?;
    let rest = content.strip_prefix(VERSION).ok_or_else(|| damaged(log, &name, "its format is not v1"))?;
    let end = memchr::memchr(b'\n', rest).ok_or_else(|| damaged(log, &name, "it is cut off"))?;
    let header: Header =
        serde_json::from_slice(&rest[..end]).map_err(|e| damaged(log, &name, &e.to_string()))?;
    let body = content.slice(VERSION.len() + end + 1..);
    let length: usize = header.requests.iter().map(|request| request.bytes).sum();
    if length != body.len() || crc32fast::hash(&body) != header.crc32 {
        return Err(damaged(log, &name, "its checksum is wrong"));
    }
    Ok((header, body))
}

/// An entry, and how many bytes of it are bodies.
fn text(sent: &[Sent]) -> Result<(Bytes, u64)> {
    let (mut bodies, mut requests) = (BytesMut::new(), Vec::with_capacity(sent.len()));
    for Sent { body, rows, key } in sent {
        let before = bodies.len();
        bodies.put_slice(body);
        if !body.ends_with(b"\n") {
            bodies.put_u8(b'\n');
        }
        requests.push(Request { bytes: bodies.len() - before, rows: *rows, key: key.clone() });
    }
    let header = Header { requests, crc32: crc32fast::hash(&bodies) };
    let mut content = VERSION.to_vec();
    serde_json::to_writer(&mut content, &header).map_err(unwritable)?;
    content.push(b'\n');
    content.extend_from_slice(&bodies);
    Ok((content.into(), bodies.len() as u64))
}

fn unwritable(e: serde_json::Error) -> Error {
    Error::internal(format!("the log of an HTTP source cannot be written: {e}"))
}

fn gone(log: &dyn FileManager, name: &str) -> Error {
    Error::data(format!(
        "{}/{name} is gone: rows of an HTTP source are deleted when their micro-batch is committed and cannot be read again",
        log.url()
    ))
    .hint("of a micro-batch that is committed, look at what the sink has; if it is not, restore the checkpoint")
}

fn damaged(log: &dyn FileManager, name: &str, why: &str) -> Error {
    Error::data(format!("{}/{name} cannot be used: {why}", log.url()))
        .hint("restore the checkpoint, or start with a new one")
}
