//! Schemas as plugins see them: Spark's types, no more.
//!
//! `ipc` reads and writes them, `input` and `output` match Rust types with them, dynamic functions look at them.

use std::fmt;

/// The type of a column. Shows as Spark writes it: `array<struct<a: long>>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataType {
    /// `boolean`
    Boolean,
    /// `byte`
    Int8,
    /// `short`
    Int16,
    /// `int`
    Int32,
    /// `long`
    Int64,
    /// `float`
    Float32,
    /// `double`
    Float64,
    /// `decimal(p,s)`
    Decimal {
        /// Digits in all, at most 38.
        precision: u8,
        /// Digits after the point.
        scale: i8,
    },
    /// `string`
    Utf8,
    /// `binary`
    Binary,
    /// `date`: days since 1970-01-01.
    Date,
    /// `timestamp` (microseconds since the Unix epoch, with the zone that they are shown in) or, without a
    /// zone, `timestamp_ntz`.
    Timestamp {
        /// The IANA name of the zone.
        zone: Option<String>,
    },
    /// `array<item>`
    List(Box<Field>),
    /// `map<key, value>`
    Map(Box<Field>, Box<Field>),
    /// `struct<…>`
    Struct(Vec<Field>),
}

/// A named column or a field of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub data_type: DataType,
    /// Whether it may hold nulls.
    pub nullable: bool,
}

impl Field {
    /// A field.
    pub fn new(name: impl Into<String>, data_type: DataType, nullable: bool) -> Self {
        Self { name: name.into(), data_type, nullable }
    }
}

/// The columns of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// In order.
    pub fields: Vec<Field>,
}

impl Schema {
    /// A schema.
    pub fn new(fields: Vec<Field>) -> Self {
        Self { fields }
    }

    /// The place of the column with this name. Names that differ only in case are taken if there is no better
    /// one, as Spark does.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        index_of(&self.fields, name)
    }
}

/// See [`Schema::index_of`]: the exact name, or the only one that differs from it in case alone.
pub(crate) fn index_of(fields: &[Field], name: &str) -> Option<usize> {
    fields.iter().position(|f| f.name == name).or_else(|| {
        let mut alike = (0..fields.len()).filter(|i| fields[*i].name.eq_ignore_ascii_case(name));
        alike.next().filter(|_| alike.next().is_none())
    })
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            DataType::Boolean => "boolean",
            DataType::Int8 => "byte",
            DataType::Int16 => "short",
            DataType::Int32 => "int",
            DataType::Int64 => "long",
            DataType::Float32 => "float",
            DataType::Float64 => "double",
            DataType::Utf8 => "string",
            DataType::Binary => "binary",
            DataType::Date => "date",
            DataType::Timestamp { zone: Some(_) } => "timestamp",
            DataType::Timestamp { zone: None } => "timestamp_ntz",
            DataType::Decimal { precision, scale } => return write!(f, "decimal({precision},{scale})"),
            DataType::List(item) => return write!(f, "array<{}>", item.data_type),
            DataType::Map(key, value) => return write!(f, "map<{}, {}>", key.data_type, value.data_type),
            DataType::Struct(fields) => {
                f.write_str("struct<")?;
                for (i, field) in fields.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{}: {}", field.name, field.data_type)?;
                }
                ">"
            }
        };
        f.write_str(name)
    }
}

/// What to say after a name that is not there: the nearest one, or all.
pub(crate) fn did_you_mean<'n>(name: &str, names: impl Iterator<Item = &'n str> + Clone) -> String {
    let near = names.clone().map(|n| (distance(name, n), n)).min_by_key(|(distance, _)| *distance);
    match near {
        Some((distance, near)) if distance * 5 <= name.len().max(near.len()) * 2 => {
            format!("; did you mean '{near}'?")
        }
        Some(_) => format!("; there are: {}", names.collect::<Vec<_>>().join(", ")),
        None => "; there are none".to_owned(),
    }
}

/// Edits between two names, case aside: a letter more, less, another one, or two neighbours swapped.
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|name| name.to_ascii_lowercase().into_bytes());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_sparks_names() {
        let item = Field::new("item", DataType::Decimal { precision: 10, scale: 2 }, true);
        let list = DataType::List(Box::new(item));
        let nested =
            DataType::Struct(vec![Field::new("a", list, true), Field::new("b", DataType::Date, true)]);
        assert_eq!(nested.to_string(), "struct<a: array<decimal(10,2)>, b: date>");
    }

    #[test]
    fn names_the_nearest_or_all() {
        assert_eq!(
            did_you_mean("dep_dely", ["carrier", "dep_delay"].into_iter()),
            "; did you mean 'dep_delay'?"
        );
        assert_eq!(did_you_mean("wrod", ["word", "times"].into_iter()), "; did you mean 'word'?");
        assert_eq!(did_you_mean("zzz", ["a", "b"].into_iter()), "; there are: a, b");
    }

    #[test]
    fn finds_a_column_by_case_only_if_it_is_the_only_one() {
        let field = |name| Field::new(name, DataType::Int32, true);
        assert_eq!(Schema::new(vec![field("Carrier"), field("a")]).index_of("carrier"), Some(0));
        assert_eq!(Schema::new(vec![field("Carrier"), field("CARRIER")]).index_of("carrier"), None);
    }
}
