//! `watch: true`: a plugin's file is looked at while the query runs, and what is new in it is swapped in.
//!
//! A file counts as written when two looks, a moment apart, find it the same. A version that is refused is told once; the
//! next one that is written is tried again.

use crate::runner::QueryRunner;
use bytes::Bytes;
use pelton_checkpoint::plugins::digest;
use pelton_core::PluginDigest;
use pelton_engine::SwapOutcome;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Between two looks.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// By what a change is noticed before anything is read.
type Stamp = (SystemTime, u64);

/// A plugin's file under watch.
pub(crate) struct Watch {
    plugin: String,
    path: PathBuf,
    /// The last look, and whether what it found was read.
    stamp: Option<Stamp>,
    is_read: bool,
    /// The version that was taken, or refused, last.
    known: PluginDigest,
}

impl Watch {
    /// The file of a plugin whose version is `known`.
    pub(crate) fn new(plugin: &str, path: PathBuf, known: PluginDigest) -> Self {
        Self { plugin: plugin.to_owned(), path, stamp: None, is_read: false, known }
    }

    /// Looks again and again, for as long as it is polled.
    pub(crate) async fn run(mut self, query: Arc<QueryRunner>) {
        loop {
            tokio::time::sleep(LOOKS_EVERY).await;
            let Some(bytes) = self.look() else { continue };
            self.swap(&query, bytes).await;
        }
    }

    /// The bytes of a version that is new and whole.
    fn look(&mut self) -> Option<Bytes> {
        let stamp = stamp(&self.path);
        let is_same = stamp.is_some() && stamp == self.stamp;
        if !is_same {
            (self.stamp, self.is_read) = (stamp, false);
            return None;
        }
        if self.is_read {
            return None;
        }
        let bytes = Bytes::from(std::fs::read(&self.path).ok()?);
        // Whoever has written since then is not done.
        if stamp != self::stamp(&self.path) {
            return None;
        }
        self.is_read = true;
        let found = digest(&bytes);
        let is_new = found != self.known;
        self.known = found;
        is_new.then_some(bytes)
    }

    async fn swap(&self, query: &QueryRunner, bytes: Bytes) {
        let (plugin, name) = (&self.plugin, query.name());
        if query.plugins().get(plugin).is_some_and(|running| running.digest == self.known) {
            return;
        }
        match query.swap_to_file(plugin, bytes).await {
            Ok(SwapOutcome::TookOver { batch_id, .. }) => {
                tracing::warn!(query = %name, %batch_id, "plugin '{plugin}' runs in its new version");
            }
            // The engine has told it.
            Ok(SwapOutcome::RolledBack { .. }) => {}
            Err(refused) => {
                let hint = refused.hint_text().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
                tracing::warn!(query = %name, "{}: {}{hint}", self.path.display(), refused.message());
            }
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_taken_once_and_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.wasm");
        std::fs::write(&path, b"one").unwrap();
        let mut watch = Watch::new("p", path.clone(), digest(b"one"));
        for _ in 0..3 {
            assert_eq!(watch.look(), None, "nothing is new");
        }
        std::fs::write(&path, b"half").unwrap();
        assert_eq!(watch.look(), None, "it may be half of it");
        std::fs::write(&path, b"half and half").unwrap();
        assert_eq!(watch.look(), None);
        assert_eq!(watch.look(), Some(Bytes::from_static(b"half and half")));
        assert_eq!(watch.look(), None, "it was taken");
        std::fs::remove_file(&path).unwrap();
        assert_eq!((watch.look(), watch.look()), (None, None));
        std::fs::write(&path, b"half and half").unwrap();
        assert_eq!((watch.look(), watch.look()), (None, None), "the same as before");
    }
}
