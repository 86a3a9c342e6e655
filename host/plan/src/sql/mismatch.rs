//! What DataFusion says of types that do not fit, as one sentence with Spark's names of types. `errors` asks it; it plans
//! nothing.

use crate::functions;
use datafusion::arrow::datatypes::DataType;
use pelton_core::types::type_name;
use regex::{Captures, Regex};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// A sentence, and the word or the operator of the SQL text that it is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) what: String,
    pub(super) at: Option<String>,
}

/// From what a message names to the sentence.
type Sentence = fn(&Captures<'_>) -> Mismatch;

/// A form of message, and what it becomes.
struct Form {
    pattern: Regex,
    sentence: Sentence,
}

/// What makes types fit.
const REMEDY: &str = "CAST one of them";

/// How an interval looks.
const AN_INTERVAL: &str =
    "for example INTERVAL '10' MINUTE; make_dt_interval(days, hours, mins, secs) makes one of columns";

static FORMS: LazyLock<Vec<Form>> = LazyLock::new(|| {
    let forms: [(&str, Sentence); 21] = [
        (r"^Cannot coerce arithmetic expression (.+) ([-+*/%]) (.+) to valid types", |found| {
            let (left, op, right) = (of_type(&found[1]), &found[2], of_type(&found[3]));
            at(op, format!("{op} does not take {left} and {right}; {REMEDY}"))
        }),
        (r"argument type for logical boolean operation (.+) (AND|OR) (.+)$", |found| {
            let (left, op, right) = (of_type(&found[1]), &found[2], of_type(&found[3]));
            at(op, format!("{op} takes two booleans, not {left} and {right}"))
        }),
        (r"argument type for comparison operation (.+?) (=|!=|<=|>=|<|>|IS .*FROM) (.+)$", |found| {
            let (left, right) = (of_type(&found[1]), of_type(&found[3]));
            at(&found[2], format!("{left} and {right} cannot be compared; {REMEDY}"))
        }),
        (r"common type to coerce (.+) and (.+) in (I?LIKE) expression", |found| {
            let (left, right) = (of_type(&found[1]), of_type(&found[2]));
            at(&found[3], format!("{} takes two strings, not {left} and {right}; {REMEDY}", &found[3]))
        }),
        (r"compatible types to compare (.+) with \[(.+)\]$", |found| {
            let (left, right) = (of_type(&found[1]), of_types(&found[2]));
            at("IN", format!("{left} cannot be compared with all of {right}; CAST them to one type"))
        }),
        (r"Failed to coerce types (.+) and (.+) in BETWEEN expression", |found| {
            let (left, right) = (of_type(&found[1]), of_type(&found[2]));
            at("BETWEEN", format!("{left} and {right} cannot be compared; {REMEDY}"))
        }),
        (r"Failed to coerce then \((.+)\) and else \((.+)\) to common types in CASE", |found| {
            let results = of_types(&format!("{}, {}", &found[1], &found[2]));
            at("CASE", format!("the results of CASE are {results}; CAST them to one type"))
        }),
        (r"Incompatible inputs for Union: .* of type (.+), but got .* type (.+) on column '(.+)'", |found| {
            let (left, right, column) = (of_type(&found[1]), of_type(&found[2]), &found[3]);
            let what =
                format!("the column '{column}' is {left} on one side of UNION and {right} on the other");
            at("UNION", format!("{what}; {REMEDY}"))
        }),
        (r"^UNION queries have different number of columns", |_| {
            at("UNION", "both sides of UNION must have the same number of columns".to_owned())
        }),
        (r"Cannot create filter with non-boolean predicate '(.+)' returning (.+)$", |found| {
            let column = found[1].rsplit('.').next().unwrap_or_default();
            at(column, format!("a condition must be boolean, not {}", of_type(&found[2])))
        }),
        (r"Unary operator '-' only supports", |_| {
            at("-", "- takes a number or an interval; CAST what comes after it".to_owned())
        }),
        (r"Unary operator 'NOT' requires a boolean expression, got (.+)$", |found| {
            at("NOT", format!("NOT takes a boolean, not {}", of_type(&found[1])))
        }),
        (r"Aggregate function calls cannot be nested: '(\w+)", |found| {
            at(&found[1], "an aggregate function cannot stand inside another".to_owned())
        }),
        (r"^(\w+) expected a list as first argument, got (.+)$", |found| {
            at(&found[1], format!("{}() takes an array, not {}", &found[1], of_type(&found[2])))
        }),
        (r"^Substring without for/from", |_| {
            at("substring", "substring() takes 2 or 3 arguments, not 1".to_owned())
        }),
        (r"^Unsupported interval argument", |_| {
            at("INTERVAL", format!("INTERVAL takes a literal, {AN_INTERVAL}"))
        }),
        (r"^Unsupported Interval Expression", |_| {
            at("INTERVAL", format!("an INTERVAL has one unit and no precision, {AN_INTERVAL}"))
        }),
        (r#"^Invalid input syntax for type interval: "(.+)"$"#, |found| {
            at("INTERVAL", format!("'{}' is not an interval; write it {AN_INTERVAL}", &found[1]))
        }),
        (r"^Unsupported ast node (?:in \w+: )?(\w+)", |found| {
            let clause = found[1].to_uppercase();
            at(&clause, format!("{clause} is not supported"))
        }),
        (r"^((?:CLUSTER|DISTRIBUTE|SORT) BY)$", |found| {
            at(found[1].trim_end_matches(" BY"), format!("{} is not supported", &found[1]))
        }),
        (r"^Query (\w+) .*not implemented yet", |found| {
            at(&found[1], format!("this is no SELECT: {} is not possible here", &found[1]))
        }),
    ];
    let form = |(pattern, sentence): (&str, _)| Some(Form { pattern: Regex::new(pattern).ok()?, sentence });
    forms.into_iter().filter_map(form).collect()
});

