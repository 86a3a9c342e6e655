//! `from_json(text, schema [, options])` with Spark's PERMISSIVE and FAILFAST modes.
//!
//! Text that is no JSON gives a struct of NULLs, a field of the wrong type gives NULL for that field, and both put the
//! text into the corrupt-record column if the schema has it; NULL and blank text give NULL. Rows are decoded a column
//! at a time from parsed values.

use super::function::{Function, at, constant_text, failed, text};
use super::pattern::Pattern;
use super::timestamp;
use chrono_tz::Tz;
use datafusion::arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, ListArray, MapArray,
    PrimitiveArray, StringArray, StructArray, TimestampMicrosecondArray, new_null_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, FieldRef, Fields, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit,
};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF};
use pelton_core::types::{parse_columns, parse_type};
use serde_json::Value;
use std::sync::Arc;

pub(super) fn udf(zone: &Arc<str>) -> Arc<ScalarUDF> {
    let coerce = |f: &Function, types: &[DataType]| {
        if types.len() < 2 || !types.len().is_multiple_of(2) {
            return Err(DataFusionError::Plan(format!(
                "{}() takes text, a schema and perhaps map(option, value, …)",
                f.name
            )));
        }
        Ok(vec![DataType::Utf8; types.len()])
    };
    let returns = |f: &Function, _: &[FieldRef], constants: &[Option<&ScalarValue>]| {
        let texts: Vec<&str> =
            (1..constants.len()).map(|i| constant_text(f, constants, i)).collect::<Result<_>>()?;
        Options::read(&texts[1..])?;
        schema(texts[0], &f.time_zone)
    };
    Function::new("from_json", zone, coerce, returns, from_json).udf()
}

/// DDL columns (`a INT, b STRING`), or the text of one type.
fn schema(text: &str, time_zone: &str) -> Result<DataType> {
    let start = text.trim_start().to_ascii_lowercase();
    let nested = ["array<", "map<", "struct<"].iter().any(|word| start.starts_with(word));
    let parsed = match nested {
        true => parse_type(text, time_zone),
        false => parse_columns(text, time_zone).map(DataType::Struct),
    };
    parsed
        .map(nullable)
        .map_err(|e| DataFusionError::Plan(format!("the schema '{text}' of from_json(): {e}")))
}

/// Whatever the schema says, any field may be missing in the text.
fn nullable(data_type: DataType) -> DataType {
    match data_type {
        DataType::Struct(fields) => {
            let field = |f: &FieldRef| {
                Arc::new(
                    f.as_ref().clone().with_nullable(true).with_data_type(nullable(f.data_type().clone())),
                )
            };
            DataType::Struct(fields.iter().map(field).collect())
        }
        other => other,
    }
}

struct Options {
    fail_fast: bool,
    corrupt_column: String,
    timestamp_pattern: Option<Pattern>,
    date_pattern: Option<Pattern>,
}

impl Options {
    fn read(texts: &[&str]) -> Result<Self> {
        let mut options = Self {
            fail_fast: false,
            corrupt_column: "_corrupt_record".into(),
            timestamp_pattern: None,
            date_pattern: None,
        };
        let pattern = |text: &str| Pattern::read(text).map(Some).map_err(DataFusionError::Plan);
        for pair in texts.chunks_exact(2) {
            match (pair[0].to_ascii_lowercase().as_str(), pair[1].to_ascii_uppercase().as_str()) {
                ("mode", "PERMISSIVE") => {}
                ("mode", "FAILFAST") => options.fail_fast = true,
                ("columnnameofcorruptrecord", _) => options.corrupt_column = pair[1].to_owned(),
                ("timestampformat", _) => options.timestamp_pattern = pattern(pair[1])?,
                ("dateformat", _) => options.date_pattern = pattern(pair[1])?,
                _ => {
                    return Err(DataFusionError::Plan(format!(
                        "from_json() does not know the option '{}' = '{}'; there are mode (PERMISSIVE, FAILFAST), \
                         columnNameOfCorruptRecord, timestampFormat, dateFormat",
                        pair[0], pair[1]
                    )));
                }
            }
        }
        Ok(options)
    }
}

