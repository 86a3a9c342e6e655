//! The contract's two kinds of failure. A refused row is neither: see `Rejected`.

use std::fmt;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The configuration or the schema does not suit the function.
    Unsuitable(String),
    /// The whole call failed.
    Failed(String),
}

impl Error {
    /// The message, for a person.
    pub fn message(&self) -> &str {
        match self {
            Error::Unsuitable(message) | Error::Failed(message) => message,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}
