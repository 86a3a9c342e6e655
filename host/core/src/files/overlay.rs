//! A directory tree as it would be after writes that never happen: what is written stays in memory, what is read comes from
//! there or from the tree beneath. For those who only want to look, by means that would write.

use super::{Created, FileInfo, FileManager, FileWriter, MemoryFiles};
use crate::{Error, Result};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A [`FileManager`] that changes nothing of another one.
#[derive(Clone)]
pub struct OverlayFiles {
    base: Arc<dyn FileManager>,
    prefix: String,
    /// What was written, and the full paths that were deleted.
    written: MemoryFiles,
    deleted: Arc<Mutex<BTreeSet<String>>>,
}

impl OverlayFiles {
    /// Over a tree.
    pub fn new(base: Arc<dyn FileManager>) -> Self {
        Self { base, prefix: String::new(), written: MemoryFiles::new(), deleted: Arc::default() }
    }

    fn full(&self, path: &str) -> String {
        format!("{}{path}", self.prefix)
    }

    fn is_deleted(&self, path: &str) -> bool {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner).contains(&self.full(path))
    }
}

impl fmt::Debug for OverlayFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlayFiles").field("base", &self.base).finish_non_exhaustive()
    }
}

#[async_trait]
impl FileManager for OverlayFiles {
    fn url(&self) -> String {
        self.base.url()
    }

    async fn read(&self, path: &str) -> Result<Option<Bytes>> {
        match self.written.read(&self.full(path)).await? {
            None if self.is_deleted(path) => Ok(None),
            None => self.base.read(path).await,
            written => Ok(written),
        }
    }

    async fn create(&self, path: &str, content: Bytes) -> Result<Created> {
        match self.read(path).await? {
            Some(_) => Ok(Created::Exists),
            None => self.written.create(&self.full(path), content).await,
        }
    }

    async fn replace(&self, path: &str, content: Bytes) -> Result<()> {
        self.written.replace(&self.full(path), content).await
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWriter>> {
        self.written.writer(&self.full(path)).await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let Some(content) = self.read(from).await? else {
            return Err(Error::data(format!("{}/{from} is not there to be renamed", self.url())));
        };
        self.replace(to, content).await?;
        self.delete(from).await
    }

    async fn list(&self, dir: &str) -> Result<Vec<FileInfo>> {
        let base = self.base.list(dir).await?.into_iter().filter(|file| !self.is_deleted(&file.path));
        let mut files: BTreeMap<String, FileInfo> = base.map(|file| (file.path.clone(), file)).collect();
        let written = self.written.list(self.full(dir).trim_end_matches('/')).await?;
        for mut file in written {
            file.path = file.path[self.prefix.len()..].to_owned();
            files.insert(file.path.clone(), file);
        }
        Ok(files.into_values().collect())
    }

    async fn delete(&self, path: &str) -> Result<()> {
        self.written.delete(&self.full(path)).await?;
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner).insert(self.full(path));
        Ok(())
    }

    /// There is nobody to keep out.
    async fn lock(&self, _: &str) -> Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }

    fn subtree(&self, dir: &str) -> Arc<dyn FileManager> {
        let prefix = self.full(&format!("{}/", dir.trim_matches('/')));
        Arc::new(Self { base: self.base.subtree(dir), prefix, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;

    #[test]
    fn writes_are_seen_and_change_nothing_beneath() {
        block_on(async {
            let base = MemoryFiles::new();
            for (path, content) in [("log/0", "a"), ("log/1", "b"), ("other", "c")] {
                base.replace(path, Bytes::from_static(content.as_bytes())).await.unwrap();
            }
            let before = base.list("").await.unwrap();
            let over = OverlayFiles::new(Arc::new(base.clone()));
            let log = over.subtree("log");
            assert_eq!(log.read("1").await.unwrap().unwrap(), "b");
            assert_eq!(log.create("1", Bytes::from_static(b"x")).await.unwrap(), Created::Exists);
            assert_eq!(log.create("2", Bytes::from_static(b"two")).await.unwrap(), Created::New);
            log.replace("0", Bytes::from_static(b"zero")).await.unwrap();
            log.rename("1", "3").await.unwrap();
            let names = |files: Vec<FileInfo>| files.into_iter().map(|file| file.path).collect::<Vec<_>>();
            assert_eq!(names(log.list("").await.unwrap()), ["0", "2", "3"]);
            assert_eq!(names(over.list("").await.unwrap()), ["log/0", "log/2", "log/3", "other"]);
            assert_eq!(over.read("log/0").await.unwrap().unwrap(), "zero");
            assert_eq!(over.read("log/1").await.unwrap(), None);
            assert!(log.rename("1", "4").await.is_err());
            assert_eq!(base.list("").await.unwrap(), before);
            assert_eq!(base.read("log/0").await.unwrap().unwrap(), "a");
        });
    }
}
