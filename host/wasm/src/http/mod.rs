//! HTTP for sink functions: requests to hosts that the pipeline file names, and to no others. `services` calls it when a
//! guest does; no other kind of function reaches it, for what comes back is not the same in a rerun.
//!
//! A redirect is an answer like any other: whether to follow it is the guest's decision, and the host that it leads to must
//! be named, too. Names that stand for private addresses lead nowhere unless they are named for that.

mod addresses;
mod origin;

use crate::contract::http::{Failure, Request, Response};
use crate::limits::{Limits, bytes_text, time_text};
use addresses::PublicAddresses;
pub use origin::HttpOrigin;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The longest URL.
const URL_BYTES: usize = 8 << 10;
/// The most headers, and their bytes together, either way.
const HEADERS: usize = 64;
const HEADER_BYTES: usize = 32 << 10;
/// The most requests of one call.
const REQUESTS: u32 = 1024;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Headers that say how a message is framed or where it goes: those are the host's.
const RESERVED: [&str; 11] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "proxy-authorization",
    "proxy-connection",
];

/// The header by which a server knows a request that it has had already.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Whom a plugin may speak to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpAllowance {
    /// These.
    pub origins: Vec<HttpOrigin>,
    /// These, too, and their names may stand for addresses of private networks.
    pub private: Vec<HttpOrigin>,
}

impl HttpAllowance {
    /// Names that are allowed to lead inside: those that are listed so, and those that cannot lead anywhere else.
    fn private_names(&self) -> BTreeSet<String> {
        let is_local =
            |origin: &&HttpOrigin| origin.host() == "localhost" || origin.host().ends_with(".localhost");
        let local = self.origins.iter().filter(is_local);
        self.private.iter().chain(local).map(|origin| origin.host().to_owned()).collect()
    }
}

/// What a plugin's instances share.
pub(crate) struct Http {
    allowed: HttpAllowance,
    time: Duration,
    response_bytes: u64,
    client: OnceLock<Client>,
}

/// What one instance of a sink function may do in a call.
pub(crate) struct Granted {
    http: Arc<Http>,
    /// Tells the call from every other, the same in a rerun.
    key: String,
    sent: u32,
}

impl Granted {
    pub(crate) fn new(http: Arc<Http>, key: String) -> Self {
        Self { http, key, sent: 0 }
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn send(&mut self, request: Request) -> Result<Response, Failure> {
        if self.sent >= REQUESTS {
            return Err(Failure::Refused(format!("a call may send {REQUESTS} requests")));
        }
        let key = format!("{}-{}", self.key, self.sent);
        self.sent += 1;
        self.http.send(request, &key)
    }
}

impl Http {
    pub(crate) fn new(allowed: HttpAllowance, limits: &Limits) -> Self {
        Self {
            allowed,
            time: Duration::from_millis(limits.http_time_ms),
            response_bytes: limits.http_response_bytes,
            client: OnceLock::new(),
        }
    }

    fn send(&self, request: Request, key: &str) -> Result<Response, Failure> {
        let request = self.checked(request, key).map_err(Failure::Refused)?;
        let client = self.client()?.clone();
        // Guests are called on threads where waiting is allowed; a runtime of its own dies with the request.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|why| Failure::Failed(format!("no request can be sent: {why}")))?;
        runtime.block_on(self.exchange(client, request))
    }

    async fn exchange(&self, client: Client, request: reqwest::Request) -> Result<Response, Failure> {
        let mut answer = client.execute(request).await.map_err(|why| self.failed(&why))?;
        let (status, headers) = (answer.status().as_u16(), headers_of(answer.headers())?);
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|why| self.failed(&why))? {
            if (body.len() + piece.len()) as u64 > self.response_bytes {
                let limit = bytes_text(self.response_bytes);
                return Err(Failure::Failed(format!(
                    "the answer is longer than {limit} (limit http_response)"
                )));
            }
            body.extend_from_slice(&piece);
        }
        Ok(Response { status, headers, body })
    }

    fn failed(&self, error: &reqwest::Error) -> Failure {
        if error.is_timeout() {
            let limit = time_text(self.time.as_millis() as u64);
            return Failure::Failed(format!("there was no answer within {limit} (limit http_time)"));
        }
        // The innermost reason is the one that says something.
        let mut reason: &dyn std::error::Error = error;
        while let Some(source) = reason.source() {
            reason = source;
        }
        Failure::Failed(reason.to_string())
    }

    /// One client, made when it is needed. Each request has a connection of its own: none outlives the call.
    fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let resolver = PublicAddresses { private: Arc::new(self.allowed.private_names()) };
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT.min(self.time))
            .timeout(self.time)
            .dns_resolver(Arc::new(resolver))
            .user_agent(concat!("pelton/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|why| Failure::Failed(format!("no request can be sent: {why}")))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// The request, if the pipeline file allows it and nothing in it could be read in two ways.
    fn checked(&self, request: Request, key: &str) -> Result<reqwest::Request, String> {
        if !METHODS.contains(&request.method.as_str()) {
            return Err(format!("the method is none of {}", METHODS.join(", ")));
        }
        let method = Method::from_bytes(request.method.as_bytes()).map_err(|why| why.to_string())?;
        let url = self.checked_url(&request.url)?;
        let mut headers = checked_headers(&request.headers)?;
        if !headers.contains_key(IDEMPOTENCY_KEY) {
            let key = HeaderValue::from_str(key).map_err(|why| why.to_string())?;
            headers.insert(HeaderName::from_static(IDEMPOTENCY_KEY), key);
        }
        let mut checked = reqwest::Request::new(method, url);
        *checked.headers_mut() = headers;
        *checked.body_mut() = Some(request.body.into());
        Ok(checked)
    }

    fn checked_url(&self, text: &str) -> Result<Url, String> {
        if text.len() > URL_BYTES {
            return Err(format!("the URL is longer than {}", bytes_text(URL_BYTES as u64)));
        }
        let url = Url::parse(text).map_err(|why| format!("the URL is none: {why}"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("the URL holds a user or a password: send them in a header".to_owned());
        }
        let origin = HttpOrigin::of(&url).ok_or("the URL is neither http nor https")?;
        let mut allowed = self.allowed.origins.iter().chain(&self.allowed.private);
        match allowed.any(|allowed| *allowed == origin) {
            true => Ok(url),
            false => Err(format!(
                "the pipeline file does not allow {origin}: add `allow: {{http: ['{origin}']}}` to the plugin"
            )),
        }
    }
}

fn checked_headers(given: &[(String, String)]) -> Result<HeaderMap, String> {
    let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if given.len() > HEADERS || bytes > HEADER_BYTES {
        let limit = bytes_text(HEADER_BYTES as u64);
        return Err(format!("there are more than {HEADERS} headers, or more than {limit} of them"));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let shown = crate::limits::clean_text(name, 80);
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("'{shown}' names no header"))?;
        if RESERVED.contains(&name.as_str()) {
            return Err(format!("the header '{name}' is the host's own"));
        }
        let value = HeaderValue::from_str(value).map_err(|_| {
            format!("the header '{name}' has a value with other than visible ASCII characters")
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// The answer's headers, those that are text.
fn headers_of(headers: &HeaderMap) -> Result<Vec<(String, String)>, Failure> {
    let text = |(name, value): (&HeaderName, &HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    let headers: Vec<(String, String)> = headers.iter().filter_map(text).collect();
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    match bytes > HEADER_BYTES {
        true => Err(Failure::Failed("the answer has too many headers".to_owned())),
        false => Ok(headers),
    }
}

#[cfg(test)]
mod tests;
