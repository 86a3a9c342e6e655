//! From what the parser and DataFusion say to one message at its place in the pipeline file.

use super::constants::FailedConstant;
use super::mismatch;
use crate::file::{SourceText, Span};
use crate::functions::{self, plugin::FailedCall};
use datafusion::arrow::datatypes::Schema;
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};
use pelton_core::suggest::nearest;
use pelton_core::types::type_name;
use pelton_core::{Error, ErrorKind};

/// SQL text and where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) text: &'a str,
    pub(crate) span: Span,
    pub(crate) file: &'a SourceText,
}

impl Placed<'_> {
    /// An error about the whole text.
    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        self.file.error(self.span, message.into())
    }

    /// An error about the place of a name in the text, if it is there.
    pub(crate) fn error_at_name(&self, name: &str, message: String) -> Error {
        match self.position_of(name) {
            Some(offset) => self.error_at(offset, name.chars().count(), message),
            None => self.error(message),
        }
    }

    fn error_at(&self, offset: usize, length: usize, message: String) -> Error {
        self.file.error(self.file.within(self.span, self.text, offset, length), message)
    }

    /// An error of the parser: its message ends with ` at Line: 1, Column: 8`.
    pub(super) fn parse_error(&self, message: &str) -> Error {
        let message = message.strip_prefix("sql parser error: ").unwrap_or(message);
        let (what, place) = message.rsplit_once(" at Line: ").unwrap_or((message, ""));
        let what = what
            .strip_prefix("Expected: ")
            .map_or_else(|| what.to_owned(), |rest| format!("expected {rest}"));
        let place = place.split_once(", Column: ").and_then(|(line, column)| {
            Some((line.parse::<usize>().ok()?, column.trim().parse::<usize>().ok()?))
        });
        let offset = place
            .map_or_else(|| self.text.trim_end().chars().count(), |(line, column)| self.offset(line, column));
        self.error_at(offset, 1, format!("this is not SQL: {what}"))
    }

    /// Characters before a line and column of the text, both from 1.
    fn offset(&self, line: usize, column: usize) -> usize {
        let before: usize =
            self.text.split('\n').take(line.saturating_sub(1)).map(|l| l.chars().count() + 1).sum();
        before + column.saturating_sub(1)
    }

    /// Where a word stands first.
    fn position_of(&self, name: &str) -> Option<usize> {
        let is_it =
            |token: &Token| matches!(token, Token::Word(word) if word.value.eq_ignore_ascii_case(name));
        self.positions(is_it).first().copied()
    }

    /// Where an operator stands, if that is at one place.
    fn position_of_operator(&self, operator: &str) -> Option<usize> {
        match self.positions(|token| token.to_string() == operator).as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }

    fn positions(&self, is_it: impl Fn(&Token) -> bool) -> Vec<usize> {
        let tokens = Tokenizer::new(&super::dialect::SparkDialect, self.text).tokenize_with_location();
        let tokens = tokens.unwrap_or_default().into_iter().filter(|token| is_it(&token.token));
        let offset = |place: Location| {
            Some(self.offset(usize::try_from(place.line).ok()?, usize::try_from(place.column).ok()?))
        };
        tokens.filter_map(|token| offset(token.span.start)).collect()
    }

    /// An error about types that do not fit, at the function or operator that says so.
    fn mismatch(&self, mismatch: mismatch::Mismatch) -> Error {
        let Some(word) = mismatch.at else { return self.error(mismatch.what) };
        let written = self.written(&word);
        let what = mismatch.what.replacen(&word, written, 1);
        match self.position_of(written).or_else(|| self.position_of_operator(written)) {
            Some(offset) => self.error_at(offset, written.chars().count(), what),
            None => self.error(what),
        }
    }

    /// How the text names what is planned as another function: `year(x)` is a call of `date_part`.
    fn written<'n>(&self, planned: &'n str) -> &'n str {
        let parts = super::rewrite::DATE_PARTS.iter().map(|part| (*part, "date_part"));
        let others = functions::ALIASES.iter().copied().chain([("date", "to_date")]);
        let mut names = parts.chain(others).filter(|(_, name)| *name == planned).map(|(spark, _)| spark);
        match self.position_of(planned) {
            Some(_) => planned,
            None => names.find(|name| self.position_of(name).is_some()).unwrap_or(planned),
        }
    }

    /// An error whose message begins with the function that it is about, as `date() takes …`.
    fn function_error(&self, message: String) -> Error {
        let name = message.split_once("()").map(|(name, _)| name.to_owned());
        match name.filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')) {
            Some(name) => self.mismatch(mismatch::Mismatch { what: message, at: Some(name) }),
            None => self.error(message),
        }
    }

    /// An error about a constant, at the literal if it stands at one place.
    pub(super) fn constant_error(&self, failed: &FailedConstant) -> Error {
        let what = evaluation_error(&failed.error).message().to_owned();
        let what = match what.split_once("()") {
            Some((function, said)) => format!("{}(){said}", self.written(function)),
            None => what,
        };
        let is_it = |token: &Token| match (token, &failed.literal) {
            (Token::SingleQuotedString(text) | Token::DoubleQuotedString(text), Some(literal)) => {
                text == literal
            }
            (Token::Number(text, _), Some(literal)) => text == literal,
            _ => false,
        };
        match (self.positions(is_it).as_slice(), &failed.literal) {
            ([only], Some(literal)) => self.error_at(*only, literal.chars().count(), what),
            _ => self.error(what),
        }
    }

    /// An error of DataFusion while it plans.
    pub(crate) fn plan_error(&self, error: DataFusionError, input: &Schema) -> Error {
        if let Some(own) = pelton_error(&error) {
            return self.error(own);
        }
        match root(&error) {
            DataFusionError::SchemaError(schema_error, _) => self.column_error(schema_error, input),
            DataFusionError::SQL(parser, _) => self.parse_error(&parser.to_string()),
            other => {
                let message = first_line(other);
                match same_name(&message) {
                    Some(name) => {
                        let what = format!(
                            "two columns of the result are called '{name}'; give one another name with AS"
                        );
                        self.error_at_name(&name, what)
                    }
                    None => match ungrouped(&message) {
                        Some(name) => self.error_at_name(
                            &name,
                            format!("the column '{name}' is neither a key of GROUP BY nor inside an aggregate function"),
                        ),
                        None => match (mismatch::sentence(&message), unknown_type(&message)) {
                            (Some(mismatch), _) => self.mismatch(mismatch),
                            (None, Some(name)) => {
                                self.error_at_name(name, format!("there is no type '{name}'"))
                            }
                            (None, None) => self.function_error(mismatch::without_debug(&message)),
                        },
                    },
                }
            }
        }
    }

    fn column_error(&self, error: &SchemaError, input: &Schema) -> Error {
        match error {
            SchemaError::FieldNotFound { field, valid_fields } => {
                let name = field.name();
                let names: Vec<&str> = valid_fields.iter().map(|column| column.name()).collect();
                let near = nearest(name, names.iter().copied());
                let hint = match near {
                    Some(near) => format!("; did you mean '{near}'?"),
                    None => String::new(),
                };
                let message = format!("there is no column '{name}'{hint}");
                let hint = match names.is_empty() {
                    true => "a SELECT without FROM has no columns; add FROM input".to_owned(),
                    false => format!("the columns are {}", columns(&names, input)),
                };
                self.error_at_name(name, message).hint(hint)
            }
            SchemaError::AmbiguousReference { field } => {
                let message = format!("'{}' is the name of more than one column here", field.name());
                self.error_at_name(field.name(), message)
            }
            SchemaError::DuplicateUnqualifiedField { name }
            | SchemaError::DuplicateQualifiedField { name, .. } => {
                let message = format!("two columns are called '{name}'; give one another name with AS");
                self.error_at_name(name, message)
            }
        }
    }
}

