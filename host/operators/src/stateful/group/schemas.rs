//! In which schema a variable's entries are stored: each carries the number of its schema, and the schemas stand, by
//! number, in the state itself.
//!
//! So an entry of an older function is known as such when it is read, is made to fit then, and is stored anew when it
//! is next written. The table `schemas` of a shard is
//! `[variable's name][0][number: 2 bytes]` → JSON with `version`, `key` and `value` (Spark's JSON of schemas).
//!
//! | the stored schema | its entries |
//! |---|---|
//! | same version, same types in the same order, no name at another place | as they are: fields were renamed |
//! | same version, other fields or another order | by name; what is new must be nullable, and is null |
//! | same version, a field that may be null no more | refused, as other types are |
//! | older version | the function's `migrate` |
//!
//! A schema in which nothing is stored any more does no harm: what becomes of entries is asked when there are some.

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Fields, Schema, SchemaRef};
use bytes::Bytes;
use pelton_core::types::type_name;
use pelton_core::{Error, Result, StateOp, StateShard, StateVariable, StatefulFunction, spark_schema};
use pelton_plan::ROWS_PER_BATCH_MAX;
use pelton_state::RowCodec;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The bytes of a schema's number.
const NUMBER: usize = 2;

/// How the values of a variable are stored.
pub(super) struct Variable {
    /// Its position among the function's.
    pub(super) position: usize,
    pub(super) declared: StateVariable,
    /// Of a map's keys.
    pub(super) keys: RowCodec,
    values: RowCodec,
    table: String,
    time_zone: String,
    /// The schema that the function has now, as it is stored.
    text: Bytes,
    /// The schemas that were read, by their text: a shard's are looked at in every micro-batch.
    read: Mutex<BTreeMap<Bytes, Arc<Stored>>>,
}

/// The schemas of a shard.
pub(super) struct Known {
    /// The number of the one that the function has now, once something is stored in it.
    current: Option<u16>,
    next: u16,
    old: BTreeMap<u16, Arc<Stored>>,
}

/// A schema that entries are stored in.
struct Stored {
    version: u32,
    value: SchemaRef,
    codec: RowCodec,
}

/// What is to be done with its entries.
enum Fits {
    AsItIs,
    /// For each field where it is, if it is there.
    ByName(Vec<Option<usize>>),
    Migrate,
}

fn codec(schema: &SchemaRef) -> Result<RowCodec> {
    RowCodec::new(schema.fields().iter().map(|field| field.data_type().clone()).collect())
}

fn text(declared: &StateVariable) -> Bytes {
    let schema = json!({
        "version": declared.version,
        "key": spark_schema::to_json(&declared.key),
        "value": spark_schema::to_json(&declared.value),
    });
    schema.to_string().into()
}

fn number_of(value: &Bytes) -> Option<u16> {
    value.first_chunk::<NUMBER>().map(|number| u16::from_be_bytes(*number))
}

impl Variable {
    /// A variable of the operator's function.
    pub(super) fn new(position: usize, declared: &StateVariable, operator: &str) -> Result<Self> {
        let of_variable = |e: Error| e.context(format!("the variable '{}'", declared.name));
        let zone = declared.entries.fields().iter().find_map(|field| match field.data_type() {
            DataType::Timestamp(_, zone) => zone.as_ref().map(ToString::to_string),
            _ => None,
        });
        Ok(Self {
            position,
            keys: codec(&declared.key).map_err(of_variable)?,
            values: codec(&declared.value).map_err(of_variable)?,
            declared: declared.clone(),
            table: format!("{operator}/schemas"),
            time_zone: zone.unwrap_or_else(|| "UTC".to_owned()),
            read: Mutex::default(),
            text: text(declared),
        })
    }

    /// What a shard's entries may be stored in.
    pub(super) fn known(&self, state: &dyn StateShard) -> Result<Known> {
        let mut known = Known { current: None, next: 0, old: BTreeMap::new() };
        let start = self.schema_key(0);
        let mut end = start.clone();
        end.truncate(start.len() - NUMBER);
        end.extend([u8::MAX; NUMBER + 1]);
        for (key, text) in state.scan(&self.table, &start[..]..&end[..], usize::from(u16::MAX))? {
            let number = key.get(start.len() - NUMBER..).and_then(|number| number.try_into().ok());
            let number = u16::from_be_bytes(number.ok_or_else(|| self.damaged("a schema's number"))?);
            known.next = known.next.max(number.saturating_add(1));
            if text == self.text {
                known.current = Some(number);
            } else {
                known.old.insert(number, self.stored(text)?);
            }
        }
        Ok(known)
    }

