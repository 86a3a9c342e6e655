//! The secret that those must know who want to change something. Never shown, never logged.

use pelton_core::{Error, Result};
use std::path::Path;
use subtle::ConstantTimeEq;

/// Fewer characters can be guessed.
const CHARACTERS_MIN: usize = 16;

/// See above. It has no `Debug`.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// One for this run alone.
    #[allow(clippy::disallowed_methods, reason = "a secret, not data")]
    pub(crate) fn random() -> Self {
        let half = || uuid::Uuid::new_v4().simple().to_string();
        Self(half() + &half())
    }

    /// The one in a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|why| {
            Error::invalid(format!("cannot read the API's token from {}: {why}", path.display()))
        })?;
        warn_if_readable_by_all(path);
        Self::parse(text.trim()).map_err(|why| {
            Error::invalid(format!("{} holds no token for the API: {why}", path.display()))
                .hint("make one: (umask 077; head -c 32 /dev/urandom | base64 > FILE)")
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.len() < CHARACTERS_MIN {
            return Err(format!("it has {} characters and needs {CHARACTERS_MIN}", text.len()));
        }
        match text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(text.to_owned())),
            false => Err("it must be one word of printable ASCII".to_owned()),
        }
    }

    /// How long this takes does not tell how much of `given` is right.
    pub(crate) fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// For those who are to know it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

#[cfg(unix)]
fn warn_if_readable_by_all(path: &Path) {
    use std::os::unix::fs::MetadataExt;
    if path.metadata().is_ok_and(|file| file.mode() & 0o004 != 0) {
        tracing::warn!("every user of this machine can read the API's token in {}", path.display());
    }
}

#[cfg(not(unix))]
fn warn_if_readable_by_all(_path: &Path) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_token_is_the_token() {
        let token = Token::random();
        assert!(token.is(&token.0.clone()));
        assert!(!token.is("") && !token.is(&token.0[1..]) && !token.is(Token::random().reveal()));
        assert_eq!(token.reveal().len(), 64);
    }

    #[test]
    fn a_token_is_one_long_word() {
        assert!(Token::parse("0123456789abcdef").is_ok());
        for wrong in ["", "short", "0123456789 abcdef0", "0123456789abcdefü"] {
            assert!(Token::parse(wrong).is_err(), "{wrong}");
        }
    }
}
