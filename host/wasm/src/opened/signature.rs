//! What a stateful function says it is, checked: names, kinds, schemas, which columns it reads and which entries of its
//! state it wants. `groups` asks when it opens one. It calls no guest.

use crate::codec::{self, Decoder};
use crate::contract::stateful::{GuestLoad, GuestSignature, GuestVariable};
use crate::limits::{Limits, clean_text};
use crate::plugin::is_name;
use arrow::datatypes::{Schema, SchemaRef};
use pelton_core::suggest::did_you_mean;
use pelton_core::{Encoding, Load, StateVariable, StatefulSignature, VariableKind};
use std::sync::Arc;

/// What the answer is read with.
pub(super) struct Reading<'a> {
    pub(super) encoding: Encoding,
    pub(super) zone: &'a str,
    pub(super) limits: &'a Limits,
    /// The rows that the function was opened for.
    pub(super) input: &'a Schema,
}

impl Reading<'_> {
    /// The signature, if everything in it is right.
    pub(super) fn signature(&self, answer: GuestSignature) -> Result<StatefulSignature, String> {
        let output = Decoder::new(self.encoding, &answer.output, self.zone, self.limits)?.schema().clone();
        let reads = self.reads(answer.reads)?;
        let count = answer.variables.len();
        if count > self.limits.variables {
            let limit = self.limits.variables;
            return Err(format!("it has {count} variables (limit variables: {limit})"));
        }
        let mut variables: Vec<StateVariable> = Vec::with_capacity(count);
        for variable in answer.variables {
            let name = clean_text(&variable.name, 80);
            if variables.iter().any(|other| other.name == variable.name) {
                return Err(format!("it has two variables named '{name}'"));
            }
            let variable =
                self.variable(variable, &reads).map_err(|lie| format!("its variable '{name}': {lie}"))?;
            variables.push(variable);
        }
        Ok(StatefulSignature {
            form: answer.form.into(),
            time_mode: answer.time_mode.into(),
            output,
            reads,
            variables,
        })
    }

    /// Columns of the input by position, ascending.
    fn reads(&self, names: Option<Vec<String>>) -> Result<Vec<usize>, String> {
        let Some(names) = names else { return Ok((0..self.input.fields().len()).collect()) };
        let mut positions = Vec::with_capacity(names.len().min(self.input.fields().len()));
        for name in names {
            let position = self.column(&name).map_err(|near| {
                format!(
                    "it reads the column '{}', which its input does not have{near}",
                    clean_text(&name, 80)
                )
            })?;
            positions.push(position);
            if positions.len() > self.input.fields().len() {
                return Err("it reads a column twice".to_owned());
            }
        }
        positions.sort_unstable();
        match positions.windows(2).any(|pair| pair[0] == pair[1]) {
            true => Err("it reads a column twice".to_owned()),
            false => Ok(positions),
        }
    }

    /// The position of an input column; else which name comes near.
    fn column(&self, name: &str) -> Result<usize, String> {
        let fields = self.input.fields();
        let found = fields.iter().position(|field| field.name() == name);
        found.ok_or_else(|| did_you_mean(name, fields.iter().map(|field| field.name().as_str())))
    }

    fn variable(&self, variable: GuestVariable, reads: &[usize]) -> Result<StateVariable, String> {
        if !is_name(&variable.name) {
            return Err("this is no name (letters, digits, '_' and '-', a letter first)".to_owned());
        }
        let kind = VariableKind::from(variable.kind);
        let schema = |message: &[u8], of: &str| {
            codec::fields(self.encoding, message, self.zone, self.limits)
                .map_err(|lie| format!("the schema of its {of}: {lie}"))
        };
        let (key, value) = (schema(&variable.key, "key")?, schema(&variable.value, "value")?);
        match (kind, key.fields().is_empty()) {
            (VariableKind::Map, true) => return Err("a map needs a key with at least one field".to_owned()),
            (VariableKind::Map, false) | (_, true) => {}
            (_, false) => return Err("only a map has a key".to_owned()),
        }
        if value.fields().is_empty() {
            return Err("its value has no fields".to_owned());
        }
        let ttl_ms = match variable.ttl_ms {
            Some(0) => return Err("its time to live must be a millisecond at least".to_owned()),
            Some(ttl) => {
                Some(i64::try_from(ttl).map_err(|_| format!("its time to live of {ttl} ms is too long"))?)
            }
            None => None,
        };
        let entries = entries(&key, &value)?;
        let load = self.load(variable.load, kind, &key, reads)?;
        Ok(StateVariable {
            name: variable.name,
            kind,
            key,
            value,
            entries,
            version: variable.version,
            ttl_ms,
            load,
        })
    }

    fn load(
        &self,
        load: GuestLoad,
        kind: VariableKind,
        key: &Schema,
        reads: &[usize],
    ) -> Result<Load, String> {
        match (load, kind) {
            (GuestLoad::Everything, _) => Ok(Load::Everything),
            (_, VariableKind::Value) => Err("a value is always loaded, with 'everything'".to_owned()),
            (GuestLoad::Nothing, _) => Ok(Load::Nothing),
            (GuestLoad::Last(0), VariableKind::List) => {
                Err("it loads the last 0 entries; say 'nothing'".to_owned())
            }
            (GuestLoad::Last(count), VariableKind::List) => Ok(Load::Last(count)),
            (GuestLoad::Last(_), _) => Err("only of a list the last entries can be loaded".to_owned()),
            (GuestLoad::KeyedBy(columns), VariableKind::Map) => self.keyed_by(columns, key, reads),
            (GuestLoad::KeyedBy(_), _) => Err("only of a map entries can be loaded by key".to_owned()),
        }
    }

    /// Columns of the rows that the function gets, one for each field of the key and of its type.
    fn keyed_by(&self, names: Vec<String>, key: &Schema, reads: &[usize]) -> Result<Load, String> {
        let (found, wanted) = (names.len(), key.fields().len());
        if found != wanted {
            return Err(format!("it is keyed by {found} columns, its key has {wanted} fields"));
        }
        let position = |(name, field): (String, &arrow::datatypes::FieldRef)| {
            let shown = clean_text(&name, 80);
            let column = self.column(&name).map_err(|near| {
                format!("it is keyed by the column '{shown}', which its input does not have{near}")
            })?;
            let position = reads.binary_search(&column).map_err(|_| {
                format!("it is keyed by the column '{shown}', which the function does not read")
            })?;
            let (is, wanted) = (self.input.field(column).data_type(), field.data_type());
            match is == wanted {
                true => Ok(position),
                false => Err(format!(
                    "it is keyed by the column '{shown}' of type {is}, the key's field '{}' has type {wanted}",
                    field.name()
                )),
            }
        };
        names.into_iter().zip(key.fields()).map(position).collect::<Result<_, _>>().map(Load::KeyedBy)
    }
}

/// The key's and then the value's fields.
fn entries(key: &Schema, value: &Schema) -> Result<SchemaRef, String> {
    let fields: Vec<_> = key.fields().iter().chain(value.fields()).cloned().collect();
    match codec::twice(fields.iter().map(|field| field.name().as_str())) {
        Some(name) => Err(format!("its key and its value both have a field '{}'", clean_text(name, 80))),
        None => Ok(Arc::new(Schema::new(fields))),
    }
}
