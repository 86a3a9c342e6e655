//! The schema of CSV files from a sample of them, by the rules of Spark's inference. Called by the file source
//! when it starts without a declared schema.

use super::convert::Converter;
use super::options::CsvOptions;
use super::split::Field as Place;
use crate::decode::parse_i64;
use arrow::datatypes::{DataType, Field, Fields, Schema, TimeUnit};
use pelton_core::{Error, Result};

/// What a column may be, from narrow to wide; strings hold everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Guess {
    Null,
    Int,
    Long,
    /// An integer that is too long for a long, with so many digits.
    Decimal(u8),
    Double,
    Date,
    Timestamp,
    Boolean,
    Text,
}

/// The schema that holds all records of the sample, whose pieces are beginnings of files. Columns are named by
/// the header of the first, or `_c0`, `_c1` … A sample without any record is an error of kind `Invalid`.
pub fn infer_csv(sample: &[&[u8]], options: &CsvOptions, time_zone: &str) -> Result<Schema> {
    let splitter = options.splitter();
    let converter = Converter::new(options, time_zone)?;
    let mut names: Option<Vec<String>> = None;
    let mut guesses: Vec<Guess> = Vec::new();
    let mut places: Vec<Place> = Vec::new();
    for piece in sample {
        let piece = piece.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(piece);
        let (mut at, mut header_pending) = (0, options.header);
        while at < piece.len() {
            let end = splitter.record_end(piece, at);
            let record = super::trimmed(&piece[at..end]);
            at = end + 1;
            let comment = options.comment.is_some_and(|c| record.first() == Some(&c));
            if comment || record.trim_ascii().is_empty() || !splitter.split(record, &mut places) {
                continue;
            }
            let texts = places.iter().map(|p| (splitter.text(record, p), p.quoted));
            if names.is_none() {
                let header = texts.clone().map(|(text, _)| String::from_utf8_lossy(&text).into_owned());
                names = Some(column_names(header.collect(), options.header));
                guesses = vec![Guess::Null; places.len()];
            }
            if std::mem::take(&mut header_pending) {
                continue;
            }
            for (guess, (text, quoted)) in guesses.iter_mut().zip(texts) {
                let null = (text.is_empty() && !quoted) || *text == *options.null_value.as_bytes();
                if !null {
                    *guess = merge(*guess, guess_of(&text, *guess, &converter, options));
                }
            }
        }
    }
    let names = names.ok_or_else(|| {
        Error::invalid("no schema can be inferred: the files hold no record")
            .hint("declare the columns with schema: {name: type, …}")
    })?;
    let field = |(name, guess): (String, Guess)| Field::new(name, type_of(guess, time_zone), true);
    Ok(Schema::new(names.into_iter().zip(guesses).map(field).collect::<Fields>()))
}

/// Empty names become `_c` and the position; names that come twice get their position behind them.
fn column_names(header: Vec<String>, named: bool) -> Vec<String> {
    if !named {
        return (0..header.len()).map(|i| format!("_c{i}")).collect();
    }
    let twice = |name: &String| header.iter().filter(|other| other.eq_ignore_ascii_case(name)).count() > 1;
    let name = |(i, name): (usize, &String)| match name.trim() {
        "" => format!("_c{i}"),
        _ if twice(name) => format!("{name}{i}"),
        _ => name.clone(),
    };
    header.iter().enumerate().map(name).collect()
}

/// The narrowest type of a text that is not narrower than what the column already is.
fn guess_of(text: &[u8], from: Guess, converter: &Converter, options: &CsvOptions) -> Guess {
    let integer = parse_i64(text);
    match integer {
        Some(n) if i32::try_from(n).is_ok() && from <= Guess::Double => return Guess::Int,
        Some(_) if from <= Guess::Double => return Guess::Long,
        _ => {}
    }
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if (19..=38).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) {
        return Guess::Decimal(digits.len() as u8);
    }
    if converter.double(text).is_some() {
        return Guess::Double;
    }
    if options.prefer_date && converter.day(text).is_some() && plain_date(text, options) {
        return Guess::Date;
    }
    if converter.instant(text, true).is_some() {
        return Guess::Timestamp;
    }
    if text.eq_ignore_ascii_case(b"true") || text.eq_ignore_ascii_case(b"false") {
        return Guess::Boolean;
    }
    Guess::Text
}

/// A date is only what has no time of day behind it.
fn plain_date(text: &[u8], options: &CsvOptions) -> bool {
    options.date_format.is_some() || !text.iter().any(|b| matches!(b, b':' | b'T'))
}

fn merge(a: Guess, b: Guess) -> Guess {
    match (a.min(b), a.max(b)) {
        (Guess::Null, other) => other,
        (Guess::Decimal(a), Guess::Decimal(b)) => Guess::Decimal(a.max(b)),
        (a, b) if a == b => a,
        (_, Guess::Decimal(digits)) => Guess::Decimal(digits.max(19)),
        (_, b @ (Guess::Int | Guess::Long | Guess::Double)) => b,
        (Guess::Date, Guess::Timestamp) => Guess::Timestamp,
        _ => Guess::Text,
    }
}

fn type_of(guess: Guess, time_zone: &str) -> DataType {
    match guess {
        Guess::Null | Guess::Text => DataType::Utf8,
        Guess::Int => DataType::Int32,
        Guess::Long => DataType::Int64,
        Guess::Decimal(digits) => DataType::Decimal128(digits, 0),
        Guess::Double => DataType::Float64,
        Guess::Date => DataType::Date32,
        Guess::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some(time_zone.into())),
        Guess::Boolean => DataType::Boolean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_core::types::columns_name;

    fn check(text: &str, options: &CsvOptions, expected: &str) {
        let schema = infer_csv(&[text.as_bytes()], options, "UTC");
        assert_eq!(
            schema.map_or_else(|e| e.message().to_owned(), |s| columns_name(s.fields())),
            expected,
            "{text}"
        );
    }

    #[test]
    fn infers_as_spark_does() {
        let header = CsvOptions { header: true, null_value: "NA".into(), ..CsvOptions::default() };
        check(
            "i,l,d,b,t,s,day,n,m\n1,3000000000,1.5,true,2026-01-01 10:00:00,x,2026-01-01,NA,1\nNA,1,2,FALSE,2026-01-01T10:00:00Z,1,2026-01-02,,x\n",
            &header,
            "i: int, l: long, d: double, b: boolean, t: timestamp, s: string, day: date, n: string, m: string",
        );
        check("1,x\n", &CsvOptions::default(), "_c0: int, _c1: string");
        check("a,,A\n1,2,3\n", &header, "a0: int, _c1: int, A2: int");
        check("a\n2026-01-01\n2026-01-01 10:00:00\n", &header, "a: timestamp");
        check("a\n12345678901234567890\n1\n", &header, "a: decimal(20,0)");
        check("a\n1\ntrue\n", &header, "a: string");
        check("\n", &header, "no schema can be inferred: the files hold no record");
    }
}
