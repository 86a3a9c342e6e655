//! A stateful dataflow in several versions, as a plugin that can be swapped: windows' counts, marked with the version.

use super::WindowCounts;
use crate::{Logic, PluginCode};
use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use bytes::Bytes;
use pelton_core::{
    BatchInfo, Dataflow, Error, Gather, Gathered, OperatorInfo, Part, PluginDigest, Result, StateStore,
    VariableKind, VariableLayout, WatermarkInfo,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A version of a plugin `p`: [`WindowCounts`] that adds 1000 times the version's number to what it gives.
#[derive(Debug, Clone)]
pub struct Version {
    number: i64,
    counts: Arc<WindowCounts>,
    operators: Vec<OperatorInfo>,
    /// It fails at a row with this key.
    fails_at: Option<i64>,
    /// But not so many times.
    spares: Arc<AtomicU64>,
}

impl Version {
    /// That never fails.
    pub fn new(number: i64) -> Self {
        let counts = Arc::new(WindowCounts::new(10, &[15]));
        let operators = counts.operators().to_vec();
        Self { number, counts, operators, fails_at: None, spares: Arc::default() }
    }

    /// That fails at rows with this key.
    #[must_use]
    pub fn failing_at(mut self, key: i64) -> Self {
        self.fails_at = Some(key);
        self
    }

    /// That fails only after so many such rows.
    #[must_use]
    pub fn sparing(mut self, times: u64) -> Self {
        self.spares = Arc::new(AtomicU64::new(times));
        self
    }

    /// Whose state has this version.
    #[must_use]
    pub fn state_version(mut self, version: u32) -> Self {
        for layout in self.operators.iter_mut().filter_map(|operator| operator.layout.as_mut()) {
            layout.variables = vec![VariableLayout {
                name: "total".into(),
                kind: VariableKind::Value,
                version,
                key: Vec::new(),
                value: Vec::new(),
                nullable: Vec::new(),
                set_aside: false,
            }];
        }
        self
    }

    /// Whose operator has another name.
    #[must_use]
    pub fn operator(mut self, name: &str) -> Self {
        for operator in &mut self.operators {
            name.clone_into(&mut operator.name);
            if let Some(layout) = &mut operator.layout {
                name.clone_into(&mut layout.name);
            }
        }
        self
    }

    /// The digest of its bytes.
    pub fn digest(&self) -> PluginDigest {
        pelton_checkpoint::plugins::digest(&self.bytes())
    }

    fn bytes(&self) -> Bytes {
        Bytes::from(format!("version {}", self.number))
    }

    /// A query's steps that are this version alone.
    pub fn logic(&self) -> Logic {
        let code = PluginCode { digest: self.digest(), bytes: self.bytes() };
        Logic { dataflow: Arc::new(self.clone()), plugins: BTreeMap::from([("p".to_owned(), code)]) }
    }

    fn check(&self, rows: &[RecordBatch]) -> Result<()> {
        let Some(key) = self.fails_at else { return Ok(()) };
        let has_it =
            |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().contains(&key);
        if !rows.iter().any(has_it) {
            return Ok(());
        }
        match self.spares.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => Ok(()),
            Err(_) => {
                let what = format!("plugin 'p', version {}: it cannot bear key {key}", self.number);
                Err(Error::plugin(what).of_plugin("p"))
            }
        }
    }
}

impl Dataflow for Version {
    fn schema(&self) -> SchemaRef {
        self.counts.schema()
    }
    fn watermarks(&self) -> &[WatermarkInfo] {
        self.counts.watermarks()
    }
    fn operators(&self) -> &[OperatorInfo] {
        &self.operators
    }
    fn part(&self, info: &BatchInfo, input: usize, partition: u64, rows: Vec<RecordBatch>) -> Result<Part> {
        self.check(&rows)?;
        self.counts.part(info, input, partition, rows)
    }
    fn gather(self: Arc<Self>, batch: Arc<BatchInfo>) -> Box<dyn Gather> {
        Box::new(Marking { number: self.number, counting: Arc::clone(&self.counts).gather(batch) })
    }
    fn wants_batch_without_data(&self, ran_with: Option<i64>, next: Option<i64>) -> bool {
        self.counts.wants_batch_without_data(ran_with, next)
    }
}

struct Marking {
    number: i64,
    counting: Box<dyn Gather>,
}

impl Gather for Marking {
    fn add(&mut self, part: Part) -> Result<()> {
        self.counting.add(part)
    }

    fn finish(self: Box<Self>, state: &mut dyn StateStore, threads: usize) -> Result<Gathered> {
        let mut gathered = self.counting.finish(state, threads)?;
        let mark = self.number * 1000;
        for batch in &mut gathered.rows {
            let counts = batch.column(2).as_primitive::<Int64Type>().values().iter().map(|n| n + mark);
            let mut columns = batch.columns().to_vec();
            columns[2] = Arc::new(Int64Array::from_iter_values(counts)) as ArrayRef;
            *batch = RecordBatch::try_new(batch.schema(), columns)?;
        }
        Ok(gathered)
    }
}
