//! Hides personal data, whatever the schema: columns are dropped, masked or hashed, patterns are scrubbed from
//! all text. See the README beside it.
//!
//! It looks at top-level columns only; a nested column can be dropped, not looked into.

use hmac::{Hmac, Mac};
use pelton::dynamic::{AnyBuilder, Columns, Rows, Transform};
use pelton::{Config, Context, DataType, Error, Field, Schema};
use regex_lite::Regex;
use sha2::Sha256;

/// The plugin's configuration.
#[derive(Config)]
pub struct Settings {
    #[config(default)]
    drop: Vec<String>,
    #[config(default)]
    mask: Vec<String>,
    #[config(default)]
    visible: usize,
    #[config(default)]
    hash: Vec<String>,
    key: Option<String>,
    #[config(default)]
    scrub: Vec<String>,
    #[config(default = "***")]
    replacement: String,
}

/// What becomes of an input column that stays.
enum Treatment {
    Keep,
    /// Letters and digits become `*`; what is no text becomes null.
    Mask,
    Hash,
    Scrub,
}

/// An output column: where it comes from and what is done to it.
struct Kept {
    input: usize,
    treatment: Treatment,
}

/// The transform function `redact`.
pub struct Redact {
    columns: Vec<Kept>,
    visible: usize,
    hmac: Option<Hmac<Sha256>>,
    patterns: Vec<Regex>,
    replacement: String,
}

impl Transform for Redact {
    const NAME: &'static str = "redact";
    const DOC: &'static str = "Drops, masks and hashes columns, scrubs patterns from text; any schema.";
    type Config = Settings;

    fn open(settings: Settings, input: &Schema) -> Result<(Self, Schema), String> {
        check_names(&settings, input)?;
        let hmac = match (&settings.key, settings.hash.is_empty()) {
            (_, true) => None,
            (Some(key), false) if !key.is_empty() => Some(hmac(key)?),
            _ => return Err("'hash' needs a secret 'key': without one, hashes can be guessed".to_owned()),
        };
        let patterns = settings.scrub.iter().map(|p| regex(p)).collect::<Result<Vec<_>, _>>()?;
        let mut columns = Vec::new();
        let mut output = Vec::new();
        for (i, field) in input.fields.iter().enumerate() {
            if settings.drop.contains(&field.name) {
                continue;
            }
            let (treatment, field) = treat(&settings, field)?;
            columns.push(Kept { input: i, treatment });
            output.push(field);
        }
        let replacement = settings.replacement;
        let redact = Redact { columns, visible: settings.visible, hmac, patterns, replacement };
        Ok((redact, Schema::new(output)))
    }

    fn process(&mut self, _: &Context, rows: &Rows<'_>, output: &mut Columns) -> Result<(), Error> {
        for (i, kept) in self.columns.iter().enumerate() {
            let (from, to) = (&rows.columns()[kept.input], output.column(i));
            match kept.treatment {
                Treatment::Keep => to.extend_from(from),
                Treatment::Mask => each_text(from, to, |text| mask(text, self.visible)),
                Treatment::Hash => self.hash(from, to),
                Treatment::Scrub => each_text(from, to, |text| self.scrub(text)),
            }
        }
        Ok(())
    }
}

impl Redact {
    fn hash(&self, from: &Rows<'_>, to: &mut AnyBuilder) {
        let Some(hmac) = &self.hmac else { return };
        for row in 0..from.len() {
            let number = from.integer(row).map(|number| number.to_string());
            match from.bytes(row).or(number.as_deref().map(str::as_bytes)) {
                Some(value) => to.push_bytes(&hex(&hmac.clone().chain_update(value).finalize().into_bytes())),
                None => to.push_null(),
            }
        }
    }

    fn scrub(&self, text: &str) -> String {
        let mut scrubbed = text.to_owned();
        for pattern in &self.patterns {
            if pattern.is_match(&scrubbed) {
                scrubbed =
                    pattern.replace_all(&scrubbed, regex_lite::NoExpand(&self.replacement)).into_owned();
            }
        }
        scrubbed
    }
}

fn treat(settings: &Settings, field: &Field) -> Result<(Treatment, Field), String> {
    let is_text = field.data_type == DataType::Utf8;
    let name = &field.name;
    if settings.hash.contains(name) {
        return match field.data_type {
            DataType::Utf8
            | DataType::Binary
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64 => Ok((Treatment::Hash, Field::new(name, DataType::Utf8, field.nullable))),
            _ => Err(format!(
                "column '{name}' is of type {}: only text, binary and whole numbers can be hashed; mask or drop it",
                field.data_type
            )),
        };
    }
    Ok(match settings.mask.contains(name) {
        true => (Treatment::Mask, Field::new(name, field.data_type.clone(), field.nullable || !is_text)),
        false if is_text && !settings.scrub.is_empty() => (Treatment::Scrub, field.clone()),
        false => (Treatment::Keep, field.clone()),
    })
}

