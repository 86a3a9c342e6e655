//! Runs micro-batches with both versions when they are committed, one after the other, and compares what they give.

use super::{Shadow, VersionReport};
use crate::assembly::{Fork, Forks};
use crate::compare::{Comparison, Differences, Side};
use futures::TryStreamExt;
use pelton_checkpoint::{CommitEntry, CommitLog, OffsetEntry, OffsetLog};
use pelton_core::sink::RowStream;
use pelton_core::{BatchId, Error, OperatorReport, PluginDigest, Result, RunId, StateStore};
use pelton_engine::{Losses, LostRows, ReplayedBatch};
use pelton_state::differing_entries;
use std::collections::BTreeMap;
use tokio::sync::watch;

/// Rows of a micro-batch that may differ: they are in memory until it is over.
const DIFFERING_MAX: usize = 100_000;
/// The memory that they may take.
const DIFFERING_BYTES_MAX: usize = 256 << 20;

/// The state of a version, if it keeps any.
type State = Option<Box<dyn StateStore>>;

/// Both versions, and where they are.
pub(crate) struct Follow {
    pub(crate) forks: Forks,
    /// The state of the version that runs, and of the new one: what the micro-batch before left.
    pub(crate) states: (State, State),
    /// The next micro-batch.
    pub(crate) next: BatchId,
    /// The plugins that the query runs.
    pub(crate) plugins: BTreeMap<String, PluginDigest>,
    /// The last micro-batch that it has committed.
    pub(crate) committed: watch::Receiver<Option<BatchId>>,
    pub(crate) offsets: OffsetLog,
    pub(crate) commits: CommitLog,
}

/// How a shadow has ended, if nothing failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All micro-batches have run.
    Done,
    /// Before its time: why.
    Early(String),
}

/// A micro-batch that a version has begun.
struct Begun {
    rows: RowStream,
    losses: Losses,
    operators: Vec<OperatorReport>,
}

impl Follow {
    /// Runs so many micro-batches as the report wants.
    pub(crate) async fn run(mut self, shadow: &Shadow) -> Result<Ended> {
        let wanted = shadow.report().batches_wanted;
        for _ in 0..wanted {
            let next = self.next;
            let is_committed = |last: &Option<BatchId>| last.is_some_and(|last| last >= next);
            let has_ended = self.committed.wait_for(is_committed).await.is_err();
            if has_ended {
                return Ok(Ended::Early("the query has ended".to_owned()));
            }
            if let Ended::Early(why) = self.batch(shadow).await? {
                return Ok(Ended::Early(why));
            }
            self.next = next.next();
        }
        let differing_state = self.differing_state().await?;
        shadow.note(|report| report.differing_state = differing_state);
        Ok(Ended::Done)
    }

    /// Runs the next micro-batch with both.
    async fn batch(&mut self, shadow: &Shadow) -> Result<Ended> {
        let id = self.next;
        let (Some(entry), Some(commit)) = (self.offsets.get(id).await?, self.commits.get(id).await?) else {
            return Ok(Ended::Early(format!(
                "it could not keep up: micro-batch {id} is no longer in the checkpoint, which keeps as many as \
                 min_batches_to_retain says"
            )));
        };
        if let Some((name, _)) =
            self.plugins.iter().find(|(name, ran)| entry.plugins.get(*name) != Some(*ran))
        {
            let why = format!("another version of plugin '{name}' runs since micro-batch {id}");
            return Ok(Ended::Early(why));
        }
        let Forks { running, new, key } = &self.forks;
        let old = begin(running, &mut self.states.0, (id, &entry)).await;
        let mut old = old.map_err(|failed| of_side(Side::Old, id, &failed))?;
        let new = begin(new, &mut self.states.1, (id, &entry)).await;
        let mut new = new.map_err(|failed| of_side(Side::New, id, &failed))?;
        let rows = match compare(id, (&mut old.rows, &mut new.rows), key).await? {
            Some(rows) => rows,
            None => {
                let why = format!(
                    "more than {DIFFERING_MAX} rows of micro-batch {id} differ, or more than {} MiB of them",
                    DIFFERING_BYTES_MAX >> 20
                );
                return Ok(Ended::Early(why));
            }
        };
        let letters = |lost: LostRows| lost.refused + lost.poison;
        if [&old, &new].iter().any(|begun| letters(begun.losses.rows()) > DIFFERING_MAX as u64) {
            let why = format!("more than {DIFFERING_MAX} rows of micro-batch {id} were refused or failed");
            return Ok(Ended::Early(why));
        }
        let letters = (old.losses.dead_letters().await?, new.losses.dead_letters().await?);
        let letters = on_worker(move || Differences::of_dead_letters(&letters.0, &letters.1)).await?;
        for (state, side) in [(&mut self.states.0, Side::Old), (&mut self.states.1, Side::New)] {
            let Some(state) = state else { continue };
            state.commit(id).await.map_err(|failed| of_side(side, id, &failed))?;
        }
        shadow.note(|report| {
            report.add(id.0, &rows, &letters);
            report.unlike_batches += u64::from(!is_alike(&entry.run_id, &commit, rows.old));
            account(&mut report.running, &self.forks.running, self.states.0.as_deref(), &old);
            account(&mut report.new, &self.forks.new, self.states.1.as_deref(), &new);
        });
        Ok(Ended::Done)
    }

