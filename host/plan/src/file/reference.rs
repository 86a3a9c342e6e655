//! The Markdown reference of all keys, made from the same types that read the file.

use super::PipelineFile;
use serde_json::Value;
use std::fmt::Write;

/// All keys of the pipeline file with type, default and meaning, as Markdown.
pub fn reference_markdown() -> String {
    let schema = PipelineFile::json_schema();
    let mut out = String::from("# Pipeline file\n\n");
    out.push_str(text(&schema, "description"));
    out.push_str("\n\nThe file is YAML or JSON. Unknown keys are errors.\n");
    let mut page = Page { schema: &schema, out, queue: vec!["".to_owned()], done: Vec::new() };
    page.write();
    page.out
}

struct Page<'a> {
    schema: &'a Value,
    out: String,
    queue: Vec<String>,
    done: Vec<String>,
}

impl Page<'_> {
    /// The file's own keys first, then every type in the order in which it is first mentioned.
    fn write(&mut self) {
        let mut at = 0;
        while let Some(name) = self.queue.get(at).cloned() {
            at += 1;
            if self.done.contains(&name) {
                continue;
            }
            self.done.push(name.clone());
            let schema = self.schema;
            if name.is_empty() {
                self.out.push_str("\n## Top level\n\n");
                self.keys(schema);
            } else if let Some(definition) = schema["$defs"].get(&name) {
                self.definition(&name, definition);
            }
        }
    }

    fn definition(&mut self, name: &str, definition: &Value) {
        let _ = write!(self.out, "\n## {name}\n\n{}\n\n", text(definition, "description"));
        let variants = ["oneOf", "anyOf"].iter().find_map(|key| definition[*key].as_array());
        match variants {
            Some(variants) => variants.iter().for_each(|variant| self.variant(variant)),
            None if definition["properties"].is_object() => self.keys(definition),
            None => self.words(definition),
        }
    }

    /// A variant of an enum: a word, a kind of value, or a set of keys chosen by `connector`.
    fn variant(&mut self, variant: &Value) {
        if let Some(connector) = variant["properties"]["connector"]["const"].as_str() {
            let _ = write!(self.out, "\n### connector: {connector}\n\n{}\n\n", text(variant, "description"));
            let resolved = variant["$ref"].as_str().and_then(|r| self.resolve(r)).unwrap_or(variant).clone();
            self.keys(&resolved);
            return;
        }
        if variant["const"].is_string() || variant["enum"].is_array() {
            self.words(variant);
            return;
        }
        let shown = match variant["properties"].as_object().filter(|_| variant["$ref"].is_null()) {
            Some(keys) => {
                let keys = keys.iter().map(|(key, value)| format!("{key}: {}", type_text(value)));
                format!("{{{}}}", keys.collect::<Vec<_>>().join(", "))
            }
            None => type_text(variant),
        };
        let _ = writeln!(self.out, "- {shown} — {}", one_line(text(variant, "description")));
        self.mention(variant);
    }

    fn words(&mut self, definition: &Value) {
        let words =
            definition["enum"].as_array().cloned().unwrap_or_else(|| vec![definition["const"].clone()]);
        for word in words.iter().filter_map(Value::as_str) {
            let _ = writeln!(self.out, "- `{word}` — {}", one_line(text(definition, "description")));
        }
    }

    fn keys(&mut self, object: &Value) {
        let Some(properties) = object["properties"].as_object() else { return };
        if properties.keys().all(|key| key == "connector") {
            self.out.push_str("It has no options.\n");
            return;
        }
        let required: Vec<&str> =
            object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        self.out.push_str("| key | value | unless given | meaning |\n|---|---|---|---|\n");
        for (key, value) in properties.iter().filter(|(key, _)| *key != "connector") {
            let default = match (required.contains(&key.as_str()), &value["default"]) {
                (true, _) => "must be given".to_owned(),
                (false, Value::Null) => "–".to_owned(),
                (false, default) => format!("`{default}`"),
            };
            let meaning = one_line(text(value, "description"));
            let _ = writeln!(self.out, "| `{key}` | {} | {default} | {meaning} |", type_text(value));
            self.mention(value);
        }
    }

    fn mention(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next())
                {
                    self.queue.push(name.to_owned());
                }
                map.values().for_each(|value| self.mention(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.mention(value)),
            _ => {}
        }
    }

    fn resolve(&self, reference: &str) -> Option<&Value> {
        self.schema["$defs"].get(reference.rsplit('/').next()?)
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn type_text(value: &Value) -> String {
    if let Some(name) = value["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(title) = value["title"].as_str() {
        return title.to_owned();
    }
    if let Some(of) = value["anyOf"].as_array() {
        let parts = of.iter().filter(|v| v["type"] != "null").map(type_text).collect::<Vec<_>>();
        return parts.join(" or ");
    }
    match &value["type"] {
        Value::String(name) => match name.as_str() {
            "array" => format!("list of {}", type_text(&value["items"])),
            "object" if value["additionalProperties"].is_object() => {
                format!("map of {}", type_text(&value["additionalProperties"]))
            }
            "object" => "map".into(),
            "string" => "text".into(),
            "integer" => "whole number".into(),
            "boolean" => "true or false".into(),
            other => other.into(),
        },
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            let one = |name: &str| type_text(&serde_json::json!({"type": name, "items": value["items"]}));
            names.map(one).collect::<Vec<_>>().join(" or ")
        }
        _ => "any".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_the_reference_with_its_meaning() {
        let page = reference_markdown();
        for key in
            ["max_files_per_trigger", "partition_by", "rows_per_second", "table_elements", "on_malformed"]
        {
            assert!(page.contains(&format!("| `{key}` |")), "{key} is missing in\n{page}");
        }
        let empty: Vec<&str> =
            page.lines().filter(|line| line.ends_with("|  |") || line.ends_with("— ")).collect();
        assert!(empty.is_empty(), "without a meaning: {empty:?}\n{page}");
    }
}
