//! One shard of a join in one micro-batch: new rows meet new and buffered ones.
//!
//! Rows of a side are numbered: first the buffered ones that were found, then the new ones. No row is moved before it
//! is known that it goes on.

use super::StreamJoin;
use super::buffer::{NewRow, Stored};
use super::side::{Chunk, Role, Source};
use crate::scoped::scoped;
use crate::stateful::keyed::gather_column;
use crate::stateful::{NodeScope, ShardOutput};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::HashMap;
use pelton_core::{Result, StateShard};
use pelton_plan::ROWS_PER_BATCH_MAX;
use pelton_plan::stateful::JoinKind;
use std::ops::Range;
use std::sync::Arc;

/// A row that is not there: its columns are NULL.
const NOBODY: u32 = u32::MAX;

/// A new row.
struct Row {
    chunk: usize,
    row: usize,
    role: Role,
    /// Of those that meet others.
    group: usize,
}

/// The rows with one key.
#[derive(Default)]
struct Group {
    /// A new row of each side.
    example: [Option<usize>; 2],
    /// The buffered rows of each side.
    stored: [Range<u32>; 2],
}

/// The rows of one side.
struct Members<'a> {
    chunks: &'a [Chunk],
    rows: Vec<Row>,
    stored: Stored,
    /// What the chunks and the buffered rows are to be gathered from; last a row of NULLs.
    sources: Vec<RecordBatch>,
    /// Whether the rows have matched, by their number.
    has_matched: Vec<bool>,
}

/// What is done for one shard.
struct Meeting<'a> {
    join: &'a StreamJoin,
    scope: &'a NodeScope<'a>,
    shard: usize,
    sides: [Members<'a>; 2],
    /// Pairs whose keys match and of which nothing else is known yet.
    pairs: Vec<(u32, u32)>,
    /// Of each outer side the new rows that matched nothing and are over already.
    gone: [Vec<u32>; 2],
    out: ShardOutput,
}

/// Runs one shard of a join over the new rows of both sides.
pub(super) fn run(
    join: &StreamJoin,
    scope: &NodeScope<'_>,
    shard: usize,
    inputs: &[Vec<Chunk>; 2],
    state: &mut dyn StateShard,
) -> Result<ShardOutput> {
    let sides = [Members::new(&inputs[0]), Members::new(&inputs[1])];
    let (pairs, gone, out) = (Vec::new(), Default::default(), ShardOutput::default());
    let mut meeting = Meeting { join, scope, shard, sides, pairs, gone, out };
    if inputs.iter().any(|chunks| !chunks.is_empty()) {
        let mut groups = group(&mut meeting.sides);
        for side in 0..2 {
            let stored = find(join, side, &meeting.sides[1 - side], &mut groups, state)?;
            meeting.sides[side].complete(join, side, stored)?;
        }
        meeting.meet(&groups)?;
        for side in 0..2 {
            meeting.keep(side, state)?;
        }
    }
    for side in 0..2 {
        meeting.expire(side, state)?;
    }
    Ok(meeting.out)
}

/// Finds the new rows that have the same key.
fn group(sides: &mut [Members<'_>; 2]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<&[u8], usize> = HashMap::new();
    for (side, members) in sides.iter_mut().enumerate() {
        let chunks = members.chunks;
        for (number, row) in members.rows.iter_mut().enumerate().filter(|(_, row)| row.role == Role::Meets) {
            let key = chunks[row.chunk].source.keys.get(row.row);
            row.group = *known.entry(key).or_insert_with(|| {
                groups.push(Group::default());
                groups.len() - 1
            });
            groups[row.group].example[side].get_or_insert(number);
        }
    }
    groups
}

/// Finds the buffered rows of a side that the other side's new rows meet.
fn find(
    join: &StreamJoin,
    side: usize,
    others: &Members<'_>,
    groups: &mut [Group],
    state: &mut dyn StateShard,
) -> Result<Stored> {
    let example = |group: &&mut Group| group.example[1 - side].is_some();
    let mut groups: Vec<&mut Group> = groups.iter_mut().filter(example).collect();
    let rows: Vec<(&Source, usize)> = groups
        .iter()
        .filter_map(|group| group.example[1 - side])
        .map(|example| &others.rows[example])
        .map(|row| (&*others.chunks[row.chunk].source, row.row))
        .collect();
    let (stored, ranges) = join.buffers[side].find(state, &rows)?;
    groups.iter_mut().zip(ranges).for_each(|(group, range)| group.stored[side] = range);
    Ok(stored)
}

/// The rows of each group, in order: where a group begins (and the last one ends), and all rows.
fn by_group(rows: &[Row], groups: usize) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0; groups + 1];
    let meeting = || rows.iter().enumerate().filter(|(_, row)| row.role == Role::Meets);
    meeting().for_each(|(_, row)| starts[row.group + 1] += 1);
    for group in 0..groups {
        starts[group + 1] += starts[group];
    }
    let (mut next, mut all) = (starts.clone(), vec![0; starts[groups]]);
    for (number, row) in meeting() {
        all[next[row.group]] = number as u32;
        next[row.group] += 1;
    }
    (starts, all)
}