/// The name that DataFusion complains of: `… unique expression names but the expression "input.a AS b" at …`.
fn same_name(message: &str) -> Option<String> {
    let quoted = message.split_once("require unique expression names")?.1.split('"').nth(1)?;
    let name = quoted.rsplit(" AS ").next().unwrap_or(quoted);
    Some(name.rsplit('.').next().unwrap_or(name).to_owned())
}

/// The type that DataFusion does not know: `Unsupported SQL type foo`.
fn unknown_type(message: &str) -> Option<&str> {
    message.strip_prefix("Unsupported SQL type ")
}

/// The column that DataFusion misses: `… column "input.a" must appear in the GROUP BY clause …`, of HAVING without quotes.
fn ungrouped(message: &str) -> Option<String> {
    let before = message.split_once("must appear in the GROUP BY clause")?.0;
    let of_having = || before.trim_end().strip_prefix("HAVING clause references: ");
    let name = before.rsplit('"').nth(1).or_else(of_having)?;
    Some(name.rsplit('.').next().unwrap_or(name).to_owned())
}

/// The names with their types, where the step's input has them.
fn columns(names: &[&str], input: &Schema) -> String {
    let one = |name: &&str| match input.column_with_name(name) {
        Some((_, field)) => format!("{name}: {}", type_name(field.data_type())),
        None => (*name).to_owned(),
    };
    names.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn root(error: &DataFusionError) -> &DataFusionError {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => root(inner),
        DataFusionError::Shared(inner) => root(inner),
        DataFusionError::Collection(errors) => errors.first().map_or(error, root),
        other => other,
    }
}

