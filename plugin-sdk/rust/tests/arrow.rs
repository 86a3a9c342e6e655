//! The SDK's own Arrow codec against the Arrow crates: what they write it reads, what it writes they read, for
//! every type that the contract admits, nested ones included.
#![allow(clippy::unwrap_used)]

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use pelton::dynamic::{Columns, Rows, Transform};
use pelton::{Context, Error};
use proptest::prelude::*;
use std::sync::Arc;

/// Copies row by row, as a function that chooses rows does.
struct ByRow;
/// Copies whole columns.
struct ByColumn;

impl Transform for ByRow {
    const NAME: &'static str = "by_row";
    const DOC: &'static str = "";
    type Config = ();
    fn open(_: (), input: &pelton::Schema) -> Result<(Self, pelton::Schema), String> {
        Ok((Self, input.clone()))
    }
    fn process(&mut self, _: &Context, rows: &Rows<'_>, output: &mut Columns) -> Result<(), Error> {
        for row in 0..rows.len() {
            for (i, column) in rows.columns().iter().enumerate() {
                output.column(i).push_from(column, row);
            }
        }
        Ok(())
    }
}

impl Transform for ByColumn {
    const NAME: &'static str = "by_column";
    const DOC: &'static str = "";
    type Config = ();
    fn open(_: (), input: &pelton::Schema) -> Result<(Self, pelton::Schema), String> {
        Ok((Self, input.clone()))
    }
    fn process(&mut self, _: &Context, rows: &Rows<'_>, output: &mut Columns) -> Result<(), Error> {
        for (i, column) in rows.columns().iter().enumerate() {
            output.column(i).extend_from(column);
        }
        Ok(())
    }
}

/// A batch as a schema message and a record-batch message.
fn write(batch: &RecordBatch) -> (Vec<u8>, Vec<u8>) {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    let schema = writer.get_ref().clone();
    writer.write(batch).unwrap();
    let rows = writer.get_ref()[schema.len()..].to_vec();
    (schema, rows)
}

fn read(schema: &[u8], rows: &[u8]) -> RecordBatch {
    let stream = [schema, rows].concat();
    let mut reader = StreamReader::try_new(&stream[..], None).unwrap();
    reader.next().expect("one batch").unwrap()
}

fn flat_type() -> impl Strategy<Value = DataType> {
    prop_oneof![
        Just(DataType::Boolean),
        Just(DataType::Int8),
        Just(DataType::Int16),
        Just(DataType::Int32),
        Just(DataType::Int64),
        Just(DataType::Float32),
        Just(DataType::Float64),
        (1_u8..=38).prop_flat_map(|p| (Just(p), 0..=p as i8)).prop_map(|(p, s)| DataType::Decimal128(p, s)),
        Just(DataType::Utf8),
        Just(DataType::Binary),
        Just(DataType::Date32),
        Just(DataType::Timestamp(TimeUnit::Microsecond, None)),
        Just(DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()))),
    ]
}

fn any_type() -> impl Strategy<Value = DataType> {
    flat_type().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|t| DataType::List(Arc::new(Field::new_list_field(t, true)))),
            (flat_type(), inner.clone()).prop_map(|(k, v)| {
                let entries = Fields::from(vec![Field::new("key", k, false), Field::new("value", v, true)]);
                DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
            }),
            prop::collection::vec(inner, 1..4).prop_map(|types| {
                let field = |(i, t)| Field::new(format!("f{i}"), t, true);
                DataType::Struct(types.into_iter().enumerate().map(field).collect())
            }),
        ]
    })
}

/// A source of values: enough for tests, the same for the same seed.
struct Values(u64);

