//! Source `rate`: so many rows a second, each with a timestamp and a number. Spark's rate source, formula for
//! formula; rows depend on nothing but the offset range and the time at which the query was created.

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use pelton_core::{
    BatchId, Block, BlockStream, Decoded, Error, FileManager, Interval, Offset, OffsetRange, PartitionStatus,
    ReadLimit, Result, Source,
};
use std::sync::Arc;

use crate::decode::BATCH_ROWS;

/// Rows of one block, at most.
const BLOCK_ROWS: u64 = 8 * BATCH_ROWS as u64;
/// Partitions whose watermarks may be kept apart, at most.
const PARTITIONS_MAX: u64 = 10_000;
/// Where the time of creation is kept, as Spark does it.
const CREATED: &str = "0";

/// What the pipeline file says of a rate source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateSourceOptions {
    /// Rows in every second, once it is up to speed; at least 1.
    pub rows_per_second: u64,
    /// How long it takes to get up to speed; whole seconds count.
    pub ramp_up_time: Interval,
    /// How many interleaved parts the rows of a micro-batch are read in; at least 1.
    pub num_partitions: u64,
    /// The session's time zone, for the type of the timestamps.
    pub time_zone: String,
}

impl Default for RateSourceOptions {
    fn default() -> Self {
        Self {
            rows_per_second: 1,
            ramp_up_time: Interval::default(),
            num_partitions: 1,
            time_zone: "UTC".into(),
        }
    }
}

/// A source that counts.
#[derive(Debug)]
pub struct RateSource {
    speed: Speed,
    num_partitions: u64,
    schema: SchemaRef,
    log: Arc<dyn FileManager>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    created_ms: Option<i64>,
    /// Whether the next offset that is asked for is the last.
    freeze: bool,
    frozen: Option<i64>,
}

/// How many rows there are at a second.
#[derive(Debug, Clone, Copy)]
struct Speed {
    rows_per_second: i64,
    ramp_up_seconds: i64,
}

impl Speed {
    /// Rows up to the end of `second`; `None` beyond 64 bits.
    fn rows_at(self, second: i64) -> Option<i64> {
        let step = self.rows_per_second / (self.ramp_up_seconds + 1);
        if second <= self.ramp_up_seconds {
            // Half of second * (second + 1), without the overflow of the product.
            return if second % 2 == 1 {
                ((second + 1) / 2).checked_mul(step)?.checked_mul(second)
            } else {
                (second / 2).checked_mul(step)?.checked_mul(second + 1)
            };
        }
        let ramp = self.rows_at(self.ramp_up_seconds)?;
        (second - self.ramp_up_seconds).checked_mul(self.rows_per_second)?.checked_add(ramp)
    }
}

impl RateSource {
    /// A rate source whose time of creation is kept in `log` (the checkpoint's `sources/<name>`).
    pub fn new(options: &RateSourceOptions, log: Arc<dyn FileManager>) -> Result<Self> {
        let at_least_one = |name: &str, value: u64| match i64::try_from(value) {
            Ok(value) if value >= 1 => Ok(value),
            _ => Err(Error::invalid(format!("{name} must be at least 1 and fit 64 bits, not {value}"))),
        };
        let ramp_up_seconds = options.ramp_up_time.as_micros() / 1_000_000;
        if ramp_up_seconds < 0 {
            return Err(Error::invalid(format!(
                "ramp_up_time must not be negative, not {}",
                options.ramp_up_time
            )));
        }
        let zone = Some(options.time_zone.as_str().into());
        let schema = Arc::new(Schema::new(vec![
            Field::new("timestamp", DataType::Timestamp(TimeUnit::Microsecond, zone), true),
            Field::new("value", DataType::Int64, true),
        ]));
        at_least_one("num_partitions", options.num_partitions)?;
        Ok(Self {
            speed: Speed {
                rows_per_second: at_least_one("rows_per_second", options.rows_per_second)?,
                ramp_up_seconds,
            },
            num_partitions: options.num_partitions,
            schema,
            log,
            state: Mutex::default(),
        })
    }

