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
/// `kill -9` at random moments, then the output of an undisturbed run.
mod crash;
/// Every example, its output compared with what it should be.
mod examples;
mod faults;
/// The queries that real Spark answered.
mod oracle;
/// Generated pages are what the program would generate now.
mod pages;
/// A table of PostgreSQL that is the same however often the process is killed; passwords that are shown nowhere.
#[cfg(unix)]
mod postgres;
/// Fenced, damaged and foreign checkpoints, failing plugins, several queries, one batch.
mod runs;
/// Plugins that are swapped while a query runs.
mod swap;
/// Static tables that change between a crash and the rerun.
mod tables;
/// State that a function's earlier version has left.
mod versions;
/// Rows that a plugin posts to a web server.
mod webhook;
