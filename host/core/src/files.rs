//! The port to files: checkpoints, output directories, logs. Spark's `CheckpointFileManager`.

pub mod faulty;
pub mod memory;
pub mod overlay;

pub use faulty::{Fault, FaultyFiles};
pub use memory::MemoryFiles;
pub use overlay::OverlayFiles;

use crate::Result;
use async_trait::async_trait;
use bytes::Bytes;
use std::fmt::Debug;
use std::sync::Arc;

/// A directory tree, local or on an object store. Paths are relative, with `/`, without `..`.
#[async_trait]
pub trait FileManager: Send + Sync + Debug {
    /// Where the tree lies, for messages: `file:///data/out`, `s3://bucket/out`, `memory:///`.
    fn url(&self) -> String;
    /// The whole file, or `None` if there is none.
    async fn read(&self, path: &str) -> Result<Option<Bytes>>;
    /// Creates a file with this content, whole or not at all, and durably; never replaces one.
    async fn create(&self, path: &str, content: Bytes) -> Result<Created>;
    /// Creates or replaces a file, whole or not at all, and durably.
    async fn replace(&self, path: &str, content: Bytes) -> Result<()>;
    /// Opens a file for a long write; it is there, durably, once [`FileWriter::finish`] has returned.
    async fn writer(&self, path: &str) -> Result<Box<dyn FileWriter>>;
    /// Moves a file, replacing what is at `to`. A missing `from` is an error of kind `Data`.
    async fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// The files (not directories) below `dir`, at any depth, sorted by path. Empty if there is no such directory.
    async fn list(&self, dir: &str) -> Result<Vec<FileInfo>>;
    /// Deletes a file; none is no error.
    async fn delete(&self, path: &str) -> Result<()>;
    /// Takes the tree for this process alone, for as long as the guard lives. Where the storage has no locks
    /// (object stores) it succeeds always: there [`FileManager::create`] decides who may write a log entry.
    /// A tree that is taken is an error of kind `Fenced`.
    async fn lock(&self, path: &str) -> Result<Box<dyn Send + Sync>>;
    /// The same tree seen from a directory in it.
    fn subtree(&self, dir: &str) -> Arc<dyn FileManager>;
}

/// What became of [`FileManager::create`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The file is there now, with our content.
    New,
    /// There was one already; nothing was changed.
    Exists,
}

/// [`FileManager::create`] for logs of one file an entry: a file that is there already with this very content is ours
/// (a store may repeat a request whose answer was lost), one with another content is somebody else's and `Exists`.
pub async fn create_or_own(files: &dyn FileManager, path: &str, content: Bytes) -> Result<Created> {
    match files.create(path, content.clone()).await? {
        Created::Exists if files.read(path).await? == Some(content) => Ok(Created::New),
        created => Ok(created),
    }
}

/// A file as [`FileManager::list`] saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Relative to the tree.
    pub path: String,
    /// In bytes.
    pub size_bytes: u64,
    /// Milliseconds since the Unix epoch.
    pub modified_ms: i64,
}

/// A file being written. Dropping it without `finish` leaves nothing behind under the file's name.
#[async_trait]
pub trait FileWriter: Send {
    /// Appends.
    async fn write(&mut self, content: Bytes) -> Result<()>;
    /// Makes the file visible and durable.
    async fn finish(self: Box<Self>) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    #[test]
    fn an_entry_is_created_once_and_a_repeated_request_finds_its_own() {
        block_on(async {
            let files = MemoryFiles::new();
            let create = |content: &'static str| {
                create_or_own(&files, "log/0", Bytes::from_static(content.as_bytes()))
            };
            assert_eq!(create("mine").await.unwrap(), Created::New);
            assert_eq!(create("mine").await.unwrap(), Created::New);
            assert_eq!(create("theirs").await.unwrap(), Created::Exists);
            assert_eq!(files.read("log/0").await.unwrap().unwrap(), "mine");
        });
    }
}
