//! How micro-batches become visible in an output directory, and what happens to those of runs that died.

use super::log::{HIDDEN, Layout, Log, LogEntry, LogFile, PENDING, Taken, Totals, batch_of, file_name};
use super::rollover::{Due, Rollover};
use futures::{StreamExt, TryStreamExt, stream};
use pelton_core::{
    BatchId, BatchInfo, Created, Error, FileManager, QueryId, Result, SinkContext, SinkReport,
};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Moves and deletions under way at once.
const AT_ONCE: usize = 8;

/// An output directory that this run writes to.
pub(super) struct Directory {
    files: Arc<dyn FileManager>,
    pub(super) log: Log,
    pub(super) query_id: QueryId,
    /// Part of the names of pending files: no two runs write to one name, whatever they believe of each other.
    pub(super) run: String,
    /// The last commit and its number.
    pub(super) last: Option<(u64, LogEntry)>,
    /// Bytes at the top of each file that waits.
    pub(super) head_bytes: u64,
    /// Pending files of other runs for micro-batches that are not decided: they go when these are.
    undecided: Vec<(BatchId, String)>,
    /// Frees the directory when dropped.
    _lock: Box<dyn Send + Sync>,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory")
            .field("files", &self.files)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

/// Where the files of a micro-batch go before it is committed.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    /// The tree of pending files.
    pub(super) files: Arc<dyn FileManager>,
    batch_id: BatchId,
    run: String,
    extension: String,
}

impl Pending {
    /// Final and pending name of the micro-batch's n-th file.
    pub(super) fn names(&self, number: usize, directory: &str) -> (String, String) {
        let path = in_directory(directory, &file_name(self.batch_id, number, &self.extension));
        // The last ending keeps `*.json` and the like from finding it.
        (path, format!("{}-{number:05}-{}{}.pending", self.batch_id, self.run, self.extension))
    }
}

impl LogEntry {
    /// What the last micro-batch gave.
    pub(super) fn taken(&self) -> Taken {
        self.taken.unwrap_or_else(|| Taken::of(&self.files))
    }
}

impl Taken {
    pub(super) fn of(files: &[LogFile]) -> Self {
        let rows = files.iter().map(|file| file.rows).sum();
        Self { rows, bytes: files.iter().map(|file| file.size_bytes).sum() }
    }
}

impl Directory {
    /// Takes the directory for a run: refuses that of another query, finishes or removes what dead runs left. `waits`: files
    /// may wait for their rollover.
    pub(super) async fn open(
        files: Arc<dyn FileManager>,
        context: &SinkContext,
        layout: &Layout,
        waits: bool,
    ) -> Result<Self> {
        let log = Log::of(&*files);
        let lock = log.files.lock("lock").await?;
        own(&*files, &log, context).await?;
        let mut directory = Self {
            files,
            log,
            query_id: context.query_id.clone(),
            run: run_token(),
            last: None,
            head_bytes: 0,
            undecided: Vec::new(),
            _lock: lock,
        };
        directory.recover().await?;
        directory.check_against(context.may_hold())?;
        directory.adopt(layout, waits).await?;
        Ok(directory)
    }

    /// From now on files are written in this layout. What waits in another one, or with no rule any more to wait for, rolls
    /// over before.
    async fn adopt(&mut self, layout: &Layout, waits: bool) -> Result<()> {
        let before = self.log.layouts().await?.pop().map(|(_, layout)| layout);
        let changes = before.as_ref() != Some(layout);
        self.head_bytes = before.map_or(0, |layout| layout.head_bytes);
        if changes || !waits {
            self.roll(Due::Now).await?;
        }
        if changes {
            let from = self.last.as_ref().map_or(BatchId::FIRST, |(_, last)| last.batch_id.next());
            self.log.set_layout(from, layout).await?;
        }
        self.head_bytes = layout.head_bytes;
        Ok(())
    }

