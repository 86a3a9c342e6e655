//! The bytes of a state file: what one micro-batch changed, and a piece of what there is.
//!
//! ```text
//! "PELTONST"  version u32  header length u32  CRC32 of the header u32  header (JSON)  changes  sweep
//! ```
//! Numbers are little-endian. The header names the lengths and the CRC32 of both sections, and the tables that were
//! changed: if the changes are damaged one knows in what. For the bytes of a section see `section`.
//!
//! Called by the store and by its restoration; never does I/O, never trusts a length.

use super::section::Section;
use pelton_core::BatchId;
use serde::{Deserialize, Serialize};

/// The version that is written.
pub(super) const FORMAT: u32 = 4;
/// The oldest that is read: its groups do not say how long they are, its headers do not name tables.
pub(super) const FORMAT_MIN: u32 = 2;
/// From this version on the names of files say what is in them.
const FORMAT_WITH_NAMES: u32 = 4;
const MAGIC: &[u8; 8] = b"PELTONST";
const HEAD: usize = MAGIC.len() + 12;

/// How a file is named by its follower or by a commit: nothing else counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) batch: BatchId,
    /// Of the whole file.
    pub(super) bytes: u64,
    /// Of the header, and so of everything.
    pub(super) crc32: u32,
    /// The version of the file; links to earlier ones do not say it.
    #[serde(default)]
    pub(super) format: u32,
}

impl Link {
    /// Where the file lies. Two runs of a micro-batch that say something else write two files: none of them takes
    /// the place of what the other has committed.
    pub(super) fn path(self) -> String {
        match self.format >= FORMAT_WITH_NAMES {
            true => format!("{DIRECTORY}/{}-{:08x}", self.batch, self.crc32),
            false => format!("{DIRECTORY}/{}", self.batch),
        }
    }
}

/// The micro-batch of a file that lies somewhere; none: it is no state file.
pub(super) fn batch_of(path: &str) -> Option<BatchId> {
    let name = path.strip_prefix(DIRECTORY)?.strip_prefix('/')?;
    let number = match name.split_once('-') {
        Some((number, crc32)) if crc32.len() == 8 => number,
        Some(_) => return None,
        None => name,
    };
    number.parse().ok().map(BatchId)
}

/// Where all of them lie.
pub(super) const DIRECTORY: &str = "deltas";

/// What a file says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) batch: BatchId,
    /// The file before; none is the beginning, with empty state.
    pub(super) previous: Option<Link>,
    pub(super) changes: SectionInfo,
    pub(super) sweep: SectionInfo,
    /// The file in which the sweep began that this one's belongs to.
    pub(super) sweep_began: BatchId,
    /// The file in which the last complete sweep before that one began; none: the beginning.
    pub(super) sweep_before: Option<BatchId>,
    /// The file in which the complete sweep before that one began; none: the beginning.
    #[serde(default)]
    pub(super) sweep_spare: Option<BatchId>,
    /// How far the sweep is after this file; none: it is complete.
    pub(super) sweep_at: Option<Position>,
    /// The tables in which something changed; none of a format that does not say.
    #[serde(default)]
    pub(super) tables: Vec<String>,
}

impl Header {
    /// The file from which on all must be replayed to have the state after this one; none: the beginning.
    pub(super) fn base(&self) -> Option<BatchId> {
        if self.sweep_at.is_none() { Some(self.sweep_began) } else { self.sweep_before }
    }

    /// The same if a piece of that sweep is damaged.
    pub(super) fn spare(&self) -> Option<BatchId> {
        if self.sweep_at.is_none() { self.sweep_before } else { self.sweep_spare }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SectionInfo {
    pub(super) bytes: u64,
    pub(super) crc32: u32,
    pub(super) records: u64,
}

/// A key among all keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) shard: usize,
    pub(super) table: String,
    pub(super) key: Vec<u8>,
}

/// The bytes of a file, and how it is named.
pub(super) fn write(
    header: &Header,
    changes: Section,
    sweep: Section,
) -> serde_json::Result<(Vec<u8>, Link)> {
    let json = serde_json::to_vec(header)?;
    let crc32 = crc32fast::hash(&json);
    let mut bytes = Vec::with_capacity(HEAD + json.len() + changes.len() + sweep.len());
    bytes.extend_from_slice(MAGIC);
    for number in [FORMAT, json.len() as u32, crc32] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&json);
    for part in changes.into_parts().chain(sweep.into_parts()) {
        bytes.extend_from_slice(&part);
    }
    let link = Link { batch: header.batch, bytes: bytes.len() as u64, crc32, format: FORMAT };
    Ok((bytes, link))
}

/// A file that was read: its header and sections.
#[derive(Debug)]
pub(super) struct File<'a> {
    pub(super) version: u32,
    pub(super) header: Header,
    pub(super) changes: &'a [u8],
    /// None: it is damaged.
    pub(super) sweep: Option<&'a [u8]>,
}

/// What is wrong with a file.
#[derive(Debug)]
pub(super) struct Damage {
    /// `is cut off`.
    pub(super) what: String,
    /// The tables of which it held changes, if that can still be read.
    pub(super) tables: Vec<String>,
}

impl From<&str> for Damage {
    fn from(what: &str) -> Self {
        Self { what: what.to_owned(), tables: Vec::new() }
    }
}

/// Reads a file that a link names, or says what is wrong with it.
pub(super) fn read(bytes: &[u8], link: Link) -> Result<File<'_>, Damage> {
    let (version, header, rest) = read_header(bytes, link)?;
    let of_header = |what: &str| Damage { tables: header.tables.clone(), ..what.into() };
    let Some((changes, rest)) = split(rest, header.changes) else { return Err(of_header("is cut off")) };
    if crc32fast::hash(changes) != header.changes.crc32 {
        return Err(of_header("is damaged where the changes are"));
    }
    let sweep = split(rest, header.sweep).filter(|(_, rest)| rest.is_empty()).map(|(sweep, _)| sweep);
    let sweep = sweep.filter(|sweep| crc32fast::hash(sweep) == header.sweep.crc32);
    Ok(File { version, header, changes, sweep })
}

fn read_header(bytes: &[u8], link: Link) -> Result<(u32, Header, &[u8]), Damage> {
    let short = || Damage::from("is cut off");
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    if magic != MAGIC {
        return Err("is not a state file".into());
    }
    let version = u32::from_le_bytes(*version);
    if !(FORMAT_MIN..=FORMAT).contains(&version) {
        let what =
            format!("is of format {version}, this version of Pelton reads formats {FORMAT_MIN} to {FORMAT}");
        return Err(what.as_str().into());
    }
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (crc32, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (json, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
    if crc32fast::hash(json) != u32::from_le_bytes(*crc32) {
        return Err("has a damaged header".into());
    }
    if u32::from_le_bytes(*crc32) != link.crc32 {
        return Err("is another file than the one that was committed".into());
    }
    let header = serde_json::from_slice(json);
    let header = header.map_err(|e| Damage::from(format!("has an unreadable header: {e}").as_str()))?;
    Ok((version, header, rest))
}

fn split(bytes: &[u8], info: SectionInfo) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(usize::try_from(info.bytes).ok()?)
}
