//! Both encodings over every type: there and back, against Arrow's own reader, and against hostile bytes.

use super::*;
use crate::limits::Limits;
use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{Field, Fields};
use pelton_core::types::parse_columns;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Columns of every type that crosses, nested ones included.
const ALL_TYPES: &str = "a: boolean, b: byte, c: short NOT NULL, d: int, e: long, f: float, g: double, \
    h: decimal(20,4), i: string, j: binary, k: date, l: timestamp, m: timestamp_ntz, n: array<string>, \
    o: map<string, long>, p: struct<x: int, y: array<struct<z: timestamp NOT NULL, s: string>>> NOT NULL, \
    q: map<int, array<boolean>>, r: string NOT NULL";

const ZONE: &str = "Europe/Vienna";

fn schema_of(columns: &str) -> SchemaRef {
    Arc::new(Schema::new(parse_columns(columns, ZONE).unwrap()))
}

/// Random values, reproducible.
struct Values(ChaCha8Rng);

impl Values {
    fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    fn text(&mut self) -> String {
        let letters = ['a', 'ß', '\u{1F600}', '"', '\\', '\n', ' ', 'Z'];
        (0..self.below(6)).map(|_| letters[self.below(8) as usize]).collect()
    }

    fn nulls(&mut self, field: &Field, length: usize) -> Option<NullBuffer> {
        let some = field.is_nullable() && self.below(3) > 0;
        some.then(|| (0..length).map(|_| self.below(4) > 0).collect::<Vec<_>>().into())
    }

    fn offsets(&mut self, length: usize) -> OffsetBuffer<i32> {
        OffsetBuffer::from_lengths((0..length).map(|_| self.below(4) as usize))
    }

    fn array(&mut self, field: &Field, length: usize) -> ArrayRef {
        let nulls = self.nulls(field, length);
        macro_rules! primitive {
            ($t:ty, $n:ty) => {{
                let values: Vec<$n> = (0..length).map(|_| self.0.next_u64() as $n).collect();
                PrimitiveArray::<$t>::new(values.into(), nulls)
            }};
        }
        use arrow::array::types::*;
        match field.data_type() {
            DataType::Boolean => {
                let bits: Vec<bool> = (0..length).map(|_| self.below(2) == 0).collect();
                Arc::new(BooleanArray::new(bits.into(), nulls))
            }
            DataType::Int8 => Arc::new(primitive!(Int8Type, i8)),
            DataType::Int16 => Arc::new(primitive!(Int16Type, i16)),
            DataType::Int32 => Arc::new(primitive!(Int32Type, i32)),
            DataType::Int64 => Arc::new(primitive!(Int64Type, i64)),
            DataType::Float32 => {
                let value = |n: u64| if n.is_multiple_of(7) { f32::INFINITY } else { n as f32 / 3.0 };
                let values: Vec<f32> = (0..length).map(|_| value(self.below(1000))).collect();
                Arc::new(Float32Array::new(values.into(), nulls))
            }
            DataType::Float64 => {
                let value = |n: u64| if n.is_multiple_of(7) { f64::NEG_INFINITY } else { n as f64 / 3.0 };
                let values: Vec<f64> = (0..length).map(|_| value(self.below(1000))).collect();
                Arc::new(Float64Array::new(values.into(), nulls))
            }
            DataType::Decimal128(p, s) => {
                let values: Vec<i128> = (0..length).map(|_| i128::from(self.0.next_u64() as i64)).collect();
                Arc::new(Decimal128Array::new(values.into(), nulls).with_precision_and_scale(*p, *s).unwrap())
            }
            DataType::Date32 => {
                let values: Vec<i32> = (0..length).map(|_| self.below(60_000) as i32 - 20_000).collect();
                Arc::new(Date32Array::new(values.into(), nulls))
            }
            DataType::Timestamp(_, zone) => {
                let values: Vec<i64> = (0..length).map(|_| self.below(1 << 52) as i64 - (1 << 51)).collect();
                Arc::new(TimestampMicrosecondArray::new(values.into(), nulls).with_timezone_opt(zone.clone()))
            }
            DataType::Utf8 => {
                let plain = StringArray::from_iter_values((0..length).map(|_| self.text()));
                Arc::new(StringArray::new(plain.offsets().clone(), plain.values().clone(), nulls))
            }
            DataType::Binary => {
                let plain = BinaryArray::from_iter_values((0..length).map(|_| self.text()));
                Arc::new(BinaryArray::new(plain.offsets().clone(), plain.values().clone(), nulls))
            }
            DataType::List(item) => {
                let offsets = self.offsets(length);
                let items = self.array(item, offsets[length] as usize);
                Arc::new(ListArray::new(item.clone(), offsets, items, nulls))
            }
            DataType::Map(entries, sorted) => {
                let offsets = self.offsets(length);
                let pairs = self.array(entries, offsets[length] as usize).as_struct().clone();
                Arc::new(MapArray::new(entries.clone(), offsets, pairs, nulls, *sorted))
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().map(|field| self.array(field, length)).collect();
                Arc::new(StructArray::new(fields.clone(), columns, nulls))
            }
            other => panic!("no values of {other}"),
        }
    }
}

