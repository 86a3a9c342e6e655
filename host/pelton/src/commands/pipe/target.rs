//! One link of a pipe as it is typed: `flights.wasm:is_delayed(dep_delay)`.

use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, FunctionInfo, Manifest, Result};
use std::fmt;
use std::path::{Path, PathBuf};

/// A plugin's file, a function of it, and the columns that it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The plugin's file.
    pub(super) file: PathBuf,
    /// The function; `None`: the only one.
    pub(super) function: Option<String>,
    /// The columns in parentheses.
    pub(super) arguments: Option<Vec<String>>,
}

impl Target {
    /// Reads one. What lies behind the last colon is a function, unless the whole is a file's name.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if Path::new(text).is_file() {
            return Ok(Self { file: text.into(), function: None, arguments: None });
        }
        let Some((file, call)) =
            text.rsplit_once(':').filter(|(file, call)| !file.is_empty() && !call.is_empty())
        else {
            return Ok(Self { file: text.into(), function: None, arguments: None });
        };
        let Some((function, rest)) = call.split_once('(') else {
            return Ok(Self { file: file.into(), function: Some(call.to_owned()), arguments: None });
        };
        let list = rest.strip_suffix(')').ok_or_else(|| {
            Error::invalid(format!("'{text}': the closing parenthesis is missing"))
                .hint("write FILE:FUNCTION(COLUMN, …), in quotes for the shell")
        })?;
        let columns =
            list.split(',').map(|column| column.trim().to_owned()).filter(|column| !column.is_empty());
        let arguments = Some(columns.collect());
        Ok(Self { file: file.into(), function: Some(function.trim().to_owned()), arguments })
    }

    /// The file's name without its ending: what `--config` knows the plugin by.
    pub(super) fn plugin_name(&self) -> String {
        self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The function that is meant.
    pub(super) fn choose<'a>(&self, manifest: &'a Manifest) -> Result<&'a FunctionInfo> {
        let names = || manifest.functions.iter().map(|function| function.name.as_str());
        match (&self.function, manifest.functions.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => Err(Error::invalid("say which function is meant").hint(format!(
                "write {}:FUNCTION; there are: {}",
                self.file.display(),
                names().collect::<Vec<_>>().join(", ")
            ))),
            (Some(name), functions) => {
                functions.iter().find(|function| function.name == *name).ok_or_else(|| {
                    Error::invalid(format!("there is no function '{name}'{}", did_you_mean(name, names())))
                })
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.function.as_ref().map_or(Ok(()), |function| write!(f, ":{function}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, file: &str, function: Option<&str>, arguments: Option<&[&str]>) {
        let arguments = arguments.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let expected = Target { file: file.into(), function: function.map(Into::into), arguments };
        assert_eq!(Target::parse(text).map_err(|e| e.to_string()), Ok(expected));
    }

    #[test]
    fn a_file_a_function_and_its_columns() {
        check("a/b.wasm", "a/b.wasm", None, None);
        check("a/b.wasm:f", "a/b.wasm", Some("f"), None);
        check("b.wasm:f(x, y)", "b.wasm", Some("f"), Some(&["x", "y"]));
        check("b.wasm:f()", "b.wasm", Some("f"), Some(&[]));
        assert!(Target::parse("b.wasm:f(x").is_err_and(|e| e.to_string().contains("parenthesis")));
    }
}
