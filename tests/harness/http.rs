//! Asks a server over HTTP/1.1 as a test wants to ask it: with any host, any header, any method.

use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// No answer takes longer in a test that succeeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server.
#[derive(Debug, Clone)]
pub struct Http {
    address: String,
}

/// What it said.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// The lines above the body.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Http {
    /// At `http://ADDRESS:PORT`.
    pub fn new(url: &str) -> Self {
        Self { address: url.trim_start_matches("http://").trim_end_matches('/').to_owned() }
    }

    /// Asks without a token.
    pub fn get(&self, path: &str) -> Result<Answer> {
        self.ask("GET", path, &[])
    }

    /// Asks with these headers; `Host` is the server's address if it is not among them.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
        let mut stream = TcpStream::connect(&self.address)
            .with_context(|| format!("nothing listens on {}", self.address))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let host = [("Host", self.address.as_str())];
        let host = host.iter().filter(|_| !headers.iter().any(|(name, _)| *name == "Host"));
        let lines: String = host.chain(headers).map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request =
            format!("{method} {path} HTTP/1.1\r\n{lines}Content-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no HTTP: {text}"))?;
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok(Answer {
            status: status.with_context(|| format!("no status: {head}"))?,
            head: head.to_owned(),
            body: body.to_owned(),
        })
    }
}

impl Answer {
    /// The body, if it is JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("no JSON: {}", self.body))
    }
}
