//! Lengths as bytes: 7 bits a byte, the lowest first, the top bit set in all but the last, never longer than needed.
//! Called by the encoding of rows and by that of state files.

/// How many bytes a value takes.
pub(crate) fn length(value: usize) -> usize {
    (value.checked_ilog2().unwrap_or(0) / 7 + 1) as usize
}

/// Writes a value to the front of a buffer and gives how many bytes it took.
pub(crate) fn put(buffer: &mut [u8], mut value: usize) -> usize {
    let mut at = 0;
    while value >= 0x80 {
        buffer[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    buffer[at] = value as u8;
    at + 1
}

/// Appends a value.
pub(crate) fn push(value: usize, out: &mut Vec<u8>) {
    let mut buffer = [0; 10];
    let taken = put(&mut buffer, value);
    out.extend_from_slice(&buffer[..taken]);
}

/// Appends bytes after their length.
pub(crate) fn push_sized(bytes: &[u8], out: &mut Vec<u8>) {
    push(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Takes a value from the front, or nothing if there is none that [`put`] would have written.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    for shift in (0..usize::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = usize::from(byte & 0x7f);
        if bits.leading_zeros() < shift || (*byte == 0 && shift > 0) {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
