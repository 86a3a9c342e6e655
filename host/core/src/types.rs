//! Spark's type names and the Arrow types that Pelton moves.
//!
//! The whole system moves only the types of this table; [`normalize`] says what becomes of others.
//!
//! | Spark | also written | Arrow |
//! |---|---|---|
//! | `boolean` | | `Boolean` |
//! | `byte` | `tinyint` | `Int8` |
//! | `short` | `smallint` | `Int16` |
//! | `int` | `integer` | `Int32` |
//! | `long` | `bigint` | `Int64` |
//! | `float` | `real` | `Float32` |
//! | `double` | | `Float64` |
//! | `decimal(p,s)` | `dec`, `numeric`; alone: (10,0) | `Decimal128(p, s)` |
//! | `string` | `varchar(n)`, `char(n)` | `Utf8` |
//! | `binary` | | `Binary` |
//! | `date` | | `Date32` |
//! | `timestamp` | `timestamp_ltz` | `Timestamp(µs, session time zone)` |
//! | `timestamp_ntz` | | `Timestamp(µs)` |
//! | `array<t>` | | `List` |
//! | `map<k, v>` | | `Map` |
//! | `struct<a: t, …>` | | `Struct` |

use crate::suggest::did_you_mean;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use std::fmt;
use std::sync::Arc;

/// A type text that is not one: what is wrong and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeError {
    /// Byte in the text, from 0.
    pub at: usize,
    /// What is wrong, with the nearest right name.
    pub message: String,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at character {})", self.message, self.at + 1)
    }
}
impl std::error::Error for TypeError {}

/// Reads a Spark type: `array<struct<a: long, b: decimal(10,2)>>`. Case and spaces do not count.
/// `time_zone` is the session's: what `timestamp` values are shown and cut in.
pub fn parse_type(text: &str, time_zone: &str) -> Result<DataType, TypeError> {
    let mut parser = Parser { text, at: 0, time_zone };
    let data_type = parser.data_type()?;
    parser.end()?;
    Ok(data_type)
}

/// Reads a list of columns as in Spark's DDL: `a long, b string NOT NULL` (a colon after the name is fine).
pub fn parse_columns(text: &str, time_zone: &str) -> Result<Fields, TypeError> {
    let mut parser = Parser { text, at: 0, time_zone };
    let fields = parser.fields(None)?;
    parser.end()?;
    Ok(fields)
}

/// Spark's name of a type; types outside the table show as Arrow writes them.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "boolean".into(),
        DataType::Int8 => "byte".into(),
        DataType::Int16 => "short".into(),
        DataType::Int32 => "int".into(),
        DataType::Int64 => "long".into(),
        DataType::Float32 => "float".into(),
        DataType::Float64 => "double".into(),
        DataType::Decimal128(p, s) => format!("decimal({p},{s})"),
        DataType::Utf8 => "string".into(),
        DataType::Binary => "binary".into(),
        DataType::Date32 => "date".into(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamp".into(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp_ntz".into(),
        DataType::List(item) => format!("array<{}>", type_name(item.data_type())),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(kv) if kv.len() == 2 => {
                format!("map<{}, {}>", type_name(kv[0].data_type()), type_name(kv[1].data_type()))
            }
            other => format!("map<{}>", type_name(other)),
        },
        DataType::Struct(fields) => format!("struct<{}>", columns_name(fields)),
        // Other ways to hold the same values, as files have them.
        DataType::Dictionary(_, values) => type_name(values),
        DataType::LargeUtf8 | DataType::Utf8View => "string".into(),
        DataType::LargeBinary | DataType::BinaryView => "binary".into(),
        DataType::LargeList(item) => format!("array<{}>", type_name(item.data_type())),
        other => other.to_string(),
    }
}