    async fn created(&self) -> Result<Option<i64>> {
        if let Some(created_ms) = self.state.lock().created_ms {
            return Ok(Some(created_ms));
        }
        let Some(content) = self.log.read(CREATED).await? else { return Ok(None) };
        let text = String::from_utf8_lossy(&content);
        let created_ms =
            text.strip_prefix("v1\n").and_then(|rest| rest.trim().parse().ok()).ok_or_else(|| {
                Error::data(format!(
                    "{}/{CREATED} is damaged: it should hold 'v1' and a time",
                    self.log.url()
                ))
                .hint("start the query with a new checkpoint")
            })?;
        self.state.lock().created_ms = Some(created_ms);
        Ok(Some(created_ms))
    }

    async fn created_or_now(&self, now_ms: i64) -> Result<i64> {
        if let Some(created_ms) = self.created().await? {
            return Ok(created_ms);
        }
        self.log.create(CREATED, Bytes::from(format!("v1\n{now_ms}"))).await?;
        self.created().await?.ok_or_else(|| Error::data(format!("{}/{CREATED} is not there", self.log.url())))
    }
}

impl RateSource {
    fn rows_at(&self, second: i64) -> Result<i64> {
        let beyond = || Error::data(format!("second {second} has more rows than 64 bits count"));
        self.speed.rows_at(second).ok_or_else(beyond)
    }
}

fn seconds(offset: &Offset) -> Result<i64> {
    let number = offset.0.as_i64().filter(|second| *second >= 0);
    number.ok_or_else(|| Error::data(format!("{} is not an offset of a rate source", offset.0)))
}

#[async_trait]
impl Source for RateSource {
    fn description(&self) -> String {
        format!("rate {} rows a second", self.speed.rows_per_second)
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn prepare_for_available_now(&self) -> Result<()> {
        self.state.lock().freeze = true;
        Ok(())
    }

    async fn latest_offset(
        &self,
        start: Option<&Offset>,
        _limit: ReadLimit,
        now_ms: i64,
    ) -> Result<Option<Offset>> {
        let created_ms = self.created_or_now(now_ms).await?;
        let start = start.map(seconds).transpose()?.unwrap_or(0);
        let second = (now_ms - created_ms).max(0) / 1000;
        let mut state = self.state.lock();
        let end = match state.frozen {
            Some(frozen) => frozen,
            None => second,
        };
        if state.freeze {
            state.frozen = Some(end);
        }
        Ok((end > start).then(|| Offset(end.into())))
    }

    async fn partitions(
        &self,
        start: Option<&Offset>,
        end: Option<&Offset>,
        now_ms: i64,
    ) -> Result<Vec<PartitionStatus>> {
        if self.num_partitions > PARTITIONS_MAX {
            let message = format!("a watermark follows at most {PARTITIONS_MAX} partitions of a rate source");
            return Err(Error::invalid(message).hint("lower num_partitions, or leave out per_partition"));
        }
        let created_ms = self.created_or_now(now_ms).await?;
        let start = start.map(seconds).transpose()?.unwrap_or(0);
        let end = end.map(seconds).transpose()?.unwrap_or(0);
        let total = self.rows_at(end)?.saturating_sub(self.rows_at(start)?);
        let caught_up = (now_ms - created_ms).max(0) / 1000 <= end;
        // Rows are dealt out one to each partition in turn.
        let status = |partition: u64| PartitionStatus {
            name: partition.to_string(),
            has_data: (partition as i64) < total,
            caught_up,
        };
        Ok((0..self.num_partitions).map(status).collect())
    }

    async fn read(&self, _batch_id: BatchId, range: &OffsetRange) -> Result<BlockStream> {
        let created_ms = self.created().await?.ok_or_else(|| {
            Error::data(format!(
                "{}/{CREATED} is missing: the time at which the query was created",
                self.log.url()
            ))
            .hint("start the query with a new checkpoint")
        })?;
        let start = range.start.as_ref().map(seconds).transpose()?.unwrap_or(0);
        let end = seconds(&range.end)?;
        let (first, last) = (self.rows_at(start)?, self.rows_at(end)?);
        let part = Part {
            first,
            start_ms: created_ms + start * 1000,
            ms_per_row: ((end - start) * 1000) as f64 / (last - first).max(1) as f64,
            step: self.num_partitions as i64,
            from: 0,
            rows: 0,
            partition: "".into(),
            schema: self.schema.clone(),
        };
        let total = (last - first).max(0) as u64;
        let partitions = self.num_partitions;
        let blocks = (0..partitions.min(total)).flat_map(move |partition| {
            let rows = (total - partition).div_ceil(partitions);
            let part = Part { partition: partition.to_string().into(), ..part.clone() };
            (0..rows).step_by(BLOCK_ROWS as usize).map(move |at| {
                let from = (partition + at * partitions) as i64;
                let block = Part { from, rows: BLOCK_ROWS.min(rows - at) as usize, ..part.clone() };
                Ok(Box::new(block) as Box<dyn Block>)
            })
        });
        Ok(futures::stream::iter(blocks).boxed())
    }

    async fn commit(&self, _end: &Offset) -> Result<()> {
        Ok(())
    }
}

/// Every `step`-th row from the range's row `from` on.
#[derive(Debug, Clone)]
struct Part {
    /// Number of the range's first row.
    first: i64,
    start_ms: i64,
    ms_per_row: f64,
    step: i64,
    from: i64,
    rows: usize,
    partition: Arc<str>,
    schema: SchemaRef,
}

impl Block for Part {
    fn input_bytes(&self) -> u64 {
        0
    }

