//! Records of one partition as they were fetched, end to end in one buffer.

use super::offsets::TopicPartition;
use bytes::Bytes;
use pelton_core::MessageOrigin;
use rdkafka::message::{BorrowedMessage, Headers, Message, Timestamp};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a block, about; a record is never cut.
pub(super) const BLOCK_BYTES: usize = 512 << 10;
/// Records of a block, at most.
pub(super) const BLOCK_RECORDS: usize = 16_384;

/// Consecutive records of a partition.
#[derive(Debug, Clone)]
pub(super) struct Records {
    pub(super) at: TopicPartition,
    bytes: Vec<u8>,
    pub(super) records: Vec<Record>,
    with_headers: bool,
}

/// One record. What it says lies in the buffer of its [`Records`].
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) offset: i64,
    /// In milliseconds; -1 if it has none, as in Spark.
    pub(super) timestamp_ms: i64,
    /// Kafka's number: 0 when it was made, 1 when it was appended, -1 if it has none.
    pub(super) timestamp_type: i32,
    pub(super) key: Option<Range<usize>>,
    pub(super) value: Option<Range<usize>>,
    pub(super) headers: Vec<(Range<usize>, Option<Range<usize>>)>,
}

impl Records {
    pub(super) fn new(at: &TopicPartition, with_headers: bool) -> Self {
        Self { at: at.clone(), bytes: Vec::new(), records: Vec::new(), with_headers }
    }

    /// The same records begun anew; the capacity stays.
    pub(super) fn take(&mut self) -> Self {
        let next = Self {
            bytes: Vec::with_capacity(self.bytes.len()),
            records: Vec::with_capacity(self.records.len()),
            ..Self::new(&self.at, self.with_headers)
        };
        std::mem::replace(self, next)
    }

    /// None, of the same partition.
    pub(super) fn emptied(&self) -> Self {
        Self::new(&self.at, self.with_headers)
    }

    pub(super) fn push(&mut self, message: &BorrowedMessage<'_>) {
        let (timestamp_ms, timestamp_type) = match message.timestamp() {
            Timestamp::NotAvailable => (-1, -1),
            Timestamp::CreateTime(ms) => (ms, 0),
            Timestamp::LogAppendTime(ms) => (ms, 1),
        };
        let key = message.key().map(|key| self.append(key));
        let value = message.payload().map(|value| self.append(value));
        let mut headers = Vec::new();
        if let (true, Some(of)) = (self.with_headers, message.headers()) {
            for header in of.iter() {
                headers
                    .push((self.append(header.key.as_bytes()), header.value.map(|value| self.append(value))));
            }
        }
        let offset = message.offset();
        self.records.push(Record { offset, timestamp_ms, timestamp_type, key, value, headers });
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Appends those of others, of the same partition.
    pub(super) fn extend(&mut self, other: &Self) {
        let by = self.bytes.len();
        let moved = |range: &Range<usize>| range.start + by..range.end + by;
        self.bytes.extend_from_slice(&other.bytes);
        self.records.extend(other.records.iter().map(|record| Record {
            key: record.key.as_ref().map(moved),
            value: record.value.as_ref().map(moved),
            headers:
                record.headers.iter().map(|(key, value)| (moved(key), value.as_ref().map(moved))).collect(),
            ..*record
        }));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= BLOCK_BYTES || self.records.len() >= BLOCK_RECORDS
    }

    pub(super) fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        &self.bytes[range.clone()]
    }

    /// The values that are not null, and of which record each is.
    pub(super) fn values(&self) -> (Vec<&[u8]>, Vec<u32>) {
        let of = self.records.iter().zip(0_u32..);
        of.filter_map(|(record, n)| Some((self.bytes(record.value.as_ref()?), n))).unzip()
    }

    /// For messages and dead letters.
    pub(super) fn position(&self, record: u32) -> String {
        let offset = self.records.get(record as usize).map_or(-1, |record| record.offset);
        format!("{}@{offset}", self.at)
    }

    /// The record at such a position. Offsets ascend.
    pub(super) fn origin(&self, position: &str) -> Option<MessageOrigin> {
        let offset = position.rsplit_once('@')?.1.parse().ok()?;
        let nth = self.records.binary_search_by_key(&offset, |record| record.offset).ok()?;
        let key = self.records[nth].key.as_ref().map(|key| Bytes::copy_from_slice(self.bytes(key)));
        Some(MessageOrigin { topic: Arc::clone(&self.at.topic), partition: self.at.partition, offset, key })
    }

    #[cfg(test)]
    pub(super) fn of_test(at: &TopicPartition, of: &[(Option<&str>, Option<&str>)]) -> Self {
        let mut records = Self::new(at, true);
        for (n, (key, value)) in of.iter().enumerate() {
            let key = key.map(|key| records.append(key.as_bytes()));
            let value = value.map(|value| records.append(value.as_bytes()));
            let headers = vec![(records.append(b"h"), (n > 0).then(|| records.append(&[n as u8])))];
            let (offset, timestamp_ms) = (10 + n as i64, 1_000 + n as i64);
            records.records.push(Record { offset, timestamp_ms, timestamp_type: 0, key, value, headers });
        }
        records
    }
}
