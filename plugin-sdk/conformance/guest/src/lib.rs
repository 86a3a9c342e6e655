//! One function for each service of the SDK: `../cases/sdk.json` says what they must answer. The benchmarks of
//! the boundary use `identity`, `add` and `loud`.

pub mod groups;

use pelton::dynamic::{Columns, Rows, Transform};
use pelton::{Config, Context, Date, Decimal, Emit, Error, Row, Schema, Timestamp, TimestampNtz};
use std::collections::BTreeMap;

/// Any schema in, the same out.
pub struct Identity;

impl Transform for Identity {
    const NAME: &'static str = "identity";
    const DOC: &'static str = "Gives back the rows, whatever their schema.";
    type Config = ();

    fn open(_: (), input: &Schema) -> Result<(Self, Schema), String> {
        Ok((Identity, input.clone()))
    }
    fn process(&mut self, _: &Context, rows: &Rows<'_>, output: &mut Columns) -> Result<(), Error> {
        for (i, column) in rows.columns().iter().enumerate() {
            output.column(i).extend_from(column);
        }
        Ok(())
    }
}

/// Adds two columns.
#[pelton::scalar]
pub fn add(a: i64, b: i64) -> i64 {
    a.wrapping_add(b)
}

/// The inner part of [`Everything`].
#[derive(Row)]
pub struct Inner<'a> {
    x: Option<&'a str>,
    y: Option<Vec<Option<f64>>>,
}

/// A column of each type.
#[derive(Row)]
pub struct Everything<'a> {
    boolean: Option<bool>,
    byte: Option<i8>,
    short: Option<i16>,
    int: Option<i32>,
    long: Option<i64>,
    float: Option<f32>,
    double: Option<f64>,
    decimal: Option<Decimal<20, 3>>,
    string: Option<&'a str>,
    binary: Option<&'a [u8]>,
    date: Option<Date>,
    timestamp: Option<Timestamp>,
    timestamp_ntz: Option<TimestampNtz>,
    list: Option<Vec<Option<&'a str>>>,
    map: Option<BTreeMap<&'a str, Option<i64>>>,
    #[row(name = "struct")]
    inner: Option<Inner<'a>>,
}

/// Gives back a column of each type.
#[pelton::map]
pub fn everything(row: Everything) -> Everything {
    row
}

/// Reads narrower columns than it names: widened where nothing is lost.
#[derive(Row)]
pub struct Wide {
    long: i64,
    double: f64,
}

/// Gives back the numbers, wider.
#[pelton::map]
pub fn widen(row: Wide) -> Wide {
    row
}

/// One number.
#[derive(Row, Clone)]
pub struct Number {
    n: i64,
}

/// Refuses odd numbers, drops negative ones.
#[pelton::map]
pub fn even(row: Number) -> Result<Option<Number>, String> {
    match row.n {
        n if n < 0 => Ok(None),
        n if n % 2 != 0 => Err(format!("{n} is odd")),
        _ => Ok(Some(row)),
    }
}

/// Puts out each number as often as it says.
#[pelton::flat_map]
pub fn repeat(row: Number) -> impl Iterator<Item = Number> {
    let times = usize::try_from(row.n).unwrap_or(0);
    std::iter::repeat_n(row, times)
}

/// Counts down from each number, and refuses it at 13: what was put out for it before does not count.
#[pelton::flat_map]
pub fn countdown(row: Number, out: &mut Emit<Number>) -> Result<(), &'static str> {
    for n in (0..row.n).rev() {
        if n == 13 {
            return Err("13 is in the way");
        }
        out.row(Number { n });
    }
    Ok(())
}

/// How text is to be written.
#[derive(Config, Clone, Copy)]
pub enum Case {
    /// As it is.
    AsIs,
    /// In capitals.
    Upper,
}

/// The plugin's configuration.
#[derive(Config)]
pub struct Settings {
    #[config(default)]
    prefix: String,
    #[config(default = Case::AsIs)]
    case: Case,
    #[config(default = 1_u32)]
    times: u32,
    limit: Option<f64>,
    #[config(default)]
    replace: BTreeMap<String, String>,
}

/// One text.
#[derive(Row)]
pub struct Text<'a> {
    text: &'a str,
}

/// A text of its own.
#[derive(Row)]
pub struct Written {
    text: String,
}

/// Writes a text as the configuration says.
#[pelton::map]
pub fn write(row: Text, settings: &Settings) -> Option<Written> {
    if settings.limit.is_some_and(|limit| row.text.len() as f64 > limit) {
        return None;
    }
    let text = settings.replace.get(row.text).map_or(row.text, String::as_str);
    let text = match settings.case {
        Case::AsIs => text.to_owned(),
        Case::Upper => text.to_uppercase(),
    };
    Some(Written { text: format!("{}{}", settings.prefix, text.repeat(settings.times as usize)) })
}

/// Where a call stands.
#[derive(Row)]
pub struct Standing {
    batch_id: i64,
    processing_time: Timestamp,
    watermark: Option<Timestamp>,
    seed: i64,
}

/// Tells where the call stands.
#[pelton::map]
pub fn clock(_: Number, context: &Context) -> Standing {
    Standing {
        batch_id: context.batch_id().cast_signed(),
        processing_time: context.processing_time(),
        watermark: context.watermark(),
        seed: context.seed().cast_signed(),
    }
}

/// A random number below `n`.
#[pelton::scalar]
pub fn random(n: i64, context: &Context) -> i64 {
    (context.random() % n.max(1).cast_unsigned()).cast_signed()
}

/// Logs the text at the level that it names.
#[pelton::map]
pub fn log<'a>(row: Text<'a>) -> Text<'a> {
    match row.text {
        "trace" => pelton::trace!("said {}", row.text),
        "debug" => pelton::debug!("said {}", row.text),
        "info" => pelton::info!("said {}", row.text),
        "warn" => pelton::warn!("said {}", row.text),
        _ => pelton::error!("said {}", row.text),
    }
    row
}

/// Counts `n` under `rows` and `sum`.
#[pelton::map]
pub fn count(row: Number) -> Number {
    pelton::count("rows", 1);
    pelton::count("sum", row.n.unsigned_abs());
    row
}

/// Panics at 13.
#[pelton::map]
pub fn panics(row: Number) -> Number {
    assert!(row.n != 13, "13 is bad luck");
    row
}

/// A bid with what a query over it needs.
#[derive(Row)]
pub struct Bid<'a> {
    auction: i64,
    bidder: i64,
    price: i64,
    channel: &'a str,
}

/// A bid that passed.
#[derive(Row)]
pub struct Loud {
    auction: i64,
    bidder: i64,
    price: f64,
    channel: String,
}

/// Keeps bids of two conditions, converts the price and writes the channel in capitals.
#[pelton::map]
pub fn loud(bid: Bid) -> Option<Loud> {
    let Bid { auction, bidder, price, channel } = bid;
    if price <= 100 || auction % 2 != 0 {
        return None;
    }
    Some(Loud { auction, bidder, price: price as f64 * 0.908, channel: channel.to_uppercase() })
}

pelton::plugin!(name: "conformance", functions: [
    Identity, add, everything, widen, even, repeat, countdown, write, clock, random, log, count, panics, loud,
    groups::totals, groups::visits,
]);
