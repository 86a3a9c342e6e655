//! The bytes of every plugin that the offset log names, so that a rerun uses the code of the first run.
//!
//! Each version is kept once, under its digest, for as long as an entry of the log or a rollback may ask for it; the engine
//! says when none does any more.

use crate::layout;
use bytes::Bytes;
use pelton_core::{Error, FileManager, PluginDigest, Result};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The digest of a plugin's bytes.
pub fn digest(bytes: &[u8]) -> PluginDigest {
    let hash = Sha256::digest(bytes);
    PluginDigest(hash.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Keeps a plugin's bytes, durably, unless they are there already.
pub async fn save(files: &dyn FileManager, plugin: &PluginDigest, bytes: &Bytes) -> Result<()> {
    if digest(bytes) != *plugin {
        return Err(Error::internal(format!("the plugin to be kept as {plugin} has other bytes")));
    }
    let path = layout::plugin(plugin);
    let stored = files.list(layout::PLUGINS).await?;
    if stored.iter().any(|file| file.path == path && file.size_bytes == bytes.len() as u64) {
        return Ok(());
    }
    // Not `create`: what lies there with another length is damaged, and we hold the cure.
    files.replace(&path, bytes.clone()).await
}

/// The plugins whose bytes are there, in the order of their digests. Other files are none of ours.
pub async fn kept(files: &dyn FileManager) -> Result<Vec<PluginDigest>> {
    let stored = files.list(layout::PLUGINS).await?;
    let name = |path: &str| {
        let name = path.strip_prefix(layout::PLUGINS)?.strip_prefix('/')?.strip_suffix(".wasm")?;
        is_digest(name).then(|| PluginDigest(name.to_owned()))
    };
    Ok(stored.iter().filter_map(|file| name(&file.path)).collect())
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The bytes of a plugin that the offset log names, checked against the digest.
pub async fn load(files: &dyn FileManager, plugin: &PluginDigest) -> Result<Bytes> {
    if !is_digest(plugin.as_str()) {
        return Err(Error::data(format!("'{plugin}' is not the SHA-256 of a plugin")));
    }
    let file = format!("{}/{}", files.url(), layout::plugin(plugin));
    let way_out = "restore the file from a backup, or build the very same plugin again and put it there; the \
                   micro-batch that ran with it cannot be repeated without it";
    match files.read(&layout::plugin(plugin)).await? {
        Some(bytes) if digest(&bytes) == *plugin => Ok(bytes),
        Some(_) => {
            Err(Error::data(format!("{file} is damaged: its bytes do not have its digest")).hint(way_out))
        }
        None => Err(Error::data(format!("{file} is missing")).hint(way_out)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use pelton_core::MemoryFiles;

    #[test]
    fn bytes_come_back_checked_and_damage_is_found_or_cured() {
        block_on(async {
            let files = MemoryFiles::new();
            let bytes = Bytes::from_static(b"\0asm");
            let name = digest(&bytes);
            assert_eq!(name.as_str().len(), 64);
            assert!(load(&files, &name).await.unwrap_err().message().ends_with("is missing"));
            save(&files, &name, &bytes).await.unwrap();
            assert_eq!(load(&files, &name).await.unwrap(), bytes);
            files.replace("plugins/notes.txt", Bytes::new()).await.unwrap();
            assert_eq!(kept(&files).await.unwrap(), std::slice::from_ref(&name));

            files.replace(&layout::plugin(&name), Bytes::from_static(b"\0as")).await.unwrap();
            assert!(load(&files, &name).await.unwrap_err().message().contains("is damaged"));
            save(&files, &name, &bytes).await.unwrap();
            assert_eq!(load(&files, &name).await.unwrap(), bytes);
            assert!(save(&files, &name, &Bytes::new()).await.is_err());
        });
    }

    #[test]
    fn a_digest_from_a_log_is_no_path() {
        let evil = PluginDigest("../../../etc/passwd".into());
        let refused = block_on(load(&MemoryFiles::new(), &evil)).unwrap_err();
        assert!(refused.message().contains("is not the SHA-256"), "{refused}");
    }
}