    /// Reads the log, moves the files that it has decided to their places and removes those that it has not.
    pub(super) async fn recover(&mut self) -> Result<()> {
        self.last = self.log.last().await?;
        let last = self.last.as_ref().map(|(_, entry)| entry);
        if let Some(entry) = last.filter(|entry| entry.query_id != self.query_id) {
            return Err(foreign(&*self.files, &entry.query_id));
        }
        let pending = self.log.files.list(PENDING).await?;
        let names = pending.iter().filter_map(|file| file.path.strip_prefix(PENDING)?.strip_prefix('/'));
        let decided = last.map_or(&[][..], |entry| &entry.files);
        let waiting: BTreeSet<&str> =
            last.iter().flat_map(|entry| &entry.staged).map(|part| part.pending.as_str()).collect();
        let last = last.map(|entry| entry.batch_id);
        let (mut moves, mut leftovers) = (Vec::new(), Vec::new());
        self.undecided.clear();
        for name in names.filter(|name| !waiting.contains(name)) {
            // Moves end before the next commit: only the last can have any left.
            if let Some(file) = decided.iter().find(|file| file.pending == name) {
                moves.push(file.clone());
                continue;
            }
            match batch_of_pending(name) {
                Some(batch) if Some(batch) > last && !name.contains(&self.run) => {
                    self.undecided.push((batch, name.to_owned()));
                }
                _ => leftovers.push(name.to_owned()),
            }
        }
        self.publish(&moves).await?;
        self.discard(leftovers).await
    }

    /// A report, if the micro-batch is done already.
    pub(super) fn done(&self, batch: &BatchInfo) -> Result<Option<SinkReport>> {
        if batch.query_id != self.query_id {
            let (one, other) = (&batch.query_id, &self.query_id);
            return Err(Error::internal(format!("a micro-batch of query {one} came to the sink of {other}")));
        }
        let last = self.last.as_ref().map(|(_, last)| last);
        let Some(last) = last.filter(|last| batch.batch_id <= last.batch_id) else {
            return Ok(None);
        };
        let mut report = SinkReport { already_committed: true, ..SinkReport::default() };
        if last.batch_id == batch.batch_id {
            let taken = last.taken();
            report.files = last.files.len() as u64;
            (report.rows, report.bytes) = (taken.rows, taken.bytes);
        }
        Ok(Some(report))
    }

    /// Where the files of the next micro-batch go.
    pub(super) fn pending(&self, batch_id: BatchId, extension: String) -> Pending {
        Pending { files: self.log.files.subtree(PENDING), batch_id, run: self.run.clone(), extension }
    }

    /// Commits a micro-batch: makes its files visible, or lets them wait for their rollover. One without files leaves no
    /// trace: it is as empty in every rerun. Returns how many files became visible.
    pub(super) async fn commit(
        &mut self,
        batch: &BatchInfo,
        written: Vec<LogFile>,
        rule: Option<Rollover>,
    ) -> Result<usize> {
        let visible = match rule {
            Some(rule) => self.commit_parts(batch, written, rule).await?,
            None if written.is_empty() => 0,
            None => {
                let (numbered, visible) = (written.len(), written.len());
                let entry = self.entry(batch.batch_id, written);
                self.append(LogEntry { numbered, ..entry }).await?;
                visible
            }
        };
        self.discard_undecided(|id, _| id <= batch.batch_id).await?;
        Ok(visible)
    }

    /// A commit that makes these files visible.
    pub(super) fn entry(&self, batch_id: BatchId, files: Vec<LogFile>) -> LogEntry {
        let last = self.last.as_ref().map(|(_, last)| last);
        let mut total = last.map_or_else(Totals::default, |last| last.total);
        total.batches += u64::from(last.is_none_or(|last| last.batch_id != batch_id));
        for file in &files {
            total.files += 1;
            total.rows += file.rows;
            total.bytes += file.size_bytes;
        }
        let (query_id, staged) = (self.query_id.clone(), Vec::new());
        LogEntry { query_id, batch_id, total, files, staged, numbered: 0, taken: None }
    }

    /// Adds a commit to the log, then does what it says.
    pub(super) async fn append(&mut self, entry: LogEntry) -> Result<()> {
        let number = self.last.as_ref().map_or(0, |(last, _)| last + 1);
        if self.log.append(number, &entry).await? == Created::Exists {
            return Err(self.overtaken(entry.batch_id));
        }
        let numbers = self.log.numbers().await?;
        if numbers.last().is_some_and(|last| *last > number) {
            // The entry was free only because another run, far ahead, has pruned it.
            self.log.remove(number).await?;
            return Err(self.overtaken(entry.batch_id));
        }
        self.publish(&entry.files).await?;
        self.last = Some((number, entry));
        self.log.prune(&numbers).await
    }

