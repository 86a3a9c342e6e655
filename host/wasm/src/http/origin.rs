//! Whom a plugin may speak to: scheme, host and port, each exactly. Read from the pipeline file by the binary; no I/O.

use reqwest::Url;
use std::fmt;

/// `https://hooks.example.com`, `http://localhost:8080`: what a URL must begin with, and nothing but that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpOrigin {
    scheme: String,
    host: String,
    port: u16,
}

impl HttpOrigin {
    /// An origin as the pipeline file names it; without a scheme it is `https`.
    ///
    /// # Errors
    /// What is wrong with it, for the one who wrote it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let url = Url::parse(&whole).map_err(|why| format!("'{text}' is no host: {why}"))?;
        let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let has_user = !url.username().is_empty() || url.password().is_some();
        if !is_bare || has_user {
            return Err(format!(
                "'{text}' names more than a host: give a host, or scheme, host and port, such as https://hooks.example.com"
            ));
        }
        if text.contains('*') {
            return Err(format!("'{text}' is a pattern: hosts are named one by one"));
        }
        Self::of(&url).ok_or_else(|| format!("'{text}' is neither http nor https"))
    }

    /// That of a URL; none if it is not of HTTP.
    pub(super) fn of(url: &Url) -> Option<Self> {
        let scheme = Some(url.scheme()).filter(|scheme| matches!(*scheme, "http" | "https"))?.to_owned();
        Some(Self { scheme, host: url.host_str()?.to_owned(), port: url.port_or_known_default()? })
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }
}

/// As a URL begins: the port only if it is not the scheme's own.
impl fmt::Display for HttpOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        match (self.scheme.as_str(), self.port) {
            ("http", 80) | ("https", 443) => Ok(()),
            (_, port) => write!(f, ":{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_https_and_everything_is_exact() {
        let origin = |text| HttpOrigin::parse(text).expect("an origin");
        let of = |url| HttpOrigin::of(&Url::parse(url).expect("a URL"));
        assert_eq!(of("https://hooks.example.com/a?b"), Some(origin("hooks.example.com")));
        assert_eq!(of("https://HOOKS.example.com:443/"), Some(origin("https://hooks.example.com")));
        assert_eq!(of("http://127.1:8080/"), Some(origin("http://127.0.0.1:8080")));
        for other in [
            "http://hooks.example.com/",
            "https://hooks.example.com:8443/",
            "https://hooks.example.com./",
            "https://hooks.example.com.evil.example/",
            "https://evil.example/https://hooks.example.com",
            "ftp://hooks.example.com/",
        ] {
            assert_ne!(of(other), Some(origin("hooks.example.com")), "{other}");
        }
        assert_eq!(origin("http://a:8080").to_string(), "http://a:8080");
        assert_eq!(origin("a:443").to_string(), "https://a");
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for (text, why) in [
            ("https://a/path", "names more than a host"),
            ("user@a", "names more than a host"),
            ("*.example.com", "is a pattern"),
            ("ftp://a", "neither http nor https"),
            ("", "is no host"),
        ] {
            assert!(HttpOrigin::parse(text).is_err_and(|e| e.contains(why)), "{text}");
        }
    }
}
