//! From a URL or a path to a tree.

use super::{LocalFiles, ObjectStoreFiles};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ObjectStore, RetryConfig};
use pelton_core::files::MemoryFiles;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, FileManager, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use url::Url;

const SCHEMES: [&str; 11] =
    ["file", "memory", "s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "https"];

/// Opens the tree at a path, absolute or relative to the current directory, or at a URL:
/// `file:///…`, `memory://name/…` (shared by name within the process), `s3://bucket/…`, `gs://bucket/…`,
/// `az://container/…`. Credentials come from the environment, under the names that the vendors' own tools use.
///
/// The storage is not touched yet: a store that cannot be reached is reported by the first operation.
pub fn open_url(url: &str) -> Result<Arc<dyn FileManager>> {
    open_url_with(url, &BTreeMap::new())
}

/// [`open_url`] with options for the object store that go before the environment, for example
/// `aws_endpoint`, `aws_allow_http`, `google_service_account`, `azure_storage_account_name`.
pub fn open_url_with(url: &str, options: &BTreeMap<String, String>) -> Result<Arc<dyn FileManager>> {
    let Some(scheme) = scheme(url) else { return Ok(Arc::new(LocalFiles::new(url)?)) };
    if !SCHEMES.contains(&scheme.as_str()) {
        let near = did_you_mean(&scheme, SCHEMES);
        return Err(Error::invalid(format!("'{url}': there is no storage '{scheme}://'{near}")));
    }
    let parsed =
        Url::parse(url).map_err(|e| Error::invalid(format!("'{url}' is not a URL: {e}")).caused_by(e))?;
    match scheme.as_str() {
        "file" => Ok(Arc::new(LocalFiles::new(local_path(url, &parsed)?)?)),
        "memory" => Ok(memory(&parsed)),
        _ => {
            let store = remote(&parsed, options).map_err(|why| refused(url, &why))?;
            let (_, path) = object_store::ObjectStoreScheme::parse(&parsed)
                .map_err(|e| Error::invalid(format!("'{url}' names no bucket: {e}")).caused_by(e))?;
            let root = url.trim_end_matches('/').strip_suffix(path.as_ref()).unwrap_or(url);
            Ok(Arc::new(ObjectStoreFiles::new(store, root, path.as_ref())))
        }
    }
}

/// One letter before `:` is a drive, not a scheme.
fn scheme(url: &str) -> Option<String> {
    let (scheme, _) = url.split_once("://")?;
    let plain = scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    plain.then(|| scheme.to_ascii_lowercase())
}

fn local_path(url: &str, parsed: &Url) -> Result<std::path::PathBuf> {
    parsed.to_file_path().map_err(|()| {
        Error::invalid(format!("'{url}' names no local path"))
            .hint("write file:///absolute/path, or the path alone")
    })
}

fn memory(url: &Url) -> Arc<dyn FileManager> {
    static TREES: Mutex<BTreeMap<String, MemoryFiles>> = Mutex::new(BTreeMap::new());
    let name = url.host_str().unwrap_or_default().to_owned();
    // The map is whole whatever happened to another holder: an entry is added in one step.
    let tree = TREES.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default().clone();
    match url.path().trim_matches('/') {
        "" => Arc::new(tree),
        path => tree.subtree(path),
    }
}

fn refused(url: &str, why: &str) -> Error {
    Error::invalid(format!("'{url}' cannot be opened: {why}"))
        .hint("credentials and region come from the environment (AWS_…, GOOGLE_…, AZURE_…)")
}

/// One builder a vendor, all of one shape.
macro_rules! build {
    ($builder:ty, $url:expr, $options:expr) => {{
        let builder = <$builder>::from_env().with_url($url.as_str()).with_retry(retry());
        let builder = $options.iter().try_fold(builder, |builder, (name, value)| {
            let key =
                name.to_ascii_lowercase().parse().map_err(|_| format!("there is no option '{name}'"))?;
            Ok::<_, String>(builder.with_config(key, value))
        })?;
        Ok(Arc::new(builder.build().map_err(|e| e.to_string())?))
    }};
}

fn remote(url: &Url, options: &BTreeMap<String, String>) -> Result<Arc<dyn ObjectStore>, String> {
    use object_store::ObjectStoreScheme as S;
    match object_store::ObjectStoreScheme::parse(url).map_err(|e| e.to_string())?.0 {
        S::AmazonS3 => build!(AmazonS3Builder, url, options),
        S::GoogleCloudStorage => build!(GoogleCloudStorageBuilder, url, options),
        S::MicrosoftAzure => build!(MicrosoftAzureBuilder, url, options),
        _ => Err("only the addresses of S3, GCS and Azure are object stores".into()),
    }
}

/// Long enough for a hiccup, short enough that a wrong address is reported while somebody is still looking.
fn retry() -> RetryConfig {
    RetryConfig { max_retries: 6, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn url_of(url: &str) -> String {
        open_url(url).map_or_else(|e| e.to_string(), |files| files.url())
    }

    #[test]
    fn paths_and_urls_find_their_storage() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(url_of("out/x"), format!("file://{}", here.join("out/x").display()));
        assert_eq!(url_of("file:///a%20b/c"), "file:///a b/c");
        assert_eq!(url_of("memory://t/a/b"), "memory:///a/b");
        assert_eq!(
            url_of("memroy://bucket/x"),
            "'memroy://bucket/x': there is no storage 'memroy://'; did you mean 'memory'?"
        );
        assert!(url_of("https://example.com/x").contains("only the addresses of S3, GCS and Azure"));
    }

    #[test]
    fn stores_are_opened_by_name_without_being_touched() {
        let region = BTreeMap::from([("aws_region".to_owned(), "eu-west-1".to_owned())]);
        let files = open_url_with("s3://bucket/a/b/", &region).unwrap();
        assert_eq!(files.url(), "s3://bucket/a/b");
        assert_eq!(files.subtree("c").url(), "s3://bucket/a/b/c");
        let wrong = BTreeMap::from([("aws_regoin".to_owned(), "x".to_owned())]);
        let error = open_url_with("s3://bucket", &wrong).unwrap_err();
        assert!(error.message().contains("there is no option 'aws_regoin'"), "{error}");
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_reached_is_named() {
        let nowhere =
            [("aws_endpoint", "http://127.0.0.1:9"), ("aws_allow_http", "true"), ("aws_region", "x")];
        let keys = [("aws_access_key_id", "a"), ("aws_secret_access_key", "b")];
        let options = nowhere.iter().chain(&keys).map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let mut no_retry = open_url_with("s3://bucket/x", &options).unwrap();
        no_retry = no_retry.subtree("y");
        let read = tokio::time::timeout(Duration::from_secs(60), no_retry.read("z")).await;
        let error = read.unwrap().unwrap_err();
        assert_eq!(error.kind(), pelton_core::ErrorKind::Unavailable);
        assert!(error.message().contains("s3://bucket/x/y/z"), "{error}");
    }

    #[tokio::test]
    async fn memory_trees_are_shared_by_name() {
        open_url("memory://shared/a").unwrap().replace("f", Bytes::from("x")).await.unwrap();
        assert_eq!(open_url("memory://shared").unwrap().read("a/f").await.unwrap().unwrap(), "x");
        assert_eq!(open_url("memory://other").unwrap().read("a/f").await.unwrap(), None);
    }
}