fn first_line(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    let text = text.lines().next().unwrap_or_default();
    const PREFIXES: [&str; 10] = [
        "Error during planning: ",
        "This feature is not implemented: ",
        "Execution error: ",
        "Invalid or Unsupported Configuration: ",
        "Arrow error: ",
        "Cast error: ",
        "Compute error: ",
        "Parser error: ",
        "External error: ",
        "Optimizer rule 'simplify_expressions' failed: ",
    ];
    PREFIXES.iter().fold(text, |text, prefix| text.strip_prefix(prefix).unwrap_or(text)).to_owned()
}

/// Whether the error is one that this crate raised on purpose.
pub(super) fn is_own(error: &DataFusionError) -> bool {
    pelton_error(error).is_some()
}

fn pelton_error(error: &DataFusionError) -> Option<String> {
    match root(error) {
        DataFusionError::External(inner) => inner.downcast_ref::<Error>().map(|e| e.message().to_owned()),
        _ => None,
    }
}

/// An error of a plan that cannot be put together, where no place in the file is known.
pub(crate) fn planning_error(error: &DataFusionError) -> Error {
    match root(error) {
        DataFusionError::Plan(what) => Error::invalid(what.clone()),
        other => Error::internal(format!("the plan cannot be put together: {}", first_line(other))),
    }
}

/// An error while rows are processed. What a plugin raised keeps its kind; everything else is about the data.
pub fn evaluation_error(error: &DataFusionError) -> Error {
    if let DataFusionError::External(inner) = root(error)
        && let Some(own) = inner.downcast_ref::<Error>()
    {
        let copy = own.copied();
        return match FailedCall::of(own) {
            Some(failed) => copy.caused_by(failed.clone()),
            None => copy,
        };
    }
    let kind = match root(error) {
        DataFusionError::Internal(_) => ErrorKind::Internal,
        _ => ErrorKind::Data,
    };
    let said = first_line(root(error));
    let said = match said.as_str() {
        "Divide by zero error" => {
            "division by zero; use try_divide() or try_mod() to get NULL instead".to_owned()
        }
        _ => mismatch::of_cast(&said).unwrap_or(said),
    };
    Error::new(kind, said)
}
