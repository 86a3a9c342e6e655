//! The source's log in the checkpoint: which files each offset stands for. Spark's `FileStreamSourceLog`.
//!
//! Entry `N` lists the files of offset `{"log_offset": N}`; `N.seen` holds all files seen up to entry `N`, so
//! that a start reads one such file and few entries. Entries stay as long as a micro-batch may read them
//! again. All files are text: a version, then a JSON object on each line.

use super::seen::SeenFiles;
use bytes::Bytes;
use pelton_core::{Created, Error, FileManager, Result, create_or_own};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

const VERSION: &str = "v1";
/// What stands before the checksum of all that is above it.
const CHECKSUM: &str = "\ncrc32:";
/// Entries between two lists of the files seen, at least.
const SEEN_EVERY: u64 = 10;
/// Entries between two lists of the files seen, at most.
const SEEN_EVERY_MAX: u64 = 100;
/// Committed entries that are kept, as many as Spark keeps micro-batches.
const ENTRIES_KEPT: u64 = 100;

/// A file as it was when it was listed; it must not change until it is read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct FileEntry {
    /// Absolute, or a URL.
    pub(super) path: String,
    pub(super) size_bytes: u64,
    pub(super) modified_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct SeenEntry<'a> {
    path: std::borrow::Cow<'a, str>,
    modified_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct SeenBound {
    oldest_ms: Option<i64>,
}

/// The log and what is known of it.
#[derive(Debug)]
pub(super) struct FileLog {
    files: Arc<dyn FileManager>,
    /// The last entry.
    pub(super) last: Option<u64>,
    /// Entries that are there as files.
    first: u64,
    last_seen_list: Option<u64>,
    files_since_list: usize,
    /// Entries that were written or read lately and are not committed.
    fresh: BTreeMap<u64, Arc<Vec<FileEntry>>>,
}

impl FileLog {
    /// Reads the log and adds all files in it to `seen`.
    pub(super) async fn open(files: Arc<dyn FileManager>, seen: &mut SeenFiles) -> Result<Self> {
        let names = files.list("").await?;
        let mut entries: Vec<u64> = names.iter().filter_map(|f| f.path.parse().ok()).collect();
        entries.sort_unstable();
        let lists = names.iter().filter_map(|f| f.path.strip_suffix(".seen")?.parse::<u64>().ok());
        let last_seen_list = lists.max();
        let mut log = Self {
            files,
            last: entries.last().copied().max(last_seen_list),
            first: entries.first().copied().unwrap_or(0),
            last_seen_list,
            files_since_list: 0,
            fresh: BTreeMap::new(),
        };
        if let Some(list) = last_seen_list {
            log.restore(list, seen).await?;
        }
        let next = last_seen_list.map_or(0, |list| list + 1);
        for n in next..log.last.map_or(0, |last| last + 1) {
            let entry = log.entry(n).await?;
            log.files_since_list += entry.len();
            entry.iter().for_each(|f| seen.add(&f.path, f.modified_ms));
            seen.purge();
            log.fresh.insert(n, entry);
        }
        Ok(log)
    }

    async fn restore(&self, list: u64, seen: &mut SeenFiles) -> Result<()> {
        let name = format!("{list}.seen");
        let content = self.content(&name).await?;
        let mut lines = content.lines().skip(1);
        let bound: SeenBound = self.parse(&name, lines.next().unwrap_or_default())?;
        for line in lines {
            let file: SeenEntry<'_> = self.parse(&name, line)?;
            seen.add(&file.path, file.modified_ms);
        }
        bound.oldest_ms.into_iter().for_each(|ms| seen.restore_oldest_ms(ms));
        seen.purge();
        Ok(())
    }

