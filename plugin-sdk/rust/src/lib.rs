//! Write Pelton plugins in Rust: plain functions over plain structs.
//!
//! ```
//! #[derive(pelton::Row)]
//! struct Flight<'a> {
//!     carrier: &'a str,
//!     dep_delay: Option<f64>,
//! }
//!
//! #[derive(pelton::Row)]
//! struct Late<'a> {
//!     carrier: &'a str,
//!     minutes: f64,
//! }
//!
//! /// Keeps the flights that left late.
//! #[pelton::map]
//! fn late<'a>(flight: Flight<'a>) -> Option<Late<'a>> {
//!     let minutes = flight.dep_delay.filter(|minutes| *minutes > 15.0)?;
//!     Some(Late { carrier: flight.carrier, minutes })
//! }
//!
//! pelton::plugin!(name: "flights", version: "1.0.0", functions: [late]);
//! ```
//!
//! | attribute | the function | in a pipeline |
//! |---|---|---|
//! | [`macro@scalar`] | columns (or a struct of them) to a value | `plugin.function(a, b)` in SQL |
//! | [`macro@filter`] | the same, to a `bool` | also as a `filter` step |
//! | [`macro@map`] | a row to a row; to an `Option` of one to drop some | a `plugin` step |
//! | [`macro@flat_map`] | a row to an iterator or `Vec` of rows, or by `&mut Emit<T>` | a `plugin` step |
//! | [`macro@map_groups`] | the rows of a group and its [`GroupState`] to a row | a `plugin` step with a `key` |
//! | [`macro@flat_map_groups`] | the same to any number of rows | a `plugin` step with a `key` |
//! | [`macro@processor`] | the same with several variables and timers | a `plugin` step with a `key` |
//! | [`macro@sink`] | rows to nothing | the query's `sink` |
//!
//! A struct reads the columns that have its fields' names; other columns may be there. `Option` is for nulls: a
//! null in another field refuses the row. A function that returns `Result` refuses the row with its error; the
//! row goes to the dead letters, the others go on. Beside the row a function may take `&Context` (time,
//! watermark, randomness) and a reference to its configuration, a struct with [`macro@Config`].
//!
//! Functions stay plain functions: test them as such, or through the messages that the host sends with
//! [`testing`]. Functions that work on any schema are in [`dynamic`].
//!
//! A plugin is a `cdylib` crate built for `wasm32-unknown-unknown`, with `panic = "abort"`.

// The macros write `::pelton::…`; the SDK's own tests use them too.
extern crate self as pelton;

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod abi;
mod array;
mod config;
mod context;
pub mod dynamic;
mod error;
mod function;
mod groups;
mod host;
pub mod http;
mod input;
mod ipc;
mod json;
mod json_rows;
mod output;
mod runtime;
mod sink;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod time;
mod types;
mod values;

pub use config::Config;
pub use context::{Clock, Context};
pub use error::Error;
pub use function::Rejected;
pub use function::flat_map::Emit;
pub use groups::group_state::GroupState;
pub use groups::map_state::MapState;
pub use groups::rows::Rows;
pub use groups::state::State;
pub use groups::timers::{Timer, Timers};
pub use groups::variables::{ListState, ValueState, Variable};
pub use host::{Level, count, log};
pub use input::Input;
pub use json::Json;
pub use output::{Output, Row};
pub use pelton_sdk_macros::{
    Config, Row, State, filter, flat_map, flat_map_groups, map, map_groups, processor, scalar, sink,
};
pub use runtime::Plugin;
pub use sink::{BatchPart, OutputMode};
pub use time::{TimeMode, TimeSpan};
pub use types::{DataType, Field, Schema};
pub use values::{Date, Decimal, Timestamp, TimestampNtz};

/// For the code that the macros write; not for use by hand.
#[doc(hidden)]
pub mod __private {
    #[cfg(target_arch = "wasm32")]
    pub use crate::abi;
    pub use crate::array::{Array, Nulls};
    pub use crate::config::{ObjectReader, word};
    pub use crate::function::{Entry, Exported, Function, Reply, Typed, flat_map, map, scalar};
    pub use crate::groups::run as group;
    pub use crate::groups::run::Spec;
    pub use crate::groups::state::through;
    pub use crate::groups::{Form, GroupFunction, GroupReply, Groups, Load, Signature};
    pub use crate::input::{Missing, Plan, StructPlan};
    pub use crate::ipc::Encoder;
    pub use crate::output::{Build, BuildRow, Validity};
    pub use crate::sink::SinkFunction;

    /// What `#[pelton::sink]` writes.
    pub mod sink {
        pub use crate::sink::{TypedSink, open_typed, write_typed};
    }

    /// Makes the compiler check that a type is a whole row.
    pub const fn is_row<T: crate::Row>() {}
}
