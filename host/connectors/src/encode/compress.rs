//! Compression of text files, by pieces: every piece is a gzip member or zstd frame of its own, so that they can
//! be made side by side and still give the same bytes.

use crate::decode::options::Bag;
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use std::io::Write;

/// How a text file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// `.gz`
    Gzip,
    /// `.zst`
    Zstd,
}

const NAMES: [&str; 4] = ["none", "uncompressed", "gzip", "zstd"];
/// zstd's own default.
const ZSTD_LEVEL: i32 = 3;

impl Compression {
    /// The option `compression`.
    pub(crate) fn from_options(bag: &mut Bag<'_>) -> Result<Self> {
        let Some(name) = bag.text("compression")? else { return Ok(Self::None) };
        match name.to_ascii_lowercase().as_str() {
            "none" | "uncompressed" => Ok(Self::None),
            "gzip" => Ok(Self::Gzip),
            "zstd" => Ok(Self::Zstd),
            _ => Err(Error::invalid(format!(
                "text files cannot be compressed with '{name}'{}",
                did_you_mean(&name, NAMES)
            ))),
        }
    }

    /// What it adds to a file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
        }
    }

    /// Compresses a piece; nothing stays nothing.
    pub(crate) fn apply(self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let failed = |e: std::io::Error| Error::internal(format!("compressing failed: {e}")).caused_by(e);
        match self {
            _ if bytes.is_empty() => Ok(bytes),
            Self::None => Ok(bytes),
            Self::Gzip => {
                let buffer = Vec::with_capacity(bytes.len() / 4);
                let mut encoder = flate2::write::GzEncoder::new(buffer, flate2::Compression::default());
                encoder.write_all(&bytes).and_then(|()| encoder.finish()).map_err(failed)
            }
            Self::Zstd => zstd::bulk::compress(&bytes, ZSTD_LEVEL).map_err(failed),
        }
    }
}