    /// The files of an entry.
    pub(super) async fn entry(&self, n: u64) -> Result<Arc<Vec<FileEntry>>> {
        if let Some(entry) = self.fresh.get(&n) {
            return Ok(entry.clone());
        }
        let name = n.to_string();
        let content = self.content(&name).await?;
        let entries =
            content.lines().skip(1).map(|line| self.parse(&name, line)).collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(entries))
    }

    /// Writes the next entry. Another run that wrote it first, with other files, is an error of kind `Fenced`. (If they are
    /// the same, the checkpoint's offset log tells the runs apart.)
    pub(super) async fn append(&mut self, entry: Vec<FileEntry>, seen: &SeenFiles) -> Result<u64> {
        let n = self.last.map_or(0, |last| last + 1);
        let content = text(entry.iter())?;
        if create_or_own(self.files.as_ref(), &n.to_string(), content).await? == Created::Exists {
            let message = format!("{}/{n} was written by another run of this query", self.files.url());
            return Err(Error::fenced(message).hint("stop one of the two runs"));
        }
        self.last = Some(n);
        self.files_since_list += entry.len();
        self.fresh.insert(n, Arc::new(entry));
        let since = n - self.last_seen_list.unwrap_or(0);
        if since >= SEEN_EVERY_MAX || (since >= SEEN_EVERY && self.files_since_list * 2 >= seen.len()) {
            self.list_seen(n, seen).await?;
        }
        Ok(n)
    }

    async fn list_seen(&mut self, n: u64, seen: &SeenFiles) -> Result<()> {
        let bound = SeenBound { oldest_ms: seen.oldest_ms() };
        let mut content = format!("{VERSION}\n{}", json(&bound)?);
        for (path, modified_ms) in seen.sorted() {
            let line = json(&SeenEntry { path: path.into(), modified_ms })?;
            // Writing to a string cannot fail.
            let _ = write!(content, "\n{line}");
        }
        self.files.replace(&format!("{n}.seen"), sealed(content)).await?;
        let before = self.last_seen_list.replace(n);
        self.files_since_list = 0;
        if let Some(before) = before {
            self.files.delete(&format!("{before}.seen")).await?;
        }
        Ok(())
    }

    /// Entries up to `end` are committed: the oldest of them may go.
    pub(super) async fn committed(&mut self, end: u64) -> Result<()> {
        self.fresh = self.fresh.split_off(&(end + 1));
        let keep_from = end.saturating_sub(ENTRIES_KEPT).min(self.last_seen_list.unwrap_or(0));
        while self.first < keep_from {
            self.files.delete(&self.first.to_string()).await?;
            self.first += 1;
        }
        Ok(())
    }

    async fn content(&self, name: &str) -> Result<String> {
        let Some(content) = self.files.read(name).await? else {
            return Err(Error::data(format!("{}/{name} is missing", self.files.url())).hint(
                "the checkpoint is damaged or was made by another query: restore it, or start with a new one",
            ));
        };
        let text = String::from_utf8(content.to_vec()).map_err(|_| self.damaged(name, "it is not text"))?;
        match text.lines().next() {
            Some(VERSION) => self.unsealed(name, &text),
            Some(other) if other.starts_with('v') => {
                Err(self.damaged(name, &format!("its format is {other}, this Pelton reads {VERSION}")))
            }
            _ => Err(self.damaged(name, "its first line is not a version")),
        }
    }

    /// The content without its checksum, which must be right: a changed entry would read other files.
    fn unsealed(&self, name: &str, text: &str) -> Result<String> {
        let (body, checksum) =
            text.rsplit_once(CHECKSUM).ok_or_else(|| self.damaged(name, "it is cut off"))?;
        match checksum.trim_end() == format!("{:08x}", crc32fast::hash(body.as_bytes())) {
            true => Ok(body.to_owned()),
            false => Err(self.damaged(name, "its checksum is wrong")),
        }
    }

    fn parse<T: DeserializeOwned>(&self, name: &str, line: &str) -> Result<T> {
        serde_json::from_str(line).map_err(|e| self.damaged(name, &e.to_string()).caused_by(e))
    }

    fn damaged(&self, name: &str, why: &str) -> Error {
        Error::data(format!("{}/{name} cannot be used: {why}", self.files.url()))
            .hint("restore the checkpoint, use the Pelton that wrote it, or start with a new one")
    }
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::internal(format!("a log line cannot be written: {e}")))
}

