//! Who may ask. A pure decision over a request's head, and the layer that carries it out before any route.
//!
//! | | on loopback | elsewhere |
//! |---|---|---|
//! | reading | everybody on this machine | with the token |
//! | reading rows | with the token | with the token |
//! | changing anything | with the token | with the token |
//! | health | everybody | everybody |
//!
//! A page in a browser on this machine is kept out twice: it does not know the token, and answers carry no CORS headers,
//! so it cannot read them. A name that its owner points at 127.0.0.1 (DNS rebinding) would get around the second; so on
//! loopback the `Host` must be this machine.

use super::failure::Refusal;
use super::token::Token;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use pelton_connectors::http::is_for_this_machine;
use pelton_core::Error;
use std::net::IpAddr;
use std::sync::Arc;

/// Says nothing but whether the process is well.
const HEALTH: &str = "/health/";

/// See above.
pub(crate) struct Guard {
    is_local: bool,
    token: Token,
}

impl Guard {
    /// For a server that listens there.
    pub(crate) fn new(listening: IpAddr, token: Token) -> Self {
        Self { is_local: listening.is_loopback(), token }
    }

    fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.is_local {
            check_host(headers)?;
        }
        let reads = matches!(*method, Method::GET | Method::HEAD) && !shows_rows(path);
        if reads && (self.is_local || path.starts_with(HEALTH)) {
            return Ok(());
        }
        match bearer(headers) {
            Some(given) if self.token.is(given) => Ok(()),
            given => Err(no_token(given.is_some())),
        }
    }
}

/// The layer.
pub(crate) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = match guard.check(request.method(), request.uri().path(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// What a shadow has found shows rows that differ: `/queries/{name}/shadow`.
fn shows_rows(path: &str) -> bool {
    let of_query = path.strip_prefix("/queries/").and_then(|path| path.split_once('/'));
    of_query.is_some_and(|(_, what)| what == "shadow")
}

fn check_host(headers: &HeaderMap) -> Result<(), Refusal> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    match is_for_this_machine(headers) {
        true => Ok(()),
        false => Err(Refusal::new(
            StatusCode::FORBIDDEN,
            Error::invalid(format!(
                "the API listens on this machine alone and was asked for '{}'",
                host.unwrap_or_default()
            ))
            .hint("ask 127.0.0.1 or localhost"),
        )),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn no_token(given: bool) -> Refusal {
    let what = match given {
        true => "this is not the token of this run",
        false => "this needs the token of this run, as `Authorization: Bearer TOKEN`",
    };
    let hint = "the commands of pelton find it by themselves if the same user runs them on the same machine; \
                otherwise it is what --api-token-file holds";
    Refusal::new(StatusCode::UNAUTHORIZED, Error::invalid(what).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn status(local: bool, method: Method, path: &str, host: &str, authorization: &str) -> Option<u16> {
        let address = if local { "127.0.0.1" } else { "0.0.0.0" };
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::AUTHORIZATION, authorization)] {
            if !value.is_empty() {
                headers.insert(name, value.parse().unwrap());
            }
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), TOKEN).unwrap();
        let guard = Guard::new(address.parse().unwrap(), Token::read(file.path()).unwrap());
        guard.check(&method, path, &headers).err().map(|refusal| refusal.status().as_u16())
    }

    #[test]
    fn reading_on_this_machine_is_free_and_changing_is_not() {
        let right = format!("bearer {TOKEN}");
        for host in ["localhost:4040", "127.0.0.1", "[::1]:1", "LOCALHOST"] {
            assert_eq!(status(true, Method::GET, "/queries", host, ""), None, "{host}");
            assert_eq!(status(true, Method::POST, "/queries/a/stop", host, &right), None, "{host}");
            for wrong in ["", "Bearer", "Bearer x", "Basic 0123456789abcdef"] {
                assert_eq!(status(true, Method::POST, "/queries/a/stop", host, wrong), Some(401), "{wrong}");
                assert_eq!(status(true, Method::OPTIONS, "/queries", host, wrong), Some(401), "{wrong}");
            }
        }
    }

    #[test]
    fn rows_are_shown_to_those_who_may_change_something() {
        let right = format!("Bearer {TOKEN}");
        let ask = |path, token| status(true, Method::GET, path, "localhost", token);
        assert_eq!(ask("/queries/a/shadow", ""), Some(401));
        assert_eq!(ask("/queries/a/shadow", &right), None);
        assert_eq!(ask("/queries/shadow", ""), None, "a query of that name");
        assert_eq!(ask("/queries/shadow/progress", ""), None);
    }

    #[test]
    fn another_name_for_this_machine_is_refused_whatever_it_knows() {
        for host in ["evil.example", "localhost.evil.example:4040", "192.0.2.1", "", "127.0.0.1.evil.example"]
        {
            assert_eq!(status(true, Method::GET, "/queries", host, ""), Some(403), "{host}");
            assert_eq!(
                status(true, Method::POST, "/x", host, &format!("Bearer {TOKEN}")),
                Some(403),
                "{host}"
            );
            assert_eq!(status(true, Method::GET, "/health/live", host, ""), Some(403), "{host}");
        }
    }

    #[test]
    fn elsewhere_all_but_health_needs_the_token() {
        let right = format!("Bearer {TOKEN}");
        for path in ["/queries", "/metrics", "/openapi.json", "/healthy"] {
            assert_eq!(status(false, Method::GET, path, "pelton.example", ""), Some(401), "{path}");
            assert_eq!(status(false, Method::GET, path, "pelton.example", &right), None, "{path}");
        }
        assert_eq!(status(false, Method::GET, "/health/ready", "pelton.example", ""), None);
        assert_eq!(status(false, Method::POST, "/health/ready", "pelton.example", ""), Some(401));
    }
}
