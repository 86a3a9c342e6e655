//! Avro's object container files: a header with the schema, then blocks of values, each compressed on its own.

use super::AvroSchema;
use super::wire::{Cursor, push_bytes, push_long};
use crate::decode::fault::{FileFault, read_exactly};
use pelton_core::suggest::did_you_mean;
use pelton_core::{Error, Result};
use std::borrow::Cow;
use std::io::{self, BufRead, Read, Write};

const MAGIC: [u8; 4] = *b"Obj\x01";
const SCHEMA: &str = "avro.schema";
const CODEC: &str = "avro.codec";
/// Bytes of a header, and of a block before and after decompression, at most.
const HEADER_BYTES_MAX: usize = 16 << 20;
const BLOCK_BYTES_MAX: usize = 256 << 20;
/// zstd's own default, which Spark's is too.
const ZSTD_LEVEL: i32 = 3;

/// How blocks are compressed, by Spark's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Uncompressed,
    Deflate,
    Snappy,
    Zstandard,
}

impl Codec {
    const NAMES: [&'static str; 4] = ["uncompressed", "deflate", "snappy", "zstandard"];

    /// Spark's option `compression`; snappy unless said.
    pub(crate) fn from_option(name: Option<&str>) -> Result<Self> {
        Ok(match name.map(str::to_ascii_lowercase).as_deref() {
            None | Some("snappy") => Self::Snappy,
            Some("uncompressed" | "none") => Self::Uncompressed,
            Some("deflate") => Self::Deflate,
            Some("zstandard" | "zstd") => Self::Zstandard,
            Some(other) => {
                let near = did_you_mean(other, Self::NAMES);
                return Err(Error::invalid(format!("avro files cannot be compressed with '{other}'{near}"))
                    .hint(format!("compression is one of {}", Self::NAMES.join(", "))));
            }
        })
    }

    fn of_file(name: &[u8]) -> Result<Self, String> {
        match name {
            b"null" | b"" => Ok(Self::Uncompressed),
            b"deflate" => Ok(Self::Deflate),
            b"snappy" => Ok(Self::Snappy),
            b"zstandard" => Ok(Self::Zstandard),
            other => Err(format!(
                "blocks compressed with '{}' cannot be read, only with deflate, snappy or zstandard",
                String::from_utf8_lossy(other)
            )),
        }
    }

    fn in_file(self) -> &'static str {
        match self {
            Self::Uncompressed => "null",
            Self::Deflate => "deflate",
            Self::Snappy => "snappy",
            Self::Zstandard => "zstandard",
        }
    }

    fn compress(self, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        match self {
            Self::Uncompressed => Ok(bytes),
            Self::Deflate => {
                let out = Vec::with_capacity(bytes.len() / 2);
                let mut encoder = flate2::write::DeflateEncoder::new(out, flate2::Compression::default());
                encoder.write_all(&bytes)?;
                encoder.finish()
            }
            Self::Snappy => {
                let mut out = snap::raw::Encoder::new().compress_vec(&bytes).map_err(io::Error::other)?;
                out.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
                Ok(out)
            }
            Self::Zstandard => zstd::bulk::compress(&bytes, ZSTD_LEVEL),
        }
    }

    fn decompress(self, bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
        let damaged = |e: &dyn std::fmt::Display| format!("a block cannot be decompressed: {e}");
        let out = match self {
            Self::Uncompressed => return Ok(Cow::Borrowed(bytes)),
            Self::Deflate => bounded(flate2::bufread::DeflateDecoder::new(bytes)).map_err(|e| damaged(&e))?,
            Self::Zstandard => {
                let decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(|e| damaged(&e))?;
                bounded(decoder).map_err(|e| damaged(&e))?
            }
            Self::Snappy => {
                let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(|| damaged(&"it is too short"))?;
                match snap::raw::decompress_len(body) {
                    Ok(len) if len <= BLOCK_BYTES_MAX && len <= body.len().saturating_mul(64) + 64 => {}
                    _ => return Err(damaged(&"its length is wrong")),
                }
                let out = snap::raw::Decoder::new().decompress_vec(body).map_err(|e| damaged(&e))?;
                if crc32fast::hash(&out) != u32::from_be_bytes(*sum) {
                    return Err(damaged(&"its checksum is wrong"));
                }
                out
            }
        };
        Ok(Cow::Owned(out))
    }
}

fn bounded(decoder: impl Read) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    decoder.take(BLOCK_BYTES_MAX as u64 + 1).read_to_end(&mut out)?;
    if out.len() > BLOCK_BYTES_MAX {
        return Err(io::Error::other(format!("it holds more than {BLOCK_BYTES_MAX} bytes")));
    }
    Ok(out)
}

/// What stands before the blocks of a file.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) schema: AvroSchema,
    codec: Codec,
    sync: [u8; 16],
}

/// A block as it lies in a file.
#[derive(Debug)]
pub(crate) struct RawBlock {
    /// How many values it says to hold.
    pub(crate) count: i64,
    bytes: Vec<u8>,
}

impl Header {
    /// The header of a file to be written. The mark between blocks follows from the schema, so that the same rows give
    /// the same bytes; readers find blocks by their lengths and only check the mark.
    pub(crate) fn new(schema: AvroSchema, codec: Codec) -> Self {
        let mut sync = [0; 16];
        for (seed, part) in (1_u32..).zip(sync.chunks_exact_mut(4)) {
            let mut sum = crc32fast::Hasher::new_with_initial(seed);
            sum.update(schema.text().as_bytes());
            part.copy_from_slice(&sum.finalize().to_be_bytes());
        }
        Self { schema, codec, sync }
    }

