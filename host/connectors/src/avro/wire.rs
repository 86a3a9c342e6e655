//! The bytes of Avro values. Whatever the bytes are, reading ends with a value or a reason, and asks for no memory that
//! the input does not fill.

use super::{AvroSchema, Node};
use std::borrow::Cow;

/// Why bytes are no value.
pub(crate) type Fault = Cow<'static, str>;

/// Values without any bytes (nulls, empty records) in one input, at most: a count alone must not make work.
const EMPTY_VALUES_MAX: u64 = 1 << 16;
/// How deep a value that is skipped may be nested.
const DEPTH_MAX: usize = 64;

/// Where reading is.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    empty_values: u64,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, empty_values: 0 }
    }

    /// Bytes that are left.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or("the bytes end within a value")?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or("the bytes end within a value")?;
        self.bytes = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn long(&mut self) -> Result<i64, Fault> {
        let mut value = 0_u64;
        for (at, byte) in self.bytes.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                if at == 9 && *byte > 1 {
                    break;
                }
                self.bytes = &self.bytes[at + 1..];
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(if self.bytes.len() < 10 {
            "the bytes end within a number"
        } else {
            "a number has too many bytes"
        }
        .into())
    }

    pub(crate) fn int(&mut self) -> Result<i32, Fault> {
        i32::try_from(self.long()?).map_err(|_| "an int has more than 32 bits".into())
    }

    pub(crate) fn boolean(&mut self) -> Result<bool, Fault> {
        match self.array::<1>()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(format!("{other} is no boolean").into()),
        }
    }

    /// Bytes or text with their length in front.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let len = self.long()?;
        let len = usize::try_from(len).map_err(|_| format!("a length is {len}"))?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Result<&'a [u8], Fault> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| "a string is not UTF-8")?;
        Ok(bytes)
    }

    /// Which of `count` choices.
    pub(crate) fn index(&mut self, count: usize, what: &str) -> Result<usize, Fault> {
        let index = self.long()?;
        let known = usize::try_from(index).ok().filter(|index| *index < count);
        known.ok_or_else(|| format!("{what} {index} is none of the {count} of the schema").into())
    }

    /// Calls `item` for each item of an array or map.
    pub(crate) fn blocks(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        loop {
            let mut count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                // The size of the block in bytes, for those who skip it.
                self.long()?;
                count = count.checked_neg().ok_or("a block has too many items")?;
            }
            for _ in 0..count {
                self.counted(&mut item)?;
            }
        }
    }

    /// Reads a value, taking account of those that have no bytes.
    pub(crate) fn counted(
        &mut self,
        mut value: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let before = self.bytes.len();
        value(self)?;
        if self.bytes.len() == before {
            self.empty_values += 1;
            if self.empty_values > EMPTY_VALUES_MAX {
                return Err(format!("more than {EMPTY_VALUES_MAX} values without any bytes").into());
            }
        }
        Ok(())
    }

    /// Leaves out a value.
    pub(crate) fn skip(&mut self, schema: &AvroSchema, node: &Node, depth: usize) -> Result<(), Fault> {
        if depth > DEPTH_MAX {
            return Err(format!("a value is nested more than {DEPTH_MAX} deep").into());
        }
        match schema.resolve(node)? {
            Node::Null | Node::Named(_) => {}
            Node::Boolean => drop(self.array::<1>()?),
            Node::Int(_) | Node::Long(_) | Node::Enum(_) => drop(self.long()?),
            Node::Float => drop(self.array::<4>()?),
            Node::Double => drop(self.array::<8>()?),
            Node::Bytes(_) | Node::String => drop(self.bytes()?),
            Node::Fixed(fixed) => drop(self.take(fixed.size)?),
            Node::Array(item) => self.blocks(|cursor| cursor.skip(schema, item, depth + 1))?,
            Node::Map(value) => self.blocks(|cursor| {
                cursor.bytes()?;
                cursor.skip(schema, value, depth + 1)
            })?,
            Node::Record(record) => {
                record.fields.iter().try_for_each(|field| self.skip(schema, &field.node, depth + 1))?;
            }
            Node::Union(branches) => {
                let branch = self.index(branches.len(), "branch")?;
                self.skip(schema, &branches[branch], depth + 1)?;
            }
        }
        Ok(())
    }
}

/// Appends a number.
#[inline]
pub(crate) fn push_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = (value << 1 ^ value >> 63) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends bytes with their length in front.
pub(crate) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_long(out, i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_as_the_specification_has_them() {
        for (value, bytes) in [(0, &[0][..]), (-1, &[1]), (1, &[2]), (-64, &[0x7F]), (64, &[0x80, 1])] {
            let mut out = Vec::new();
            push_long(&mut out, value);
            assert_eq!(out, bytes);
        }
        let too_long = [0xFF; 11];
        assert_eq!(Cursor::new(&too_long).long().unwrap_err(), "a number has too many bytes");
        assert_eq!(Cursor::new(&too_long[..3]).long().unwrap_err(), "the bytes end within a number");
    }

    #[test]
    fn counts_alone_make_no_work() {
        let schema = AvroSchema::parse(r#"{"type": "array", "items": "null"}"#).unwrap();
        let mut bytes = Vec::new();
        push_long(&mut bytes, i64::MAX);
        let node = &schema.root().fields[0].node;
        let fault = Cursor::new(&bytes).skip(&schema, node, 0).unwrap_err();
        assert!(fault.contains("without any bytes"), "{fault}");
    }

    #[test]
    fn what_is_recursive_is_skipped_only_so_deep() {
        let text = r#"{"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}"#;
        let schema = AvroSchema::parse(text).unwrap();
        let node = Node::Record(schema.root().clone());
        assert!(Cursor::new(&[2, 2, 2, 0]).skip(&schema, &node, 0).is_ok());
        assert!(Cursor::new(&[2; 10_000]).skip(&schema, &node, 0).unwrap_err().contains("deep"));
    }

    proptest! {
        #[test]
        fn numbers_come_back(value: i64) {
            let mut out = Vec::new();
            push_long(&mut out, value);
            prop_assert_eq!(Cursor::new(&out).long().unwrap(), value);
        }
    }
}
