//! What is wrong with a file that has a form of its own (Avro, Arrow), before its name is known.

use pelton_core::Error;
use std::io;

/// Why a file cannot be read on.
#[derive(Debug)]
pub(crate) enum FileFault {
    /// Reading its bytes failed.
    Io(io::Error),
    /// Its bytes are not what they must be, and why.
    Damaged(String),
}

impl FileFault {
    /// The error, naming the file and its format.
    pub(crate) fn of(self, name: &str, format: &str) -> Error {
        match self {
            Self::Damaged(why) => damaged(name, format, &why),
            Self::Io(e) => match e.downcast::<Error>() {
                Ok(error) => error,
                Err(e) => Error::unavailable(format!("{name} cannot be read: {e}")).caused_by(e),
            },
        }
    }
}

/// A file is not what its format says.
pub(crate) fn damaged(name: &str, format: &str, why: &str) -> Error {
    Error::data(format!("{name}: not readable as {format}: {why}"))
}

impl From<io::Error> for FileFault {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("it ends too early".into()),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => Self::Damaged(e.to_string()),
            _ => Self::Io(e),
        }
    }
}

impl From<String> for FileFault {
    fn from(why: String) -> Self {
        Self::Damaged(why)
    }
}

/// Bytes of the input, as many as wanted. Memory grows with what is there, not with what a length says.
pub(crate) fn read_exactly(
    input: &mut impl io::Read,
    wanted: usize,
    into: &mut Vec<u8>,
) -> Result<(), FileFault> {
    use io::Read;
    match input.by_ref().take(wanted as u64).read_to_end(into)? {
        read if read < wanted => Err(FileFault::Damaged("it ends too early".into())),
        _ => Ok(()),
    }
}
