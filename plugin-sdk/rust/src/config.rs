//! The plugin's `config` from the pipeline file as a typed struct: `#[derive(pelton::Config)]`.
//!
//! All functions of a plugin get the same object, so they share one struct; unknown keys are refused.

use crate::json::Json;
use crate::types::did_you_mean;
use std::collections::BTreeMap;

/// A value of the configuration, or all of it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from the configuration",
    label = "not a type of a configuration value",
    note = "a function's reference parameter (other than `&Context`) is its configuration: a struct with \
            #[derive(pelton::Config)] of bool, numbers, String, Option<T>, Vec<T>, BTreeMap<String, T> and \
            such structs"
)]
pub trait Config: Sized + 'static {
    /// Reads a JSON value; `path` names it in messages.
    ///
    /// # Errors
    /// A message that names the key and what was expected.
    fn from_value(value: &Json, path: &str) -> Result<Self, String>;

    /// What stands for a key that is not there.
    ///
    /// # Errors
    /// If the key must be there.
    fn missing(path: &str) -> Result<Self, String> {
        Err(format!("the plugin's config needs '{path}'"))
    }

    /// Reads the text that the host hands over.
    ///
    /// # Errors
    /// As [`Self::from_value`], or if the text is not JSON.
    fn parse(text: &str) -> Result<Self, String> {
        let text = match text.trim() {
            "" => "{}",
            text => text,
        };
        let value = Json::parse(text).map_err(|at| format!("the plugin's config is not JSON (byte {at})"))?;
        Self::from_value(&value, "")
    }
}

/// A function without configuration ignores it: another function of the plugin may use it.
impl Config for () {
    fn from_value(_: &Json, _: &str) -> Result<Self, String> {
        Ok(())
    }
    fn parse(_: &str) -> Result<Self, String> {
        Ok(())
    }
}

fn expected<T>(what: &str, found: &Json, path: &str) -> Result<T, String> {
    let found = match found {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Integer(_) | Json::Number(_) => "a number",
        Json::Text(_) => "a text",
        Json::List(_) => "a list",
        Json::Object(_) => "an object",
    };
    match path {
        "" => Err(format!("the plugin's config must be {what} instead of {found}")),
        _ => Err(format!("'{path}' in the plugin's config must be {what} instead of {found}")),
    }
}

impl Config for bool {
    fn from_value(value: &Json, path: &str) -> Result<Self, String> {
        match value {
            Json::Bool(value) => Ok(*value),
            other => expected("true or false", other, path),
        }
    }
}

macro_rules! integers {
    ($($rust:ty),+) => {$(
        impl Config for $rust {
            fn from_value(value: &Json, path: &str) -> Result<Self, String> {
                let number = match value {
                    Json::Integer(number) => <$rust>::try_from(*number).ok(),
                    _ => None,
                };
                let what = concat!("a whole number that fits ", stringify!($rust));
                number.map_or_else(|| expected(what, value, path), Ok)
            }
        }
    )+};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64, usize);

impl Config for f64 {
    fn from_value(value: &Json, path: &str) -> Result<Self, String> {
        match value {
            Json::Number(number) => Ok(*number),
            Json::Integer(number) => Ok(*number as f64),
            other => expected("a number", other, path),
        }
    }
}

impl Config for String {
    fn from_value(value: &Json, path: &str) -> Result<Self, String> {
        match value {
            Json::Text(text) => Ok(text.clone()),
            other => expected("a text", other, path),
        }
    }
}

impl<T: Config> Config for Option<T> {
    fn from_value(value: &Json, path: &str) -> Result<Self, String> {
        match value {
            Json::Null => Ok(None),
            value => T::from_value(value, path).map(Some),
        }
    }
    fn missing(_: &str) -> Result<Self, String> {
        Ok(None)
    }
}

impl<T: Config> Config for Vec<T> {
    fn from_value(value: &Json, path: &str) -> Result<Self, String> {
        match value {
            Json::List(items) => {
                let item = |(i, item)| T::from_value(item, &format!("{path}[{i}]"));
                items.iter().enumerate().map(item).collect()
            }
            other => expected("a list", other, path),
        }
    }
}

impl<T: Config> Config for BTreeMap<String, T> {
    fn from_value(value: &Json, path: &str) -> Result<Self, String> {
        match value {
            Json::Object(entries) => {
                let entry = |(key, value): (&String, &Json)| {
                    Ok((key.clone(), T::from_value(value, &join(path, key))?))
                };
                entries.iter().map(entry).collect()
            }
            other => expected("an object", other, path),
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Reads an object key by key; used by `#[derive(Config)]`.
pub struct ObjectReader<'v> {
    entries: &'v BTreeMap<String, Json>,
    path: &'v str,
}

impl<'v> ObjectReader<'v> {
    /// Refuses what is no object, and keys other than these.
    ///
    /// # Errors
    /// A message that names the key and the nearest right one.
    pub fn new(value: &'v Json, path: &'v str, keys: &[&str]) -> Result<Self, String> {
        let Json::Object(entries) = value else { return expected("an object", value, path) };
        match entries.keys().find(|key| !keys.contains(&key.as_str())) {
            None => Ok(Self { entries, path }),
            Some(unknown) => {
                let near = did_you_mean(unknown, keys.iter().copied());
                Err(format!("the plugin's config has no key '{}'{near}", join(path, unknown)))
            }
        }
    }

    /// The value of a key, if it is there.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn get<T: Config>(&self, key: &str) -> Result<Option<T>, String> {
        let path = join(self.path, key);
        self.entries.get(key).map(|value| T::from_value(value, &path)).transpose()
    }

    /// The value of a key that must be there (or whose type has something that stands for nothing).
    ///
    /// # Errors
    /// If it is not there or of another type.
    pub fn need<T: Config>(&self, key: &str) -> Result<T, String> {
        self.get(key)?.map_or_else(|| T::missing(&join(self.path, key)), Ok)
    }
}

/// The text of one of several words; used by `#[derive(Config)]` on enums.
///
/// # Errors
/// If it is another one; the nearest is named.
pub fn word<'v>(value: &'v Json, path: &str, words: &[&str]) -> Result<&'v str, String> {
    match value {
        Json::Text(text) if words.contains(&text.as_str()) => Ok(text),
        Json::Text(text) => {
            let near = did_you_mean(text, words.iter().copied());
            Err(format!("'{path}' in the plugin's config cannot be '{text}'{near}"))
        }
        other => expected("a text", other, path),
    }
}
