//! The control API: an HTTP server on this machine, beside the queries of a `pelton run`.
//!
//! `run` starts it and tells its [`Registry`] what the queries do; `status` and `stop` find it (`discovery`) and ask it
//! (`client`), Prometheus scrapes it. It reads what was told and passes on what is asked of a query; it decides
//! nothing, and no row depends on it. No engine code knows of it.
//!
//! | part | does |
//! |---|---|
//! | `registry`, `totals` | what the queries of this process do and have done |
//! | `status` | the same as JSON, for the server and its clients |
//! | `routes`, `swap`, `shadow`, `failure` | what can be asked, and the answers |
//! | `guard`, `token` | who may ask |
//! | `metrics` | `/metrics` |
//! | `discovery`, `client` | how the other commands find it and speak to it |

pub(crate) mod client;
pub(crate) mod discovery;
mod failure;
mod guard;
mod metrics;
mod registry;
mod routes;
mod shadow;
mod status;
mod swap;
mod token;
mod totals;

pub(crate) use registry::{Registry, Running};
pub(crate) use status::{PluginStatus, QueryState, QueryStatus, SourceStatus};

use crate::cli::ApiArgs;
use discovery::{Announced, Announcement};
use guard::Guard;
use pelton_connectors::http::{Limits, serve};
use pelton_core::{Error, Result};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use token::Token;
use tokio_util::sync::CancellationToken;

/// Where to listen, or whom to ask, if the command line does not say.
pub(crate) const ADDRESS_VARIABLE: &str = "PELTON_API";

/// Any free port of this machine: several runs must not be in each other's way.
const ANY_PORT: &str = "127.0.0.1:0";

/// How long the end of the process waits for answers that are under way.
const CLOSING: Duration = Duration::from_secs(1);

/// A server that listens. It ends with the process, or when it is closed.
pub(crate) struct Api {
    close: CancellationToken,
    server: tokio::task::JoinHandle<()>,
    /// Its address is known to the other commands as long as this lives.
    _announced: Option<Announced>,
}

impl Api {
    /// Starts it, on a task of its own. `None`: it is not wanted, or it cannot be had and nobody has asked for it.
    pub(crate) fn start(arguments: &ApiArgs, registry: &Arc<Registry>) -> Result<Option<Self>> {
        if arguments.no_api {
            return Ok(None);
        }
        let asked = asked_address(arguments.api.as_deref());
        match Self::listen(asked.as_deref().unwrap_or(ANY_PORT), arguments, registry) {
            Err(why) if asked.is_none() && arguments.api_token_file.is_none() => {
                tracing::warn!("there is no API in this run: {}", why.message());
                Ok(None)
            }
            started => started.map(Some),
        }
    }

    fn listen(address: &str, arguments: &ApiArgs, registry: &Arc<Registry>) -> Result<Self> {
        let address = resolve(address)?;
        let token = match &arguments.api_token_file {
            Some(path) => Token::read(path)?,
            None if address.ip().is_loopback() => Token::random(),
            None => {
                return Err(Error::invalid(format!(
                    "the API would listen on {address}, where other machines reach it, without a token"
                ))
                .hint("put a secret into a file and name it with --api-token-file, or listen on 127.0.0.1"));
            }
        };
        let cannot = |why: std::io::Error| {
            Error::unavailable(format!("the API cannot listen on {address}: {why}"))
                .hint("choose another port with --api, or leave it out: any free port is taken then")
        };
        let listener = TcpListener::bind(address).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let listening = listener.local_addr().map_err(cannot)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(cannot)?;
        tracing::info!("the API listens on http://{listening}");
        let announced = announce(listening, &token, registry);
        let close = CancellationToken::new();
        let router = routes::router(Arc::clone(registry), Guard::new(listening.ip(), token));
        let closed = close.clone().cancelled_owned();
        let server = tokio::spawn(async move {
            if let Err(why) = serve(listener, router, Limits::default(), closed).await {
                tracing::warn!("the API has ended: {why}");
            }
        });
        Ok(Self { close, server, _announced: announced })
    }

    /// Ends it, with the answers that are under way.
    pub(crate) async fn close(self) {
        self.close.cancel();
        let _ = tokio::time::timeout(CLOSING, self.server).await;
    }
}

/// Tells the other commands of this machine; that this fails is no reason not to run.
fn announce(listening: SocketAddr, token: &Token, registry: &Registry) -> Option<Announced> {
    let announcement = Announcement::new(listening, token, registry);
    let unknown = |why: Error| {
        tracing::warn!(
            "`pelton status` and `pelton stop` will not find this run ({}): tell them --api http://{listening}",
            why.message()
        );
    };
    discovery::announce(&announcement).map_err(unknown).ok()
}

/// The address of the command line, or else of the environment.
pub(crate) fn asked_address(argument: Option<&str>) -> Option<String> {
    let variable = || std::env::var(ADDRESS_VARIABLE).ok();
    argument.map(str::to_owned).or_else(variable).filter(|address| !address.is_empty())
}

/// `127.0.0.1:4040`, `localhost:4040`, `[::1]:4040`; also as `http://…`, so that one value of the environment serves
/// all commands.
fn resolve(address: &str) -> Result<SocketAddr> {
    let plain = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let wrong = |why: String| {
        Error::invalid(format!("'{address}' is no address to listen on: {why}"))
            .hint("write ADDRESS:PORT, such as 127.0.0.1:4040")
    };
    let mut found = plain.to_socket_addrs().map_err(|why| wrong(why.to_string()))?;
    found.next().ok_or_else(|| wrong("it leads nowhere".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_a_scheme() {
        assert_eq!(resolve("127.0.0.1:4040").unwrap().to_string(), "127.0.0.1:4040");
        assert_eq!(resolve("http://[::1]:4040/").unwrap().to_string(), "[::1]:4040");
        let wrong = resolve("4040").unwrap_err();
        assert!(wrong.message().starts_with("'4040' is no address to listen on: "), "{wrong}");
    }
}
