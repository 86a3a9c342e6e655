//! The rows of one group.

use crate::function::Rejected;
use crate::input::Input;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

/// The rows of a group, in the order in which they came; none if the group is called for its timeout or a timer.
///
/// A row with a null where `T` has no place for it is refused (it goes to the dead letters) and left out.
pub struct Rows<'r, T> {
    reader: &'r dyn ReadRow<T>,
    refused: &'r RefCell<Vec<Rejected>>,
    range: Range<usize>,
    last: Option<usize>,
}

impl<'r, T> Rows<'r, T> {
    pub(crate) fn new(
        reader: &'r dyn ReadRow<T>,
        refused: &'r RefCell<Vec<Rejected>>,
        range: Range<usize>,
    ) -> Self {
        Self { reader, refused, range, last: None }
    }

    /// How many rows are left, those included that will be refused.
    pub fn remaining(&self) -> usize {
        self.range.len()
    }

    /// Refuses the row that came last: it goes to the dead letters. What was made of it is the function's business.
    pub fn refuse(&mut self, reason: impl Into<String>) {
        if let Some(row) = self.last.take() {
            self.refused.borrow_mut().push(Rejected { row: row as u32, reason: reason.into() });
        }
    }
}

impl<T> Iterator for Rows<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        loop {
            let row = self.range.next()?;
            self.last = Some(row);
            match self.reader.read(row) {
                Ok(value) => return Some(value),
                Err(reason) => self.refuse(reason),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.range.len()))
    }
}

impl<T> fmt::Debug for Rows<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("remaining", &self.remaining()).finish()
    }
}

/// Reads rows without saying what they borrow.
pub(crate) trait ReadRow<T> {
    fn read(&self, row: usize) -> Result<T, String>;
}

/// Reads rows of a call.
pub(crate) struct Reader<'a, T: Input<'a>>(pub(crate) T::Reader);

impl<'a, T: Input<'a>> ReadRow<T> for Reader<'a, T> {
    #[inline]
    fn read(&self, row: usize) -> Result<T, String> {
        T::read(&self.0, row).map_err(|missing| missing.reason())
    }
}