/// Columns as [`parse_columns`] reads them: `a: long, b: string`.
pub fn columns_name(fields: &Fields) -> String {
    let column = |f: &FieldRef| {
        let nullable = if f.is_nullable() { "" } else { " NOT NULL" };
        format!("{}: {}{nullable}", quoted(f.name()), type_name(f.data_type()))
    };
    fields.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// An array type.
pub fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// A map type; values may be null, keys not.
pub fn map_of(key: DataType, value: DataType) -> DataType {
    let entries = Fields::from(vec![Field::new("key", key, false), Field::new("value", value, true)]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
}

/// The type of the table in the module's head that holds all values of `data_type`: what an expression's
/// result is cast to before it leaves a step. `None` for types that have no such place (durations, unions …).
pub fn normalize(data_type: &DataType, time_zone: &str) -> Option<DataType> {
    use DataType as T;
    let field = |f: &FieldRef, name: &str| -> Option<Field> {
        Some(Field::new(name, normalize(f.data_type(), time_zone)?, f.is_nullable()))
    };
    Some(match data_type {
        T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::Float32 | T::Float64 => data_type.clone(),
        T::Decimal128(..) | T::Utf8 | T::Binary | T::Date32 => data_type.clone(),
        T::UInt8 => T::Int16,
        T::UInt16 => T::Int32,
        T::UInt32 => T::Int64,
        T::UInt64 => T::Decimal128(20, 0),
        T::Float16 => T::Float32,
        T::Decimal32(p, s) | T::Decimal64(p, s) => T::Decimal128(*p, *s),
        T::LargeUtf8 | T::Utf8View => T::Utf8,
        T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => T::Binary,
        T::Date64 => T::Timestamp(TimeUnit::Microsecond, None),
        T::Timestamp(_, None) => T::Timestamp(TimeUnit::Microsecond, None),
        T::Timestamp(_, Some(_)) => T::Timestamp(TimeUnit::Microsecond, Some(time_zone.into())),
        T::Null => T::Utf8,
        T::Dictionary(_, value) => normalize(value, time_zone)?,
        T::RunEndEncoded(_, values) => normalize(values.data_type(), time_zone)?,
        T::List(item)
        | T::LargeList(item)
        | T::ListView(item)
        | T::LargeListView(item)
        | T::FixedSizeList(item, _) => T::List(Arc::new(field(item, Field::LIST_FIELD_DEFAULT_NAME)?)),
        T::Map(entries, _) => {
            let T::Struct(kv) = entries.data_type() else { return None };
            let [key, value] = kv.iter().collect::<Vec<_>>()[..] else { return None };
            let kv = Fields::from(vec![field(key, "key")?.with_nullable(false), field(value, "value")?]);
            T::Map(Arc::new(Field::new("entries", T::Struct(kv), false)), false)
        }
        T::Struct(fields) => {
            T::Struct(fields.iter().map(|f| field(f, f.name())).collect::<Option<Vec<_>>>()?.into())
        }
        _ => return None,
    })
}

/// [`normalize`] for every column. The error names the first column that has no place.
pub fn normalize_schema(schema: &Schema, time_zone: &str) -> crate::Result<SchemaRef> {
    let field = |f: &FieldRef| {
        let data_type = normalize(f.data_type(), time_zone).ok_or_else(|| {
            crate::Error::invalid(format!(
                "column '{}' has type {}, which cannot leave a step",
                f.name(),
                f.data_type()
            ))
            .hint("cast it to one of Spark's types, for example CAST(… AS string)")
        })?;
        Ok(Field::new(f.name(), data_type, f.is_nullable()))
    };
    Ok(Arc::new(Schema::new(schema.fields().iter().map(field).collect::<crate::Result<Vec<_>>>()?)))
}

fn quoted(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if plain { name.into() } else { format!("`{}`", name.replace('`', "``")) }
}

const NAMES: [&str; 19] = [
    "boolean",
    "byte",
    "tinyint",
    "short",
    "smallint",
    "int",
    "integer",
    "long",
    "bigint",
    "float",
    "double",
    "decimal",
    "string",
    "binary",
    "date",
    "timestamp",
    "array",
    "map",
    "struct",
];

struct Parser<'a> {
    text: &'a str,
    at: usize,
    time_zone: &'a str,
}

impl<'a> Parser<'a> {
    fn data_type(&mut self) -> Result<DataType, TypeError> {
        self.spaces();
        let start = self.at;
        let name = self.word().to_ascii_lowercase();
        Ok(match name.as_str() {
            "boolean" | "bool" => DataType::Boolean,
            "byte" | "tinyint" => DataType::Int8,
            "short" | "smallint" => DataType::Int16,
            "int" | "integer" => DataType::Int32,
            "long" | "bigint" => DataType::Int64,
            "float" | "real" => DataType::Float32,
            "double" => DataType::Float64,
            "decimal" | "dec" | "numeric" => self.decimal()?,
            "string" => DataType::Utf8,
            "varchar" | "char" => self.string_of_length()?,
            "binary" => DataType::Binary,
            "date" => DataType::Date32,
            "timestamp" | "timestamp_ltz" => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(self.time_zone.into()))
            }
            "timestamp_ntz" => DataType::Timestamp(TimeUnit::Microsecond, None),
            "array" => {
                self.expect('<')?;
                let item = self.data_type()?;
                self.expect('>')?;
                list_of(item)
            }
            "map" => {
                self.expect('<')?;
                let key = self.data_type()?;
                self.expect(',')?;
                let value = self.data_type()?;
                self.expect('>')?;
                map_of(key, value)
            }
            "struct" => {
                self.expect('<')?;
                let fields = self.fields(Some('>'))?;
                self.expect('>')?;
                DataType::Struct(fields)
            }
            "" => return Err(self.error(start, "a type is missing here".into())),
            _ => {
                return Err(
                    self.error(start, format!("there is no type '{name}'{}", did_you_mean(&name, NAMES)))
                );
            }
        })
    }

    fn fields(&mut self, close: Option<char>) -> Result<Fields, TypeError> {
        let mut fields = Vec::new();
        self.spaces();
        while self.peek() != close {
            fields.push(self.field()?);
            if !self.eat(',') {
                break;
            }
            self.spaces();
        }
        Ok(fields.into())
    }

    fn field(&mut self) -> Result<Field, TypeError> {
        let name = self.name()?;
        self.eat(':');
        let data_type = self.data_type()?;
        let nullable = !self.not_null()?;
        Ok(Field::new(name, data_type, nullable))
    }

    fn name(&mut self) -> Result<String, TypeError> {
        self.spaces();
        let start = self.at;
        if self.peek() != Some('`') {
            let name = self.word();
            return match name {
                "" => Err(self.error(start, "a column name is missing here".into())),
                name => Ok(name.to_owned()),
            };
        }
        let mut name = String::new();
        self.at += 1;
        loop {
            match self.next() {
                Some('`') if self.peek() == Some('`') => {
                    self.at += 1;
                    name.push('`');
                }
                Some('`') => return Ok(name),
                Some(c) => name.push(c),
                None => return Err(self.error(start, "the backtick is not closed".into())),
            }
        }
    }

    fn not_null(&mut self) -> Result<bool, TypeError> {
        self.spaces();
        let start = self.at;
        match self.word().to_ascii_lowercase().as_str() {
            "" => Ok(false),
            "not" => {
                self.spaces();
                let at = self.at;
                match self.word().to_ascii_lowercase().as_str() {
                    "null" => Ok(true),
                    _ => Err(self.error(at, "expected NULL after NOT".into())),
                }
            }
            other => Err(self.error(start, format!("unexpected '{other}'"))),
        }
    }

    fn decimal(&mut self) -> Result<DataType, TypeError> {
        if !self.eat('(') {
            return Ok(DataType::Decimal128(10, 0));
        }
        let at = self.at;
        let precision = self.number()?;
        let scale = if self.eat(',') { self.number()? } else { 0 };
        self.expect(')')?;
        if !(1..=38).contains(&precision) || scale > precision {
            return Err(self.error(at, "decimal(p,s) needs 1 <= p <= 38 and s <= p".into()));
        }
        Ok(DataType::Decimal128(precision as u8, scale as i8))
    }

    fn string_of_length(&mut self) -> Result<DataType, TypeError> {
        self.expect('(')?;
        self.number()?;
        self.expect(')')?;
        Ok(DataType::Utf8)
    }

    fn number(&mut self) -> Result<u32, TypeError> {
        self.spaces();
        let start = self.at;
        let word = self.word();
        word.parse().map_err(|_| self.error(start, format!("expected a number instead of '{word}'")))
    }

    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }
    fn spaces(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }
    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }
    fn eat(&mut self, wanted: char) -> bool {
        self.spaces();
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }
    fn expect(&mut self, wanted: char) -> Result<(), TypeError> {
        if self.eat(wanted) {
            return Ok(());
        }
        let found = self.peek().map_or_else(|| "the end".to_owned(), |c| format!("'{c}'"));
        Err(self.error(self.at, format!("expected '{wanted}' instead of {found}")))
    }
    fn end(&mut self) -> Result<(), TypeError> {
        self.spaces();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error(self.at, format!("unexpected '{}'", &self.text[self.at..]))),
        }
    }
    fn error(&self, at: usize, message: String) -> TypeError {
        TypeError { at, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, name: &str) {
        let parsed = parse_type(text, "UTC").map(|t| type_name(&t)).unwrap_or_else(|e| e.to_string());
        assert_eq!(parsed, name, "{text}");
    }

    #[test]
    fn reads_sparks_names() {
        check("BIGINT", "long");
        check(" array < string > ", "array<string>");
        check(
            "struct<a: long, `b c`:decimal(10,2), d int not null>",
            "struct<a: long, `b c`: decimal(10,2), d: int NOT NULL>",
        );
        check("map<string,array<timestamp>>", "map<string, array<timestamp>>");
        check("decimal", "decimal(10,0)");
        check("struct<>", "struct<>");
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        check("strng", "there is no type 'strng'; did you mean 'string'? (at character 1)");
        check("array<lon>", "there is no type 'lon'; did you mean 'long'? (at character 7)");
        check("array<long", "expected '>' instead of the end (at character 11)");
        check("decimal(50,2)", "decimal(p,s) needs 1 <= p <= 38 and s <= p (at character 9)");
        check("long long", "unexpected 'long' (at character 6)");
    }

    #[test]
    fn reads_back_what_it_writes() {
        let text = "a: long NOT NULL, b: struct<x: array<map<string, date>>, y: binary>";
        let fields = parse_columns(text, "UTC").expect("parses");
        assert_eq!(columns_name(&fields), text);
    }

    #[test]
    fn every_arrow_type_of_an_expression_finds_its_place() {
        let view = DataType::List(Arc::new(Field::new("element", DataType::Utf8View, true)));
        assert_eq!(normalize(&view, "UTC"), Some(list_of(DataType::Utf8)));
        assert_eq!(normalize(&DataType::Duration(TimeUnit::Second), "UTC"), None);
    }
}
