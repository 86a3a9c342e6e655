//! What the state of a stateful operator consists of, and what it means: recorded beside the state, so that a changed
//! query is let on to it only if it would read it as it was written.
//!
//! Made by `plan` and `operators`, kept by `checkpoint`, compared by `engine`. It never holds state itself.

use crate::types::type_name;
use crate::{StateVariable, VariableKind};
use arrow::datatypes::{DataType, SchemaRef};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The words in which [`StateLayout::definition`] is written. It grows when the same query would be described in other
/// words: definitions in different words say nothing about each other.
pub const DEFINITION_WORDS: u32 = 1;

/// The kind of an operator that keeps its state by variable: each has tables of its own, so one more or fewer leaves the
/// others as they are.
pub const KIND_WITH_VARIABLES: &str = "transformWithState";

/// The state of one operator. Spark compares only the types of keys and values, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateLayout {
    /// The operator's stable name, by which its state is found.
    pub name: String,
    /// What keeps the state: `aggregate`, `session_window`, `dedup`, `dedup_within_watermark`, `join`, `limit`.
    pub kind: String,
    /// How its entries are laid out, in the operator's words: only the same form can be read.
    pub form: String,
    /// By what its entries are found. Names are for people: only the types and their order must stay.
    pub keys: Vec<StateColumn>,
    /// What its entries hold; likewise.
    pub values: Vec<StateColumn>,
    /// The state of each key as a plugin's function declares it; none of other operators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<VariableLayout>,
    /// See [`DEFINITION_WORDS`].
    pub words: u32,
    /// What keys and values mean: another meaning of the same types makes nonsense of what is there.
    pub definition: Vec<StateFact>,
    /// What may change from one start to the next and keeps the meaning of what is there.
    pub settings: Vec<StateFact>,
    /// The operator is no longer in the pipeline: its state is kept, and nothing is added to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub set_aside: bool,
}

/// A part of a key or of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateColumn {
    /// What people call it.
    pub name: String,
    /// Spark's name of its type.
    #[serde(rename = "type")]
    pub data_type: String,
}

impl StateColumn {
    /// A column of this type.
    pub fn new(name: impl Into<String>, data_type: &DataType) -> Self {
        Self { name: name.into(), data_type: type_name(data_type) }
    }
}

/// A variable in the state of a plugin's function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariableLayout {
    /// Its name, by which its entries are found.
    pub name: String,
    /// What it holds for a key: a value, a list, a map.
    pub kind: VariableKind,
    /// Counts up when the function rewrites older entries.
    pub version: u32,
    /// Of a map: the key's fields.
    pub key: Vec<StateColumn>,
    /// The value's fields.
    pub value: Vec<StateColumn>,
    /// Which of the value's fields may be null, by position.
    pub nullable: Vec<bool>,
    /// The function no longer declares it: its entries are kept, and nothing is added to them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub set_aside: bool,
}

impl VariableLayout {
    /// What a checkpoint remembers of a variable.
    pub fn of(variable: &StateVariable) -> Self {
        let columns = |schema: &SchemaRef| {
            schema.fields().iter().map(|field| StateColumn::new(field.name(), field.data_type())).collect()
        };
        Self {
            name: variable.name.clone(),
            kind: variable.kind,
            version: variable.version,
            key: columns(&variable.key),
            value: columns(&variable.value),
            nullable: variable.value.fields().iter().map(|field| field.is_nullable()).collect(),
            set_aside: false,
        }
    }
}

/// The tables with the entries of a variable of an operator that keeps state by variable: the entries themselves, a list's
/// elements, and what expires when.
pub struct VariableTables {
    /// A value or an entry of a map each; of lists where they begin and end.
    pub entries: String,
    /// The elements of lists.
    pub items: String,
    /// When entries expire.
    pub expiry: String,
}

impl VariableTables {
    /// Those of a variable.
    pub fn new(operator: &str, variable: &str) -> Self {
        let entries = format!("{operator}/state/{variable}");
        Self { items: format!("{entries}/items"), entries, expiry: format!("{operator}/expiry/{variable}") }
    }
}

/// `count: value v1 (n: long)`.
impl fmt::Display for VariableLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.key.is_empty() { String::new() } else { format!("({}) to ", columns(&self.key)) };
        write!(f, "{}: {} v{} {key}({})", self.name, self.kind, self.version, columns(&self.value))?;
        if self.set_aside { f.write_str(", set aside") } else { Ok(()) }
    }
}

/// Something about an operator that its state's types do not say: `key 1` is `upper(orders.customer)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFact {
    /// What it is about.
    pub what: String,
    /// What it says.
    pub is: String,
}

impl StateFact {
    /// A fact.
    pub fn new(what: impl Into<String>, is: impl Into<String>) -> Self {
        Self { what: what.into(), is: is.into() }
    }
}

/// The schema of the state: `keys (k: string), values (sum(s.v): long)`.
impl fmt::Display for StateLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keys ({}), values ({})", columns(&self.keys), columns(&self.values))?;
        self.variables.iter().try_for_each(|variable| write!(f, ", {variable}"))
    }
}

fn columns(columns: &[StateColumn]) -> String {
    let column = |column: &StateColumn| format!("{}: {}", column.name, column.data_type);
    columns.iter().map(column).collect::<Vec<_>>().join(", ")
}
