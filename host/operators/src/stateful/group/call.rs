//! Calls of a stateful function: many groups in one, never a part of a group.
//!
//! What the function is given is built here column by column, what it gives is checked here as far as all forms have it
//! in common: rows go on, refused ones become dead letters. What becomes of the state is the callers' business.

use super::Moment;
use super::chunks::Grouped;
use super::poison::{Together, letters_of, part_of};
use crate::plugins::refused;
use crate::poison::{Blame, Piece, PoisonSearch, Whole};
use crate::stateful::keyed::gather_column;
use crate::stateful::{NodeScope, ShardOutput};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pelton_core::{
    BatchInfo, CallScope, Error, GroupForm, GroupInput, GroupOutput, GroupReason, Result, StatefulFunction,
    StatefulSignature, TimeMode,
};
use pelton_plan::stateful::{self as plan, StatefulNode};
use pelton_plan::{FunctionRef, ROWS_PER_BATCH_MAX};
use pelton_state::RowCodec;
use std::ops::Range;
use std::sync::Arc;

/// The most groups, and, of several groups, the most rows of a call.
pub(super) const GROUPS_MAX: usize = ROWS_PER_BATCH_MAX;

/// The bytes of rows and state after which a call takes no further group.
const BYTES_MAX: usize = 4 << 20;

/// The call scopes of stateful functions: partitions that no source has.
const BEHIND_OPERATORS: u64 = 1 << 63;

/// A function, and what its calls look like.
pub(super) struct Caller {
    function: FunctionRef,
    stateful: Arc<dyn StatefulFunction>,
    key_codec: RowCodec,
    key_schema: SchemaRef,
    reads: Vec<usize>,
    rows_schema: SchemaRef,
    /// Of the rows that go on.
    schema: SchemaRef,
}

impl Caller {
    pub(super) fn new(spec: &plan::Groups, node: &StatefulNode, key_codec: RowCodec) -> Result<Self> {
        let input = node.inputs.first().ok_or_else(|| Error::internal("groups without an input"))?;
        Ok(Self {
            function: spec.function.clone(),
            stateful: spec.stateful.clone(),
            key_codec,
            key_schema: Arc::new(input.project(&spec.keys)?),
            reads: spec.reads.clone(),
            rows_schema: Arc::new(input.project(&spec.reads)?),
            schema: node.schema.clone(),
        })
    }

    pub(super) fn stateful(&self) -> &Arc<dyn StatefulFunction> {
        &self.stateful
    }

    pub(super) fn signature(&self) -> &StatefulSignature {
        self.stateful.signature()
    }

    /// The columns that the function reads.
    pub(super) fn rows_schema(&self) -> &SchemaRef {
        &self.rows_schema
    }

    /// The key columns of groups (`[key group][key]` each).
    fn keys(&self, keys: &[Bytes]) -> Result<RecordBatch> {
        let columns = self.key_codec.decode(keys.iter().map(|key| key.get(1..).unwrap_or_default()))?;
        Ok(RecordBatch::try_new(self.key_schema.clone(), columns)?)
    }

    /// The rows of some groups, and where each group's begin.
    fn rows(&self, groups: &Grouped<'_>, range: &Range<usize>) -> Result<(RecordBatch, Vec<u32>)> {
        let (start, end) = (groups.rows_before(range.start), groups.rows_before(range.end));
        let offsets = groups.offsets[range.start..=range.end].iter().map(|at| at - start as u32).collect();
        if start == end {
            return Ok((RecordBatch::new_empty(self.rows_schema.clone()), offsets));
        }
        let column = |column: &usize| gather_column(&groups.sources, *column, &groups.at[start..end]);
        let columns = self.reads.iter().map(column).collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(end - start));
        Ok((RecordBatch::try_new_with_options(self.rows_schema.clone(), columns, &options)?, offsets))
    }

    /// A call for the rows of some groups; the state is still to come.
    pub(super) fn data(&self, groups: &Grouped<'_>, range: &Range<usize>) -> Result<GroupInput> {
        let (rows, offsets) = self.rows(groups, range)?;
        let keys = self.keys(&groups.keys[range.clone()])?;
        Ok(input(GroupReason::Data, keys, rows, offsets))
    }

    /// An error about what the function gave.
    pub(super) fn wrong(&self, what: String) -> Error {
        Error::plugin(format!("the stateful function {} {what}", self.function))
            .of_plugin(&self.function.plugin)
    }

    /// A call of groups without rows.
    pub(super) fn without_rows(&self, reason: GroupReason, keys: &[Bytes]) -> Result<GroupInput> {
        let rows = RecordBatch::new_empty(self.rows_schema.clone());
        Ok(input(reason, self.keys(keys)?, rows, vec![0; keys.len() + 1]))
    }
}

fn input(reason: GroupReason, keys: RecordBatch, rows: RecordBatch, offsets: Vec<u32>) -> GroupInput {
    GroupInput { reason, keys, rows, offsets, state: Vec::new(), fired: Vec::new(), pending: Vec::new() }
}