impl Values {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16
    }
    fn nulls(&mut self, len: usize, nullable: bool) -> Option<NullBuffer> {
        let density = if nullable { self.next() % 3 } else { 0 };
        (density > 0).then(|| (0..len).map(|_| !self.next().is_multiple_of(density * 2)).collect())
    }
    fn text(&mut self) -> String {
        const PIECES: [&str; 5] = ["", "a", "é", "水車", "wheel of water "];
        (0..self.next() % 4).map(|_| PIECES[(self.next() % 5) as usize]).collect()
    }
    fn offsets(&mut self, len: usize) -> OffsetBuffer<i32> {
        OffsetBuffer::from_lengths((0..len).map(|_| (self.next() % 4) as usize))
    }
    fn scalars<T: arrow::datatypes::ArrowPrimitiveType>(
        &mut self,
        len: usize,
        nullable: bool,
        value: impl Fn(u64) -> T::Native,
    ) -> PrimitiveArray<T> {
        let values: ScalarBuffer<T::Native> = (0..len).map(|_| value(self.next())).collect();
        PrimitiveArray::new(values, self.nulls(len, nullable))
    }

    fn array(&mut self, data_type: &DataType, len: usize, nullable: bool) -> ArrayRef {
        use arrow::datatypes::*;
        match data_type {
            DataType::Boolean => {
                let values = (0..len).map(|_| self.next() & 1 == 1).collect();
                Arc::new(BooleanArray::new(values, self.nulls(len, nullable)))
            }
            DataType::Int8 => Arc::new(self.scalars::<Int8Type>(len, nullable, |v| v as i8)),
            DataType::Int16 => Arc::new(self.scalars::<Int16Type>(len, nullable, |v| v as i16)),
            DataType::Int32 => Arc::new(self.scalars::<Int32Type>(len, nullable, |v| v as i32)),
            DataType::Int64 => Arc::new(self.scalars::<Int64Type>(len, nullable, |v| v as i64)),
            DataType::Float32 => Arc::new(self.scalars::<Float32Type>(len, nullable, |v| v as f32 / 3.0)),
            DataType::Float64 => Arc::new(self.scalars::<Float64Type>(len, nullable, |v| v as f64 / 3.0)),
            DataType::Decimal128(..) => {
                let array = self.scalars::<Decimal128Type>(len, nullable, |v| i128::from(v % 10));
                Arc::new(array.with_data_type(data_type.clone()))
            }
            DataType::Utf8 => {
                let values: Vec<String> = (0..len).map(|_| self.text()).collect();
                let (offsets, bytes, _) = StringArray::from(values).into_parts();
                Arc::new(StringArray::new(offsets, bytes, self.nulls(len, nullable)))
            }
            DataType::Binary => {
                let values: Vec<String> = (0..len).map(|_| self.text()).collect();
                let (offsets, bytes, _) = StringArray::from(values).into_parts();
                Arc::new(BinaryArray::new(offsets, bytes, self.nulls(len, nullable)))
            }
            DataType::Date32 => Arc::new(self.scalars::<Date32Type>(len, nullable, |v| v as i32)),
            DataType::Timestamp(_, zone) => {
                let array = self.scalars::<TimestampMicrosecondType>(len, nullable, |v| v as i64);
                Arc::new(array.with_timezone_opt(zone.clone()))
            }
            DataType::List(item) => {
                let offsets = self.offsets(len);
                let items = self.array(item.data_type(), *offsets.last().unwrap() as usize, true);
                Arc::new(ListArray::new(item.clone(), offsets, items, self.nulls(len, nullable)))
            }
            DataType::Map(entries, sorted) => {
                let DataType::Struct(fields) = entries.data_type() else { unreachable!() };
                let offsets = self.offsets(len);
                let count = *offsets.last().unwrap() as usize;
                let columns =
                    fields.iter().map(|f| self.array(f.data_type(), count, f.is_nullable())).collect();
                let pairs = StructArray::new(fields.clone(), columns, None);
                Arc::new(MapArray::new(entries.clone(), offsets, pairs, self.nulls(len, nullable), *sorted))
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().map(|f| self.array(f.data_type(), len, true)).collect();
                Arc::new(StructArray::new(fields.clone(), columns, self.nulls(len, nullable)))
            }
            other => unreachable!("{other}"),
        }
    }
}