    fn schema_key(&self, number: u16) -> Vec<u8> {
        [self.declared.name.as_bytes(), &[0], &number.to_be_bytes()].concat()
    }

    /// A schema that was stored.
    fn stored(&self, text: Bytes) -> Result<Arc<Stored>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stored) = read.get(&text) {
            return Ok(stored.clone());
        }
        let json: Value = serde_json::from_slice(&text).map_err(|_| self.damaged("a schema"))?;
        let version = json["version"].as_u64().and_then(|version| u32::try_from(version).ok());
        let version = version.ok_or_else(|| self.damaged("a schema's version"))?;
        let value = Arc::new(spark_schema::from_json(&json["value"], &self.time_zone)?);
        let stored = Arc::new(Stored { version, codec: codec(&value)?, value });
        // Not a piece of the buffer that it came in.
        read.insert(Bytes::copy_from_slice(&text), stored.clone());
        Ok(stored)
    }

    fn fits(&self, version: u32, stored: &Fields) -> Result<Fits> {
        let (now, name) = (&self.declared, &self.declared.name);
        if version > now.version {
            let what = format!(
                "the variable '{name}' is stored in version {version}, but the function has version {}",
                now.version
            );
            return Err(
                Error::invalid(what).hint("run the version of the plugin that wrote it, or a later one")
            );
        }
        if version < now.version {
            return Ok(Fits::Migrate);
        }
        let same = |a: &DataType, b: &DataType| type_name(a) == type_name(b);
        let fields = now.value.fields();
        let is_elsewhere = |(at, field): (usize, &arrow::datatypes::FieldRef)| {
            fields.iter().position(|now| now.name() == field.name()).is_some_and(|now| now != at)
        };
        let narrowed = |field: &arrow::datatypes::FieldRef| {
            Error::invalid(format!(
                "the variable '{name}' is stored with a field `{}: {}` that may be null, and now it may not",
                field.name(),
                type_name(field.data_type())
            ))
            .hint("count up the variable's version and migrate older values")
        };
        if stored.len() == fields.len()
            && stored.iter().zip(fields).all(|(a, b)| same(a.data_type(), b.data_type()))
            && !stored.iter().enumerate().any(is_elsewhere)
        {
            let mut pairs = stored.iter().zip(fields);
            return match pairs.find(|(old, now)| old.is_nullable() && !now.is_nullable()) {
                Some((_, now)) => Err(narrowed(now)),
                None => Ok(Fits::AsItIs),
            };
        }
        let place = |field: &arrow::datatypes::FieldRef| {
            let at = stored.iter().position(|old| old.name() == field.name());
            match at {
                Some(at) if stored[at].is_nullable() && !field.is_nullable() => Err(narrowed(field)),
                Some(at) if same(stored[at].data_type(), field.data_type()) => Ok(Some(at)),
                None if field.is_nullable() => Ok(None),
                _ => Err(Error::invalid(format!(
                    "the variable '{name}' is stored with other fields, and `{}: {}` does not follow from them",
                    field.name(),
                    type_name(field.data_type())
                ))
                .hint("count up the variable's version and migrate older values")),
            }
        };
        fields.iter().map(place).collect::<Result<_>>().map(Fits::ByName)
    }

    /// The number that new values are stored with.
    pub(super) fn number(&self, known: &mut Known, state: &mut dyn StateShard) -> Result<[u8; NUMBER]> {
        if let Some(number) = known.current {
            return Ok(number.to_be_bytes());
        }
        let number = known.next;
        if number == u16::MAX {
            return Err(Error::data(format!(
                "the variable '{}' has had too many schemas",
                self.declared.name
            )));
        }
        let put = StateOp::Put(self.schema_key(number).into(), self.text.clone());
        state.apply(&self.table, vec![put])?;
        (known.current, known.next) = (Some(number), number + 1);
        Ok(number.to_be_bytes())
    }

    /// Encodes values for the store, all but the number.
    pub(super) fn encode(&self, columns: &[ArrayRef]) -> Result<pelton_state::EncodedRows> {
        self.values.encode(columns)
    }

    /// Values as columns. Each is `[number][row]`, of the current schema.
    pub(super) fn decode<'a>(&self, values: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        self.values.decode(values.map(|value| value.get(NUMBER..).unwrap_or_default()))
    }

    /// Whether values are of the schema that the function has now.
    pub(super) fn are_current<'a>(known: &Known, mut values: impl Iterator<Item = &'a Bytes>) -> bool {
        values.all(|value| number_of(value) == known.current)
    }

    /// Makes values of older schemas fit. `keys` are the encoded keys of a map's entries, one for each value.
    pub(super) fn upgrade(
        &self,
        known: &mut Known,
        function: &dyn StatefulFunction,
        keys: &[&[u8]],
        values: &mut [Bytes],
        state: &mut dyn StateShard,
    ) -> Result<()> {
        let current = known.current;
        if Self::are_current(known, values.iter()) {
            return Ok(());
        }
        let mut by_number: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, value) in values.iter().enumerate() {
            let number = number_of(value).ok_or_else(|| self.damaged("a value"))?;
            if Some(number) != current {
                by_number.entry(number).or_default().push(at);
            }
        }
        let current = self.number(known, state)?;
        for (number, places) in by_number {
            let stored = known.old.get(&number).ok_or_else(|| self.damaged("the schema of a value"))?;
            let fits = self.fits(stored.version, stored.value.fields())?;
            for places in places.chunks(ROWS_PER_BATCH_MAX) {
                let old: Vec<&[u8]> = places.iter().map(|at| &values[*at][NUMBER..]).collect();
                let keys: Vec<&[u8]> = places.iter().filter_map(|at| keys.get(*at).copied()).collect();
                let new: Vec<Bytes> = match &fits {
                    Fits::AsItIs => old.iter().map(|row| [&current[..], row].concat().into()).collect(),
                    _ => self.renewed((stored.as_ref(), &fits), function, &keys, &old, &current)?,
                };
                places.iter().zip(new).for_each(|(at, new)| values[*at] = new);
            }
        }
        Ok(())
    }

    fn renewed(
        &self,
        (stored, fits): (&Stored, &Fits),
        function: &dyn StatefulFunction,
        keys: &[&[u8]],
        old: &[&[u8]],
        number: &[u8; NUMBER],
    ) -> Result<Vec<Bytes>> {
        let columns = stored.codec.decode(old.iter().copied())?;
        let columns = match fits {
            Fits::ByName(places) => {
                let fields = places.iter().zip(self.declared.value.fields());
                let column = |(place, field): (&Option<usize>, &arrow::datatypes::FieldRef)| match place {
                    Some(at) => columns[*at].clone(),
                    None => new_null_array(field.data_type(), old.len()),
                };
                fields.map(column).collect()
            }
            _ => self.migrated(stored, function, keys, columns)?,
        };
        let rows = self.values.encode(&columns)?;
        Ok(rows.iter().map(|row| [&number[..], row].concat().into()).collect())
    }

    /// Asks the function.
    fn migrated(
        &self,
        stored: &Stored,
        function: &dyn StatefulFunction,
        keys: &[&[u8]],
        columns: Vec<ArrayRef>,
    ) -> Result<Vec<ArrayRef>> {
        let key_fields = self.declared.key.fields();
        let count = columns.first().map_or(0, |column| column.len());
        let key_columns = match key_fields.is_empty() {
            true => Vec::new(),
            false => self.keys.decode(keys.iter().copied())?,
        };
        let fields: Fields = key_fields.iter().chain(stored.value.fields()).cloned().collect();
        let all = key_columns.iter().cloned().chain(columns).collect();
        let entries = RecordBatch::try_new(Arc::new(Schema::new(fields)), all)?;
        let from = stored.version;
        let new = function.migrate(self.position, from, &entries)?;
        let wrong = |what: &str| {
            Error::plugin(format!(
                "the function's migration of the variable '{}' from version {from} {what}",
                self.declared.name
            ))
        };
        if new.num_rows() != entries.num_rows() || (count == 0 && new.num_rows() > 0) {
            return Err(wrong("gave another number of rows"));
        }
        let (new_keys, values) = new.columns().split_at(key_fields.len().min(new.num_columns()));
        let types = values.iter().map(|column| type_name(column.data_type()));
        if !types.eq(self.declared.value.fields().iter().map(|field| type_name(field.data_type()))) {
            return Err(wrong("gave other columns than the variable has"));
        }
        if !key_fields.is_empty() && !self.keys.encode_keys(new_keys)?.iter().eq(keys.iter().copied()) {
            return Err(wrong("changed keys, which stay as they are"));
        }
        Ok(values.to_vec())
    }

    fn damaged(&self, what: &str) -> Error {
        Error::data(format!(
            "the state of the variable '{}' is damaged: {what} cannot be read",
            self.declared.name
        ))
        .hint("restore the checkpoint from a copy, or start with a new one")
    }
}
