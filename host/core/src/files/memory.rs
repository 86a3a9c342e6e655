//! A directory tree in memory: what a run without a checkpoint writes to, and what tests look into.
//! It dies with the process; clones and subtrees share one content.

use super::{Created, FileInfo, FileManager, FileWriter};
use crate::{Error, Result};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A [`FileManager`] over a map. Modification times are 0: it has no clock.
#[derive(Clone, Default)]
pub struct MemoryFiles {
    prefix: String,
    tree: Arc<Mutex<Tree>>,
}

#[derive(Default)]
struct Tree {
    files: BTreeMap<String, Bytes>,
    locks: BTreeSet<String>,
}

impl MemoryFiles {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        // No operation panics half-way through a change, so the content is whole even if some holder panicked.
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn full(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }
}

impl fmt::Debug for MemoryFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())
    }
}

#[async_trait]
impl FileManager for MemoryFiles {
    fn url(&self) -> String {
        format!("memory:///{}", self.prefix.trim_end_matches('/'))
    }

    async fn read(&self, path: &str) -> Result<Option<Bytes>> {
        Ok(self.tree().files.get(&self.full(path)).cloned())
    }

    async fn create(&self, path: &str, content: Bytes) -> Result<Created> {
        match self.tree().files.entry(self.full(path)) {
            std::collections::btree_map::Entry::Occupied(_) => Ok(Created::Exists),
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(content);
                Ok(Created::New)
            }
        }
    }

    async fn replace(&self, path: &str, content: Bytes) -> Result<()> {
        self.tree().files.insert(self.full(path), content);
        Ok(())
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWriter>> {
        Ok(Box::new(MemoryWriter { files: self.clone(), path: path.to_owned(), content: BytesMut::new() }))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut tree = self.tree();
        let content = tree
            .files
            .remove(&self.full(from))
            .ok_or_else(|| Error::data(format!("{}/{from} is not there to be renamed", self.url())))?;
        tree.files.insert(self.full(to), content);
        Ok(())
    }

    async fn list(&self, dir: &str) -> Result<Vec<FileInfo>> {
        let below = match dir.trim_matches('/') {
            "" => self.prefix.clone(),
            dir => self.full(&format!("{dir}/")),
        };
        let tree = self.tree();
        let found = tree.files.range(below.clone()..).take_while(|(path, _)| path.starts_with(&below));
        let info = |(path, content): (&String, &Bytes)| FileInfo {
            path: path[self.prefix.len()..].to_owned(),
            size_bytes: content.len() as u64,
            modified_ms: 0,
        };
        Ok(found.map(info).collect())
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.tree().files.remove(&self.full(path));
        Ok(())
    }

    async fn lock(&self, path: &str) -> Result<Box<dyn Send + Sync>> {
        let path = self.full(path);
        if !self.tree().locks.insert(path.clone()) {
            return Err(Error::fenced(format!("{} is in use by another run", self.url())));
        }
        Ok(Box::new(MemoryLock { files: self.clone(), path }))
    }

    fn subtree(&self, dir: &str) -> Arc<dyn FileManager> {
        let prefix = self.full(&format!("{}/", dir.trim_matches('/')));
        Arc::new(Self { prefix, tree: Arc::clone(&self.tree) })
    }
}

struct MemoryWriter {
    files: MemoryFiles,
    path: String,
    content: BytesMut,
}

#[async_trait]
impl FileWriter for MemoryWriter {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        self.content.extend_from_slice(&content);
        Ok(())
    }
    async fn finish(self: Box<Self>) -> Result<()> {
        self.files.replace(&self.path, self.content.freeze()).await
    }
}

struct MemoryLock {
    files: MemoryFiles,
    path: String,
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.files.tree().locks.remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    #[test]
    fn creates_once_lists_below_and_shares_subtrees() {
        block_on(async {
            let files = MemoryFiles::new();
            assert_eq!(files.create("a/1", Bytes::from("x")).await.unwrap(), Created::New);
            assert_eq!(files.create("a/1", Bytes::from("y")).await.unwrap(), Created::Exists);
            files.subtree("a").replace("b/2", Bytes::from("z")).await.unwrap();
            files.replace("ab", Bytes::new()).await.unwrap();
            let paths: Vec<String> =
                files.list("a").await.unwrap().into_iter().map(|info| info.path).collect();
            assert_eq!(paths, ["a/1", "a/b/2"]);
            assert_eq!(files.subtree("a").list("").await.unwrap().len(), 2);
            assert_eq!(files.read("a/1").await.unwrap().unwrap(), "x");
        });
    }

    #[test]
    fn a_file_being_written_is_seen_when_finished() {
        block_on(async {
            let files = MemoryFiles::new();
            let mut writer = files.writer("f").await.unwrap();
            writer.write(Bytes::from("ab")).await.unwrap();
            assert_eq!(files.read("f").await.unwrap(), None);
            writer.finish().await.unwrap();
            assert_eq!(files.read("f").await.unwrap().unwrap(), "ab");
        });
    }

    #[test]
    fn a_lock_lasts_as_long_as_its_guard() {
        block_on(async {
            let files = MemoryFiles::new();
            let guard = files.lock("lock").await.unwrap();
            let refused = files.lock("lock").await.err().unwrap();
            assert_eq!(refused.kind(), crate::ErrorKind::Fenced);
            drop(guard);
            files.lock("lock").await.unwrap();
        });
    }
}
