//! What the tests of formats share: the files that other implementations wrote, rows as text.

use crate::encode::JsonEncoder;
use arrow::array::RecordBatch;
use std::path::PathBuf;

/// Where a file of `tests-data` lies.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests-data").join(name)
}

/// The bytes of a file of `tests-data`.
pub(crate) fn data(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

/// A file of `tests-data` as text.
pub(crate) fn text(name: &str) -> String {
    String::from_utf8(data(name)).unwrap()
}

/// Bytes from two digits each.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Rows as JSON lines, nulls written out, times cut to milliseconds: the encoders' tests compare to the microsecond.
pub(crate) fn json_lines(batches: &[RecordBatch]) -> String {
    let mut out = Vec::new();
    let encoder = JsonEncoder::default().with_null_fields();
    batches.iter().try_for_each(|batch| encoder.encode(batch, &mut out)).unwrap();
    String::from_utf8(out).unwrap()
}