/// Cuts groups into calls: `size` says how many rows and bytes a group adds. A group that is too large is alone.
pub(super) fn cut(groups: Range<usize>, size: impl Fn(usize) -> (usize, usize)) -> Vec<Range<usize>> {
    let (mut cuts, mut start, mut rows, mut bytes) = (Vec::new(), groups.start, 0, 0);
    for group in groups.clone() {
        let (more_rows, more_bytes) = size(group);
        let is_full = rows + more_rows > ROWS_PER_BATCH_MAX || bytes + more_bytes > BYTES_MAX;
        if group > start && (is_full || group - start >= GROUPS_MAX) {
            cuts.push(start..group);
            (start, rows, bytes) = (group, 0, 0);
        }
        rows += more_rows;
        bytes += more_bytes;
    }
    if start < groups.end {
        cuts.push(start..groups.end);
    }
    cuts
}

/// How many bytes a row has, about.
pub(super) fn row_bytes(groups: &Grouped<'_>) -> usize {
    let bytes: usize = groups.sources.iter().map(|rows| rows.get_array_memory_size()).sum();
    let rows: usize = groups.sources.iter().map(|rows| rows.num_rows()).sum();
    bytes / rows.max(1)
}

/// The calls of one shard in one micro-batch.
pub(super) struct Calls<'a> {
    caller: &'a Caller,
    scope: &'a NodeScope<'a>,
    /// What data calls see, and what all others do.
    info: [BatchInfo; 2],
    partition: u64,
    made: u64,
    poison: PoisonSearch,
    /// What they gave.
    pub(super) output: ShardOutput,
}

/// What a call gave, but for the rows, which go on.
pub(super) struct Made {
    pub(super) output: GroupOutput,
    /// The groups, ascending, on which the function failed: nothing of them is in the output.
    pub(super) guilty: Vec<usize>,
}

/// Checks an answer, beyond what all forms have in common: it is given the first group's position in the whole call, if the
/// call is a part of one, and what was asked and answered.
pub(super) type Check<'c> = &'c dyn Fn(usize, &GroupInput, &GroupOutput) -> Result<()>;

impl<'a> Calls<'a> {
    pub(super) fn new(caller: &'a Caller, at: &Moment<'a>) -> Self {
        let scope = at.scope;
        let seen = BatchInfo { watermark_ms: scope.watermark_ms, ..scope.batch.as_ref().clone() };
        // Where a watermark behind everything says that all is over at the end, rows still come before that.
        let of_data = scope.batch.is_final().then(|| BatchInfo { watermark_ms: None, ..seen.clone() });
        Self {
            caller,
            scope,
            info: [of_data.unwrap_or_else(|| seen.clone()), seen],
            partition: BEHIND_OPERATORS | at.shard as u64,
            made: 0,
            poison: PoisonSearch::default(),
            output: ShardOutput::default(),
        }
    }

    /// What all calls gave.
    pub(super) fn finish(self) -> ShardOutput {
        ShardOutput { poison: self.poison.reports, ..self.output }
    }

    /// Makes a call; if it fails and guilty groups are to be found, it is cut. `groups` says where its rows are: the groups,
    /// and which row is its first.
    pub(super) fn make(
        &mut self,
        input: &GroupInput,
        groups: Option<(&Grouped<'_>, usize)>,
        check: Check<'_>,
    ) -> Result<Made> {
        let call = self.made;
        self.made += 1;
        let on_failure = self.caller.function.on_failure;
        match on_failure.run(|| self.called(call, None, input, check)) {
            Ok(mut output) => {
                self.take(input.rows.num_rows(), &mut output, groups)?;
                Ok(Made { output, guilty: Vec::new() })
            }
            Err(failed) => self.cut(call, input, groups, check, failed),
        }
    }

    fn called(
        &self,
        call: u64,
        piece: Option<&Range<usize>>,
        input: &GroupInput,
        check: Check<'_>,
    ) -> Result<GroupOutput> {
        let batch = &self.info[usize::from(input.reason != GroupReason::Data)];
        let whole = CallScope { batch, operator: self.scope.name, partition: self.partition, call };
        let scope = piece.map_or(whole, |groups| whole.piece(groups.start, groups.len()));
        let output = self.caller.stateful.process(&scope, input)?;
        self.check(input, &output)?;
        check(piece.map_or(0, |groups| groups.start), input, &output)?;
        Ok(output)
    }

    fn cut(
        &mut self,
        call: u64,
        input: &GroupInput,
        groups: Option<(&Grouped<'_>, usize)>,
        check: Check<'_>,
        failed: Error,
    ) -> Result<Made> {
        let operator = self.scope.name;
        let whole = Whole { operator, unit: "groups", count: input.groups() };
        let blame = |error: &Error| Blame::of_call(&self.caller.function, error);
        let mut poison = std::mem::take(&mut self.poison);
        let pieces = poison.cut(&whole, failed, &blame, |range| {
            self.called(call, Some(&range), &part_of(input, &range), check)
        })?;
        self.poison = poison;
        let no_rows = RecordBatch::new_empty(self.caller.schema.clone());
        let mut together = Together::new(&self.caller.signature().variables, no_rows);
        let mut guilty = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Good(range, mut output) => {
                    let rows = input.offsets[range.start] as usize..input.offsets[range.end] as usize;
                    let place = groups.map(|(groups, first)| (groups, first + rows.start));
                    self.take(rows.len(), &mut output, place)?;
                    together.add(range.start, output);
                }
                Piece::Guilty(group, blame) => {
                    let letters = letters_of(operator, &blame, input, group, groups)?;
                    self.output.dead_letters.extend(letters);
                    guilty.push(group);
                }
            }
        }
        Ok(Made { output: together.finish()?, guilty })
    }

