//! The options of format `csv`: Spark's names in snake case.

use super::split::Splitter;
use crate::decode::options::{Bag, OptionMap};
use crate::decode::pattern::Pattern;
use pelton_core::{Error, Result};

/// How CSV is read. [`CsvOptions::default`] is Spark's default.
#[derive(Debug, Clone, PartialEq)]
pub struct CsvOptions {
    /// The first record of each file names the columns and is no row.
    pub header: bool,
    /// Between fields.
    pub sep: u8,
    /// Around fields; `None`: quotes mean nothing.
    pub quote: Option<u8>,
    /// Before a quote in quotes.
    pub escape: Option<u8>,
    /// A line that starts with it is no record.
    pub comment: Option<u8>,
    /// The text of a null, besides the empty field.
    pub null_value: String,
    /// The text that `""` stands for.
    pub empty_value: String,
    /// The text of a float that is not a number.
    pub nan_value: String,
    /// The text of infinity.
    pub positive_inf: String,
    /// The text of minus infinity.
    pub negative_inf: String,
    /// White space before a field does not count.
    pub ignore_leading_white_space: bool,
    /// White space behind a field does not count.
    pub ignore_trailing_white_space: bool,
    /// Pattern of dates; `None`: as CAST reads them.
    pub date_format: Option<String>,
    /// Pattern of timestamps; `None`: as CAST reads them.
    pub timestamp_format: Option<String>,
    /// Pattern of timestamps without time zone; `None`: as CAST reads them.
    pub timestamp_ntz_format: Option<String>,
    /// Headers do not count: columns are taken by position. Otherwise a header that differs is an error.
    pub enforce_schema: bool,
    /// Line breaks may stand in quotes.
    pub multi_line: bool,
    /// Inference: texts that read as dates are dates.
    pub prefer_date: bool,
    /// The column that keeps malformed records.
    pub column_name_of_corrupt_record: String,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            header: false,
            sep: b',',
            quote: Some(b'"'),
            escape: Some(b'\\'),
            comment: None,
            null_value: String::new(),
            empty_value: String::new(),
            nan_value: "NaN".into(),
            positive_inf: "Inf".into(),
            negative_inf: "-Inf".into(),
            ignore_leading_white_space: false,
            ignore_trailing_white_space: false,
            date_format: None,
            timestamp_format: None,
            timestamp_ntz_format: None,
            enforce_schema: true,
            multi_line: false,
            prefer_date: true,
            column_name_of_corrupt_record: "_corrupt_record".into(),
        }
    }
}

impl CsvOptions {
    /// Reads the options of the pipeline file. Unknown ones and wrong types are errors of kind `Invalid`.
    pub fn from_map(map: &OptionMap) -> Result<Self> {
        let default = Self::default();
        let mut bag = Bag::new("csv", map);
        let sep = bag.character("sep")?.or(bag.character("delimiter")?);
        let mut text = |name, default: String| bag.text(name).map(|found| found.unwrap_or(default));
        let options = Self {
            null_value: text("null_value", default.null_value)?,
            empty_value: text("empty_value", default.empty_value)?,
            nan_value: text("nan_value", default.nan_value)?,
            positive_inf: text("positive_inf", default.positive_inf)?,
            negative_inf: text("negative_inf", default.negative_inf)?,
            column_name_of_corrupt_record: text(
                "column_name_of_corrupt_record",
                default.column_name_of_corrupt_record,
            )?,
            date_format: bag.text("date_format")?,
            timestamp_format: bag.text("timestamp_format")?,
            timestamp_ntz_format: bag.text("timestamp_ntz_format")?,
            header: bag.flag("header", false)?,
            sep: sep
                .unwrap_or(Some(default.sep))
                .ok_or_else(|| Error::invalid("option 'sep' must not be empty"))?,
            quote: bag.character("quote")?.unwrap_or(default.quote),
            escape: bag.character("escape")?.unwrap_or(default.escape),
            comment: bag.character("comment")?.unwrap_or(default.comment),
            ignore_leading_white_space: bag.flag("ignore_leading_white_space", false)?,
            ignore_trailing_white_space: bag.flag("ignore_trailing_white_space", false)?,
            enforce_schema: bag.flag("enforce_schema", true)?,
            multi_line: bag.flag("multi_line", false)?,
            prefer_date: bag.flag("prefer_date", true)?,
        };
        bag.only("encoding", &["utf-8", "utf8"])?;
        bag.only("line_sep", &["\n"])?;
        bag.finish()?;
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<()> {
        let formats = [&self.date_format, &self.timestamp_format, &self.timestamp_ntz_format];
        formats.into_iter().flatten().try_for_each(|format| Pattern::parse(format).map(drop))?;
        if Some(self.sep) == self.quote || self.sep == b'\n' {
            return Err(Error::invalid("option 'sep' must differ from the quote and from the line break"));
        }
        Ok(())
    }

    pub(crate) fn splitter(&self) -> Splitter {
        Splitter {
            sep: self.sep,
            quote: self.quote,
            escape: self.escape,
            comment: self.comment,
            trim_start: self.ignore_leading_white_space,
            trim_end: self.ignore_trailing_white_space,
            multi_line: self.multi_line,
        }
    }
}
