//! What can go wrong, sorted by what the reader of the message should do about it.
//!
//! A new kind is added only if a user would act differently on it.

use crate::CallFailure;
use std::fmt;

/// The result of every port.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the reader of the message should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// What was asked for is wrong: fix the pipeline file or the command. Exit code 2.
    Invalid,
    /// Something outside did not answer: the same call may succeed later.
    Unavailable,
    /// Bad input data, or a damaged checkpoint.
    Data,
    /// A plugin trapped, overran a limit, or returned something that it must not.
    Plugin,
    /// Another run owns this checkpoint.
    Fenced,
    /// A fault of Pelton's own.
    Internal,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "invalid",
            Self::Unavailable => "unavailable",
            Self::Data => "data",
            Self::Plugin => "plugin",
            Self::Fenced => "fenced",
            Self::Internal => "internal",
        })
    }
}

/// One clear message, what kind of fault it is and, where there is one, the way out.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    // Boxed: every result carries the room for it.
    hint: Option<Box<str>>,
    plugin: Option<Box<str>>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of the given kind. `message` is a whole sentence without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, plugin: None, source: None }
    }
    /// [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }
    /// [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }
    /// [`ErrorKind::Data`].
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, message)
    }
    /// [`ErrorKind::Plugin`].
    pub fn plugin(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Plugin, message)
    }
    /// [`ErrorKind::Fenced`].
    pub fn fenced(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Fenced, message)
    }
    /// [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Adds the way out, printed on a line of its own.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into_boxed_str());
        self
    }

    /// Says whose fault it is: the plugin's with this name in the pipeline file.
    #[must_use]
    pub fn of_plugin(mut self, plugin: impl Into<String>) -> Self {
        self.plugin = Some(plugin.into().into_boxed_str());
        self
    }

    /// Keeps the cause for `source()`; the message should already say what matters of it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Puts where it happened in front of the message: `context: message`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// What the reader should do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
    /// The message without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }
    /// The plugin whose code has failed, by its name in the pipeline file, if one has.
    pub fn plugin_name(&self) -> Option<&str> {
        self.plugin.as_deref()
    }
    /// Whether it comes from a reader that has gone away (`pelton run … | head`): the query then ends quietly.
    pub fn is_broken_pipe(&self) -> bool {
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            if error
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
            {
                return true;
            }
            cause = error.source();
        }
        false
    }
    /// Why a plugin's function gave no answer, without the names around it; the message if nobody has said.
    pub fn call_failure(&self) -> &str {
        let failure = self.source.as_ref().and_then(|cause| cause.downcast_ref::<CallFailure>());
        failure.map_or(&self.message, |failure| &failure.reason)
    }
    /// The same error once more, without its cause: for several who ask.
    #[must_use]
    pub fn copied(&self) -> Self {
        let Self { kind, message, hint, plugin, .. } = self;
        Self {
            kind: *kind,
            message: message.clone(),
            hint: hint.clone(),
            plugin: plugin.clone(),
            source: None,
        }
    }
    /// The way out, if there is one to name.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(e: arrow::error::ArrowError) -> Self {
        Self::data(e.to_string()).caused_by(e)
    }
}
