//! The options of a format as the pipeline file writes them: Spark's names in snake case.
//! Every format reads those it knows and refuses the rest by name.

use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// Options by name: booleans, numbers or strings.
pub type OptionMap = BTreeMap<String, Value>;

/// Reads options one by one and remembers which it was asked for.
pub(crate) struct Bag<'a> {
    format: &'static str,
    map: &'a OptionMap,
    known: Vec<&'static str>,
}

impl<'a> Bag<'a> {
    pub(crate) fn new(format: &'static str, map: &'a OptionMap) -> Self {
        Self { format, map, known: Vec::new() }
    }

    fn get(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, wanted: &str, found: &Value) -> Error {
        Error::invalid(format!("option '{name}' of format {} must be {wanted}, not {found}", self.format))
    }

    /// `true`, `false`, also as words.
    pub(crate) fn flag(&mut self, name: &'static str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(word)) if word.eq_ignore_ascii_case("true") => Ok(true),
            Some(Value::String(word)) if word.eq_ignore_ascii_case("false") => Ok(false),
            Some(found) => Err(self.wrong(name, "true or false", found)),
        }
    }

    /// A text; numbers and booleans are taken as they are written.
    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(value.to_string())),
            Some(found) => Err(self.wrong(name, "a text", found)),
        }
    }

    /// A single ASCII character; `\t` and Spark's other escapes are understood. Empty: none.
    pub(crate) fn character(&mut self, name: &'static str) -> Result<Option<Option<u8>>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let plain = match text.as_str() {
            "\\t" => "\t",
            "\\\\" => "\\",
            "\\0" | "\0" => "",
            other => other,
        };
        match plain.as_bytes() {
            [] => Ok(Some(None)),
            [byte] if byte.is_ascii() => Ok(Some(Some(*byte))),
            _ => Err(self.wrong(name, "one ASCII character", &Value::String(text))),
        }
    }

    /// A whole number between two bounds.
    pub(crate) fn count(&mut self, name: &'static str, least: usize, most: usize) -> Result<Option<usize>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse() {
            Ok(count) if (least..=most).contains(&count) => Ok(Some(count)),
            _ => Err(self.wrong(name, &format!("a number from {least} to {most}"), &Value::String(text))),
        }
    }

    /// Only one value is understood; anything else is refused and told so.
    pub(crate) fn only(&mut self, name: &'static str, accepted: &[&str]) -> Result<()> {
        match self.text(name)? {
            Some(text) if !accepted.iter().any(|a| a.eq_ignore_ascii_case(&text)) => {
                Err(self.wrong(name, &accepted.join(" or "), &Value::String(text)))
            }
            _ => Ok(()),
        }
    }

    /// Refuses every option that nobody asked for.
    pub(crate) fn finish(self) -> Result<()> {
        match self.map.keys().find(|name| !self.known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) if name == "mode" => Err(Error::invalid("there is no option 'mode'").hint(
                "what becomes of malformed records is said by on_malformed: fail, drop, null or dead_letter",
            )),
            Some(name) => Err(Error::invalid(format!(
                "format {} has no option '{name}'{}",
                self.format,
                did_you_mean(name, self.known.iter().copied())
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unknown_option_is_refused_with_the_nearest() {
        let map = OptionMap::from([("headr".to_owned(), json!(true))]);
        let mut bag = Bag::new("csv", &map);
        assert!(!bag.flag("header", false).unwrap());
        let error = bag.finish().unwrap_err();
        assert_eq!(error.message(), "format csv has no option 'headr'; did you mean 'header'?");
    }

    #[test]
    fn a_wrong_type_is_named() {
        let map = OptionMap::from([("header".to_owned(), json!([1])), ("sep".to_owned(), json!("||"))]);
        let mut bag = Bag::new("csv", &map);
        let error = bag.flag("header", false).unwrap_err();
        assert_eq!(error.message(), "option 'header' of format csv must be true or false, not [1]");
        let error = bag.character("sep").unwrap_err();
        assert_eq!(error.message(), "option 'sep' of format csv must be one ASCII character, not \"||\"");
    }
}
