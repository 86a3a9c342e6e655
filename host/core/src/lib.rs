//! The ground floor of Pelton: its words and its ports.
//!
//! Words are small types that every crate uses with one meaning ([`BatchId`], [`Offset`], [`Trigger`] …).
//! Ports are traits that the engine calls and the other crates (or a test's closure) implement:
//!
//! | port | who implements it |
//! |---|---|
//! | [`Source`] | `connectors` |
//! | [`Sink`] | `connectors` |
//! | [`DeadLetterSink`] | `connectors` |
//! | [`Plugin`], [`ScalarFunction`], [`TransformFunction`], [`StatefulFunction`], [`SinkFunction`] | `wasm` |
//! | [`Dataflow`] | `operators` |
//! | [`StateStore`] | `state` |
//! | [`Table`] | `connectors` |
//! | [`FileManager`] | `checkpoint` |
//! | [`Clock`] | `engine`, tests |
//!
//! This crate does no I/O, starts no thread, reads no clock and knows no async runtime.
#![deny(missing_docs)]

pub mod batch;
pub mod clock;
pub mod dataflow;
pub mod dead_letters;
pub mod error;
pub mod failure;
pub mod files;
pub mod function;
pub mod group_function;
pub mod ids;
pub mod interval;
pub mod number;
pub mod offset;
pub mod query;
pub mod sink;
pub mod source;
pub mod spark_schema;
pub mod state;
pub mod state_layout;
pub mod suggest;
pub mod table;
pub mod types;
pub mod words;

pub use batch::{BatchInfo, CallScope, DeadLetter, END_OF_TIME_MS, LossKind, MessageOrigin};
pub use clock::{Clock, ManualClock};
pub use dataflow::{
    Dataflow, Gather, Gathered, OperatorInfo, OperatorReport, Part, PerPartition, WatermarkInfo,
};
pub use dead_letters::{DeadLetterContext, DeadLetterSink, DeadLetterWriter, PluginNames};
pub use error::{Error, ErrorKind, Result};
pub use failure::{CallFailure, FailurePolicy, PoisonBudget, PoisonReport};
pub use files::{Created, FileInfo, FileManager, FileWriter, MemoryFiles, OverlayFiles, create_or_own};
pub use function::{
    BatchPart, Encoding, FunctionInfo, FunctionKind, Manifest, Plugin, Rejected, ScalarFunction,
    SinkFunction, TransformFunction, TransformOutput,
};
pub use group_function::{
    GroupForm, GroupInput, GroupOutput, GroupReason, Load, StateAction, StateChanges, StateEntries,
    StateVariable, StatefulFunction, StatefulSignature, TimeMode, Timer, TimerChange, VariableKind,
};
pub use ids::{BatchId, PluginDigest, QueryId, RunId};
pub use interval::Interval;
pub use offset::{Offset, OffsetRange};
pub use query::{MalformedPolicy, OutputMode, Trigger, WatermarkPolicy};
pub use sink::{RowStream, Sink, SinkContext, SinkReport};
pub use source::{Backlog, Block, BlockStream, Decoded, PartitionStatus, ReadLimit, Record, Source};
pub use state::{
    AFTER_ALL_KEYS, KEY_GROUPS, SHARDS, StateCommit, StateOp, StateShard, StateStore, StateUsage, shard_of,
};
pub use state_layout::{
    DEFINITION_WORDS, KIND_WITH_VARIABLES, StateColumn, StateFact, StateLayout, VariableLayout,
    VariableTables,
};
pub use table::{Table, TableRows, TableVersion};