fn at(word: &str, what: String) -> Mismatch {
    Mismatch { what, at: Some(word.to_owned()) }
}

/// The sentence for a message of DataFusion about types, if it is one.
pub(super) fn sentence(message: &str) -> Option<Mismatch> {
    let form = |form: &Form| form.pattern.captures(message).map(|found| (form.sentence)(&found));
    FORMS.iter().find_map(form).or_else(|| of_function(message))
}

/// A message without the parsed SQL that it may end with in Rust's form.
pub(super) fn without_debug(message: &str) -> String {
    static DEBUG: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?s)[,:]?\s*(got:?\s*)?\b[A-Z]\w*(\(| \{).*\b(Span|quote_style)\b.*$").ok()
    });
    DEBUG.as_ref().map_or_else(|| message.to_owned(), |debug| debug.replace(message, "").into_owned())
}

/// What a cast says of a value that it cannot take.
pub(super) fn of_cast(message: &str) -> Option<String> {
    static VALUE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?s)^Can(?:not|'t) cast (?:string|value) (.+) to (?:value of|type) (.+?)(?: type)?$")
            .ok()
    });
    static TYPES: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^Unsupported CAST from (.+) to (.+)$").ok());
    if let Some(found) = VALUE.as_ref()?.captures(message) {
        let wanted = of_type(&found[2]);
        return Some(format!(
            "cannot cast {} to {wanted}; use try_cast(… AS {wanted}) to get NULL instead",
            &found[1]
        ));
    }
    let found = TYPES.as_ref()?.captures(message)?;
    Some(format!("cannot cast {} to {}", of_type(&found[1]), of_type(&found[2])))
}

/// A call whose arguments do not fit.
fn of_function(message: &str) -> Option<Mismatch> {
    let name = word_after(message, "argument types '").or_else(|| word_after(message, "Function '"))?;
    let about_arguments = ["No function matches", "failed to match any signature"];
    if !about_arguments.iter().any(|words| message.contains(words)) {
        return None;
    }
    let given = message.split_once("argument types '").and_then(|(_, rest)| rest.rsplit_once(")'"));
    let given = given.and_then(|(call, _)| call.split_once('(')).map(|(_, types)| of_types(types));
    let shown = shown_name(name);
    let what = match own_words(message, name) {
        Some(own) => own,
        None => {
            let wanted = wanted(message);
            let given = given.or_else(|| word_between(message, "(DataType: ", ").").map(of_type));
            match (wanted.is_empty(), wrong_count(message), given) {
                (true, Some((wanted, found)), _) => format!("{shown}() takes {wanted}, not {found}"),
                (true, None, None) => format!("{shown}() does not take these arguments"),
                (true, None, Some(given)) if given.is_empty() => format!("{shown}() needs arguments"),
                (true, None, Some(given)) => {
                    format!("{shown}() does not take {given}; CAST the arguments")
                }
                (false, _, given) => {
                    let given = given.map(|given| format!(", not {given}")).unwrap_or_default();
                    format!("{shown}() takes {}{given}; CAST the argument", wanted.join(" or "))
                }
            }
        }
    };
    Some(Mismatch { what, at: Some(shown.to_owned()) })
}

/// DataFusion's name of a function that SQL text calls otherwise.
fn shown_name(name: &str) -> &str {
    match name {
        "btrim" => "trim",
        "character_length" => "length",
        other => other,
    }
}