    /// How many entries of state differ, if both versions lay them out alike.
    async fn differing_state(&mut self) -> Result<Option<u64>> {
        if self.forks.running.layouts != self.forks.new.layouts {
            return Ok(None);
        }
        let (Some(mut old), Some(mut new)) = (self.states.0.take(), self.states.1.take()) else {
            return Ok(None);
        };
        on_worker(move || differing_entries(old.as_mut(), new.as_mut())).await.map(Some)
    }
}

/// Lets a version begin a micro-batch; the state is there again when it has.
async fn begin(fork: &Fork, state: &mut State, (id, entry): (BatchId, &OffsetEntry)) -> Result<Begun> {
    let ReplayedBatch { rows, state: after, operators, losses } =
        fork.replay.begin(id, entry, state.take()).await?;
    *state = after;
    Ok(Begun { rows, losses, operators })
}

/// Takes the rows of both in turn, so that neither is far ahead; none if too many differ.
async fn compare(
    id: BatchId,
    (old, new): (&mut RowStream, &mut RowStream),
    key: &[String],
) -> Result<Option<Differences>> {
    let mut comparison = Comparison::by(key);
    let (mut rows, mut is_open) = ((0, 0), (true, true));
    loop {
        let side = match is_open {
            (false, false) => return on_worker(move || comparison.finish()).await.map(Some),
            (true, false) => Side::Old,
            (false, true) => Side::New,
            (true, true) if rows.0 <= rows.1 => Side::Old,
            (true, true) => Side::New,
        };
        let (stream, rows, is_open) = match side {
            Side::Old => (&mut *old, &mut rows.0, &mut is_open.0),
            Side::New => (&mut *new, &mut rows.1, &mut is_open.1),
        };
        match stream.try_next().await.map_err(|failed| of_side(side, id, &failed))? {
            None => *is_open = false,
            Some(batch) => {
                *rows += batch.num_rows();
                comparison = on_worker(move || comparison.add(side, batch).map(|()| comparison)).await?;
            }
        }
        if comparison.alone() > DIFFERING_MAX || comparison.alone_bytes() > DIFFERING_BYTES_MAX {
            return Ok(None);
        }
    }
}

/// Compares on a thread that may block.
async fn on_worker<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::internal(format!("comparing did not end: {e}")))?
}

/// The version that runs gave here as many rows as in the query; else nothing that is compared is worth much. What a sink took
/// that had the rows already, it did not count.
fn is_alike(begun_by: &RunId, commit: &CommitEntry, rows: usize) -> bool {
    *begun_by != commit.run_id || commit.sink.already_committed || commit.sink.rows == rows as u64
}

fn of_side(side: Side, id: BatchId, failed: &Error) -> Error {
    let version = match side {
        Side::Old => "the version that runs",
        Side::New => "the new version",
    };
    failed.copied().context(format_args!("micro-batch {id}, with {version}"))
}

/// What a version did. That the fork's state was migrated is no part of what its calls cost.
fn account(report: &mut VersionReport, fork: &Fork, state: Option<&dyn StateStore>, begun: &Begun) {
    let (cost, lost) = (fork.plugin.metrics(), begun.losses.rows());
    *report = VersionReport {
        calls: cost.calls.saturating_sub(cost.migrating.calls),
        rows: cost.rows.saturating_sub(cost.migrating.rows),
        busy_seconds: cost.busy_nanos.saturating_sub(cost.migrating.busy_nanos) as f64 / 1e9,
        memory_bytes_max: cost.memory_bytes_max,
        refused_rows: report.refused_rows + lost.refused,
        poison_rows: report.poison_rows + lost.poison,
        late_rows: report.late_rows + lost.late,
        state_rows: begun.operators.iter().map(|operator| operator.rows_total).sum(),
        state_bytes: state.map_or(0, |state| state.usage("").bytes),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_checkpoint::SinkCommit;

    #[test]
    fn rows_that_the_query_did_not_give_are_unlike_unless_its_sink_had_them_already() {
        let (run, later) = (RunId("run".to_owned()), RunId("later".to_owned()));
        let commit = |rows, already_committed| CommitEntry {
            next_watermark_ms: None,
            watermarks: BTreeMap::new(),
            partitions: BTreeMap::new(),
            state: None,
            layout: None,
            sink: SinkCommit { rows, already_committed, ..SinkCommit::default() },
            run_id: run.clone(),
        };
        let is_alike_in = |begun_by, rows, already| is_alike(begun_by, &commit(rows, already), 2);
        assert!(is_alike_in(&run, 2, false));
        assert!(!is_alike_in(&run, 0, false), "the query gave none");
        assert!(!is_alike_in(&run, 3, false));
        assert!(is_alike_in(&run, 0, true), "its sink did not count");
        assert!(is_alike_in(&later, 0, false), "another run has begun it");
    }
}