    /// Moves decided files to their places.
    async fn publish(&self, files: &[LogFile]) -> Result<()> {
        let publish = |file: &LogFile| {
            let from = format!("{HIDDEN}/{PENDING}/{}", file.pending);
            let (files, to) = (Arc::clone(&self.files), file.path.clone());
            async move { files.rename(&from, &to).await }
        };
        stream::iter(files.iter().map(publish).collect::<Vec<_>>()).buffered(AT_ONCE).try_collect().await
    }

    /// Deletes pending files of other runs that this run has decided against.
    pub(super) async fn discard_undecided(
        &mut self,
        is_decided: impl Fn(BatchId, &str) -> bool,
    ) -> Result<()> {
        let undecided = std::mem::take(&mut self.undecided).into_iter();
        let (decided, open): (Vec<_>, Vec<_>) = undecided.partition(|(id, name)| is_decided(*id, name));
        self.undecided = open;
        self.discard(decided.into_iter().map(|(_, name)| name).collect()).await
    }

    /// Deletes pending files.
    pub(super) async fn discard(&self, names: Vec<String>) -> Result<()> {
        let discard = |name: String| {
            let files = Arc::clone(&self.log.files);
            async move { files.delete(&format!("{PENDING}/{name}")).await }
        };
        stream::iter(names).map(discard).buffered(AT_ONCE).try_collect().await
    }

    /// A sink may be ahead of its checkpoint by the micro-batch that must run again, never more.
    fn check_against(&self, may_hold: Option<BatchId>) -> Result<()> {
        match &self.last {
            Some((_, last)) if Some(last.batch_id) > may_hold => Err(Error::data(format!(
                "{} already holds micro-batch {} of this query, whose checkpoint ends before it: the checkpoint is older \
                 than the output",
                self.files.url(),
                last.batch_id
            ))
            .hint("restore the newer checkpoint, or give the query another path or an empty directory")),
            _ => Ok(()),
        }
    }

    fn overtaken(&self, batch_id: BatchId) -> Error {
        Error::fenced(format!(
            "another run of this query has already written micro-batch {batch_id} to {}",
            self.files.url()
        ))
        .hint("let only one of the two runs go on")
    }
}

/// The path of a file in a directory, which is empty for the top.
pub(super) fn in_directory(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// Makes sure that the directory belongs to the query. One that is new may not be given to a query that has committed
/// micro-batches already: their rows would be in nobody's output.
async fn own(files: &dyn FileManager, log: &Log, context: &SinkContext) -> Result<()> {
    let query_id = &context.query_id;
    if let Some(owner) = log.owner().await? {
        return if owner == *query_id { Ok(()) } else { Err(foreign(files, &owner)) };
    }
    let present = files.list("").await?;
    if let Some(file) = present.iter().find(|file| batch_of(&file.path).is_some()) {
        return Err(Error::invalid(format!("{} holds output of which no log is left, such as {}", files.url(), file.path))
            .hint("give this query another path, or move what is there away: files of the same names would be replaced"));
    }
    if let Some(committed) = context.last_committed {
        return Err(Error::data(format!(
            "{} holds no output of this query, whose checkpoint has committed micro-batches up to {committed}: the output \
             was moved or deleted, or the query had another sink",
            files.url()
        ))
        .hint("put the output back or set the sink as it was; a new place for it needs a new checkpoint"));
    }
    match log.claim(query_id).await? {
        Created::New => Ok(()),
        Created::Exists => match log.owner().await? {
            Some(owner) if owner != *query_id => Err(foreign(files, &owner)),
            _ => Ok(()),
        },
    }
}

fn foreign(files: &dyn FileManager, owner: &QueryId) -> Error {
    Error::invalid(format!("{} belongs to another query (id {owner})", files.url())).hint(
        "give this query another path, start it from the checkpoint that the output belongs to, or delete the directory; \
         a new checkpoint makes a new query",
    )
}

/// Short enough for a file name; that two living runs draw the same is out of the question.
#[allow(clippy::disallowed_methods, reason = "no row and no final name depends on it")]
pub(super) fn run_token() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..12].to_owned()
}

fn batch_of_pending(name: &str) -> Option<BatchId> {
    name.split_once('-')?.0.parse().ok().map(BatchId)
}