fn from_json(function: &Function, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
    let texts = text(args, 0)?;
    let mut given = Vec::new();
    for value in args.args.iter().skip(2) {
        match value {
            ColumnarValue::Scalar(value) => {
                given.push(value.try_as_str().flatten().unwrap_or_default().to_owned())
            }
            ColumnarValue::Array(_) => return failed("the options of from_json() must be constants"),
        }
    }
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    let options = Options::read(&given)?;
    let zone: Tz = function.time_zone.parse().unwrap_or(Tz::UTC);
    let parsed: Vec<Parsed> = (0..texts.len()).map(|row| Parsed::read(at(&texts, row))).collect();
    let mut decoder = Decoder { options: &options, zone, bad: vec![false; texts.len()] };
    let rows: Vec<(usize, Option<&Value>)> = parsed.iter().map(Parsed::value).enumerate().collect();
    for (row, parsed) in parsed.iter().enumerate() {
        decoder.bad[row] = matches!(parsed, Parsed::Broken);
    }
    let result = match args.return_type() {
        DataType::Struct(fields) => decoder.top(fields, &rows, &parsed, &texts)?,
        other => decoder.column(other, &rows)?,
    };
    if options.fail_fast
        && let Some(row) = decoder.bad.iter().position(|bad| *bad)
    {
        let shown: String = texts.value(row).chars().take(200).collect();
        return failed(format!("from_json() in mode FAILFAST: malformed record '{shown}'"));
    }
    Ok(result)
}

/// What became of one text.
enum Parsed {
    /// NULL or blank.
    Absent,
    Broken,
    Json(Value),
}

impl Parsed {
    /// Only the first value of the text counts, as for Spark's parser.
    fn read(text: Option<&str>) -> Self {
        let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Self::Absent };
        match serde_json::Deserializer::from_str(text).into_iter::<Value>().next() {
            Some(Ok(value)) => Self::Json(value),
            _ => Self::Broken,
        }
    }
    fn value(&self) -> Option<&Value> {
        match self {
            Self::Json(value) => Some(value),
            _ => None,
        }
    }
}

/// A value and the row of the batch that it belongs to.
type Cell<'a> = (usize, Option<&'a Value>);

struct Decoder<'a> {
    options: &'a Options,
    zone: Tz,
    bad: Vec<bool>,
}

