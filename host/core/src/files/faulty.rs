//! A directory tree that fails on demand, for crash tests: the n-th operation fails, once or together with all
//! that follow, before or after it took effect. Used by tests of every crate that writes files; never in a run.

use super::{Created, FileInfo, FileManager, FileWriter};
use crate::{Error, Result};
use async_trait::async_trait;
use bytes::Bytes;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which operation fails, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The operation, counted from 1. Every method that touches storage is one, and so is every call on a writer.
    pub at: u64,
    /// The operation takes effect and its error comes afterwards, as when an answer is lost on the way back.
    pub after_effect: bool,
    /// Everything after it fails too, without effect: the process has died there.
    pub crash: bool,
}

/// A [`FileManager`] that fails as told. Clones and subtrees share one count.
#[derive(Debug, Clone)]
pub struct FaultyFiles {
    inner: Arc<dyn FileManager>,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    fault: Option<Fault>,
    operations: AtomicU64,
}

enum Verdict {
    Pass,
    FailBefore(u64),
    FailAfter(u64),
}

impl FaultyFiles {
    /// Wraps a tree. Without a fault it only counts.
    pub fn new(inner: Arc<dyn FileManager>, fault: Option<Fault>) -> Self {
        Self { inner, plan: Arc::new(Plan { fault, operations: AtomicU64::new(0) }) }
    }
    /// Operations so far, failed ones included.
    pub fn operations(&self) -> u64 {
        self.plan.operations.load(Ordering::SeqCst)
    }
    /// Whether the fault's turn has come.
    pub fn has_failed(&self) -> bool {
        self.plan.fault.is_some_and(|fault| self.operations() >= fault.at)
    }
}

impl Plan {
    fn verdict(&self) -> Verdict {
        let number = self.operations.fetch_add(1, Ordering::SeqCst) + 1;
        match self.fault {
            Some(fault) if number == fault.at && fault.after_effect => Verdict::FailAfter(number),
            Some(fault) if number == fault.at || (fault.crash && number > fault.at) => {
                Verdict::FailBefore(number)
            }
            _ => Verdict::Pass,
        }
    }

    async fn run<T>(
        &self,
        what: &str,
        path: &str,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let failed = |number, when| {
            Error::unavailable(format!("injected fault {when} operation {number}: {what} {path}"))
        };
        match self.verdict() {
            Verdict::Pass => work.await,
            Verdict::FailBefore(number) => Err(failed(number, "before")),
            Verdict::FailAfter(number) => work.await.and(Err(failed(number, "after"))),
        }
    }
}

#[async_trait]
impl FileManager for FaultyFiles {
    fn url(&self) -> String {
        self.inner.url()
    }
    async fn read(&self, path: &str) -> Result<Option<Bytes>> {
        self.plan.run("read", path, self.inner.read(path)).await
    }
    async fn create(&self, path: &str, content: Bytes) -> Result<Created> {
        self.plan.run("create", path, self.inner.create(path, content)).await
    }
    async fn replace(&self, path: &str, content: Bytes) -> Result<()> {
        self.plan.run("replace", path, self.inner.replace(path, content)).await
    }
    async fn writer(&self, path: &str) -> Result<Box<dyn FileWriter>> {
        let inner = self.plan.run("writer", path, self.inner.writer(path)).await?;
        Ok(Box::new(FaultyWriter { inner, path: path.to_owned(), plan: Arc::clone(&self.plan) }))
    }
    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.plan.run("rename", from, self.inner.rename(from, to)).await
    }
    async fn list(&self, dir: &str) -> Result<Vec<FileInfo>> {
        self.plan.run("list", dir, self.inner.list(dir)).await
    }
    async fn delete(&self, path: &str) -> Result<()> {
        self.plan.run("delete", path, self.inner.delete(path)).await
    }
    async fn lock(&self, path: &str) -> Result<Box<dyn Send + Sync>> {
        self.plan.run("lock", path, self.inner.lock(path)).await
    }
    fn subtree(&self, dir: &str) -> Arc<dyn FileManager> {
        Arc::new(Self { inner: self.inner.subtree(dir), plan: Arc::clone(&self.plan) })
    }
}

struct FaultyWriter {
    inner: Box<dyn FileWriter>,
    path: String,
    plan: Arc<Plan>,
}

#[async_trait]
impl FileWriter for FaultyWriter {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        self.plan.run("write to", &self.path, self.inner.write(content)).await
    }
    async fn finish(self: Box<Self>) -> Result<()> {
        self.plan.run("finish", &self.path, self.inner.finish()).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryFiles;
    use super::*;
    use futures::executor::block_on;

    fn faulty(after_effect: bool, crash: bool) -> (MemoryFiles, FaultyFiles) {
        let memory = MemoryFiles::new();
        let fault = Fault { at: 2, after_effect, crash };
        (memory.clone(), FaultyFiles::new(Arc::new(memory), Some(fault)))
    }

    #[test]
    fn the_nth_operation_fails_once() {
        block_on(async {
            let (memory, files) = faulty(false, false);
            files.replace("a", Bytes::new()).await.unwrap();
            let error = files.subtree("d").replace("b", Bytes::new()).await.unwrap_err();
            assert_eq!(error.message(), "injected fault before operation 2: replace b");
            files.replace("c", Bytes::new()).await.unwrap();
            assert_eq!(memory.list("").await.unwrap().len(), 2);
            assert!(files.has_failed());
        });
    }

    #[test]
    fn after_a_crash_nothing_works_and_the_effect_may_be_there() {
        block_on(async {
            let (memory, files) = faulty(true, true);
            let writer = files.writer("a").await.unwrap();
            writer.finish().await.unwrap_err();
            files.read("a").await.unwrap_err();
            assert!(memory.read("a").await.unwrap().is_some());
            assert_eq!(files.operations(), 3);
        });
    }
}
