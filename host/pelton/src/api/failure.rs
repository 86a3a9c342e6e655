//! Errors as JSON: what the server answers with, and what its clients read.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pelton_core::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Failure {
    /// What the reader should do: `invalid`, `unavailable`, `data`, `plugin`, `fenced` or `internal`.
    pub(crate) kind: String,
    /// What went wrong, in a sentence.
    pub(crate) message: String,
    /// The way out, if there is one to name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind().to_string(),
            message: error.message().to_owned(),
            hint: error.hint_text().map(str::to_owned),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        const KINDS: [ErrorKind; 5] = [
            ErrorKind::Invalid,
            ErrorKind::Unavailable,
            ErrorKind::Data,
            ErrorKind::Plugin,
            ErrorKind::Fenced,
        ];
        let kind = KINDS.into_iter().find(|kind| kind.to_string() == failure.kind);
        let error = Self::new(kind.unwrap_or(ErrorKind::Internal), failure.message);
        match failure.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// An answer that is an error.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: Error,
}

impl Refusal {
    /// With this status.
    pub(crate) fn new(status: StatusCode, error: Error) -> Self {
        Self { status, error }
    }

    /// What is not there.
    pub(crate) fn not_found(error: Error) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    /// Its status.
    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

/// Whoever has nothing better to say takes the status that the kind of the error stands for.
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Data | ErrorKind::Plugin => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Fenced => StatusCode::CONFLICT,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, error }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(Failure::from(&self.error))).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_comes_back_as_it_went() {
        for error in [
            Error::plugin("it trapped").hint("mend it"),
            Error::invalid("no"),
            Error::fenced("another"),
            Error::internal("ours"),
        ] {
            let back = Error::from(Failure::from(&error));
            assert_eq!(
                (back.kind(), back.message(), back.hint_text()),
                (error.kind(), error.message(), error.hint_text())
            );
        }
    }
}
