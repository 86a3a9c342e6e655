//! Speaks to the API of a run: how `status`, `stop` and others find it, ask it, and read its answers.

use super::discovery::{self, Announcement};
use super::failure::Failure;
use super::token::Token;
use crate::cli::ApiTargetArgs;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use std::net::SocketAddr;
use std::time::Duration;
use url::Url;

/// How long a run may take to answer a question about what it does.
const PATIENCE: Duration = Duration::from_secs(5);

/// The API of one run.
pub(crate) struct Client {
    http: reqwest::Client,
    url: Url,
    token: Option<String>,
}

/// The runs that a command is about: the one that it names, or all of this user on this machine.
pub(crate) enum Runs {
    /// `--api` or the environment says which.
    One(Client),
    /// Those that were found.
    Found(Vec<Announcement>),
}

impl Runs {
    /// Finds them.
    pub(crate) fn of(arguments: &ApiTargetArgs) -> Result<Self> {
        match super::asked_address(arguments.api.as_deref()) {
            Some(address) => Client::named(&address, arguments).map(Self::One),
            None => discovery::runs().map(Self::Found),
        }
    }

    /// The run that has this query: there must be one, and one alone.
    pub(crate) fn with_query(self, name: &str) -> Result<Client> {
        let runs = match self {
            Self::One(client) => return Ok(client),
            Self::Found(runs) => runs,
        };
        let has = |run: &&Announcement| run.queries.iter().any(|query| query.name == name);
        let found: Vec<&Announcement> = runs.iter().filter(has).collect();
        match found[..] {
            [run] => Client::of(run),
            [] => {
                let names = || runs.iter().flat_map(|run| &run.queries).map(|query| query.name.as_str());
                let error =
                    Error::invalid(format!("no query '{name}' is running{}", did_you_mean(name, names())));
                Err(match names().next() {
                    Some(_) => error.hint("`pelton status` lists those that are"),
                    None => {
                        error.hint("nothing is: `pelton status` shows the runs of this user on this machine")
                    }
                })
            }
            [first, ..] => {
                let shown: Vec<String> = found.iter().map(|run| run.shown(name)).collect();
                let what = format!("{} runs have a query '{name}': {}", found.len(), shown.join("; "));
                Err(Error::invalid(what).hint(format!("say which: --api {}", first.url)))
            }
        }
    }
}

/// Whether the run that says that it listens there is the one at this address. A run that listens on all addresses is at
/// each of this machine's own; only those for the machine itself count, so that no other machine is sent the token.
fn is_at(listening: &str, address: &str) -> bool {
    let socket = |url: &str| url.strip_prefix("http://")?.parse::<SocketAddr>().ok();
    match (socket(listening), socket(address)) {
        (Some(listening), Some(asked)) if listening.ip().is_unspecified() => {
            let is_own = asked.ip().is_loopback() || asked.ip().is_unspecified();
            is_own && listening.port() == asked.port() && (listening.is_ipv6() || asked.is_ipv4())
        }
        _ => listening == address,
    }
}

impl Client {
    /// Of a run that was found.
    pub(crate) fn of(run: &Announcement) -> Result<Self> {
        Self::new(&run.url, Some(run.token.clone()))
    }

    /// Of the run at this address. Its token is in the file that the command names; a run of this user says it itself.
    fn named(address: &str, arguments: &ApiTargetArgs) -> Result<Self> {
        let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let url = url.trim_end_matches('/');
        let token = match &arguments.api_token_file {
            Some(path) => Some(Token::read(path)?.reveal().to_owned()),
            // That none can be found out is told by the run, should it want one.
            None => {
                let runs = discovery::runs().unwrap_or_default();
                runs.into_iter().find(|run| is_at(&run.url, url)).map(|run| run.token)
            }
        };
        Self::new(url, token)
    }

    fn new(url: &str, token: Option<String>) -> Result<Self> {
        let wrong = |why: String| {
            Error::invalid(format!("'{url}' is no address of an API: {why}"))
                .hint("write http://ADDRESS:PORT, such as http://127.0.0.1:4040")
        };
        let url: Url = url.parse().map_err(|why| wrong(format!("{why}")))?;
        if url.scheme() != "http" || url.cannot_be_a_base() {
            return Err(wrong("it must be http".to_owned()));
        }
        // A proxy of the environment is for other machines, and must not see the token.
        let http = reqwest::Client::builder().no_proxy().connect_timeout(PATIENCE).build();
        let http = http.map_err(|why| Error::internal(format!("the HTTP client cannot be made: {why}")))?;
        Ok(Self { http, url, token })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Asks a question.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T> {
        self.answer(self.request(Method::GET, path)?.timeout(PATIENCE)).await
    }

    /// Asks for the end of something, however long it takes.
    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T> {
        self.answer(self.request(Method::DELETE, path)?).await
    }

    /// Asks for something to happen, however long it takes.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        options: &[(&str, &str)],
    ) -> Result<T> {
        self.answer(self.request(Method::POST, path)?.query(options)).await
    }

    /// Asks for something to happen with these bytes, however long it takes.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        path: &[&str],
        options: &[(&str, &str)],
        bytes: Vec<u8>,
    ) -> Result<T> {
        self.answer(self.request(Method::POST, path)?.query(options).body(bytes)).await
    }

    fn request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder> {
        let mut url = self.url.clone();
        let mut segments =
            url.path_segments_mut().map_err(|()| Error::internal("an address without a path"))?;
        segments.pop_if_empty().extend(path);
        drop(segments);
        let request = self.http.request(method, url);
        Ok(match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T> {
        let response = request.send().await.map_err(|why| self.silent(&why))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|why| self.silent(&why))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|why| self.strange(status, &why.to_string()));
        }
        match serde_json::from_slice::<Failure>(&body) {
            Ok(failure) => Err(failure.into()),
            Err(_) => Err(self.strange(status, "it is no error of Pelton's")),
        }
    }

    fn silent(&self, why: &reqwest::Error) -> Error {
        let mut cause: &dyn std::error::Error = why;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Error::unavailable(format!("the run at {} does not answer: {cause}", self.url))
            .hint("it may have ended; `pelton status` shows the runs of this user on this machine")
    }

    fn strange(&self, status: StatusCode, why: &str) -> Error {
        Error::unavailable(format!("the answer of {} ({status}) is not understood: {why}", self.url))
            .hint("is this the API of a `pelton run`, of this version?")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_on_all_addresses_is_found_at_the_machine_s_own() {
        let all = "http://0.0.0.0:4040";
        assert!(is_at(all, "http://127.0.0.1:4040") && is_at(all, all));
        assert!(
            is_at("http://[::]:4040", "http://127.0.0.1:4040")
                && is_at("http://[::]:4040", "http://[::1]:4040")
        );
        for other in
            ["http://127.0.0.1:4041", "http://[::1]:4040", "http://10.0.0.1:4040", "http://example.com:4040"]
        {
            assert!(!is_at(all, other), "{other}");
        }
        assert!(is_at("http://127.0.0.1:4040", "http://127.0.0.1:4040"));
        assert!(!is_at("http://127.0.0.1:4040", "http://127.0.0.2:4040"));
    }
}
