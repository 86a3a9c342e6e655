//! A PostgreSQL server: where it is, how a session with it begins, and what its failures mean.
//!
//! Nothing here writes a row. The URL may hold a password, so neither it nor the client's own settings are ever
//! shown: messages name the server by [`Server::place`].

use super::tls::Tls;
use pelton_core::{Error, ErrorKind, Result};
use std::fmt::Write as _;
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long the system waits for a peer that has gone silent.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// What every session begins with. The server gives up a client that has gone silent, so that its transaction does not
/// hold the query's row for hours; a commit is durable when it is answered, whatever the server's default.
const BEGIN_SESSION: &str = "SET statement_timeout = 0; SET lock_timeout = '30s'; \
     SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; \
     SELECT pg_catalog.set_config('synchronous_commit', 'on', false) \
      WHERE pg_catalog.current_setting('synchronous_commit') = 'off'";

/// Where the rows go.
pub(super) struct Server {
    config: Config,
    /// If the connection is encrypted.
    tls: Option<Tls>,
    /// `host:port/database`.
    pub(super) place: String,
}

impl Server {
    /// Reads a URL. A password in it counts more than the given one.
    pub(super) fn new(url: &str, password: Option<&str>) -> Result<Self> {
        let is_postgres = url.starts_with("postgresql://") || url.starts_with("postgres://");
        // A second @ belongs to a password that would be taken for a host, and shown.
        if !is_postgres || url.matches('@').count() > 1 {
            return Err(not_a_url());
        }
        // What is wrong with it is not told: the words of the cause may hold a piece of the password.
        let mut config: Config = url.parse().map_err(|_| not_a_url())?;
        if config.get_hosts().is_empty() {
            return Err(not_a_url());
        }
        let tls = match config.get_ssl_mode() {
            SslMode::Require => Some(Tls::new()?),
            _ => None,
        };
        if let (None, Some(password)) = (config.get_password(), password) {
            config.password(password);
        }
        if config.get_application_name().is_none() {
            config.application_name("pelton");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE_LIMIT);
        }
        config.keepalives_idle(SILENCE_LIMIT);
        let place = place(&config);
        Ok(Self { config, tls, place })
    }

    /// Begins a session; it ends when the client is dropped.
    pub(super) async fn connect(&self) -> Result<Client, Failure> {
        // Whoever waits for an answer is told of a connection's failure by the client.
        let client = match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                tokio::spawn(connection);
                client
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(connection);
                client
            }
        };
        client.batch_execute(BEGIN_SESSION).await?;
        Ok(client)
    }
}

fn not_a_url() -> Error {
    Error::invalid("`url` is not the URL of a PostgreSQL database")
        .hint("postgresql://user@host:5432/database; special characters in a password are written as %40")
}