/// A random batch; now and then a slice out of the middle of a longer one.
fn random_batch(schema: &SchemaRef, seed: u64, length: usize) -> RecordBatch {
    let mut values = Values(ChaCha8Rng::seed_from_u64(seed));
    let before = values.below(20) as usize;
    let columns = schema.fields().iter().map(|field| values.array(field, before + length + 3)).collect();
    RecordBatch::try_new(schema.clone(), columns).unwrap().slice(before, length)
}

fn codec(encoding: Encoding, schema: &SchemaRef) -> (Encoder, Decoder) {
    let encoder = Encoder::new(encoding, schema.clone()).unwrap();
    let message = encoder.schema_message().unwrap();
    let decoder = Decoder::new(encoding, &message, ZONE, &Limits::default()).unwrap();
    (encoder, decoder)
}

fn encoded(encoder: &Encoder, batch: &RecordBatch) -> Vec<u8> {
    let mut message = b"left over".to_vec();
    encoder.encode(batch, &mut message).unwrap();
    message
}

/// What a guest that uses Arrow's own reader would see.
fn read_by_arrow(encoder: &Encoder, batch: &RecordBatch) -> RecordBatch {
    let mut stream = encoder.schema_message().unwrap();
    stream.extend(encoded(encoder, batch));
    stream.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let mut reader = arrow_ipc::reader::StreamReader::try_new(stream.as_slice(), None).unwrap();
    reader.next().unwrap().unwrap()
}

proptest! {
    #[test]
    fn every_type_crosses_unchanged(seed in any::<u64>(), length in 0_usize..40) {
        let schema = schema_of(ALL_TYPES);
        let batch = random_batch(&schema, seed, length);
        for encoding in [Encoding::Arrow, Encoding::Json] {
            let (encoder, decoder) = codec(encoding, &schema);
            let back = decoder.decode(encoded(&encoder, &batch), &Limits::default()).unwrap();
            prop_assert_eq!(back.schema(), batch.schema(), "{:?}", encoding);
            for (field, (back, sent)) in schema.fields().iter().zip(back.columns().iter().zip(batch.columns())) {
                prop_assert_eq!(back, sent, "{:?}, column {}", encoding, field.name());
            }
        }
    }

    #[test]
    fn arrows_own_reader_reads_what_is_sent(seed in any::<u64>(), length in 0_usize..40) {
        let schema = schema_of(&ALL_TYPES.replace("timestamp,", "timestamp_ntz,").replace("z: timestamp", "z: date"));
        let (encoder, _) = codec(Encoding::Arrow, &schema);
        let batch = random_batch(&schema, seed, length);
        let read = read_by_arrow(&encoder, &batch);
        prop_assert_eq!(read.columns(), batch.columns());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (_, arrow) = codec(Encoding::Arrow, &schema_of(ALL_TYPES));
        let (_, json) = codec(Encoding::Json, &schema_of(ALL_TYPES));
        let limits = Limits::default();
        prop_assert!(arrow.decode(bytes.clone(), &limits).is_err());
        prop_assert!(json.decode(bytes.clone(), &limits).is_err());
        prop_assert!(Decoder::new(Encoding::Arrow, &bytes, ZONE, &limits).is_err());
        prop_assert!(Decoder::new(Encoding::Json, &bytes, ZONE, &limits).is_err());
    }

    /// What survives the checks must be sound all through: comparing and printing it touches every value.
    #[test]
    fn damaged_messages_are_refused_or_sound(
        seed in any::<u64>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let schema = schema_of(ALL_TYPES);
        let (encoder, decoder) = codec(Encoding::Arrow, &schema);
        let mut rows = encoded(&encoder, &random_batch(&schema, seed, 9));
        let mut declared = encoder.schema_message().unwrap();
        for (at, byte) in &damage {
            // The front, where the lengths are, is hit most often.
            let at = at.index(rows.len().min(if byte % 3 == 0 { rows.len() } else { 1400 }));
            rows[at] = *byte;
            let at = damage[0].0.index(declared.len());
            declared[at] = *byte;
        }
        if let Some(cut) = cut {
            rows.truncate(cut.index(rows.len()));
        }
        if let Ok(batch) = decoder.decode(rows, &Limits::default()) {
            for column in batch.columns() {
                column.to_data().validate_full().unwrap();
            }
            let again = decoder.decode(encoded(&encoder, &batch), &Limits::default()).unwrap();
            prop_assert_eq!(format!("{again:?}"), format!("{batch:?}"));
        }
        let _ = Decoder::new(Encoding::Arrow, &declared, ZONE, &Limits::default());
    }
}

