//! Made-up bids on an auction site, like those of the Nexmark benchmark: for measuring. The same number of rows
//! gives the same bytes on every machine.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Rows in a file; the last one may have fewer.
const ROWS_PER_FILE: u64 = 250_000;
/// Events a second of event time.
const ROWS_PER_SECOND: u64 = 10_000;
/// 2026-01-01T00:00:00Z.
const START_SECONDS: u64 = 1_767_225_600;
const CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];

/// The columns, as the pipelines declare them.
pub const BID_SCHEMA: &str =
    "auction long, bidder long, price long, channel string, url string, date_time timestamp, extra string";

/// A text format of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BidFormat {
    /// A JSON object a line, about 240 bytes.
    Json,
    /// Comma-separated, with a header.
    Csv,
}

impl BidFormat {
    /// The format's name in a pipeline file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
        }
    }
}

/// Writes so many bids to `part-000.json` and so on; returns the bytes written.
pub fn write_bids(folder: &Path, format: BidFormat, rows: u64) -> Result<u64> {
    std::fs::create_dir_all(folder)?;
    let mut bytes = 0;
    for first in (0..rows).step_by(usize::try_from(ROWS_PER_FILE)?) {
        let path = folder.join(format!("part-{:03}.{}", first / ROWS_PER_FILE, format.as_str()));
        let mut file = BufWriter::new(File::create(&path).with_context(|| path.display().to_string())?);
        let mut line = String::new();
        if format == BidFormat::Csv {
            line.push_str("auction,bidder,price,channel,url,date_time,extra\n");
        }
        for row in first..(first + ROWS_PER_FILE).min(rows) {
            Bid::number(row).write(format, &mut line)?;
            file.write_all(line.as_bytes())?;
            bytes += line.len() as u64;
            line.clear();
        }
        file.flush()?;
    }
    Ok(bytes)
}

struct Bid {
    auction: u64,
    bidder: u64,
    price: u64,
    channel: &'static str,
    item: u64,
    time_ms: u64,
    extra: [u64; 3],
}

impl Bid {
    fn number(row: u64) -> Self {
        let mut chance = Chance(row.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d);
        Self {
            auction: 1000 + chance.below(10_000),
            bidder: 1000 + chance.below(100_000),
            price: 100 + chance.below(100_000),
            channel: CHANNELS[chance.below(4) as usize],
            item: chance.below(1_000_000),
            time_ms: START_SECONDS * 1000 + row * 1000 / ROWS_PER_SECOND,
            extra: [chance.next(), chance.next(), chance.next()],
        }
    }

    fn write(&self, format: BidFormat, out: &mut String) -> std::fmt::Result {
        let Self { auction, bidder, price, channel, item, extra: [a, b, c], .. } = self;
        let url = format_args!("https://www.nexmark.com/item/{item:06}/item.htm?query=1").to_string();
        let extra = format_args!("{a:016x}{b:016x}{c:016x}").to_string();
        let time = clock_text(self.time_ms);
        match format {
            BidFormat::Json => writeln!(
                out,
                "{{\"auction\":{auction},\"bidder\":{bidder},\"price\":{price},\"channel\":\"{channel}\",\
                 \"url\":\"{url}\",\"date_time\":\"{time}\",\"extra\":\"{extra}\"}}"
            ),
            BidFormat::Csv => writeln!(out, "{auction},{bidder},{price},{channel},{url},{time},{extra}"),
        }
    }
}

/// A time of the first of January 2026; the rows of a benchmark do not last longer than a day.
fn clock_text(time_ms: u64) -> String {
    let ms = time_ms - START_SECONDS * 1000;
    let (day, hour, minute) = (ms / 86_400_000 + 1, ms / 3_600_000 % 24, ms / 60_000 % 60);
    format!("2026-01-{day:02}T{hour:02}:{minute:02}:{:02}.{:03}Z", ms / 1000 % 60, ms % 1000)
}

/// SplitMix64: small, fast, the same everywhere.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bids_are_json_of_about_240_bytes_and_the_same_each_time() -> Result<()> {
        let mut line = String::new();
        Bid::number(1_234_567).write(BidFormat::Json, &mut line)?;
        let value: serde_json::Value = serde_json::from_str(&line)?;
        assert_eq!(value["date_time"], "2026-01-01T00:02:03.456Z");
        assert!((200..280).contains(&line.len()), "{} bytes", line.len());
        let mut again = String::new();
        Bid::number(1_234_567).write(BidFormat::Json, &mut again)?;
        assert_eq!(line, again);
        Ok(())
    }
}
