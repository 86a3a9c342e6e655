//! Opens files and reads them into blocks: locally on blocking threads, from object stores by one streaming
//! request a file, decompressing on the way. Reads a little ahead and no further.
//!
//! A file must be what it was when it was listed; one that went or changed is an error, because its rows may
//! be in the output already.

use super::compacted::is_compacted;
use super::cut::{Boundary, CutError, Piece, Pool, cut};
use super::listing::modified_ms;
use super::location::Place;
use super::log::FileEntry;
use bytes::{Buf, Bytes};
use futures::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use pelton_core::{Error, Result};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

/// Blocks of one file that wait to be taken.
const BLOCKS_AHEAD: usize = 2;
/// Pieces of an object that wait to be cut.
const PIECES_AHEAD: usize = 8;

/// A file to be read.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    pub(super) entry: FileEntry,
    /// The path within its place: a local path, or a key.
    pub(super) path: String,
    pub(super) place: Place,
    /// For messages.
    pub(super) shown: Arc<str>,
}

/// How a file's name says it is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    fn of(path: &str) -> Result<Self> {
        match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
            "gz" => Ok(Self::Gzip),
            "zst" | "zstd" => Ok(Self::Zstd),
            other @ ("bz2" | "xz" | "lz4" | "snappy" | "lzo" | "deflate") => {
                Err(Error::data(format!("'{path}': files compressed as .{other} cannot be read"))
                    .hint("compress with gzip (.gz) or zstd (.zst), or leave such files out by a pattern"))
            }
            _ => Ok(Self::None),
        }
    }
}

/// The blocks of one file, or the error at which reading stopped. Must be called within a tokio runtime.
pub(super) fn pieces(
    file: Opening,
    boundary: Boundary,
    pool: Arc<Pool>,
) -> mpsc::Receiver<Result<(Piece, u64)>> {
    let (sender, receiver) = mpsc::channel(BLOCKS_AHEAD);
    tokio::task::spawn_blocking(move || {
        if let Err(e) = read(&file, &boundary, &pool, &sender) {
            // A receiver that went does not want to know.
            let _ = sender.blocking_send(Err(e));
        }
    });
    receiver
}

type Sender = mpsc::Sender<Result<(Piece, u64)>>;

fn read(file: &Opening, boundary: &Boundary, pool: &Arc<Pool>, sender: &Sender) -> Result<()> {
    let compression = Compression::of(&file.entry.path)?;
    let bytes = Arc::new(AtomicU64::new(0));
    let raw = Counting { inner: reader(file)?, bytes: bytes.clone() };
    let mut before = 0;
    let emit = |piece: Piece| {
        let now = bytes.load(Ordering::Relaxed);
        let input_bytes = now - std::mem::replace(&mut before, now);
        sender.blocking_send(Ok((piece, input_bytes))).is_ok()
    };
    let cut = match compression {
        Compression::None => cut(raw, boundary, pool, emit),
        Compression::Gzip => cut(flate2::bufread::MultiGzDecoder::new(buffered(raw)), boundary, pool, emit),
        Compression::Zstd => match zstd::stream::read::Decoder::with_buffer(buffered(raw)) {
            Ok(decoder) => cut(decoder, boundary, pool, emit),
            Err(e) => Err(CutError::Io(e)),
        },
    };
    cut.map_err(|e| file.cut_error(e, compression))
}

/// The bytes of a file as they lie there, for a thread that may wait.
pub(super) fn reader(file: &Opening) -> Result<Box<dyn Read + Send>> {
    Ok(match &file.place {
        Place::Local => Box::new(file.open()?),
        Place::Remote { store, .. } => Box::new(remote_reader(file, store.clone())),
    })
}

fn buffered(raw: Counting) -> BufReader<Counting> {
    BufReader::with_capacity(256 << 10, raw)
}

