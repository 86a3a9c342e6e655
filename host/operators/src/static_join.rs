//! Joins the rows of a lane with a static table. Stateless: every row gets its answer at once.
//!
//! Called by the dataflow from many threads at once. The table is indexed once for each of its versions. The rows that
//! come out are in the order of the stream's rows, those of one row in the order of the table's. Never reads a file.

mod index;
#[cfg(test)]
mod tests;

use crate::pairs::{PairCondition, types, values};
use crate::stateful::keyed::Keys;
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use index::Index;
use pelton_core::{BatchId, Error, Result};
use pelton_plan::ROWS_PER_BATCH_MAX;
use pelton_plan::stateful::{JoinKind, StaticJoin, StaticRelation};
use pelton_state::RowCodec;
use std::sync::{Arc, Mutex, PoisonError};

/// Runs a static join.
pub(crate) struct StaticJoinRunner {
    answer: Answer,
    stream_is_left: bool,
    stream_columns: usize,
    sides: Sides,
    condition: Option<PairCondition>,
    null_aware: bool,
    table: Arc<StaticRelation>,
    schema: SchemaRef,
    index: Mutex<Option<Arc<Index>>>,
}

/// The keys of both sides.
struct Sides {
    stream: Vec<Arc<dyn PhysicalExpr>>,
    table: Vec<Arc<dyn PhysicalExpr>>,
    null_safe: Vec<bool>,
    codec: RowCodec,
}

/// What a row of the stream gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Its pairs.
    Pairs,
    /// Its pairs, or NULLs.
    PairsOrNulls,
    /// Itself, if it has a pair.
    IfAny,
    /// Itself, if it has none.
    IfNone,
}

/// Rows that come out: rows of the stream, each with a row of the table or none.
#[derive(Default)]
struct Found {
    stream: Vec<u32>,
    table: Vec<Option<u32>>,
}

/// Where a run over the stream's rows stands.
struct Progress {
    /// Pairs of which only the keys are known to match.
    stream: Vec<u32>,
    table: Vec<u32>,
    /// The first row of the stream that is not answered.
    row: usize,
    /// Whether that row has a pair already.
    has_pair: bool,
}

impl StaticJoinRunner {
    /// `input` is the schema of the rows of the lane.
    pub(crate) fn new(spec: &StaticJoin, input: &SchemaRef) -> Result<Self> {
        let answer = match (spec.kind, spec.stream_is_left) {
            (JoinKind::Inner, _) => Answer::Pairs,
            (JoinKind::LeftOuter, true) | (JoinKind::RightOuter, false) => Answer::PairsOrNulls,
            (JoinKind::LeftSemi, true) => Answer::IfAny,
            (JoinKind::LeftAnti, true) => Answer::IfNone,
            (kind, _) => {
                let message = format!("operator '{}': no static join of kind {kind:?}", spec.operator);
                return Err(Error::internal(message));
            }
        };
        let of_stream = |key: &pelton_plan::stateful::JoinKey| {
            if spec.stream_is_left { key.left.clone() } else { key.right.clone() }
        };
        let of_table = |key: &pelton_plan::stateful::JoinKey| {
            if spec.stream_is_left { key.right.clone() } else { key.left.clone() }
        };
        let stream: Vec<_> = spec.keys.iter().map(of_stream).collect();
        let table: Vec<_> = spec.keys.iter().map(of_table).collect();
        let key_types = types(&stream, input)?;
        if types(&table, &spec.table.schema)? != key_types {
            return Err(Error::internal(format!(
                "operator '{}': the keys of a join have different types",
                spec.operator
            )));
        }
        let (left, right) =
            if spec.stream_is_left { (input, &spec.table.schema) } else { (&spec.table.schema, input) };
        let condition = spec.condition.as_ref().map(|condition| PairCondition::new(condition, left, right));
        let null_safe = spec.keys.iter().map(|key| key.null_safe).collect();
        Ok(Self {
            answer,
            stream_is_left: spec.stream_is_left,
            stream_columns: input.fields().len(),
            sides: Sides { stream, table, null_safe, codec: RowCodec::new(key_types)? },
            condition: condition.transpose()?,
            null_aware: spec.null_aware,
            table: spec.table.clone(),
            schema: spec.schema.clone(),
            index: Mutex::new(None),
        })
    }