impl<'a> Members<'a> {
    fn new(chunks: &'a [Chunk]) -> Self {
        let mut rows = Vec::with_capacity(chunks.iter().map(|chunk| chunk.rows.len()).sum());
        for (at, chunk) in chunks.iter().enumerate() {
            let row = |row: &u32| {
                let row = *row as usize;
                Row { chunk: at, row, role: chunk.source.roles[row], group: 0 }
            };
            rows.extend(chunk.rows.iter().map(row));
        }
        Self { chunks, rows, stored: Stored::default(), sources: Vec::new(), has_matched: Vec::new() }
    }

    /// Adds the buffered rows.
    fn complete(&mut self, join: &StreamJoin, side: usize, stored: Stored) -> Result<()> {
        let schema = &join.sides[side].schema;
        self.sources = self.chunks.iter().map(|chunk| chunk.source.rows.clone()).collect();
        self.sources.push(match stored.len() {
            0 => RecordBatch::new_empty(schema.clone()),
            _ => join.buffers[side].decode_stored(&stored)?,
        });
        self.sources.push(nobody(schema)?);
        self.has_matched = (0..stored.len()).map(|row| stored.has_matched(row)).collect();
        self.has_matched.resize(stored.len() + self.rows.len(), false);
        self.stored = stored;
        Ok(())
    }

    /// A new row's number.
    fn number(&self, row: usize) -> u32 {
        (self.stored.len() + row) as u32
    }

    /// Where a row is among the sources.
    fn at(&self, number: u32) -> (usize, usize) {
        if number == NOBODY {
            return (self.sources.len() - 1, 0);
        }
        match (number as usize).checked_sub(self.stored.len()) {
            None => (self.chunks.len(), number as usize),
            Some(row) => (self.rows[row].chunk, self.rows[row].row),
        }
    }
}

