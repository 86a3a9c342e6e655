//! Documents that are written like pipeline files but are none, such as test scripts: read here, so that their errors
//! look the same.
//!
//! The binary uses it. What the keys mean is its business.

use super::location::SourceText;
use super::node::{Node, Span};
use pelton_core::Result;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A YAML or JSON text in which every value knows where it stands.
#[derive(Debug)]
pub struct Document {
    root: Node,
    text: Arc<SourceText>,
}

impl Document {
    /// Reads it. `file_name` is for messages. Every error, here and later, is of kind `Invalid` and begins with
    /// `file:line:column`.
    pub fn read(text: &str, file_name: &str) -> Result<Self> {
        let source = Arc::new(SourceText::new(file_name, text, &[]));
        let root = Node::read(text).map_err(|(message, span)| source.error(span, message))?;
        Ok(Self { root, text: source })
    }

    /// The whole of it.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The text that it was read from, to tie errors to their place.
    pub fn text(&self) -> &Arc<SourceText> {
        &self.text
    }

    /// A part of it as a Rust type. Unknown keys are errors if the type denies them, and name the nearest right one.
    pub fn decode<T: DeserializeOwned>(&self, part: &Node) -> Result<T> {
        T::deserialize(part).map_err(|error| {
            let span = error.span.filter(|span| *span != Span::default()).unwrap_or(part.span());
            self.text.error(span, error.message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Clock {
        #[allow(dead_code, reason = "only read")]
        start: String,
    }

    fn message(text: &str) -> String {
        let document = Document::read(text, "s.yaml").expect("reads");
        let part = document.root().get("clock").expect("the key is there");
        let error = document.decode::<Clock>(part).expect_err("refused");
        error.message().lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn errors_of_a_part_have_their_place() {
        assert_eq!(
            message("a: 1\nclock: {strat: now}\n"),
            "s.yaml:2:9: there is no key 'strat' here; did you mean 'start'?"
        );
        assert_eq!(message("clock: {}\n"), "s.yaml:1:8: the key 'start' is missing here");
    }

    #[test]
    fn a_part_is_json_too() {
        let document = Document::read("rows: [{a: 1, b: [x, null, NaN, 1.5]}]\n", "s.yaml").expect("reads");
        assert_eq!(document.root().to_json().to_string(), r#"{"rows":[{"a":1,"b":["x",null,"NaN",1.5]}]}"#);
    }
}