fn place(config: &Config) -> String {
    let mut place = String::new();
    for (nth, host) in config.get_hosts().iter().enumerate() {
        let ports = config.get_ports();
        let port = ports.get(nth).or(ports.first()).copied().unwrap_or(5432);
        let comma = if nth > 0 { "," } else { "" };
        let host = match host {
            Host::Tcp(name) => name.as_str(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.to_str().unwrap_or("socket"),
        };
        let _ = write!(place, "{comma}{host}:{port}");
    }
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("{place}/{database}")
}

/// Why something with the server did not come to its end.
pub(super) enum Failure {
    /// The server refused it or went away.
    Server(tokio_postgres::Error),
    /// It has nothing to do with the server.
    Other(Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Failure {
    /// Whether the same may succeed later, without anybody doing anything to the query or the table.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Server(error) if kind_of(error) == ErrorKind::Unavailable)
    }

    /// The server has refused a statement with this code.
    pub(super) fn is_code(&self, code: &SqlState) -> bool {
        matches!(self, Self::Server(error) if error.code() == Some(code))
    }

    /// What a person is told. `doing` is what was tried: `writing to a.b`.
    pub(super) fn into_error(self, place: &str, doing: &str) -> Error {
        let error = match self {
            Self::Server(error) => error,
            Self::Other(error) => return error,
        };
        let kind = kind_of(&error);
        let text = format!("PostgreSQL at {place}, {doing}: {}", words(&error));
        let hint = match (kind, error.code()) {
            (ErrorKind::Unavailable, _) => "start the query again when the server answers: nothing is lost",
            (_, Some(code)) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
                "GRANT what is missing to the user of the URL, or let an owner create the tables beforehand"
            }
            (_, Some(code)) if code.code().starts_with("28") => {
                "the password comes from the URL or from PGPASSWORD; ?sslmode=require in the URL encrypts the connection"
            }
            (_, None) => {
                "the password comes from the URL or from PGPASSWORD; with sslmode=require the system must trust the server's \
                 certificate, or the file that SSL_CERT_FILE names"
            }
            (ErrorKind::Data, _) => {
                "nothing of this micro-batch was written; mend the rows or the table, then start again"
            }
            _ => {
                "mend the table or the pipeline file, then start again: nothing of this micro-batch was written"
            }
        };
        Error::new(kind, text).hint(hint).caused_by(error)
    }
}

/// What the reader should do. Without a code it was the connection.
fn kind_of(error: &tokio_postgres::Error) -> ErrorKind {
    let Some(code) = error.code() else {
        // Refused by the client itself: no password, settings that contradict each other, a certificate.
        let text = error.to_string();
        let by_settings =
            ["invalid configuration", "authentication", "TLS"].iter().any(|word| text.contains(word));
        return if by_settings { ErrorKind::Invalid } else { ErrorKind::Unavailable };
    };
    match &code.code()[..2] {
        // Connection, transaction rollback (a deadlock, say), resources, somebody's intervention, system, a lock.
        "08" | "40" | "53" | "57" | "58" | "XX" => ErrorKind::Unavailable,
        "55" if *code == SqlState::LOCK_NOT_AVAILABLE => ErrorKind::Unavailable,
        // The server that answers is a standby.
        "25" if *code == SqlState::READ_ONLY_SQL_TRANSACTION => ErrorKind::Unavailable,
        "22" | "23" | "21" | "44" => ErrorKind::Data,
        _ => ErrorKind::Invalid,
    }
}

fn words(error: &tokio_postgres::Error) -> String {
    let Some(told) = error.as_db_error() else {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        return format!("{error}{}", cause.unwrap_or_default());
    };
    let mut words = told.message().to_owned();
    for more in [told.detail(), told.where_().and_then(|place| place.lines().next())].into_iter().flatten() {
        let _ = write!(words, " ({more})");
    }
    words
}

/// How often and how far apart something is tried again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retries {
    pub(super) first: Duration,
    pub(super) count: u32,
}

impl Retries {
    /// Half a minute: a server that starts again after a crash, or a fail-over.
    pub(super) const WRITING: Self = Self { first: Duration::from_millis(100), count: 12 };
    /// Three seconds: a wrong host should not keep anybody waiting.
    pub(super) const OPENING: Self = Self { first: Duration::from_millis(100), count: 5 };
    const LONGEST: Duration = Duration::from_secs(5);

    /// Waits after a failure that may pass; gives back one that will not, or that came too often. `failed` counts
    /// those before it.
    pub(super) async fn wait_after(&self, failure: Failure, failed: u32, place: &str) -> Result<(), Failure> {
        if !failure.is_transient() || failed >= self.count {
            return Err(failure);
        }
        let delay = (self.first * 2_u32.saturating_pow(failed)).min(Self::LONGEST);
        if let Failure::Server(error) = &failure {
            tracing::warn!("PostgreSQL at {place}: {}; trying again in {delay:?}", words(error));
        }
        tokio::time::sleep(delay).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Server::new(url, None).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_server_is_named_without_its_password() {
        let place = |url| Server::new(url, Some("s3cret")).unwrap().place;
        assert_eq!(place("postgresql://ann:s3cret@db.example.com/sales"), "db.example.com:5432/sales");
        assert_eq!(place("postgres://ann@a:1,b:2/sales"), "a:1,b:2/sales");
        assert_eq!(place("postgresql:///sales?host=/run/postgresql"), "/run/postgresql:5432/sales");
    }

    #[test]
    fn nothing_of_a_broken_url_is_shown() {
        for url in [
            "http://ann:s3cret@h/d",
            "postgresql://ann:s3@cret@h/d",
            "postgresql://ann:s3cret@h:x/d",
            "postgresql://ann:s3cret@h/d?unknown",
            "postgresql:///d",
        ] {
            let message = refused(url);
            assert!(message.starts_with("`url` is not the URL of a PostgreSQL database"), "{message}");
            assert!(!message.contains("cret"), "{message}");
        }
    }

    #[test]
    fn the_environments_password_fills_in() {
        let password = |url| Server::new(url, Some("env")).unwrap().config.get_password().map(<[u8]>::to_vec);
        assert_eq!(password("postgresql://ann@h/d"), Some(b"env".to_vec()));
        assert_eq!(password("postgresql://ann:url@h/d"), Some(b"url".to_vec()));
    }
}
