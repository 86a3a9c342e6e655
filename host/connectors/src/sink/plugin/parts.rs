//! The rows of a micro-batch cut into parts of bounded size.
//!
//! Where a part ends depends on the rows alone, not on the batches that they happen to come in: a rerun gets the same
//! parts.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::DataType;
use futures::TryStreamExt;
use pelton_core::{Result, RowStream};

/// Rows of a part at most.
const PART_ROWS: usize = 16_384;
/// Bytes of a part at most, unless one row has more.
const PART_BYTES: usize = 4 << 20;

/// Cuts a stream.
pub(super) struct Parts {
    rows: RowStream,
    /// What came last, and how far it has gone into parts.
    current: Option<(RecordBatch, usize)>,
}

impl Parts {
    pub(super) fn new(rows: RowStream) -> Self {
        Self { rows, current: None }
    }

    /// The next part; it has a row at least.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let mut slices: Vec<RecordBatch> = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        loop {
            let (batch, from) = match self.current.take() {
                Some(current) => current,
                None => match self.rows.try_next().await? {
                    Some(batch) => (batch, 0),
                    None => break,
                },
            };
            let room = PART_BYTES.saturating_sub(bytes);
            let mut taken = rows_within(&batch, from, (PART_ROWS - rows).min(batch.num_rows() - from), room);
            if rows == 0 && taken == 0 {
                taken = 1.min(batch.num_rows() - from);
            }
            bytes += row_bytes(&batch, from, from + taken);
            rows += taken;
            if taken > 0 {
                slices.push(batch.slice(from, taken));
            }
            if from + taken < batch.num_rows() {
                self.current = Some((batch, from + taken));
                break;
            }
        }
        Ok(match &slices[..] {
            [] => None,
            [one] => Some(one.clone()),
            [first, ..] => Some(concat_batches(&first.schema(), &slices)?),
        })
    }
}

/// How many rows from `from` on, at most `count`, have no more than `room` bytes.
fn rows_within(batch: &RecordBatch, from: usize, count: usize, room: usize) -> usize {
    let (mut fits, mut beyond) = (0, count + 1);
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        match row_bytes(batch, from, from + middle) <= room {
            true => fits = middle,
            false => beyond = middle,
        }
    }
    fits
}

/// What rows take: a sum over the rows, whatever slice of whatever array they are in.
fn row_bytes(batch: &RecordBatch, from: usize, to: usize) -> usize {
    batch.columns().iter().map(|column| bytes(column, from, to)).sum()
}

fn bytes(array: &ArrayRef, from: usize, to: usize) -> usize {
    let items = |offsets: &[i32]| (offsets[from] as usize, offsets[to] as usize);
    let count = to - from;
    match array.data_type() {
        DataType::Utf8 => {
            let (start, end) = items(array.as_string::<i32>().value_offsets());
            end - start + 4 * count
        }
        DataType::Binary => {
            let (start, end) = items(array.as_binary::<i32>().value_offsets());
            end - start + 4 * count
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (start, end) = items(list.value_offsets());
            bytes(list.values(), start, end) + 4 * count
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let (start, end) = items(map.value_offsets());
            bytes(map.keys(), start, end) + bytes(map.values(), start, end) + 4 * count
        }
        DataType::Struct(_) => {
            array.as_struct().columns().iter().map(|column| bytes(column, from, to)).sum::<usize>() + count
        }
        other => other.primitive_width().unwrap_or(1) * count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::file::test_rows::{numbers, stream};
    use arrow::array::StringArray;
    use std::sync::Arc;

    async fn sizes(batches: Vec<RecordBatch>) -> Vec<usize> {
        let mut parts = Parts::new(stream(batches));
        let mut sizes = Vec::new();
        while let Some(part) = parts.next().await.unwrap() {
            sizes.push(part.num_rows());
        }
        sizes
    }

    fn texts(sizes: &[usize]) -> RecordBatch {
        let texts: StringArray = sizes.iter().map(|size| Some("x".repeat(*size))).collect();
        RecordBatch::try_from_iter([("t", Arc::new(texts) as ArrayRef)]).unwrap()
    }

    #[tokio::test]
    async fn parts_do_not_depend_on_the_batches() {
        let whole = numbers(0..40_000);
        let cut = (0..40_000).step_by(777).map(|from| whole.slice(from, 777.min(40_000 - from))).collect();
        assert_eq!(sizes(vec![whole]).await, [16_384, 16_384, 7_232]);
        assert_eq!(sizes(cut).await, [16_384, 16_384, 7_232]);
        assert_eq!(sizes(vec![numbers(0..0), numbers(0..1)]).await, [1]);
        assert_eq!(sizes(vec![]).await, [] as [usize; 0]);
    }

    #[tokio::test]
    async fn long_rows_make_short_parts() {
        let sizes_of_rows = [1 << 20, 3 << 20, 5 << 20, 1, 2 << 20, 1 << 20];
        let whole = texts(&sizes_of_rows);
        let single = (0..6).map(|nth| whole.slice(nth, 1)).collect();
        let expected = [1, 1, 1, 3];
        assert_eq!(sizes(vec![whole]).await, expected);
        assert_eq!(sizes(single).await, expected);
    }
}