impl Decoder<'_> {
    /// The outermost struct: never NULL for text that is not blank, with the corrupt-record column.
    fn top(
        &mut self,
        fields: &Fields,
        rows: &[Cell<'_>],
        parsed: &[Parsed],
        texts: &StringArray,
    ) -> Result<ArrayRef> {
        let objects: Vec<Cell<'_>> = rows
            .iter()
            .map(|(row, value)| {
                let object = value.filter(|value| value.is_object());
                self.bad[*row] |= value.is_some() && object.is_none();
                (*row, object)
            })
            .collect();
        let is_corrupt =
            |f: &FieldRef| *f.name() == self.options.corrupt_column && *f.data_type() == DataType::Utf8;
        let corrupt = fields.iter().position(is_corrupt);
        let mut columns = self.members(fields, &objects)?;
        if let Some(index) = corrupt {
            let raw = |row: usize| self.bad[row].then(|| texts.value(row));
            columns[index] = Arc::new((0..texts.len()).map(raw).collect::<StringArray>());
        }
        let nulls: NullBuffer = parsed.iter().map(|parsed| !matches!(parsed, Parsed::Absent)).collect();
        Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, Some(nulls), rows.len())?))
    }

    fn members(&mut self, fields: &Fields, objects: &[Cell<'_>]) -> Result<Vec<ArrayRef>> {
        let member = |field: &FieldRef| {
            let cells: Vec<Cell<'_>> = objects
                .iter()
                .map(|(row, object)| (*row, object.and_then(|o| o.get(field.name()))))
                .collect();
            self.column(field.data_type(), &cells)
        };
        fields.iter().map(member).collect()
    }

    fn column(&mut self, data_type: &DataType, cells: &[Cell<'_>]) -> Result<ArrayRef> {
        Ok(match data_type {
            DataType::Boolean => {
                Arc::new(self.each(cells, Value::as_bool).into_iter().collect::<BooleanArray>())
            }
            DataType::Int8 => self.whole::<Int8Type>(cells),
            DataType::Int16 => self.whole::<Int16Type>(cells),
            DataType::Int32 => self.whole::<Int32Type>(cells),
            DataType::Int64 => self.whole::<Int64Type>(cells),
            DataType::Float32 => {
                let values = self.each(cells, |value| double(value).map(|d| d as f32));
                Arc::new(values.into_iter().collect::<PrimitiveArray<Float32Type>>())
            }
            DataType::Float64 => {
                Arc::new(self.each(cells, double).into_iter().collect::<PrimitiveArray<Float64Type>>())
            }
            DataType::Decimal128(precision, scale) => {
                let values = self.each(cells, |value| decimal(value, *precision, *scale));
                let array: Decimal128Array = values.into_iter().collect();
                Arc::new(array.with_precision_and_scale(*precision, *scale)?)
            }
            DataType::Utf8 => {
                Arc::new(self.each(cells, |v| Some(string(v))).into_iter().collect::<StringArray>())
            }
            DataType::Binary => {
                let values = self.each(cells, |value| base64(value.as_str()?));
                Arc::new(values.iter().map(Option::as_deref).collect::<BinaryArray>())
            }
            DataType::Date32 => {
                let pattern = self.options.date_pattern.as_ref();
                let values = self.each(cells, |value| date(value.as_str()?, pattern));
                Arc::new(values.into_iter().collect::<Date32Array>())
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let (session, pattern) = (
                    if zone.is_some() { self.zone } else { Tz::UTC },
                    self.options.timestamp_pattern.as_ref(),
                );
                let values = self.each(cells, |value| moment(value, session, pattern));
                let array: TimestampMicrosecondArray = values.into_iter().collect();
                Arc::new(array.with_timezone_opt(zone.clone()))
            }
            DataType::Struct(fields) => self.structs(fields, cells)?,
            DataType::List(item) => self.lists(item, cells)?,
            DataType::Map(entries, _) => self.maps(entries, cells)?,
            other => new_null_array(other, cells.len()),
        })
    }

    /// Reads every value; a value of the wrong type is NULL and makes its row a bad one.
    fn each<T>(&mut self, cells: &[Cell<'_>], read: impl Fn(&Value) -> Option<T>) -> Vec<Option<T>> {
        let one = |(row, value): &Cell<'_>| {
            let value = value.filter(|value| !value.is_null())?;
            let read = read(value);
            self.bad[*row] |= read.is_none();
            read
        };
        cells.iter().map(one).collect()
    }

    fn whole<T: ArrowPrimitiveType>(&mut self, cells: &[Cell<'_>]) -> ArrayRef
    where
        T::Native: TryFrom<i64>,
    {
        let values = self.each(cells, |value| T::Native::try_from(value.as_i64()?).ok());
        Arc::new(values.into_iter().collect::<PrimitiveArray<T>>())
    }

    fn structs(&mut self, fields: &Fields, cells: &[Cell<'_>]) -> Result<ArrayRef> {
        let objects: Vec<Cell<'_>> = self.keep(cells, Value::is_object);
        let nulls: NullBuffer = objects.iter().map(|(_, object)| object.is_some()).collect();
        let columns = self.members(fields, &objects)?;
        Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, Some(nulls), cells.len())?))
    }

    fn lists(&mut self, item: &FieldRef, cells: &[Cell<'_>]) -> Result<ArrayRef> {
        let kept = self.keep(cells, Value::is_array);
        let (mut items, mut lengths) = (Vec::new(), Vec::new());
        for (row, list) in &kept {
            let list = list.and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
            lengths.push(list.len());
            items.extend(list.iter().map(|item| (*row, Some(item))));
        }
        let offsets = OffsetBuffer::from_lengths(lengths);
        let values = self.column(item.data_type(), &items)?;
        let nulls: NullBuffer = kept.iter().map(|(_, list)| list.is_some()).collect();
        Ok(Arc::new(ListArray::try_new(item.clone(), offsets, values, Some(nulls))?))
    }

    fn maps(&mut self, entries: &FieldRef, cells: &[Cell<'_>]) -> Result<ArrayRef> {
        let DataType::Struct(kv) = entries.data_type() else { return failed("not a map") };
        if *kv[0].data_type() != DataType::Utf8 {
            return failed("from_json() makes maps with text keys only");
        }
        let kept = self.keep(cells, Value::is_object);
        let (mut keys, mut values, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for (row, object) in &kept {
            let members = object.and_then(Value::as_object);
            lengths.push(members.map_or(0, serde_json::Map::len));
            for (key, value) in members.into_iter().flatten() {
                keys.push(key.as_str());
                values.push((*row, Some(value)));
            }
        }
        let columns =
            vec![Arc::new(StringArray::from(keys)) as ArrayRef, self.column(kv[1].data_type(), &values)?];
        let nulls: NullBuffer = kept.iter().map(|(_, object)| object.is_some()).collect();
        let offsets = OffsetBuffer::from_lengths(lengths);
        let pairs = StructArray::try_new(kv.clone(), columns, None)?;
        Ok(Arc::new(MapArray::try_new(entries.clone(), offsets, pairs, Some(nulls), false)?))
    }

    fn keep<'v>(&mut self, cells: &[Cell<'v>], right: impl Fn(&Value) -> bool) -> Vec<Cell<'v>> {
        let one = |(row, value): &Cell<'v>| {
            let value = value.filter(|value| !value.is_null());
            let kept = value.filter(|value| right(value));
            self.bad[*row] |= value.is_some() && kept.is_none();
            (*row, kept)
        };
        cells.iter().map(one).collect()
    }
}