    /// The schema of the rows that come out.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What comes out for some rows of the stream in a micro-batch.
    pub(crate) fn process(&self, batch_id: BatchId, rows: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let index = self.index(batch_id)?;
        let columns = values(&self.sides.stream, rows)?;
        let nulls = self.sides.unmatchable(&columns);
        let keys = Keys::encode(&self.sides.codec, &columns)?;
        let mut progress = Progress { stream: Vec::new(), table: Vec::new(), row: 0, has_pair: false };
        let mut out = Vec::new();
        for row in 0..rows.num_rows() {
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.value(row));
            for candidate in index.candidates(keys.get(row), is_null, self.null_aware) {
                progress.stream.push(row as u32);
                progress.table.push(candidate);
                if progress.stream.len() == ROWS_PER_BATCH_MAX {
                    self.answer(rows, &index, &mut progress, row, &mut out)?;
                }
            }
        }
        self.answer(rows, &index, &mut progress, rows.num_rows(), &mut out)?;
        Ok(out)
    }

    /// The index of the table as it is now.
    fn index(&self, batch_id: BatchId) -> Result<Arc<Index>> {
        let now = (self.table.rows)(batch_id)?;
        let mut known = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = known.as_ref().filter(|index| index.version == now.version) {
            return Ok(index.clone());
        }
        let columns = values(&self.sides.table, &now.rows)?;
        let nulls = self.sides.unmatchable(&columns);
        let index = Index::new(now, &Keys::encode(&self.sides.codec, &columns)?, nulls.as_ref())
            .map_err(|e| e.context(format!("static table '{}'", self.table.name)))?;
        let index = Arc::new(index);
        *known = Some(index.clone());
        Ok(index)
    }

    /// Answers the rows before `until`; what is known of that one itself is kept in `progress`.
    fn answer(
        &self,
        rows: &RecordBatch,
        index: &Index,
        progress: &mut Progress,
        until: usize,
        out: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        let stream = UInt32Array::from(std::mem::take(&mut progress.stream));
        let table = UInt32Array::from(std::mem::take(&mut progress.table));
        let holds = match &self.condition {
            Some(condition) if !stream.is_empty() => Some(
                condition.holds(stream.len(), |column| self.column(rows, index, column, &stream, &table))?,
            ),
            _ => None,
        };
        let mut found = Found::default();
        for pair in 0..stream.len() {
            if holds.as_ref().is_none_or(|holds| holds.value(pair)) {
                let row = stream.value(pair) as usize;
                self.finish_rows(progress, row, &mut found);
                if self.answer == Answer::IfAny && !progress.has_pair {
                    found.push(row, None);
                } else if matches!(self.answer, Answer::Pairs | Answer::PairsOrNulls) {
                    found.push(row, Some(table.value(pair)));
                }
                progress.has_pair = true;
            }
        }
        self.finish_rows(progress, until, &mut found);
        self.put_together(rows, index, found, out)
    }

    /// Gives the rows before `until` that turn out to have no pair.
    fn finish_rows(&self, progress: &mut Progress, until: usize, found: &mut Found) {
        while progress.row < until {
            if !progress.has_pair && matches!(self.answer, Answer::PairsOrNulls | Answer::IfNone) {
                found.push(progress.row, None);
            }
            progress.row += 1;
            progress.has_pair = false;
        }
    }

    /// A column of pairs, by its position in left then right.
    fn column(
        &self,
        rows: &RecordBatch,
        index: &Index,
        column: usize,
        stream: &UInt32Array,
        table: &UInt32Array,
    ) -> Result<ArrayRef> {
        let table_columns = index.rows.num_columns();
        let (of_stream, of_table) = match self.stream_is_left {
            true => (
                Some(column).filter(|at| *at < self.stream_columns),
                column.wrapping_sub(self.stream_columns),
            ),
            false => (column.checked_sub(table_columns), column),
        };
        Ok(match of_stream {
            Some(at) => take(rows.column(at), stream, None)?,
            None => take(index.rows.column(of_table), table, None)?,
        })
    }

    fn put_together(
        &self,
        rows: &RecordBatch,
        index: &Index,
        found: Found,
        out: &mut Vec<RecordBatch>,
    ) -> Result<()> {
        if found.stream.is_empty() {
            return Ok(());
        }
        let stream = UInt32Array::from(found.stream);
        let table = UInt32Array::from(found.table);
        let column = |column| self.column(rows, index, column, &stream, &table);
        let columns = (0..self.schema.fields().len()).map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(stream.len()));
        let all = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        let starts = (0..all.num_rows()).step_by(ROWS_PER_BATCH_MAX);
        out.extend(starts.map(|start| all.slice(start, ROWS_PER_BATCH_MAX.min(all.num_rows() - start))));
        Ok(())
    }
}

impl Found {
    fn push(&mut self, row: usize, of_table: Option<u32>) {
        self.stream.push(row as u32);
        self.table.push(of_table);
    }
}

impl Sides {
    /// Which rows have a NULL among the keys that do not match NULL. `None`: no row has.
    fn unmatchable(&self, columns: &[ArrayRef]) -> Option<BooleanArray> {
        let nulls = columns.iter().zip(&self.null_safe).filter(|(_, null_safe)| !**null_safe);
        let nulls: Vec<_> = nulls.filter_map(|(column, _)| column.logical_nulls()).collect();
        if nulls.iter().all(|nulls| nulls.null_count() == 0) {
            return None;
        }
        let rows = columns.first().map_or(0, |column| column.len());
        Some((0..rows).map(|row| Some(nulls.iter().any(|nulls| nulls.is_null(row)))).collect())
    }
}