fn text<'a, T: Serialize + 'a>(lines: impl Iterator<Item = &'a T>) -> Result<Bytes> {
    let mut content = VERSION.to_owned();
    for line in lines {
        content.push('\n');
        content.push_str(&json(line)?);
    }
    Ok(sealed(content))
}

/// With its checksum as the last line.
fn sealed(content: String) -> Bytes {
    let checksum = crc32fast::hash(content.as_bytes());
    Bytes::from(format!("{content}{CHECKSUM}{checksum:08x}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::{ErrorKind, MemoryFiles};

    fn file(path: &str, modified_ms: i64) -> FileEntry {
        FileEntry { path: path.into(), size_bytes: 1, modified_ms }
    }

    #[tokio::test]
    async fn a_restart_sees_what_was_seen() {
        let files: Arc<dyn FileManager> = Arc::new(MemoryFiles::new());
        let mut seen = SeenFiles::new(Some(1_000), false);
        let mut log = FileLog::open(files.clone(), &mut seen).await.unwrap();
        for n in 0..250 {
            seen.add(&format!("f{n}"), n);
            seen.purge();
            assert_eq!(log.append(vec![file(&format!("f{n}"), n)], &seen).await.unwrap(), n as u64);
            log.committed(n as u64).await.unwrap();
        }
        let left = files.list("").await.unwrap().len();
        assert!(left < 220, "{left} files");
        let mut again = SeenFiles::new(Some(1_000), false);
        let log = FileLog::open(files.clone(), &mut again).await.unwrap();
        assert_eq!((log.last, again.len()), (Some(249), 250));
        assert_eq!(*log.entry(249).await.unwrap(), [file("f249", 249)]);
        let first = files.read("249").await.unwrap().unwrap();
        let first = String::from_utf8(first.to_vec()).unwrap();
        assert!(
            first.starts_with("v1\n{\"path\":\"f249\",\"size_bytes\":1,\"modified_ms\":249}\ncrc32:"),
            "{first}"
        );
    }

    #[tokio::test]
    async fn damage_and_rivals_are_noticed() {
        let files: Arc<dyn FileManager> = Arc::new(MemoryFiles::new());
        let mut seen = SeenFiles::new(None, false);
        let mut log = FileLog::open(files.clone(), &mut seen).await.unwrap();
        files.create("0", Bytes::from("v1")).await.unwrap();
        assert_eq!(log.append(vec![], &seen).await.unwrap_err().kind(), ErrorKind::Fenced);
        files.replace("0", Bytes::from("v9\n{}")).await.unwrap();
        let error = FileLog::open(files.clone(), &mut seen).await.unwrap_err();
        assert!(error.message().contains("its format is v9"), "{error}");
        files.replace("0", Bytes::from("v1\n{nonsense")).await.unwrap();
        assert_eq!(FileLog::open(files, &mut seen).await.unwrap_err().kind(), ErrorKind::Data);
    }

    #[tokio::test]
    async fn an_entry_whose_creation_was_repeated_is_ours() {
        let files: Arc<dyn FileManager> = Arc::new(MemoryFiles::new());
        let mut seen = SeenFiles::new(None, false);
        let mut log = FileLog::open(files.clone(), &mut seen).await.unwrap();
        let entry = vec![file("a.csv", 1)];
        files.create("0", text(entry.iter()).unwrap()).await.unwrap();
        assert_eq!(log.append(entry, &seen).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn an_edited_entry_is_refused() {
        let files: Arc<dyn FileManager> = Arc::new(MemoryFiles::new());
        let mut seen = SeenFiles::new(None, false);
        let mut log = FileLog::open(files.clone(), &mut seen).await.unwrap();
        log.append(vec![file("01-05.csv", 1)], &seen).await.unwrap();
        let written = String::from_utf8(files.read("0").await.unwrap().unwrap().to_vec()).unwrap();
        files.replace("0", Bytes::from(written.replace("01-05", "01-06"))).await.unwrap();
        let error = FileLog::open(files, &mut seen).await.unwrap_err();
        assert!(error.message().contains("its checksum is wrong"), "{error}");
    }
}