/// Every name in the configuration is a column, and has one treatment: a misspelt name must not leave data open.
fn check_names(settings: &Settings, input: &Schema) -> Result<(), String> {
    let mut seen: Vec<&String> = Vec::new();
    for name in settings.drop.iter().chain(&settings.mask).chain(&settings.hash) {
        if !input.fields.iter().any(|field| field.name == *name) {
            let names: Vec<&str> = input.fields.iter().map(|field| field.name.as_str()).collect();
            return Err(format!("there is no column '{name}' to redact; there are: {}", names.join(", ")));
        }
        if seen.contains(&name) {
            return Err(format!("column '{name}' is named twice: drop it, mask it or hash it"));
        }
        seen.push(name);
    }
    Ok(())
}

fn hmac(key: &str) -> Result<Hmac<Sha256>, String> {
    Hmac::new_from_slice(key.as_bytes()).map_err(|e| format!("'key' cannot be used: {e}"))
}

fn regex(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|e| format!("'{pattern}' in 'scrub' is no regular expression: {e}"))
}

/// Nulls stay null; what is no text becomes null.
fn each_text(from: &Rows<'_>, to: &mut AnyBuilder, change: impl Fn(&str) -> String) {
    for row in 0..from.len() {
        match from.text(row) {
            Some(text) => to.push_bytes(change(text).as_bytes()),
            None => to.push_null(),
        }
    }
}

/// Letters and digits become `*`, except in the last `visible` characters; what separates them stays.
fn mask(text: &str, visible: usize) -> String {
    let hidden = text.chars().count().saturating_sub(visible);
    let hide = |(i, c): (usize, char)| if i < hidden && c.is_alphanumeric() { '*' } else { c };
    text.chars().enumerate().map(hide).collect()
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]).collect()
}

pelton::plugin!(functions: [Redact]);

#[cfg(test)]
mod tests {
    use super::*;
    use pelton::Row;
    use pelton::testing::function;

    #[derive(Row, Clone)]
    struct Customer<'a> {
        id: i64,
        name: Option<&'a str>,
        card: &'a str,
        note: &'a str,
        balance: f64,
    }

    const ANNA: Customer<'static> = Customer {
        id: 7,
        name: Some("Anna Berg"),
        card: "4111-1111-1111-1234",
        note: "write to anna@example.org or $0",
        balance: 12.5,
    };

    fn error(config: &str) -> String {
        match function::<Redact>().config(config).rows([ANNA]) {
            Ok(_) => panic!("{config} is refused"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn masks_all_but_the_visible_end() {
        #[derive(Row, Debug, PartialEq)]
        struct Masked<'a> {
            name: Option<&'a str>,
            card: &'a str,
            balance: Option<f64>,
        }
        let answer = function::<Redact>()
            .config(r#"{"mask": ["card", "name", "balance"], "visible": 4}"#)
            .rows([ANNA, Customer { name: None, ..ANNA }])
            .expect("suits");
        let masked = |name| Masked { name, card: "****-****-****-1234", balance: None };
        assert_eq!(answer.rows::<Masked>().expect("reads"), [masked(Some("**** Berg")), masked(None)]);
    }

    #[test]
    fn hashes_are_hmac_sha256_of_the_text() {
        #[derive(Row)]
        struct Hashed<'a> {
            id: &'a str,
        }
        let answer = function::<Redact>()
            .config(r#"{"hash": ["id"], "key": "k"}"#)
            .rows([ANNA, Customer { id: 8, ..ANNA }])
            .expect("suits");
        let hashed: Vec<Hashed> = answer.rows().expect("reads");
        // printf 7 | openssl dgst -sha256 -hmac k
        assert_eq!(hashed[0].id, "9c737d163bcd1315bb695b00262e3ba4487ae2670bb2b0e6b8ee7f6ad354215a");
        assert_ne!(hashed[0].id, hashed[1].id);
    }

    #[test]
    fn scrubs_patterns_and_takes_the_replacement_literally() {
        #[derive(Row)]
        struct Note<'a> {
            note: &'a str,
        }
        let answer = function::<Redact>()
            .config(r#"{"scrub": ["[\\w.]+@[\\w.]+"], "replacement": "<$0>"}"#)
            .rows([ANNA])
            .expect("suits");
        assert_eq!(answer.rows::<Note>().expect("reads")[0].note, "write to <$0> or $0");
    }

    #[test]
    fn dropped_columns_are_gone() {
        let answer =
            function::<Redact>().config(r#"{"drop": ["card", "note"]}"#).rows([ANNA]).expect("suits");
        let names: Vec<&str> = answer.schema().fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["id", "name", "balance"]);
    }

    #[test]
    fn a_misspelt_column_is_an_error_and_not_a_leak() {
        assert_eq!(
            error(r#"{"mask": ["Card"]}"#),
            "there is no column 'Card' to redact; there are: id, name, card, note, balance"
        );
        assert!(error(r#"{"hash": ["id"]}"#).contains("'key'"));
        assert!(error(r#"{"mask": ["card"], "drop": ["card"]}"#).contains("twice"));
        assert!(error(r#"{"hash": ["balance"], "key": "k"}"#).contains("double"));
        assert!(error(r#"{"masks": []}"#).contains("did you mean 'mask'"));
        assert!(error(r#"{"scrub": ["("]}"#).contains("regular expression"));
    }
}
