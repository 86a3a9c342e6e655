//! Declared columns to an Arrow schema, with errors that point at the column.

use super::{SchemaSpec, SourceText, Spanned};
use arrow::datatypes::{Field, Fields, Schema, SchemaRef};
use pelton_core::types::{self, TypeError};
use pelton_core::{Error, Result};
use std::sync::Arc;

impl SchemaSpec {
    /// The columns as an Arrow schema; `timestamp` columns get the session's time zone.
    pub fn schema(&self, text: &SourceText, time_zone: &str) -> Result<SchemaRef> {
        let fields = match self {
            Self::Ddl(ddl) => {
                types::parse_columns(&ddl.value, time_zone).map_err(|error| located(text, ddl, &error))?
            }
            Self::Columns(columns) => {
                let field = |column: &super::Column| {
                    let data_type = types::parse_type(&column.text.value, time_zone);
                    let data_type = data_type.map_err(|error| located(text, &column.text, &error))?;
                    Ok(Field::new(&column.name.value, data_type, true))
                };
                columns.0.iter().map(field).collect::<Result<Fields>>()?
            }
        };
        if let Some(twice) =
            fields.iter().enumerate().find(|(i, f)| fields[..*i].iter().any(|g| g.name() == f.name()))
        {
            let span = match self {
                Self::Ddl(ddl) => ddl.span,
                Self::Columns(columns) => columns.0[twice.0].span(),
            };
            return Err(text.error(span, format!("the column '{}' is declared twice", twice.1.name())));
        }
        Ok(Arc::new(Schema::new(fields)))
    }
}

fn located(text: &SourceText, value: &Spanned<String>, error: &TypeError) -> Error {
    let characters = value.value.get(..error.at).map_or(0, |before| before.chars().count());
    text.error(text.within(value.span, &value.value, characters, 1), error.message.clone())
}

#[cfg(test)]
mod tests {
    use crate::PipelineFile;
    use crate::file::SourceSpec;
    use pelton_core::MalformedPolicy;

    fn declared(schema: &str) -> String {
        let text = format!(
            "name: q\nsources:\n  s:\n    connector: file\n    path: x\n    format: json\n    schema: {schema}\nsink: {{connector: console}}\n"
        );
        let file = PipelineFile::read(&text, "p.yaml", &[]).expect("reads");
        let SourceSpec::File(source) = &file.sources.value["s"] else { panic!("a file source") };
        let spec = source.schema.as_ref().expect("declared");
        match spec.schema(file.text(), "UTC") {
            Ok(schema) => pelton_core::types::columns_name(schema.fields()),
            Err(error) => error.message().lines().next().unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn both_forms_give_the_same_columns() {
        assert_eq!(declared("{a: long, b: 'array<string>'}"), "a: long, b: array<string>");
        assert_eq!(declared("a long, b array<string>"), "a: long, b: array<string>");
    }

    #[test]
    fn the_policy_null_needs_no_quotes() {
        for (written, policy) in [
            ("null", MalformedPolicy::Null),
            ("'null'", MalformedPolicy::Null),
            ("drop", MalformedPolicy::Drop),
        ] {
            let text = format!(
                "name: q\nsources:\n  s: {{connector: file, path: x, format: text, on_malformed: {written}}}\nsink: {{connector: console}}\n"
            );
            let file = PipelineFile::read(&text, "p.yaml", &[]).expect("reads");
            let SourceSpec::File(source) = &file.sources.value["s"] else { panic!("a file source") };
            assert_eq!(source.on_malformed, policy, "{written}");
        }
    }

    #[test]
    fn errors_point_at_the_type() {
        assert_eq!(declared("{a: lng}"), "p.yaml:7:17: there is no type 'lng'; did you mean 'long'?");
        assert_eq!(
            declared("a long, b strin"),
            "p.yaml:7:23: there is no type 'strin'; did you mean 'string'?"
        );
        assert_eq!(declared("a long, a long"), "p.yaml:7:13: the column 'a' is declared twice");
    }
}
