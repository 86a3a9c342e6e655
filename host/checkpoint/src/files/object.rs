//! A directory tree on an object store (S3, GCS, Azure …), by way of the `object_store` crate.
//!
//! Objects appear whole, so nothing needs a temporary name. A rename is a copy and a deletion: after a crash
//! between the two the file is there twice, never not at all.

use super::{join, join_unchecked};
use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use pelton_core::{Created, Error, ErrorKind, FileInfo, FileManager, FileWriter, Result};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

/// Part size of uploads, in bytes: small files go in one request. Each open file holds up to this and
/// [`PARTS_IN_FLIGHT`] more of them.
const PART_BYTES: usize = 8 << 20;
const PARTS_IN_FLIGHT: usize = 2;

/// A [`FileManager`] over a prefix of an object store. Locks always succeed there: creation decides.
#[derive(Debug, Clone)]
pub struct ObjectStoreFiles {
    store: Arc<dyn ObjectStore>,
    root_url: String,
    prefix: String,
}

impl ObjectStoreFiles {
    /// The tree below `prefix` (empty: the whole store). `root_url` is the store's, for messages: `s3://bucket`.
    pub fn new(store: Arc<dyn ObjectStore>, root_url: impl Into<String>, prefix: impl Into<String>) -> Self {
        let root_url = root_url.into().trim_end_matches('/').to_owned();
        Self { store, root_url, prefix: prefix.into().trim_matches('/').to_owned() }
    }

    fn path(&self, path: &str) -> Result<Path> {
        let full = join(&self.prefix, path)?;
        Path::parse(&full).map_err(|e| Error::invalid(format!("'{full}' cannot be a path: {e}")).caused_by(e))
    }

    fn failed(&self, what: &str, path: &str, e: object_store::Error) -> Error {
        use object_store::Error as E;
        let (kind, hint) = match &e {
            E::NotFound { .. } => (ErrorKind::Data, None),
            E::InvalidPath { .. } | E::NotSupported { .. } | E::NotImplemented { .. } => {
                (ErrorKind::Invalid, None)
            }
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => (
                ErrorKind::Invalid,
                Some("check the credentials in the environment and what they allow on this bucket"),
            ),
            _ => (
                ErrorKind::Unavailable,
                Some(
                    "check that the store's endpoint, region and credentials are right and that it can be reached",
                ),
            ),
        };
        let error = Error::new(kind, format!("cannot {what} {}/{path}: {e}", self.url())).caused_by(e);
        match hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

#[async_trait]
impl FileManager for ObjectStoreFiles {
    fn url(&self) -> String {
        match self.prefix.as_str() {
            "" => self.root_url.clone(),
            prefix => format!("{}/{prefix}", self.root_url),
        }
    }

    async fn read(&self, path: &str) -> Result<Option<Bytes>> {
        let location = self.path(path)?;
        let content = match self.store.get(&location).await {
            Ok(found) => found.bytes().await,
            Err(e) => Err(e),
        };
        match content {
            Ok(content) => Ok(Some(content)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed("read", path, e)),
        }
    }

    async fn create(&self, path: &str, content: Bytes) -> Result<Created> {
        let options = PutOptions::from(PutMode::Create);
        match self.store.put_opts(&self.path(path)?, PutPayload::from(content), options).await {
            Ok(_) => Ok(Created::New),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(Created::Exists)
            }
            Err(e) => Err(self.failed("create", path, e)),
        }
    }

    async fn replace(&self, path: &str, content: Bytes) -> Result<()> {
        let put = self.store.put(&self.path(path)?, PutPayload::from(content)).await;
        put.map(|_| ()).map_err(|e| self.failed("write", path, e))
    }

    async fn writer(&self, path: &str) -> Result<Box<dyn FileWriter>> {
        let upload = BufWriter::with_capacity(Arc::clone(&self.store), self.path(path)?, PART_BYTES)
            .with_max_concurrency(PARTS_IN_FLIGHT);
        Ok(Box::new(ObjectWriter { upload: Some(upload), files: self.clone(), path: path.to_owned() }))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        match self.store.rename(&self.path(from)?, &self.path(to)?).await {
            Ok(()) => Ok(()),
            Err(e @ object_store::Error::NotFound { .. }) => {
                Err(Error::data(format!("{}/{from} is not there to be renamed", self.url())).caused_by(e))
            }
            Err(e) => Err(self.failed("rename", from, e)),
        }
    }

    async fn list(&self, dir: &str) -> Result<Vec<FileInfo>> {
        let below = self.path(dir)?;
        let below = (!below.is_root()).then_some(&below);
        let found: Vec<ObjectMeta> =
            self.store.list(below).try_collect().await.map_err(|e| self.failed("list", dir, e))?;
        let prefix_len = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
        let info = |meta: ObjectMeta| FileInfo {
            path: meta.location.as_ref().get(prefix_len..).unwrap_or_default().to_owned(),
            size_bytes: meta.size,
            modified_ms: meta.last_modified.timestamp_millis(),
        };
        let mut found: Vec<FileInfo> =
            found.into_iter().map(info).filter(|file| !file.path.is_empty()).collect();
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    async fn delete(&self, path: &str) -> Result<()> {
        match self.store.delete(&self.path(path)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed("delete", path, e)),
        }
    }

    async fn lock(&self, path: &str) -> Result<Box<dyn Send + Sync>> {
        self.path(path)?;
        Ok(Box::new(()))
    }

    fn subtree(&self, dir: &str) -> Arc<dyn FileManager> {
        Arc::new(Self { prefix: join_unchecked(&self.prefix, dir), ..self.clone() })
    }
}

struct ObjectWriter {
    /// Absent once it was finished or has failed.
    upload: Option<BufWriter>,
    files: ObjectStoreFiles,
    path: String,
}

impl ObjectWriter {
    fn upload(&mut self) -> Result<&mut BufWriter> {
        let over = || Error::internal(format!("the upload of {} is over", self.path));
        self.upload.as_mut().ok_or_else(over)
    }
}

#[async_trait]
impl FileWriter for ObjectWriter {
    async fn write(&mut self, content: Bytes) -> Result<()> {
        let written = self.upload()?.put(content).await;
        written.map_err(|e| self.files.failed("write", &self.path, e))
    }

    async fn finish(mut self: Box<Self>) -> Result<()> {
        let finished = self.upload()?.shutdown().await;
        self.upload = None;
        finished.map_err(|e| {
            let e = object_store::Error::Generic { store: "upload", source: Box::new(e) };
            self.files.failed("write", &self.path, e)
        })
    }
}

impl Drop for ObjectWriter {
    /// Tells the store to forget the parts of an upload that was given up: they cost money and are seen by nobody.
    fn drop(&mut self) {
        if let (Some(mut upload), Ok(runtime)) = (self.upload.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { upload.abort().await });
        }
    }
}
