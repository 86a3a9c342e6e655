//! The harness for stream tests: script-like, in process, without waiting for anything.
//!
//! Used by the tests of every crate that stands on the engine; never in a run. A [`StreamTest`] owns what outlives a
//! process (files, what sources hold, what the sink has); its [`Action`]s start and stop queries over it. Nothing
//! runs in the background: an action fires triggers itself, so a script does the same every time.
//!
//! ```text
//! let mut test = StreamTest::new([schema], Logic::new(dataflow));
//! test.run([StartStream, AddData(0, rows(1..3)), CheckAnswer(["1", "2"]), StopStream]).await?;
//! ```

mod counts;
mod parts;
mod script;
mod sink;
mod source;
mod state;
mod versions;

pub use counts::{WindowCounts, event_rows, event_schema};
pub use parts::{int_rows, int_schema, pass_through, rows_part, rows_text, stateless};
pub use script::{Action, StreamTest, check_answer, check_new_answer};
pub use sink::{RecordingSink, SinkFault};
pub use source::MemorySource;
pub use state::FileState;
pub use versions::Version;
