//! Reads state files ahead of the one that asks for them: several at a time, of bounded size together. Called while
//! state is restored; checks nothing.

use super::file::Link;
use super::retain::StoredFiles;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt, iter};
use pelton_core::{BatchId, FileManager, Result};
use std::sync::Arc;

/// As many files are read at a time.
const FILES_MAX: usize = 32;
/// A file by its micro-batch and path.
type Name = (BatchId, String);
type Read = (Name, Result<Option<Bytes>>);

/// Files that are asked for one after the other, in the order given, though perhaps not all of them.
pub(super) struct Prefetch {
    files: Arc<dyn FileManager>,
    stream: BoxStream<'static, Read>,
    /// One that was read and not asked for yet.
    ahead: Option<Read>,
    /// How the order goes.
    descending: bool,
}

impl Prefetch {
    /// `order`: the files that may be asked for, ascending or descending; `sizes`: how many bytes they have, as far as
    /// that is known; `bytes_max`: those of files that are read at a time, if there is more than one.
    pub(super) fn new(
        files: &Arc<dyn FileManager>,
        order: Vec<Name>,
        sizes: &StoredFiles,
        bytes_max: u64,
    ) -> Self {
        let largest = order.iter().filter_map(|name| sizes.get(name)).max().copied().unwrap_or(0);
        let at_once = (bytes_max / largest.max(1)).clamp(1, FILES_MAX as u64) as usize;
        let descending = !order.is_sorted();
        let source = Arc::clone(files);
        let reads = order.into_iter().map(move |name| -> BoxFuture<'static, Read> {
            let files = Arc::clone(&source);
            Box::pin(async move {
                let content = files.read(&name.1).await;
                (name, content)
            })
        });
        Self {
            files: Arc::clone(files),
            stream: iter(reads).buffered(at_once).boxed(),
            ahead: None,
            descending,
        }
    }

    /// The content of a file; none if there is no such file.
    pub(super) async fn read(&mut self, wanted: Link) -> Result<Option<Bytes>> {
        let wanted = (wanted.batch, wanted.path());
        loop {
            let (name, content) = match self.ahead.take() {
                Some(read) => read,
                None => match self.stream.next().await {
                    Some(read) => read,
                    None => return self.files.read(&wanted.1).await,
                },
            };
            if name == wanted {
                return content;
            }
            if (name < wanted) == self.descending {
                self.ahead = Some((name, content));
                return self.files.read(&wanted.1).await;
            }
        }
    }
}
