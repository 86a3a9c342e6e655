//! What a file sink has committed: everything in its directory but its own folder `_pelton`, as any reader sees it.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The sink's log and the files that are not committed yet.
const HIDDEN: &str = "_pelton";

/// Every committed file by its path below the directory, with its bytes.
pub fn committed_files(directory: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
        {
            let path = entry?.path();
            let name = path.strip_prefix(directory)?.to_string_lossy().into_owned();
            if path.is_dir() && name != HIDDEN {
                folders.push(path);
            } else if path.is_file() {
                files.insert(name, std::fs::read(&path)?);
            }
        }
    }
    Ok(files)
}

/// The lines of all committed files, in the order of the files' names, which is that of the micro-batches.
pub fn committed_rows(directory: &Path) -> Result<Vec<String>> {
    let files = committed_files(directory)?;
    let text = files.values().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect::<String>();
    Ok(text.lines().map(str::to_owned).collect())
}
