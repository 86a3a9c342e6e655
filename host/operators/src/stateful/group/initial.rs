//! The state that groups have before the operator's first micro-batch, from a static table.
//!
//! Its keys are encoded once, when the first shard asks, and handed out by shard.

use super::Moment;
use crate::stateful::layout::{Arena, sorted_order};
use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pelton_core::{Error, Result, SHARDS, shard_of};
use pelton_plan::stateful::StaticRelation;
use pelton_state::RowCodec;
use std::sync::{Arc, Mutex, PoisonError};

/// See the module.
pub(super) struct InitialGroups {
    table: Arc<StaticRelation>,
    /// How many of its columns are the key's.
    keys: usize,
    /// The fields of the value, if the function has one.
    value: Option<SchemaRef>,
    /// The version of the table, and what each shard has of it.
    encoded: Mutex<Option<(u64, Vec<OfShard>)>>,
}

/// What a shard's groups begin with.
#[derive(Clone, Default)]
pub(super) struct OfShard {
    /// `[key group][key]`, ascending, each once.
    pub(super) keys: Vec<Bytes>,
    /// The value's columns, a row a key.
    pub(super) values: Vec<ArrayRef>,
}

impl InitialGroups {
    pub(super) fn new(table: Arc<StaticRelation>, keys: usize, value: Option<SchemaRef>) -> Self {
        Self { table, keys, value, encoded: Mutex::new(None) }
    }

    pub(super) fn of_shard(&self, at: &Moment<'_>, codec: &RowCodec) -> Result<OfShard> {
        let rows = (self.table.rows)(at.scope.batch.batch_id)?;
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let of_shard = |shards: &[OfShard]| shards.get(at.shard).cloned().unwrap_or_default();
        match encoded.as_ref() {
            Some((version, shards)) if *version == rows.version => Ok(of_shard(shards)),
            _ => {
                let shards = self.encode(&rows.rows, codec)?;
                let own = of_shard(&shards);
                *encoded = Some((rows.version, shards));
                Ok(own)
            }
        }
    }

    /// A table may hold NULL wherever it likes, a field of the state may not.
    fn check_nulls(&self, values: &[ArrayRef]) -> Result<()> {
        let fields = self.value.iter().flat_map(|value| value.fields());
        let mut null =
            fields.zip(values).filter(|(field, column)| !field.is_nullable() && column.null_count() > 0);
        let Some((field, _)) = null.next() else { return Ok(()) };
        let (table, field) = (&self.table.name, field.name());
        Err(Error::data(format!(
            "the table '{table}' has NULL in '{field}', which the function's state does not take"
        ))
        .hint("leave such rows out of the table, or let the field of the state be nullable"))
    }

    fn encode(&self, rows: &RecordBatch, codec: &RowCodec) -> Result<Vec<OfShard>> {
        let (keys, values) = rows.columns().split_at(self.keys);
        self.check_nulls(values)?;
        let keys = codec.encode_keys(keys)?;
        let mut all = Arena::with_capacity(keys.len(), 16);
        (0..keys.len()).for_each(|row| all.push(&[&[keys.key_group(row)], keys.get(row)]));
        let all = all.finish();
        let order = sorted_order(&all);
        if order.windows(2).any(|pair| all[pair[0] as usize] == all[pair[1] as usize]) {
            let what = format!("the table '{}' has several rows for one group", self.table.name);
            return Err(Error::data(what).hint("an initial state has one row a group"));
        }
        let shard = |shard: usize| {
            let own = order.iter().copied().filter(|row| shard_of(keys.key_group(*row as usize)) == shard);
            let own: Vec<u32> = own.collect();
            let indices = UInt32Array::from(own.clone());
            let values = values.iter().map(|column| take(column, &indices, None));
            Ok(OfShard {
                keys: own.iter().map(|row| all[*row as usize].clone()).collect(),
                values: values.collect::<Result<_, _>>()?,
            })
        };
        (0..SHARDS).map(shard).collect()
    }
}
