//! What is counted while the rows of a micro-batch pass, by many threads at once.
//!
//! Written by `rows`, read by `micro_batch` when the sink is done. Counts never influence a row.

use pelton_core::{DeadLetter, Decoded, Gathered, LossKind, OperatorReport, Part};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Of one input.
#[derive(Debug, Default)]
pub(crate) struct InputMeter {
    pub(crate) rows: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Records that did not decode, dropped or sent to the dead letters.
    pub(crate) malformed: AtomicU64,
}

/// Of one micro-batch.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) inputs: Vec<InputMeter>,
    pub(crate) refused: AtomicU64,
    /// Rows that functions failed on.
    pub(crate) poison: AtomicU64,
    /// Rows that the stateful operators gave up as late.
    pub(crate) late: AtomicU64,
    /// Late rows that became dead letters.
    pub(crate) late_kept: AtomicU64,
    pub(crate) dead_letters: AtomicU64,
    /// Waiting for the source's blocks.
    pub(crate) read_nanos: AtomicU64,
    /// Summed over workers.
    pub(crate) decode_nanos: AtomicU64,
    /// Summed over workers.
    pub(crate) process_nanos: AtomicU64,
    /// The stateful operators' second stage.
    pub(crate) stateful_nanos: AtomicU64,
    /// The sink waiting for rows.
    pub(crate) rows_wait_nanos: AtomicU64,
    ended: AtomicBool,
}

impl Meters {
    pub(crate) fn new(inputs: usize) -> Self {
        Self { inputs: (0..inputs).map(|_| InputMeter::default()).collect(), ..Self::default() }
    }

    pub(crate) fn read(&self, nanos: u64) {
        self.read_nanos.fetch_add(nanos, Relaxed);
    }

    pub(crate) fn decoded(&self, input: usize, bytes: u64, decoded: &Decoded, nanos: u64) {
        let rows = decoded.batches.iter().map(|batch| batch.num_rows() as u64).sum();
        let letters = decoded.dead_letters.len() as u64;
        self.inputs[input].rows.fetch_add(rows, Relaxed);
        self.inputs[input].bytes.fetch_add(bytes, Relaxed);
        self.inputs[input].malformed.fetch_add(decoded.dropped_rows + letters, Relaxed);
        self.dead_letters.fetch_add(letters, Relaxed);
        self.decode_nanos.fetch_add(nanos, Relaxed);
    }

    pub(crate) fn processed(&self, part: &Part, nanos: u64) {
        self.lost(&part.dead_letters);
        self.process_nanos.fetch_add(nanos, Relaxed);
    }

    pub(crate) fn gathered(&self, gathered: &Gathered, nanos: u64) {
        self.lost(&gathered.dead_letters);
        let late = |report: &OperatorReport| report.late_rows;
        self.late.fetch_add(gathered.operators.iter().map(late).sum(), Relaxed);
        self.stateful_nanos.fetch_add(nanos, Relaxed);
    }

    /// Letters for late rows are not counted as late: the operators count those, kept or not.
    fn lost(&self, letters: &[DeadLetter]) {
        let of = |kind| letters.iter().filter(|letter| letter.kind == kind).count() as u64;
        let (late, poison) = (of(LossKind::Late), of(LossKind::Poison));
        let all = letters.len() as u64;
        self.late_kept.fetch_add(late, Relaxed);
        self.poison.fetch_add(poison, Relaxed);
        self.refused.fetch_add(all - late - poison, Relaxed);
        self.dead_letters.fetch_add(all, Relaxed);
    }

    pub(crate) fn emitted(&self, waited_nanos: u64) {
        self.rows_wait_nanos.fetch_add(waited_nanos, Relaxed);
    }

    /// The stream of rows has come to its good end.
    pub(crate) fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Relaxed)
    }
}