    fn partition(&self) -> &str {
        &self.partition
    }

    fn decode(self: Box<Self>) -> Result<Decoded> {
        let mut batches = Vec::with_capacity(self.rows.div_ceil(BATCH_ROWS));
        for at in (0..self.rows).step_by(BATCH_ROWS) {
            let nth = |i: usize| self.from + self.step * (at + i) as i64;
            let len = BATCH_ROWS.min(self.rows - at);
            let values: Vec<i64> = (0..len).map(|i| self.first + nth(i)).collect();
            let micros: Vec<i64> = (0..len)
                .map(|i| (self.start_ms + (nth(i) as f64 * self.ms_per_row).round() as i64) * 1000)
                .collect();
            let zone = match self.schema.field(0).data_type() {
                DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            };
            let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(micros).with_timezone_opt(zone));
            batches.push(RecordBatch::try_new(
                self.schema.clone(),
                vec![times, Arc::new(Int64Array::from(values))],
            )?);
        }
        Ok(Decoded { batches, ..Decoded::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::cast::AsArray;
    use arrow::array::types::{Int64Type, TimestampMicrosecondType};
    use pelton_core::MemoryFiles;

    fn source(options: RateSourceOptions, files: &MemoryFiles) -> RateSource {
        RateSource::new(&options, Arc::new(files.clone())).unwrap()
    }

    async fn rows(source: &RateSource, start: i64, end: i64) -> Vec<(i64, i64)> {
        let range = OffsetRange { start: Some(Offset(start.into())), end: Offset(end.into()) };
        let mut blocks = source.read(BatchId(0), &range).await.unwrap();
        let mut rows = Vec::new();
        while let Some(block) = blocks.next().await {
            for batch in block.unwrap().decode().unwrap().batches {
                let times = batch.column(0).as_primitive::<TimestampMicrosecondType>().values();
                let values = batch.column(1).as_primitive::<Int64Type>().values();
                rows.extend(values.iter().copied().zip(times.iter().map(|t| t / 1000)));
            }
        }
        rows
    }

    #[tokio::test]
    async fn rows_depend_on_the_offsets_alone() {
        let files = MemoryFiles::new();
        let options = RateSourceOptions { rows_per_second: 2, ..Default::default() };
        let first = source(options.clone(), &files);
        assert_eq!(first.latest_offset(None, ReadLimit::Configured, 1_000_000).await.unwrap(), None);
        let end = first.latest_offset(None, ReadLimit::Configured, 1_002_500).await.unwrap();
        assert_eq!(end, Some(Offset(2.into())));
        let expected = [(0, 1_000_000), (1, 1_000_500), (2, 1_001_000), (3, 1_001_500)];
        assert_eq!(rows(&first, 0, 2).await, expected);
        let restarted = source(options, &files);
        assert_eq!(rows(&restarted, 0, 2).await, expected);
        assert_eq!(restarted.latest_offset(end.as_ref(), ReadLimit::All, 1_002_999).await.unwrap(), None);
    }

    #[tokio::test]
    async fn partitions_interleave() {
        let files = MemoryFiles::new();
        let source =
            source(RateSourceOptions { rows_per_second: 5, num_partitions: 2, ..Default::default() }, &files);
        source.latest_offset(None, ReadLimit::All, 0).await.unwrap();
        let values: Vec<i64> = rows(&source, 0, 1).await.into_iter().map(|(value, _)| value).collect();
        assert_eq!(values, [0, 2, 4, 1, 3]);
    }

    #[tokio::test]
    async fn partitions_say_what_they_have_and_what_is_left() {
        let files = MemoryFiles::new();
        let source =
            source(RateSourceOptions { rows_per_second: 1, num_partitions: 2, ..Default::default() }, &files);
        source.latest_offset(None, ReadLimit::All, 0).await.unwrap();
        let at = |second: i64| Offset(second.into());
        let told = source.partitions(Some(&at(1)), Some(&at(2)), 3_000).await.unwrap();
        let status = |name: &str, has_data| PartitionStatus { name: name.into(), has_data, caught_up: false };
        assert_eq!(told, [status("0", true), status("1", false)], "one row, and a second is left");
        assert!(
            source.partitions(Some(&at(3)), Some(&at(3)), 3_999).await.unwrap().iter().all(|p| p.caught_up)
        );
        let range = OffsetRange { start: Some(at(0)), end: at(2) };
        let blocks: Vec<_> = source.read(BatchId(0), &range).await.unwrap().collect().await;
        let names: Vec<String> =
            blocks.into_iter().map(|block| block.unwrap().partition().to_owned()).collect();
        assert_eq!(names, ["0", "1"]);
    }

    #[test]
    fn speed_ramps_up_as_in_spark() {
        let speed = Speed { rows_per_second: 10, ramp_up_seconds: 4 };
        let rows: Vec<_> = (0..7).map(|second| speed.rows_at(second).unwrap()).collect();
        assert_eq!(rows, [0, 2, 6, 12, 20, 30, 40]);
        assert_eq!(Speed { rows_per_second: i64::MAX, ramp_up_seconds: 0 }.rows_at(2), None);
    }

    #[tokio::test]
    async fn available_now_stands_still() {
        let source = source(RateSourceOptions::default(), &MemoryFiles::new());
        source.latest_offset(None, ReadLimit::All, 0).await.unwrap();
        source.prepare_for_available_now().await.unwrap();
        let end = source.latest_offset(None, ReadLimit::Configured, 3_000).await.unwrap();
        assert_eq!(end, Some(Offset(3.into())));
        assert_eq!(source.latest_offset(end.as_ref(), ReadLimit::Configured, 9_000).await.unwrap(), None);
    }

    #[test]
    fn nonsense_is_refused() {
        let options = RateSourceOptions { rows_per_second: 0, ..Default::default() };
        let error = RateSource::new(&options, Arc::new(MemoryFiles::new())).unwrap_err();
        assert_eq!(error.message(), "rows_per_second must be at least 1 and fit 64 bits, not 0");
    }
}