fn batch_of(types: Vec<DataType>, rows: usize, seed: u64) -> RecordBatch {
    let field = |(i, t): (usize, &DataType)| Field::new(format!("column {i}"), t.clone(), i % 3 != 2);
    let schema: SchemaRef = Arc::new(Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>()));
    let mut values = Values(seed);
    let column = |f: &Arc<Field>| values.array(f.data_type(), rows, f.is_nullable());
    let columns = schema.fields().iter().map(column).collect();
    RecordBatch::try_new(schema, columns).unwrap()
}

fn check<T: Transform>(batch: &RecordBatch) {
    let (schema, rows) = write(batch);
    let answer = pelton::testing::function::<T>().messages(&schema, &rows).unwrap();
    let (schema, rows) = answer.messages();
    assert_eq!(&read(schema, rows), batch);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_admitted_type_round_trips(
        types in prop::collection::vec(any_type(), 1..5),
        rows in 0_usize..70,
        seed in any::<u64>(),
        skipped in 0_usize..20,
    ) {
        let batch = batch_of(types, rows, seed);
        check::<ByRow>(&batch);
        check::<ByColumn>(&batch);
        // A slice starts in the middle of buffers and bitmaps.
        let skipped = skipped.min(rows);
        check::<ByRow>(&batch.slice(skipped, rows - skipped));
    }

    /// Whatever is done to a message, reading it ends with an error or an answer: no panic, no endless loop.
    #[test]
    fn damaged_messages_do_no_harm(
        types in prop::collection::vec(any_type(), 1..3),
        seed in any::<u64>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let (schema, rows) = write(&batch_of(types, 9, seed));
        let damaged = |message: &[u8]| {
            let mut message = message.to_vec();
            for (at, byte) in &damage {
                let at = at.index(message.len());
                message[at] = *byte;
            }
            message
        };
        let test = || pelton::testing::function::<ByColumn>();
        let _ = test().messages(&damaged(&schema), &rows);
        let _ = test().messages(&schema, &damaged(&rows));
        let _ = test().messages(&schema, &rows[..cut.index(rows.len())]);
    }
}

#[test]
fn structs_read_what_arrow_wrote_and_arrow_reads_what_structs_wrote() {
    #[derive(pelton::Row)]
    struct Row<'a> {
        list: Option<Vec<Option<&'a str>>>,
        map: Vec<(&'a str, Option<i64>)>,
        #[row(name = "struct")]
        inner: Option<Inner<'a>>,
        decimal: Option<pelton::Decimal<12, 2>>,
    }
    #[derive(pelton::Row)]
    struct Inner<'a> {
        bytes: Option<&'a [u8]>,
        date: Option<pelton::Date>,
    }
    /// Gives back the row.
    #[pelton::map]
    fn same(row: Row) -> Row {
        row
    }

    let map_entries = Fields::from(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int64, true),
    ]);
    let inner = vec![Field::new("bytes", DataType::Binary, true), Field::new("date", DataType::Date32, true)];
    let entries = Arc::new(Field::new("entries", DataType::Struct(map_entries), false));
    let schema = Arc::new(Schema::new(vec![
        Field::new("list", DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))), true),
        Field::new("map", DataType::Map(entries, false), false),
        Field::new("struct", DataType::Struct(inner.into()), true),
        Field::new("decimal", DataType::Decimal128(12, 2), true),
    ]));
    for seed in 0..50 {
        let mut values = Values(seed);
        let column = |f: &Arc<Field>| values.array(f.data_type(), 33, f.is_nullable());
        let batch =
            RecordBatch::try_new(schema.clone(), schema.fields().iter().map(column).collect()).unwrap();
        let (schema, rows) = write(&batch);
        let answer = pelton::testing::function::<same>().messages(&schema, &rows).unwrap();
        let (schema, rows) = answer.messages();
        let back = read(schema, rows);
        assert_eq!(back.columns(), batch.columns());
    }
}