proptest! {
    #[test]
    fn damaged_json_is_refused_or_sound(
        seed in any::<u64>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let schema = schema_of(ALL_TYPES);
        let (encoder, decoder) = codec(Encoding::Json, &schema);
        let mut rows = encoded(&encoder, &random_batch(&schema, seed, 3));
        for (at, byte) in &damage {
            let at = at.index(rows.len());
            rows[at] = if byte % 2 == 0 { *byte } else { b"[]{}:,\"0-eE.\\nt"[usize::from(*byte) % 15] };
        }
        if let Ok(batch) = decoder.decode(rows, &Limits::default()) {
            for column in batch.columns() {
                column.to_data().validate_full().unwrap();
            }
        }
    }
}

#[test]
fn timestamps_cross_as_utc_and_come_back_in_the_sessions_zone() {
    let schema = schema_of("t: timestamp, l: array<timestamp>");
    let message = Encoder::new(Encoding::Arrow, schema.clone()).unwrap().schema_message().unwrap();
    let sent = Decoder::new(Encoding::Arrow, &message, "UTC", &Limits::default()).unwrap();
    assert_eq!(zone_of(sent.schema()).as_deref(), Some("UTC"));
    assert_eq!(zone_of(&schema).as_deref(), Some(ZONE));
}

#[test]
fn rows_without_columns_cross() {
    let schema = Arc::new(Schema::empty());
    let encoder = Encoder::new(Encoding::Arrow, schema.clone()).unwrap();
    let options = RecordBatchOptions::new().with_row_count(Some(7));
    let batch = RecordBatch::try_new_with_options(schema, vec![], &options).unwrap();
    assert_eq!(read_by_arrow(&encoder, &batch).num_rows(), 7);
}

#[test]
fn json_is_as_documented() {
    let schema = schema_of(
        "a: long, b: double, c: decimal(6,2), d: binary, e: date, f: timestamp, g: timestamp_ntz, h: map<string, int>",
    );
    let text = r#"[{"a":-5,"b":"NaN","c":"12.50","d":"AP8=","e":"1969-12-31","f":"2024-02-29T12:30:00.000001Z","g":"2024-02-29T12:30:00.000000","h":[{"key":"x","value":null}]},{"a":null,"b":1.5,"c":null,"d":null,"e":null,"f":null,"g":null,"h":null}]"#;
    let (encoder, decoder) = codec(Encoding::Json, &schema);
    let batch = decoder.decode(text.into(), &Limits::default()).unwrap();
    assert_eq!(String::from_utf8(encoded(&encoder, &batch)).unwrap(), text);
    let loose = r#"[{"h":{"x":null},"c":12.5,"a":"-5","b":"NaN","d":"AP8=","e":"1969-12-31",
        "f":"2024-02-29T13:30:00.000001+01:00","g":"2024-02-29T12:30:00"},{"b":1.5}]"#;
    let loose = decoder.decode(loose.into(), &Limits::default()).unwrap();
    assert_eq!(String::from_utf8(encoded(&encoder, &loose)).unwrap(), text);
}