    /// Takes the rows out of an answer to a call of so many rows: they go on, refused ones become dead letters.
    fn take(
        &mut self,
        rows_in: usize,
        output: &mut GroupOutput,
        groups: Option<(&Grouped<'_>, usize)>,
    ) -> Result<()> {
        let rows = std::mem::replace(&mut output.rows, RecordBatch::new_empty(self.caller.schema.clone()));
        self.give(rows)?;
        for rejected in std::mem::take(&mut output.rejected) {
            let row = rejected.row as usize;
            let place = groups.and_then(|(groups, first)| Some((groups, *groups.at.get(first + row)?)));
            let Some((groups, (source, row))) = place.filter(|_| row < rows_in) else {
                return Err(self.wrong(format!("refused row {row} of {rows_in}")));
            };
            let rows = groups.sources[source];
            let letter = refused(self.scope.name, &self.caller.function, rows, row, &rejected.reason)?;
            self.output.dead_letters.push(letter);
        }
        Ok(())
    }

    fn check(&self, input: &GroupInput, output: &GroupOutput) -> Result<()> {
        let signature = self.caller.signature();
        let (groups, rows) = (input.groups(), output.rows.num_rows());
        if signature.form == GroupForm::MapGroups && rows != groups {
            return Err(
                self.wrong(format!("gave {rows} rows for {groups} groups: it must give one for each"))
            );
        }
        if output.changes.len() != signature.variables.len() && !output.changes.is_empty() {
            return Err(self.wrong(format!(
                "gave changes of {} variables, but it has {}",
                output.changes.len(),
                signature.variables.len()
            )));
        }
        if signature.time_mode == TimeMode::None && !(output.timeouts.is_empty() && output.timers.is_empty())
        {
            return Err(
                self.wrong("set a timeout or a timer, but it has declared that it uses none".to_owned())
            );
        }
        let in_range = |group: u32| (group as usize) < groups;
        let known = output.timeouts.iter().map(|(group, _)| *group);
        let known = known.chain(output.timers.iter().map(|timer| timer.group));
        let known = known.chain(output.changes.iter().flat_map(|changes| changes.groups.iter().copied()));
        match known.into_iter().find(|group| !in_range(*group)) {
            Some(group) => Err(self.wrong(format!("changed group {group} of {groups}"))),
            None => Ok(()),
        }
    }

    /// An error about what the function gave.
    pub(super) fn wrong(&self, what: String) -> Error {
        self.caller.wrong(what)
    }

    fn give(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let rows = self.shaped(rows)?;
        for start in (0..rows.num_rows()).step_by(ROWS_PER_BATCH_MAX) {
            self.output.rows.push(rows.slice(start, ROWS_PER_BATCH_MAX.min(rows.num_rows() - start)));
        }
        Ok(())
    }

    fn shaped(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let schema = &self.caller.schema;
        if rows.schema_ref() == schema {
            return Ok(rows);
        }
        let fields = schema.fields();
        if rows.num_columns() != fields.len() {
            return Err(self.wrong(format!(
                "gave {} columns instead of {}",
                rows.num_columns(),
                fields.len()
            )));
        }
        let columns =
            rows.columns().iter().zip(fields).map(|(column, field)| cast(column, field.data_type()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options)
            .map_err(|e| self.wrong(format!("gave rows that do not match its schema: {e}")))
    }
}

/// A time for a person: milliseconds, as the functions count.
pub(super) fn millis(micros: i64) -> i64 {
    micros.div_euclid(1000)
}

/// Rows of a schema, from columns.
pub(super) fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_never_divided_and_a_large_one_is_alone() {
        let sizes = [10, 9000, 1, 8191, 1, 1];
        let cuts = cut(0..6, |group| (sizes[group], 1));
        assert_eq!(cuts, [0..1, 1..2, 2..4, 4..6]);
        assert_eq!(cut(0..3, |_| (0, BYTES_MAX)), [0..1, 1..2, 2..3]);
        assert_eq!(cut(3..3, |_| (0, 0)), Vec::<Range<usize>>::new());
    }
}
