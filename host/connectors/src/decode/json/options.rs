//! The options of format `json`: Spark's names in snake case.

use super::convert::Converter;
use super::lenient::Lenience;
use crate::decode::options::{Bag, OptionMap};
use crate::decode::pattern::Pattern;
use crate::decode::time::Zone;
use pelton_core::Result;

/// How JSON is read. [`JsonOptions::default`] is Spark's default for files.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonOptions {
    /// Pattern of dates; `None`: as CAST reads them.
    pub date_format: Option<String>,
    /// Pattern of timestamps; `None`: as CAST reads them.
    pub timestamp_format: Option<String>,
    /// Pattern of timestamps without time zone; `None`: as CAST reads them.
    pub timestamp_ntz_format: Option<String>,
    /// `NaN`, `Infinity`, `INF` and their like are numbers, with quotes and without.
    pub allow_non_numeric_numbers: bool,
    /// Comments as in Java.
    pub allow_comments: bool,
    /// Names of fields without quotes.
    pub allow_unquoted_field_names: bool,
    /// Single quotes do as double quotes do.
    pub allow_single_quotes: bool,
    /// `007` is 7.
    pub allow_numeric_leading_zeros: bool,
    /// A backslash may stand before any character.
    pub allow_backslash_escaping_any_character: bool,
    /// Control characters may stand in strings (line feeds still end the record).
    pub allow_unquoted_control_chars: bool,
    /// Inference: every value that is not an object or an array is a string.
    pub primitives_as_string: bool,
    /// Inference: fractions are decimals where they fit.
    pub prefers_decimal: bool,
    /// Inference: strings that read as timestamps are timestamps.
    pub infer_timestamp: bool,
    /// Inference: columns that are always null or empty are left out.
    pub drop_field_if_all_null: bool,
    /// The column that keeps malformed records.
    pub column_name_of_corrupt_record: String,
    /// Not an option of the file: an array at the top gives a row for each element. Spark's files do so.
    pub arrays_are_rows: bool,
    /// Not an option of the file: numbers, objects and arrays go into a string column as they are written.
    /// Spark does so for files; `from_json` writes them compactly instead.
    pub exact_strings: bool,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self {
            date_format: None,
            timestamp_format: None,
            timestamp_ntz_format: None,
            allow_non_numeric_numbers: true,
            allow_comments: false,
            allow_unquoted_field_names: false,
            allow_single_quotes: true,
            allow_numeric_leading_zeros: false,
            allow_backslash_escaping_any_character: false,
            allow_unquoted_control_chars: false,
            primitives_as_string: false,
            prefers_decimal: false,
            infer_timestamp: false,
            drop_field_if_all_null: false,
            column_name_of_corrupt_record: "_corrupt_record".into(),
            arrays_are_rows: true,
            exact_strings: true,
        }
    }
}

impl JsonOptions {
    /// Reads the options of the pipeline file. Unknown ones and wrong types are errors of kind `Invalid`.
    pub fn from_map(map: &OptionMap) -> Result<Self> {
        let default = Self::default();
        let mut bag = Bag::new("json", map);
        let options = Self {
            date_format: bag.text("date_format")?,
            timestamp_format: bag.text("timestamp_format")?,
            timestamp_ntz_format: bag.text("timestamp_ntz_format")?,
            allow_non_numeric_numbers: bag.flag("allow_non_numeric_numbers", true)?,
            allow_comments: bag.flag("allow_comments", false)?,
            allow_unquoted_field_names: bag.flag("allow_unquoted_field_names", false)?,
            allow_single_quotes: bag.flag("allow_single_quotes", true)?,
            allow_numeric_leading_zeros: bag.flag("allow_numeric_leading_zeros", false)?,
            allow_backslash_escaping_any_character: bag
                .flag("allow_backslash_escaping_any_character", false)?,
            allow_unquoted_control_chars: bag.flag("allow_unquoted_control_chars", false)?,
            primitives_as_string: bag.flag("primitives_as_string", false)?,
            prefers_decimal: bag.flag("prefers_decimal", false)?,
            infer_timestamp: bag.flag("infer_timestamp", false)?,
            drop_field_if_all_null: bag.flag("drop_field_if_all_null", false)?,
            column_name_of_corrupt_record: bag
                .text("column_name_of_corrupt_record")?
                .unwrap_or(default.column_name_of_corrupt_record),
            ..default
        };
        bag.only("encoding", &["utf-8", "utf8"])?;
        bag.only("line_sep", &["\n"])?;
        bag.only("multi_line", &["false"])?;
        bag.finish()?;
        options.converter("UTC")?;
        Ok(options)
    }

    pub(super) fn lenience(&self) -> Lenience {
        Lenience {
            comments: self.allow_comments,
            unquoted_names: self.allow_unquoted_field_names,
            single_quotes: self.allow_single_quotes,
            leading_zeros: self.allow_numeric_leading_zeros,
            any_escape: self.allow_backslash_escaping_any_character,
            control_characters: self.allow_unquoted_control_chars,
        }
    }

    pub(super) fn converter(&self, time_zone: &str) -> Result<Converter> {
        let pattern = |text: &Option<String>| text.as_deref().map(Pattern::parse).transpose();
        Ok(Converter {
            zone: Zone::of_session(time_zone)?,
            date: pattern(&self.date_format)?,
            timestamp: pattern(&self.timestamp_format)?,
            timestamp_ntz: pattern(&self.timestamp_ntz_format)?,
            non_numeric: self.allow_non_numeric_numbers,
            exact: self.exact_strings,
        })
    }
}
