//! The form of everything that a checkpoint writes: three lines that a person can read and a program can check.
//!
//! ```text
//! v1
//! {"batch_time_ms":1796019617281,"sources":{"flights":{"start":3,"end":4}}}
//! crc32:5d0c1a77
//! ```
//!
//! The first line is the format's version, the second JSON, the third the CRC-32 of the two lines before it
//! (line ends included). Called by the logs and by the metadata; opens no file itself.

use bytes::Bytes;
use pelton_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The newest format that this Pelton reads, and the one that it writes.
pub const FORMAT_VERSION: u32 = 1;

/// Writes an entry.
pub(crate) fn encode(value: &impl Serialize) -> Result<Bytes> {
    let json = serde_json::to_string(value)
        .map_err(|e| Error::internal(format!("a checkpoint entry does not serialise: {e}")).caused_by(e))?;
    let body = format!("v{FORMAT_VERSION}\n{json}\n");
    Ok(Bytes::from(format!("{body}crc32:{:08x}\n", crc32fast::hash(body.as_bytes()))))
}

/// Why the bytes of an entry are not what was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Written by a newer Pelton.
    Newer(String),
    /// Not an entry of Pelton's at all.
    Foreign,
    /// Cut off, edited, or bits have changed.
    Broken(String),
}

/// Reads an entry.
pub(crate) fn decode<T: DeserializeOwned>(content: &[u8]) -> Result<T, Damage> {
    let broken = |why: &str| Damage::Broken(why.to_owned());
    if content.is_empty() {
        return Err(broken("it is empty"));
    }
    let text = std::str::from_utf8(content).map_err(|_| broken("it is not text"))?;
    let (version, _) = text.split_once('\n').unwrap_or((text, ""));
    match version.strip_prefix('v').and_then(|number| number.parse::<u32>().ok()) {
        None => return Err(Damage::Foreign),
        Some(number) if number > FORMAT_VERSION => return Err(Damage::Newer(version.to_owned())),
        Some(_) => {}
    }
    let (body, checksum) = text
        .strip_suffix('\n')
        .and_then(|text| text.rfind('\n').map(|at| text.split_at(at + 1)))
        .ok_or_else(|| broken("it is cut off"))?;
    let written = checksum.strip_prefix("crc32:").ok_or_else(|| broken("it is cut off"))?;
    if written != format!("{:08x}", crc32fast::hash(body.as_bytes())) {
        return Err(broken("its checksum does not match; it was changed after it was written"));
    }
    let json = body.split_once('\n').map_or("", |(_, json)| json);
    serde_json::from_str(json).map_err(|e| Damage::Broken(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn written() -> Vec<u8> {
        encode(&json!({"a": 1, "text": "line\nbreak"})).unwrap().to_vec()
    }

    #[test]
    fn reads_what_it_wrote_and_a_person_can_too() {
        let content = written();
        assert_eq!(decode::<Value>(&content), Ok(json!({"a": 1, "text": "line\nbreak"})));
        let text = String::from_utf8(content).unwrap();
        assert!(text.starts_with("v1\n{\"a\":1,"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_found() {
        let content = written();
        for length in 0..content.len() {
            assert!(decode::<Value>(&content[..length]).is_err(), "cut to {length}");
        }
        for at in 0..content.len() {
            for bit in 0..8 {
                let mut changed = content.clone();
                changed[at] ^= 1 << bit;
                assert!(decode::<Value>(&changed).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn newer_and_foreign_entries_are_told_apart() {
        assert_eq!(decode::<Value>(b"v2\nwhatever"), Err(Damage::Newer("v2".into())));
        assert_eq!(decode::<Value>(br#"{"id":"3441f391"}"#), Err(Damage::Foreign));
    }
}