/// One row of NULLs.
fn nobody(schema: &SchemaRef) -> Result<RecordBatch> {
    let fields =
        schema.fields().iter().map(|field| Field::new(field.name(), field.data_type().clone(), true));
    let columns = schema.fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

impl Meeting<'_> {
    /// Brings the rows together: left rows meet buffered right rows, then right rows all left rows.
    fn meet(&mut self, groups: &[Group]) -> Result<()> {
        self.give_alone(0)?;
        for row in 0..self.sides[0].rows.len() {
            if let Some(group) = self.group_of(0, row, groups) {
                let left = self.sides[0].number(row);
                for right in group.stored[1].clone() {
                    self.pair(left, right)?;
                }
            }
        }
        self.decide()?;
        self.give_alone(1)?;
        let (starts, lefts) = by_group(&self.sides[0].rows, groups.len());
        for row in 0..self.sides[1].rows.len() {
            if let Some(group) = self.group_of(1, row, groups) {
                let right = self.sides[1].number(row);
                for left in group.stored[0].clone() {
                    self.pair(left, right)?;
                }
                let at = self.sides[1].rows[row].group;
                for left in &lefts[starts[at]..starts[at + 1]] {
                    self.pair(self.sides[0].number(*left as usize), right)?;
                }
            }
        }
        self.decide()
    }

    fn group_of<'g>(&self, side: usize, row: usize, groups: &'g [Group]) -> Option<&'g Group> {
        let row = &self.sides[side].rows[row];
        if row.role == Role::Meets { groups.get(row.group) } else { None }
    }

    fn is_semi(&self) -> bool {
        self.join.kind == JoinKind::LeftSemi
    }

    fn pair(&mut self, left: u32, right: u32) -> Result<()> {
        if self.is_semi() && self.sides[0].has_matched[left as usize] {
            return Ok(());
        }
        self.pairs.push((left, right));
        if self.pairs.len() == ROWS_PER_BATCH_MAX { self.decide() } else { Ok(()) }
    }

    /// Finds out which of the pairs match, and gives them.
    fn decide(&mut self) -> Result<()> {
        let mut pairs = std::mem::take(&mut self.pairs);
        if let (Some(condition), false) = (&self.join.condition, pairs.is_empty()) {
            let holds = scoped(self.scope, self.shard as u64, || {
                let at = self.places(&pairs);
                condition.holds(pairs.len(), |column| self.column(column, &at))
            })?;
            let mut holds = holds.values().iter();
            pairs.retain(|_| holds.next() == Some(true));
        }
        for (left, right) in &mut pairs {
            let matched_before = std::mem::replace(&mut self.sides[0].has_matched[*left as usize], true);
            self.sides[1].has_matched[*right as usize] = true;
            if self.is_semi() && matched_before {
                *left = NOBODY;
            }
        }
        if self.is_semi() {
            pairs.retain(|(left, _)| *left != NOBODY);
        }
        self.give(&pairs)
    }

    /// Gives new rows that fail what ON says of their side alone.
    fn give_alone(&mut self, side: usize) -> Result<()> {
        let members = &self.sides[side];
        let alone = members.rows.iter().enumerate().filter(|(_, row)| row.role == Role::Alone);
        let alone: Vec<u32> = alone.map(|(row, _)| members.number(row)).collect();
        self.give_with_nulls(side, &alone)
    }

    fn give_with_nulls(&mut self, side: usize, rows: &[u32]) -> Result<()> {
        let pair = |row: &u32| if side == 0 { (*row, NOBODY) } else { (NOBODY, *row) };
        self.give(&rows.iter().map(pair).collect::<Vec<_>>())
    }

    fn give(&mut self, pairs: &[(u32, u32)]) -> Result<()> {
        for pairs in pairs.chunks(ROWS_PER_BATCH_MAX) {
            let at = self.places(pairs);
            let columns = 0..self.join.schema.fields().len();
            let columns = columns.map(|column| self.column(column, &at)).collect::<Result<Vec<_>>>()?;
            let rows = with_schema(&self.join.schema, columns, pairs.len())?;
            self.out.rows.push(rows);
        }
        Ok(())
    }

    /// Where the rows of pairs are among the sources of the sides.
    fn places(&self, pairs: &[(u32, u32)]) -> [Vec<(usize, usize)>; 2] {
        let [left, right] = &self.sides;
        [
            pairs.iter().map(|pair| left.at(pair.0)).collect(),
            pairs.iter().map(|pair| right.at(pair.1)).collect(),
        ]
    }

    /// A column of pairs, by its position in left then right.
    fn column(&self, column: usize, at: &[Vec<(usize, usize)>; 2]) -> Result<ArrayRef> {
        let (side, column) = match column.checked_sub(self.join.sides[0].schema.fields().len()) {
            None => (0, column),
            Some(column) => (1, column),
        };
        let sources: Vec<&RecordBatch> = self.sides[side].sources.iter().collect();
        gather_column(&sources, column, &at[side])
    }

    /// Buffers the new rows of a side that are not over, and notes which buffered ones have matched.
    fn keep(&mut self, side: usize, state: &mut dyn StateShard) -> Result<()> {
        let (buffer, members) = (&self.join.buffers[side], &self.sides[side]);
        let is_given_once = side == 0 && self.is_semi();
        let matched: Vec<usize> = (0..members.stored.len())
            .filter(|row| members.has_matched[*row] && !members.stored.has_matched(*row))
            .collect();
        if is_given_once {
            self.out.removed += buffer.remove(state, &members.stored, &matched)?;
        } else {
            buffer.mark(state, &members.stored, &matched)?;
        }
        let over = buffer.over(self.scope);
        let mut kept = Vec::with_capacity(members.rows.len());
        for (at, row) in members.rows.iter().enumerate().filter(|(_, row)| row.role != Role::Alone) {
            let number = members.number(at);
            let has_matched = members.has_matched[number as usize];
            let source: &Source = &members.chunks[row.chunk].source;
            let time = source.times.get(row.row);
            let is_over = matches!((time, over), (Some(time), Some(over)) if *time <= over);
            if is_over && self.join.sides[side].is_outer && !has_matched {
                self.gone[side].push(number);
            } else if !(is_over || is_given_once && has_matched) {
                kept.push(NewRow { source, row: row.row, number: at as u32, has_matched });
            }
        }
        self.out.updated += kept.len() as u64;
        buffer.add(self.scope, state, &kept)
    }

    /// Forgets what is over and gives it, if it is of an outer side and never matched.
    fn expire(&mut self, side: usize, state: &mut dyn StateShard) -> Result<()> {
        let (join, scope, out) = (self.join, self.scope, &mut self.out.rows);
        self.out.removed += join.buffers[side].expire(scope, state, join.sides[side].is_outer, |rows| {
            let count = rows.num_rows();
            let nulls = join.sides[1 - side].schema.fields().iter();
            let nulls = nulls.map(|field| new_null_array(field.data_type(), count));
            let columns = match side {
                0 => rows.columns().iter().cloned().chain(nulls).collect(),
                _ => nulls.chain(rows.columns().iter().cloned()).collect(),
            };
            out.push(with_schema(&join.schema, columns, count)?);
            Ok(())
        })?;
        let gone = std::mem::take(&mut self.gone[side]);
        self.give_with_nulls(side, &gone)
    }
}

fn with_schema(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
