//! The object stores of a process by the root of their URLs: every part that reads `s3://bucket/…` shares one
//! client, and `memory://` is one store. Called by the file source when it is opened.

use object_store::ObjectStore;
use parking_lot::Mutex;
use pelton_core::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use url::Url;

/// Opens object stores and keeps them open. Clones share what is open.
#[derive(Debug, Clone, Default)]
pub struct Stores {
    settings: Vec<(String, String)>,
    open: Arc<Mutex<BTreeMap<String, Arc<dyn ObjectStore>>>>,
}

impl Stores {
    /// With settings such as `aws_region` or `google_service_account`; the names of environment variables do
    /// in either case. Settings that a store does not know are not its business.
    pub fn new(settings: impl IntoIterator<Item = (String, String)>) -> Self {
        let lower = |(name, value): (String, String)| (name.to_ascii_lowercase(), value);
        Self { settings: settings.into_iter().map(lower).collect(), open: Arc::default() }
    }

    /// Takes a store that is open already, for URLs that start with `root` (`s3://bucket`, `memory://`).
    pub fn put(&self, root: &str, store: Arc<dyn ObjectStore>) {
        self.open.lock().insert(root.to_owned(), store);
    }

    /// The store of a root.
    pub(crate) fn open(&self, root: &str) -> Result<Arc<dyn ObjectStore>> {
        let mut open = self.open.lock();
        if let Some(store) = open.get(root) {
            return Ok(store.clone());
        }
        let url = Url::parse(&format!("{root}/"))
            .map_err(|e| Error::invalid(format!("'{root}' is not the beginning of a URL: {e}")))?;
        let settings = self.settings.iter().map(|(name, value)| (name, value));
        let (store, _) = object_store::parse_url_opts(&url, settings).map_err(|e| {
            Error::invalid(format!("'{root}' cannot be opened: {e}"))
                .hint("a source reads local paths, s3://, gs://, az://, http:// and memory://")
                .caused_by(e)
        })?;
        let store: Arc<dyn ObjectStore> = Arc::from(store);
        open.insert(root.to_owned(), store.clone());
        Ok(store)
    }
}