    /// The bytes of the header.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        push_long(&mut out, 2);
        for (key, value) in [(SCHEMA, self.schema.text()), (CODEC, self.codec.in_file())] {
            push_bytes(&mut out, key.as_bytes());
            push_bytes(&mut out, value.as_bytes());
        }
        push_long(&mut out, 0);
        out.extend_from_slice(&self.sync);
        out
    }

    /// Appends a block of values.
    pub(crate) fn push_block(&self, count: usize, values: Vec<u8>, out: &mut Vec<u8>) -> Result<()> {
        let values = self.codec.compress(values);
        let values = values.map_err(|e| Error::internal(format!("compressing failed: {e}")).caused_by(e))?;
        push_long(out, i64::try_from(count).unwrap_or(i64::MAX));
        push_bytes(out, &values);
        out.extend_from_slice(&self.sync);
        Ok(())
    }

    /// Reads the header of a file.
    pub(crate) fn read(input: &mut impl BufRead) -> Result<Self, FileFault> {
        let mut magic = [0; 4];
        if read_up_to(input, &mut magic)? < 4 || magic != MAGIC {
            return Err(FileFault::Damaged("it does not begin as an Avro file does".into()));
        }
        let (mut schema, mut codec) = (None, Codec::Uncompressed);
        let mut left = HEADER_BYTES_MAX;
        loop {
            let mut count = read_long(input)?.ok_or_else(|| "it ends within its header".to_owned())?;
            if count == 0 {
                break;
            }
            if count < 0 {
                read_long(input)?;
                count = count.saturating_neg();
            }
            for _ in 0..count {
                let (key, value) = (read_bytes(input, &mut left)?, read_bytes(input, &mut left)?);
                match key.as_slice() {
                    b"avro.schema" => schema = Some(String::from_utf8_lossy(&value).into_owned()),
                    b"avro.codec" => codec = Codec::of_file(&value)?,
                    _ => {}
                }
            }
        }
        let mut sync = [0; 16];
        input.read_exact(&mut sync)?;
        let schema = schema.ok_or_else(|| "its header has no schema".to_owned())?;
        let schema = AvroSchema::parse(&schema).map_err(|e| e.message().to_owned())?;
        Ok(Self { schema, codec, sync })
    }

    /// Reads the next block; nothing at the end of the file.
    pub(crate) fn next(&self, input: &mut impl BufRead) -> Result<Option<RawBlock>, FileFault> {
        let Some(count) = read_long(input)? else { return Ok(None) };
        let mut left = BLOCK_BYTES_MAX;
        let bytes = read_bytes(input, &mut left)?;
        let mut sync = [0; 16];
        input.read_exact(&mut sync)?;
        match count < 0 || sync != self.sync {
            true => Err(FileFault::Damaged("a block does not end with the file's mark".into())),
            false => Ok(Some(RawBlock { count, bytes })),
        }
    }

    /// Gives the values of a block to `value`, one by one.
    pub(crate) fn each(
        &self,
        block: &RawBlock,
        mut value: impl FnMut(&mut Cursor<'_>) -> Result<(), super::wire::Fault>,
    ) -> Result<(), String> {
        let bytes = self.codec.decompress(&block.bytes)?;
        let mut cursor = Cursor::new(&bytes);
        for _ in 0..block.count {
            cursor.counted(&mut value)?;
        }
        match cursor.len() {
            0 => Ok(()),
            left => Err(format!("a block holds {left} bytes more than its {} values", block.count)),
        }
    }
}

impl RawBlock {
    /// Bytes that it takes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }
}

fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// A number; nothing at the end of the input.
fn read_long(input: &mut impl BufRead) -> Result<Option<i64>, FileFault> {
    let mut bytes = Vec::with_capacity(10);
    for byte in input.by_ref().take(10).bytes() {
        let byte = byte?;
        bytes.push(byte);
        if byte & 0x80 == 0 {
            break;
        }
    }
    match bytes.is_empty() {
        true => Ok(None),
        false => Ok(Some(Cursor::new(&bytes).long().map_err(String::from)?)),
    }
}

/// Bytes with their length in front, of which `left` more may be read.
fn read_bytes(input: &mut impl BufRead, left: &mut usize) -> Result<Vec<u8>, FileFault> {
    let len = read_long(input)?.ok_or_else(|| "it ends within a block".to_owned())?;
    let wanted = usize::try_from(len).ok().filter(|len| len <= left);
    let wanted = wanted.ok_or_else(|| format!("a length of {len} is not possible"))?;
    *left -= wanted;
    let mut bytes = Vec::new();
    read_exactly(input, wanted, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_gives_the_values_back() {
        let values = b"0123456789".repeat(1000);
        for codec in [Codec::Uncompressed, Codec::Deflate, Codec::Snappy, Codec::Zstandard] {
            let header = Header::new(AvroSchema::parse("\"bytes\"").unwrap(), codec);
            let mut value = Vec::new();
            push_bytes(&mut value, &values);
            let mut file = header.bytes();
            header.push_block(1, value, &mut file).unwrap();
            let mut input = &file[..];
            let read = Header::read(&mut input).unwrap();
            assert_eq!(read.codec, codec);
            let block = read.next(&mut input).unwrap().unwrap();
            let mut found = Vec::new();
            let each = |cursor: &mut Cursor<'_>| {
                found = cursor.bytes()?.to_vec();
                Ok(())
            };
            read.each(&block, each).unwrap();
            assert_eq!(found, values);
            assert!(read.next(&mut input).unwrap().is_none());
            // Whatever is cut off is noticed.
            for len in 1..file.len() {
                let mut input = &file[..len];
                let whole = Header::read(&mut input).and_then(|header| header.next(&mut input));
                assert!(!matches!(whole, Ok(Some(_))), "{codec:?} at {len}");
            }
        }
    }
}