impl Opening {
    /// Opens a local file, if it is still what it was.
    pub(super) fn open(&self) -> Result<File> {
        let opened = File::open(&self.path).and_then(|file| file.metadata().map(|meta| (file, meta)));
        match opened {
            Ok((file, meta)) => {
                self.check(meta.len(), modified_ms(&meta))?;
                Ok(file)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(self.went()),
            Err(e) => Err(super::listing::local(&self.shown, e)),
        }
    }

    /// An error of kind `Data` if the file is not what it was.
    pub(super) fn check(&self, size_bytes: u64, modified_ms: i64) -> Result<()> {
        let same_time = modified_ms == self.entry.modified_ms || is_compacted(&self.entry.path);
        if size_bytes == self.entry.size_bytes && same_time {
            return Ok(());
        }
        let sizes = match size_bytes == self.entry.size_bytes {
            true => "the size is the same, the time of modification is not".to_owned(),
            false => format!("{} bytes then, {size_bytes} now", self.entry.size_bytes),
        };
        let message = format!("{} has changed since it was listed: {sizes}", self.shown);
        Err(Error::data(message).hint(
            "files must be complete when they appear: write them elsewhere (or under a name with '_' or '.' in front) and move them in",
        ))
    }

    fn went(&self) -> Error {
        Error::data(format!("{} has gone since it was listed", self.shown))
            .hint("bring it back: a micro-batch that was planned with it must be able to read it")
    }

    /// What a store said, as an error of ours.
    pub(super) fn store_error(&self, e: object_store::Error) -> Error {
        match e {
            object_store::Error::NotFound { .. } => self.went(),
            e => super::listing::remote(&self.shown, e),
        }
    }

    fn cut_error(&self, e: CutError, compression: Compression) -> Error {
        match e {
            CutError::TooLong(line, max) => {
                Error::data(format!("{}:{line}: a record is longer than {max} bytes", self.shown))
                    .hint("is this file of the format that the source declares?")
            }
            CutError::Io(e) => match e.downcast::<Error>() {
                Ok(error) => error,
                Err(e) if compression != Compression::None && e.kind() != io::ErrorKind::NotFound => {
                    Error::data(format!("{}: cannot be decompressed: {e}", self.shown)).caused_by(e)
                }
                Err(e) => super::listing::local(&self.shown, e),
            },
        }
    }
}

/// Counts what is read through it.
struct Counting {
    inner: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// An object's bytes as they come, for a thread that may wait.
struct RemoteReader {
    pieces: mpsc::Receiver<Result<Bytes>>,
    current: Bytes,
}

fn remote_reader(file: &Opening, store: Arc<dyn ObjectStore>) -> RemoteReader {
    let (sender, pieces) = mpsc::channel(PIECES_AHEAD);
    let file = file.clone();
    tokio::spawn(async move {
        if let Err(e) = send_object(&file, &store, &sender).await {
            let _ = sender.send(Err(e)).await;
        }
    });
    RemoteReader { pieces, current: Bytes::new() }
}

async fn send_object(
    file: &Opening,
    store: &Arc<dyn ObjectStore>,
    sender: &mpsc::Sender<Result<Bytes>>,
) -> Result<()> {
    let found = store.get(&Path::from(file.path.as_str())).await.map_err(|e| file.store_error(e))?;
    file.check(found.meta.size, found.meta.last_modified.timestamp_millis())?;
    let mut pieces = found.into_stream();
    while let Some(piece) = pieces.next().await {
        if sender.send(Ok(piece.map_err(|e| file.store_error(e))?)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

impl Read for RemoteReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(Ok(piece)) => self.current = piece,
                Some(Err(e)) => return Err(io::Error::other(e)),
            }
        }
        let len = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..len]);
        Ok(len)
    }
}

/// The beginning of a file, for inference: at most `bytes` of it, whole records if it is longer.
pub(super) async fn sample(file: Opening, boundary: Boundary) -> Result<Option<Vec<u8>>> {
    let mut pieces = pieces(file, boundary, Arc::default());
    match pieces.recv().await {
        None => Ok(None),
        Some(piece) => piece.map(|(piece, _)| Some(piece.buffer.bytes.clone())),
    }
}