#[test]
fn wrong_json_says_where_and_what() {
    let (_, decoder) =
        codec(Encoding::Json, &schema_of("carrier: string, n: byte NOT NULL, d: decimal(3,1)"));
    let check = |text: &str, wanted: &str| {
        let said = decoder.decode(text.into(), &Limits::default()).expect_err("refused");
        assert!(said.contains(wanted), "{said}");
    };
    check(r#"{"n":1}"#, "expected an array of rows");
    check(r#"[{"n":1,"carier":"UA"}]"#, "there is no field 'carier'; did you mean 'carrier'? at line 1");
    check(r#"[{"n":1,"n":2}]"#, "the field 'n' comes twice");
    check(r#"[{"n":128}]"#, "expected a whole number from -128 to 127");
    check(r#"[{"n":1,"d":"1.25"}]"#, "expected a decimal");
    check(r#"[{"n":1,"d":100}]"#, "its rows do not have its schema");
    check(r#"[{"carrier":"UA"}]"#, "contains null");
    check(r#"[{"n":1}] x"#, "trailing characters");
}

#[test]
fn a_schema_that_a_plugin_may_not_answer_is_refused() {
    let limits = Limits { schema_columns: 5, schema_depth: 3, ..Limits::default() };
    let check = |json: &str, wanted: &str| {
        let said = Decoder::new(Encoding::Json, json.as_bytes(), ZONE, &limits).expect_err("refused");
        assert!(said.contains(wanted), "{said}");
    };
    let field = |name: &str, kind: &str| format!(r#"{{"name":"{name}","type":{kind}}}"#);
    let of = |fields: &[String]| format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","));
    check(&of(&[]), "no columns");
    check(&of(&[field("a", "\"long\""), field("a", "\"int\"")]), "two columns named 'a'");
    check(&of(&[field("", "\"long\"")]), "without a name");
    check(&of(&[field("a", "\"struct<>\"")]), "a struct without fields");
    check(&of(&[field("a", "\"array<array<array<long>>>\"")]), "nested too deeply");
    check(&of(&[field("a", &format!("\"{}\"", "array<".repeat(1 << 20)))]), "nested too deeply");
    check(&of(&(0..6).map(|i| field(&format!("c{i}"), "\"long\"")).collect::<Vec<_>>()), "too many columns");
    let wide =
        Schema::new((0..6).map(|i| Field::new(format!("c{i}"), DataType::Int64, true)).collect::<Fields>());
    let message = ipc_schema::encode(&wide).unwrap();
    assert!(
        Decoder::new(Encoding::Arrow, &message, ZONE, &limits)
            .expect_err("refused")
            .contains("too many columns")
    );
    let unsigned = Schema::new(vec![Field::new("u", DataType::UInt32, true)]);
    let said = Decoder::new(Encoding::Arrow, &ipc_schema::encode(&unsigned).unwrap(), ZONE, &limits);
    assert!(said.expect_err("refused").starts_with("its column 'u' has Arrow type UInt32"));
}

#[test]
fn an_input_type_that_does_not_cross_is_named_with_its_way_out() {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::UInt32, true)]));
    let error = Encoder::new(Encoding::Arrow, schema).expect_err("refused");
    assert_eq!(error.message(), "column 'n' has type UInt32, which no plugin takes");
    assert_eq!(error.hint_text(), Some("CAST it AS long"));
}

#[test]
fn many_rows_of_nothing_do_not_fill_the_memory() {
    let columns: Vec<String> = (0..1000).map(|i| format!("c{i}: long")).collect();
    let (_, decoder) = codec(Encoding::Json, &schema_of(&columns.join(", ")));
    let rows = format!("[{}{{}}]", "{},".repeat(1 << 20));
    let said = decoder.decode(rows.into(), &Limits::default()).expect_err("refused");
    assert!(said.contains("too many values (limit output)"), "{said}");
}
