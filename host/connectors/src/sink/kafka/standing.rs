//! Whether checkpoint and cluster agree on what is written, and where a run begins. Pure.

use super::options::Undecided;
use super::session::Note;
use pelton_core::{BatchId, Error, Result, SinkContext};

/// The last micro-batch that counts as written when a run begins.
pub(super) fn written(
    note: Option<&Note>,
    context: &SinkContext,
    undecided: Option<Undecided>,
    (group, place): (&str, &str),
) -> Result<Option<BatchId>> {
    let committed = context.last_committed;
    let shown = |batch: Option<BatchId>| batch.map_or("none".to_owned(), |batch| batch.to_string());
    let Some(note) = note else {
        return match (context.unfinished, undecided) {
            // The next is planned by this run: nobody can have written it.
            (None, _) => Ok(committed),
            (Some(_), Some(Undecided::Write)) => Ok(committed),
            (Some(unfinished), Some(Undecided::Skip)) => Ok(Some(unfinished)),
            (Some(unfinished), None) => Err(Error::data(format!(
                "whether micro-batch {unfinished} was written to Kafka at {place} cannot be told: the group '{group}', \
                 which would know, has no offset, because offsets of a group expire when it was not used for long \
                 (offsets.retention.minutes of the brokers), or because the sink has not written exactly once before"
            ))
            .hint("look for its rows in the topic; then set `undecided: skip` if they are there, else `undecided: write`")),
        };
    };
    if note.batch > context.may_hold() {
        return Err(Error::data(format!(
            "Kafka at {place} already holds micro-batch {} of this query, whose checkpoint ends at {}: the checkpoint is \
             older than the topic",
            shown(note.batch),
            shown(committed)
        ))
        .hint("restore the newer checkpoint, or start with a new one and a new topic"));
    }
    if note.batch < committed {
        return Err(Error::data(format!(
            "Kafka at {place} has noted micro-batches up to {}, and the checkpoint has committed them up to {}: the \
             cluster was restored from an older copy, or the sink has not written exactly once meanwhile",
            shown(note.batch),
            shown(committed)
        ))
        .hint(format!("if the topic is complete, delete the group '{group}'; otherwise start with a new checkpoint")));
    }
    Ok(note.batch)
}

/// The same for dead letters, which not every micro-batch has. What is not known to be there is written: a letter that comes
/// twice can be told by its headers.
pub(super) fn written_letters(note: Option<&Note>, context: &SinkContext) -> Option<BatchId> {
    note.and_then(|note| note.batch).filter(|batch| Some(*batch) <= context.may_hold())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Schema;
    use pelton_core::{OutputMode, QueryId};
    use std::sync::Arc;

    fn context(committed: Option<u64>, unfinished: Option<u64>) -> SinkContext {
        SinkContext {
            query_id: QueryId("q".into()),
            schema: Arc::new(Schema::empty()),
            output_mode: OutputMode::Append,
            last_committed: committed.map(BatchId),
            unfinished: unfinished.map(BatchId),
        }
    }

    fn check(
        noted: Option<Option<u64>>,
        (committed, unfinished): (Option<u64>, Option<u64>),
        undecided: Option<Undecided>,
    ) -> Result<Option<u64>, String> {
        let context = context(committed, unfinished);
        let note = noted.map(|batch| Note { batch: batch.map(BatchId), run: "r".into() });
        let written = written(note.as_ref(), &context, undecided, ("g", "localhost:9092"));
        written.map(|batch| batch.map(|batch| batch.0)).map_err(|e| e.to_string())
    }

    #[test]
    fn the_note_decides() {
        assert_eq!(check(None, (None, None), None), Ok(None));
        assert_eq!(check(Some(None), (None, Some(0)), None), Ok(None));
        assert_eq!(check(Some(Some(0)), (None, Some(0)), None), Ok(Some(0)));
        assert_eq!(check(Some(Some(4)), (Some(4), Some(5)), None), Ok(Some(4)));
        assert_eq!(check(Some(Some(5)), (Some(4), Some(5)), None), Ok(Some(5)));
        assert_eq!(check(Some(Some(4)), (Some(4), None), None), Ok(Some(4)));
    }

    #[test]
    fn without_a_note_only_an_unfinished_one_is_undecided() {
        assert_eq!(check(None, (Some(4), None), None), Ok(Some(4)));
        let told = check(None, (Some(4), Some(5)), None).unwrap_err();
        assert!(told.contains("micro-batch 5") && told.contains("undecided: skip"), "{told}");
        assert_eq!(check(None, (Some(4), Some(5)), Some(Undecided::Write)), Ok(Some(4)));
        assert_eq!(check(None, (Some(4), Some(5)), Some(Undecided::Skip)), Ok(Some(5)));
    }

    #[test]
    fn contradictions_are_refused() {
        let older = check(Some(Some(5)), (Some(4), None), None).unwrap_err();
        assert!(older.contains("the checkpoint is older than the topic"), "{older}");
        let lost = check(Some(Some(3)), (Some(4), None), None).unwrap_err();
        assert!(
            lost.contains("noted micro-batches up to 3") && lost.contains("delete the group 'g'"),
            "{lost}"
        );
        assert!(check(Some(Some(0)), (None, None), None).is_err());
    }

    #[test]
    fn of_letters_nothing_is_missed_and_what_is_not_known_is_written() {
        let written = |noted: Option<u64>, committed, unfinished| {
            let note = noted.map(|batch| Note { batch: Some(BatchId(batch)), run: "r".into() });
            written_letters(note.as_ref(), &context(committed, unfinished)).map(|batch| batch.0)
        };
        assert_eq!(written(None, Some(4), Some(5)), None, "the group's offset has expired");
        assert_eq!(written(Some(2), Some(4), Some(5)), Some(2), "3 and 4 had none");
        assert_eq!(written(Some(5), Some(4), Some(5)), Some(5));
        assert_eq!(
            written(Some(6), Some(4), Some(5)),
            None,
            "the checkpoint was restored from an older copy"
        );
    }
}