/// What a function of this crate has said itself: it knows best.
fn own_words(message: &str, name: &str) -> Option<String> {
    let (_, said) = message.split_once("user-defined coercion failed with: ")?;
    let (said, _) = said.split_once(" No function matches")?;
    let said = said.strip_prefix("Error during planning: ").or(said.strip_prefix("Execution error: "))?;
    functions::is_ours(name).then(|| said.trim_end_matches('.').to_owned())
}

/// The types that a function would take, each once, in the order in which they are named.
fn wanted(message: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let named = ["requires ", "expects "].into_iter().flat_map(|verb| message.split(verb).skip(1));
    let named = named.filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    let types = named.map(|rest| {
        let end = [", but received", " but received"].into_iter().filter_map(|words| rest.find(words)).min();
        of_type(&rest[..end.unwrap_or(rest.len())])
    });
    types.filter(|wanted| seen.insert(wanted.clone())).collect()
}

/// `1 argument` and how many there were, if that is all that is wrong.
fn wrong_count(message: &str) -> Option<(String, String)> {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let after = |words: &str| message.split_once(words).map(|(_, rest)| number(rest));
    let (wanted, found) = match (after("expects "), after(" was called with ")) {
        (Some(wanted), _) => (wanted, after(" arguments but received ")?),
        (None, Some(found)) => (after(" It requires only ")?, found),
        (None, None) => return None,
    };
    let plural = if wanted == "1" { "" } else { "s" };
    wanted.parse::<usize>().ok().map(|_| (format!("{wanted} argument{plural}"), found))
}

fn word_after<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(before)?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

fn word_between<'a>(message: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(before)?;
    rest.split_once(after).map(|(word, _)| word)
}

/// Spark's name of a type as DataFusion writes it.
pub(super) fn of_type(text: &str) -> String {
    let text = text.trim();
    if let Ok(known) = text.parse::<DataType>() {
        return type_name(&known);
    }
    let kinds = [
        ("Numeric", "a number"),
        ("Integer", "a whole number"),
        ("Float", "double"),
        ("String", "string"),
        ("Decimal", "decimal"),
        ("Date", "date"),
        ("Timestamp", "timestamp"),
        ("Interval", "interval"),
        ("Boolean", "boolean"),
        ("Binary", "binary"),
        ("List", "array"),
        ("Struct", "struct"),
        ("Map", "map"),
        ("Null", "NULL"),
    ];
    let kind = kinds.iter().find(|(arrow, _)| text.starts_with(arrow));
    kind.map_or_else(|| text.to_owned(), |(_, spark)| (*spark).to_owned())
}

/// `int, string and boolean`, of types with commas between them that stand in no brackets.
fn of_types(text: &str) -> String {
    let (mut types, mut depth, mut from) = (Vec::new(), 0_usize, 0);
    for (index, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                types.push(of_type(&text[from..index]));
                from = index + 1;
            }
            _ => {}
        }
    }
    types.push(of_type(&text[from..]));
    match types.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => types.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_sparks_names() {
        assert_eq!(of_types("Int32, List(Int32), Decimal128(2, 1)"), "int, array<int> and decimal(2,1)");
        assert_eq!(of_type("Timestamp(µs, \"UTC\")"), "timestamp");
        assert_eq!(of_type("Numeric"), "a number");
        assert_eq!(of_types(""), "");
    }

    #[test]
    fn other_messages_stay_what_they_are() {
        assert_eq!(sentence("there is no window of 0 seconds"), None);
        assert_eq!(of_cast("overflow"), None);
    }

    #[test]
    fn parsed_sql_is_left_out() {
        let said =
            "Unsupported JOIN operator Straight(Ident { value: \"s\", quote_style: None, span: Span(1) })";
        assert_eq!(without_debug(said), "Unsupported JOIN operator");
        assert_eq!(without_debug("a Point(1, 2) is far"), "a Point(1, 2) is far");
    }

    #[test]
    fn a_value_that_cannot_be_cast_is_shown_whole() {
        let told = of_cast("Cannot cast string 'it's' to value of Int32 type").unwrap();
        assert_eq!(told, "cannot cast 'it's' to int; use try_cast(… AS int) to get NULL instead");
        let told = of_cast("Can't cast value 10000000000 to type Int32").unwrap();
        assert_eq!(told, "cannot cast 10000000000 to int; use try_cast(… AS int) to get NULL instead");
        let told = of_cast("Cannot cast value 'ann' to value of Boolean type").unwrap();
        assert_eq!(told, "cannot cast 'ann' to boolean; use try_cast(… AS boolean) to get NULL instead");
    }
}
