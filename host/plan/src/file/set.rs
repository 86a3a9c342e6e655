//! `--set KEY=VALUE`: changes to the tree of a pipeline file before it is read.

use super::node::{Key, Node, Span, Value};
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};

/// Puts the value at the path, making maps on the way that are not there. `index` counts the `--set`s.
pub(super) fn apply(tree: &mut Node, set: &str, index: usize) -> Result<()> {
    let fail = |what: String| Error::invalid(format!("--set {set}: {what}"));
    let (path, text) = set.split_once('=').ok_or_else(|| {
        fail("expected KEY=VALUE, for example 'sources.flights.max_files_per_trigger=1'".into())
    })?;
    let span = Span { line: 0, column: u32::try_from(index + 1).unwrap_or(u32::MAX), length: 0 };
    let mut value =
        Node::read(text).map_err(|(message, _)| fail(format!("the value is not YAML: {message}")))?;
    place(&mut value, span);
    let keys: Vec<&str> = path.trim().split('.').collect();
    if keys.iter().any(|key| key.is_empty()) {
        return Err(fail("a key is empty; keys are separated by single dots".into()));
    }
    let mut node = tree;
    for key in &keys {
        node = descend(node, key, span).map_err(fail)?;
    }
    *node = value;
    Ok(())
}

fn descend<'a>(node: &'a mut Node, key: &str, span: Span) -> Result<&'a mut Node, String> {
    if node.value == Value::Null {
        node.value = Value::Map(Vec::new());
    }
    let kind = node.kind();
    match &mut node.value {
        Value::Map(entries) => {
            let at = entries.iter().position(|(k, _)| k.text == key).unwrap_or_else(|| {
                let key = Key { text: key.to_owned(), span };
                entries.push((key, Node { span, value: Value::Null }));
                entries.len() - 1
            });
            Ok(&mut entries[at].1)
        }
        Value::List(items) => {
            let count = items.len();
            let at: Option<usize> = key.parse().ok();
            at.and_then(|at| items.get_mut(at))
                .ok_or_else(|| format!("'{key}' is not one of the list's {count} items, which count from 0"))
        }
        _ => Err(format!("'{key}' cannot be set inside {kind}{}", did_you_mean(key, []))),
    }
}

fn place(node: &mut Node, span: Span) {
    node.span = span;
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| place(item, span)),
        Value::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
            key.span = span;
            place(value, span);
        }),
        _ => {}
    }
}