fn string(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn double(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" | "+Infinity" | "INF" | "+INF" => Some(f64::INFINITY),
            "-Infinity" | "-INF" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Rounded half up to the scale, as Spark; `None` if it does not fit.
fn decimal(value: &Value, precision: u8, scale: i8) -> Option<i128> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return None,
    };
    let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let cast = datafusion::arrow::compute::cast(&texts, &DataType::Decimal128(precision, scale)).ok()?;
    ScalarValue::try_from_array(&cast, 0).ok().and_then(|value| match value {
        ScalarValue::Decimal128(value, ..) => value,
        _ => None,
    })
}

fn date(text: &str, pattern: Option<&Pattern>) -> Option<i32> {
    let date = match pattern {
        Some(pattern) => pattern.parse(text, Tz::UTC)?.date_naive(),
        None => timestamp::parse_date(text)?,
    };
    Some(super::clock::days(date))
}

/// Text, or whole seconds.
fn moment(value: &Value, zone: Tz, pattern: Option<&Pattern>) -> Option<i64> {
    match (value, pattern) {
        (Value::String(text), Some(pattern)) => pattern.parse(text, zone).map(|at| at.timestamp_micros()),
        (Value::String(text), None) => timestamp::parse(text, zone),
        (Value::Number(number), _) => number.as_i64()?.checked_mul(1_000_000),
        _ => None,
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'\r' | b'\n' => continue,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}
