//! What the state of a query consists of, as the run that wrote the state described it.
//!
//! Each description is kept once, sealed like the logs' entries, under the digest of its bytes, before a micro-batch
//! runs whose commit names it; so the commit that decides which state counts decides at the same moment what that
//! state is, whatever a crash leaves in between. Never deleted: they are few and small. Called by
//! [`crate::Checkpoint`]; what a difference means is the engine's business.

use crate::log::damage_error;
use crate::plugins::digest;
use crate::{entry, layout};
use pelton_core::{Error, FileManager, Result, StateLayout};
use serde::{Deserialize, Serialize};

const WAY_OUT: &str = "restore the file from a backup; without one, start over with a new checkpoint and a new output, \
                       because it says what the bytes of the state mean";

/// The SHA-256 of a description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LayoutId(String);

/// Keeps a description, durably, unless it is there already.
pub async fn save(files: &dyn FileManager, layouts: &[StateLayout]) -> Result<LayoutId> {
    let content = entry::encode(&layouts)?;
    let id = LayoutId(digest(&content).0);
    let path = layout::state_layouts(&id.0);
    let stored = files.list(layout::LAYOUTS).await?;
    if !stored.iter().any(|file| file.path == path && file.size_bytes == content.len() as u64) {
        // Not `create`: what lies there with another length is damaged, and we hold the cure.
        files.replace(&path, content).await?;
    }
    Ok(id)
}

/// A description that the commit log names.
pub async fn load(files: &dyn FileManager, id: &LayoutId) -> Result<Vec<StateLayout>> {
    let LayoutId(name) = id;
    if name.len() != 64 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Error::data(format!("'{name}' is not the SHA-256 of a description of the state")));
    }
    let path = layout::state_layouts(name);
    let file = format!("{}/{path}", files.url());
    let Some(content) = files.read(&path).await? else {
        return Err(Error::data(format!("{file} is missing")).hint(WAY_OUT));
    };
    entry::decode(&content).map_err(|damage| damage_error(&file, damage, WAY_OUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::executor::block_on;
    use pelton_core::{ErrorKind, MemoryFiles, StateColumn, StateFact};

    fn counts() -> Vec<StateLayout> {
        vec![StateLayout {
            name: "counts".into(),
            kind: "aggregate".into(),
            keys: vec![StateColumn { name: "k".into(), data_type: "string".into() }],
            definition: vec![StateFact::new("key 1", "s.k")],
            ..StateLayout::default()
        }]
    }

    #[test]
    fn a_description_comes_back_and_is_kept_once() {
        let files = MemoryFiles::new();
        block_on(async {
            let id = save(&files, &counts()).await.unwrap();
            assert_eq!(save(&files, &counts()).await.unwrap(), id);
            assert_ne!(save(&files, &[]).await.unwrap(), id);
            assert_eq!(files.list(layout::LAYOUTS).await.unwrap().len(), 2);
            assert_eq!(load(&files, &id).await.unwrap(), counts());
        });
    }

    #[test]
    fn damage_is_found_and_says_what_is_lost() {
        let files = MemoryFiles::new();
        block_on(async {
            let id = save(&files, &counts()).await.unwrap();
            let path = layout::state_layouts(&id.0);
            let content = files.read(&path).await.unwrap().unwrap();
            let edited = String::from_utf8(content.to_vec()).unwrap().replace("s.k", "s.q");
            files.replace(&path, Bytes::from(edited)).await.unwrap();
            let refused = load(&files, &id).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Data);
            assert!(refused.message().contains("is damaged"), "{refused}");
            files.delete(&path).await.unwrap();
            let refused = load(&files, &id).await.unwrap_err();
            assert!(refused.message().ends_with("is missing"), "{refused}");
            assert!(load(&files, &LayoutId("../../etc/passwd".into())).await.is_err());
        });
    }
}
