//! Files that wait: how they are committed before they are visible, and how they roll over.
//!
//! They lie in `_pelton/pending` like any file that is not visible yet; the last commit names them all, so that a start keeps
//! them and removes others. A rollover is decided by a commit, too: that of a micro-batch, or one of its own when no
//! micro-batch comes. Before it the new file is complete, after it the parts go.

use super::commit::{Directory, in_directory};
use super::log::{LogEntry, LogFile, PENDING, StagedFile, Taken, file_name};
use super::merge::merge;
use super::rollover::{Decision, Due, Rollover, decide};
use pelton_core::{BatchId, BatchInfo, Result};

/// What a decision has led to.
struct Done {
    files: Vec<LogFile>,
    staged: Vec<StagedFile>,
    /// Pending files that became part of others.
    used: Vec<String>,
}

impl Directory {
    /// Commits a micro-batch whose files are parts. What is due rolls over with it.
    pub(super) async fn commit_parts(
        &mut self,
        batch: &BatchInfo,
        written: Vec<LogFile>,
        rule: Rollover,
    ) -> Result<usize> {
        let (has_rows, taken) = (!written.is_empty(), Taken::of(&written));
        let mut parts = self.waiting();
        parts.extend(written.into_iter().map(|file| part(file, batch.time_ms)));
        let decision = decide(parts, Due::At(rule, batch.time_ms));
        if !has_rows && decision.roll.is_empty() {
            return Ok(0);
        }
        let done = self.carry_out(batch.batch_id, (batch.batch_id, 0), decision).await?;
        self.settle(batch.batch_id, 0, taken, done).await
    }

    /// Lets what is due roll over between two micro-batches.
    pub(super) async fn roll(&mut self, due: Due) -> Result<usize> {
        let Some((_, last)) = self.last.as_ref().filter(|(_, last)| !last.staged.is_empty()) else {
            return Ok(0);
        };
        let is_due = |part: &StagedFile| match due {
            Due::At(rule, now_ms) => now_ms - part.time_ms >= rule.interval_ms,
            Due::Now => true,
        };
        // Asked at every turn of a query at rest: nothing is looked at closely before something has waited long enough.
        if !last.staged.iter().any(is_due) {
            return Ok(0);
        }
        let decision = decide(last.staged.clone(), due);
        if decision.roll.is_empty() {
            return Ok(0);
        }
        let (batch_id, numbered, taken) = (last.batch_id, last.numbered, last.taken());
        // Pending files belong to what is not decided, which is what comes next: so a second run leaves them alone.
        let next = batch_id.next();
        let done = self.carry_out(next, (batch_id, numbered), decision).await?;
        let visible = self.settle(batch_id, numbered, taken, done).await?;
        self.discard_undecided(|id, name| id <= next && is_together(name)).await?;
        Ok(visible)
    }

    fn waiting(&self) -> Vec<StagedFile> {
        self.last.as_ref().map_or_else(Vec::new, |(_, last)| last.staged.clone())
    }

    async fn settle(
        &mut self,
        batch_id: BatchId,
        numbered: usize,
        taken: Taken,
        Done { files, staged, used }: Done,
    ) -> Result<usize> {
        let visible = files.len();
        let entry = self.entry(batch_id, files);
        let (numbered, taken) = (numbered + visible, Some(taken));
        self.append(LogEntry { staged, numbered, taken, ..entry }).await?;
        self.discard(used).await?;
        Ok(visible)
    }

    /// Makes the new files. Their names count from `numbered` among those of the micro-batch.
    async fn carry_out(
        &self,
        undecided: BatchId,
        (batch_id, numbered): (BatchId, usize),
        decision: Decision,
    ) -> Result<Done> {
        let mut done = Done { files: Vec::new(), staged: decision.keep, used: Vec::new() };
        let mut made = 0;
        for parts in decision.roll {
            let part = self.together(undecided, &mut made, parts, &mut done.used).await?;
            let name = file_name(batch_id, numbered + done.files.len(), extension(&part.pending));
            let path = in_directory(&part.directory, &name);
            let StagedFile { pending, size_bytes, rows, .. } = part;
            done.files.push(LogFile { path, pending, size_bytes, rows });
        }
        for parts in decision.merge {
            let part = self.together(undecided, &mut made, parts, &mut done.used).await?;
            done.staged.push(StagedFile { merged: true, ..part });
        }
        Ok(done)
    }

    /// One part of many of a partition; the `made`-th of this commit.
    async fn together(
        &self,
        undecided: BatchId,
        made: &mut usize,
        parts: Vec<StagedFile>,
        used: &mut Vec<String>,
    ) -> Result<StagedFile> {
        let first = parts[0].clone();
        if parts.len() == 1 {
            return Ok(first);
        }
        let extension = extension(&first.pending);
        let commit = self.last.as_ref().map_or(0, |(last, _)| last + 1);
        let pending = format!("{undecided}-m{commit}-{made:05}-{}{extension}.pending", self.run);
        *made += 1;
        let files = self.log.files.subtree(PENDING);
        let from: Vec<String> = parts.iter().map(|part| part.pending.clone()).collect();
        let size_bytes = merge(&*files, &from, &pending, extension, self.head_bytes).await?;
        let rows = parts.iter().map(|part| part.rows).sum();
        used.extend(from);
        Ok(StagedFile { pending, size_bytes, rows, ..first })
    }
}

fn part(file: LogFile, time_ms: i64) -> StagedFile {
    let directory = file.path.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned();
    let LogFile { pending, size_bytes, rows, .. } = file;
    StagedFile { directory, pending, size_bytes, rows, time_ms, merged: false }
}

/// Whether a pending file was made of others.
fn is_together(pending: &str) -> bool {
    pending.split('-').nth(1).is_some_and(|mark| mark.starts_with('m'))
}

/// `.json.gz` of `17-00000-1f3….json.gz.pending`.
fn extension(pending: &str) -> &str {
    let name = pending.strip_suffix(".pending").unwrap_or(pending);
    name.find('.').map_or("", |dot| &name[dot..])
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_pending_files_tell_what_they_are() {
        assert!(super::is_together("17-m4-00000-1f3.parquet.pending"));
        assert!(!super::is_together("17-00000-m1f.parquet.pending"));
        assert_eq!(super::extension("17-00000-1f3.json.gz.pending"), ".json.gz");
        assert_eq!(super::extension("17-m4-00000-1f3.parquet.pending"), ".parquet");
    }
}
