//! The end-to-end tests: everything that needs the real binary, real plugins or the whole repository.
//! One program, so that it links once; this is its table of contents.
//!
//! `cargo xtask test` builds what they need and runs them.
#![allow(clippy::disallowed_methods, reason = "tests measure and wait; no row depends on it")]

/// Which crate may stand on which.
mod law;
/// Sizes, headers, and words that must not be in the code.
mod tidy;

/// The HTTP API of a run: who may ask what, `status`, `stop`, metrics.
#[cfg(unix)]
mod api;
/// The same file as a stream and as one batch.
mod batch;
/// The command line: help, exit codes, errors, `pipe`, `plugin new` and `build`.
mod commands;
/// The same cases against plugins in every language.
mod conformance;
/// HTTP, stdin, and the files of the file sink: rollover and compaction.
mod connectors;
/// `kill -9` at random moments, then the output of an undisturbed run.
mod crash;
/// Every example, its output compared with what it should be.
mod examples;
mod faults;
/// Avro and Arrow files from one query to the next; what a format cannot do.
mod formats;
/// The Kafka source and sink on a real broker, which is stopped, too.
#[cfg(unix)]
mod kafka;
/// What the tests that kill share.
mod kills;
/// The queries that real Spark answered.
mod oracle;
/// Generated pages are what the program would generate now.
mod pages;
/// Rows on which plugins fail, and plugins that leak.
mod poison;
/// A table of PostgreSQL that is the same however often the process is killed; passwords that are shown nowhere.
#[cfg(unix)]
mod postgres;
/// Micro-batches run once more, as they were and with another build of a plugin.
mod replay;
/// Fenced, damaged and foreign checkpoints, failing plugins, several queries, one batch.
mod runs;
/// Checkpoint and output on an S3 store, which may be slow and fail.
#[cfg(unix)]
mod s3;
/// Plugins that are swapped while a query runs.
mod swap;
/// Static tables that change between a crash and the rerun.
mod tables;
/// State that a function's earlier version has left.
mod versions;
/// Rows that a plugin posts to a web server.
mod webhook;
