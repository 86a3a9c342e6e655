//! Runs a function as the host would, through the same messages, without Wasm: for a plugin's own tests. Functions over
//! groups are driven by script ([`groups`]), sinks by micro-batch ([`sink`](fn@sink)).
//!
//! ```
//! #[derive(pelton::Row)]
//! struct Word<'a> { text: &'a str }
//! #[derive(pelton::Row, Debug, PartialEq)]
//! struct Length { length: i64 }
//!
//! /// Counts characters.
//! #[pelton::map]
//! fn length(word: Word) -> Result<Length, String> {
//!     if word.text.is_empty() { return Err("an empty word".to_owned()); }
//!     Ok(Length { length: word.text.chars().count() as i64 })
//! }
//! # fn main() {
//! let answer = pelton::testing::function::<length>().rows([Word { text: "wheel" }, Word { text: "" }]).unwrap();
//! assert_eq!(answer.rows::<Length>().unwrap(), [Length { length: 5 }]);
//! assert_eq!(answer.rejected()[0].reason, "an empty word");
//! # }
//! ```

mod groups;
mod messages;
mod rows;
mod sink;
mod store;

pub use groups::{Batch, Script, groups};
pub use sink::{SinkTest, sink};

use crate::context::Clock;
use crate::error::Error;
use crate::function::{Entry, Exported, Rejected};
use crate::host::{Level, sink as host};
use crate::input::{Arguments, Matching};
use crate::ipc::{self, Encoder};
use crate::output::{Build, BuildRow, Output, Row};
use crate::runtime::{Plugin, Session};
use crate::types::Schema;
use std::collections::BTreeMap;

/// Starts a test of a function.
pub fn function<F: Exported>() -> Test {
    Test { entry: F::ENTRY, config: "{}".to_owned(), clock: Clock::default() }
}

/// A function and what it is to be called with.
pub struct Test {
    entry: Entry,
    config: String,
    clock: Clock,
}

impl Test {
    /// The configuration, as JSON.
    #[must_use]
    pub fn config(mut self, json: &str) -> Self {
        json.clone_into(&mut self.config);
        self
    }
    /// The clock of the call.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the function for rows of `R` and calls it with these.
    ///
    /// # Errors
    /// As the function's own.
    pub fn rows<R: Row>(self, rows: impl IntoIterator<Item = R>) -> Result<Answer, Error> {
        let schema = Schema::new(R::columns());
        let mut builder = <R as Output>::Builder::default();
        rows.into_iter().for_each(|row| row.append(&mut builder));
        let mut encoder = Encoder::default();
        encoder.begin(&schema);
        builder.write_columns(&mut encoder);
        self.messages(&ipc::write_schema(&schema), encoder.finish(builder.len()))
    }

    /// Opens the function for an Arrow IPC schema message and calls it with a record-batch message.
    ///
    /// # Errors
    /// As the function's own.
    pub fn messages(self, schema: &[u8], rows: &[u8]) -> Result<Answer, Error> {
        let (name, kind) = (self.entry.name, self.entry.kind);
        let functions = Vec::leak(vec![self.entry]);
        let plugin = Plugin { name: "test", version: "0", functions };
        host::take();
        let (mut session, schema) = Session::open(&plugin, kind, name, &self.config, schema)?;
        session.run(self.clock, rows)?;
        Ok(Answer { session, schema, seen: host::take() })
    }
}

/// What a function answered.
pub struct Answer {
    session: Session,
    schema: Vec<u8>,
    seen: host::Seen,
}

impl Answer {
    /// The rows that came out.
    ///
    /// # Errors
    /// If they do not have the columns that `R` reads, or hold a null where it has no place for one.
    pub fn rows<'a, R: crate::input::Input<'a>>(&'a self) -> Result<Vec<R>, Error> {
        let rows = self.all::<(R,)>()?;
        Ok(rows.into_iter().map(|(row,)| row).collect())
    }

    fn all<'a, A: Arguments<'a>>(&'a self) -> Result<Vec<A>, Error> {
        let schema = self.session.output();
        let rows = ipc::read_batch(self.session.message(), schema)?;
        let plan = A::plan(schema, Matching::Name).map_err(Error::Failed)?;
        let reader = A::reader(&plan, &rows)?;
        let read = |row| A::read(&reader, row).map_err(Error::Failed);
        (0..rows.len()).map(read).collect()
    }

    /// The values that a scalar function made.
    ///
    /// # Errors
    /// If they are of another type, or hold a null where `T` has no place for one.
    pub fn column<'a, T: crate::input::Input<'a>>(&'a self) -> Result<Vec<T>, Error> {
        self.rows()
    }

    /// The columns that came out.
    pub fn schema(&self) -> &Schema {
        self.session.output()
    }
    /// The schema message and the record-batch message, as the host would get them.
    pub fn messages(&self) -> (&[u8], &[u8]) {
        (&self.schema, self.session.message())
    }
    /// The input rows that were refused.
    pub fn rejected(&self) -> &[Rejected] {
        self.session.rejected()
    }
    /// What was logged.
    pub fn logs(&self) -> &[(Level, String)] {
        &self.seen.logs
    }
    /// What was counted.
    pub fn counters(&self) -> &BTreeMap<String, u64> {
        &self.seen.counters
    }
}
