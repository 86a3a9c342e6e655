//! HTTP requests of sink functions, to the hosts that the pipeline file allows.
//!
//! ```
//! use pelton::{BatchPart, Error, Row, Rows};
//!
//! #[derive(Row)]
//! struct Alert<'a> { text: &'a str }
//!
//! /// Posts each alert.
//! #[pelton::sink]
//! fn alerts(rows: Rows<'_, Alert>, _part: BatchPart) -> Result<(), Error> {
//!     for alert in rows {
//!         pelton::http::post("https://hooks.example.com/alerts").body(alert.text).send()?.success()?;
//!     }
//!     Ok(())
//! }
//! # fn main() -> Result<(), Error> {
//! let mut sink = pelton::testing::sink::<alerts>().answer(|request| {
//!     assert_eq!(request.body, b"a wheel is off");
//!     Ok(pelton::http::Response { status: 202, ..Default::default() })
//! });
//! sink.batch([Alert { text: "a wheel is off" }])?;
//! # Ok(())
//! # }
//! ```

use crate::error::Error;

/// A request. The host adds an `Idempotency-Key` unless there is one: it is the same when the micro-batch comes again, so
/// the server can tell that it has had the request already.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// GET, HEAD, POST, PUT, PATCH or DELETE.
    pub method: String,
    /// With the scheme.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Vec<u8>,
}

/// What the server answered. Redirects are not followed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Response {
    /// 200, for example.
    pub status: u16,
    /// Names, in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// What came.
    pub body: Vec<u8>,
}

/// A POST to a URL.
pub fn post(url: impl Into<String>) -> Request {
    request("POST", url)
}

/// A GET of a URL.
pub fn get(url: impl Into<String>) -> Request {
    request("GET", url)
}

/// Any request.
pub fn request(method: impl Into<String>, url: impl Into<String>) -> Request {
    Request { method: method.into(), url: url.into(), ..Request::default() }
}

impl Request {
    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it and waits for the answer, whatever its status.
    ///
    /// # Errors
    /// If the pipeline file does not allow the host, or no answer came.
    pub fn send(&self) -> Result<Response, Error> {
        let why = |why: String| Error::Failed(format!("{} {}: {why}", self.method, self.url));
        sender::send(self).map_err(why)
    }
}

impl Response {
    /// The answer, if the server took the request.
    ///
    /// # Errors
    /// If the status is not one of 200 to 299: it, and the beginning of the body.
    pub fn success(self) -> Result<Self, Error> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text.trim().chars().take(200).collect();
        let said = if text.is_empty() { String::new() } else { format!(": {text}") };
        Err(Error::Failed(format!("the server answered {}{said}", self.status)))
    }
}

#[cfg(target_arch = "wasm32")]
use crate::abi::http as sender;

/// Natively a test answers.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod sender {
    use super::{Request, Response};
    use std::cell::RefCell;

    /// What answers in the place of a server.
    pub(crate) type Answer = Box<dyn FnMut(&Request) -> Result<Response, String>>;

    thread_local! {
        static ANSWER: RefCell<Option<Answer>> = RefCell::default();
    }

    pub(super) fn send(request: &Request) -> Result<Response, String> {
        ANSWER.with_borrow_mut(|answer| match answer {
            Some(answer) => answer(request),
            None => {
                Err("in a test, say what the server answers: `pelton::testing::sink::<f>().answer(…)`"
                    .to_owned())
            }
        })
    }

    /// Sets what answers on this thread, and gives what did before.
    pub(crate) fn answer(with: Option<Answer>) -> Option<Answer> {
        ANSWER.replace(with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_is_no_success_is_an_error_with_what_the_server_said() {
        let response = |status, body: &str| Response { status, body: body.into(), ..Response::default() };
        assert!(response(204, "").success().is_ok());
        let error = response(503, " try later\n").success().map_err(|e| e.to_string());
        assert_eq!(error, Err("the server answered 503: try later".to_owned()));
        assert!(response(301, "").success().is_err());
    }
}
