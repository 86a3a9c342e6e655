//! What the host lends: its log and its counters. In Wasm they are imports; natively they are kept on the
//! thread, where [`crate::testing`] finds them.

use std::fmt;

/// How loud a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Steps of a computation.
    Trace,
    /// For the plugin's author.
    Debug,
    /// For the one who runs the pipeline.
    Info,
    /// Something is odd.
    Warn,
    /// Something went wrong.
    Error,
}

/// Writes to the host's log; use the macros [`crate::info!`] and its siblings. What exceeds the log limit is
/// counted and dropped.
pub fn log(level: Level, message: fmt::Arguments<'_>) {
    match message.as_str() {
        Some(message) => sink::log(level, message),
        None => sink::log(level, &message.to_string()),
    }
}

/// Adds to a counter that the host exports, labelled with the plugin's name.
pub fn count(name: &str, by: u64) {
    sink::count(name, by);
}

#[cfg(target_arch = "wasm32")]
use crate::abi as sink;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod sink {
    use super::Level;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    #[derive(Default)]
    pub(crate) struct Seen {
        pub(crate) logs: Vec<(Level, String)>,
        pub(crate) counters: BTreeMap<String, u64>,
    }

    thread_local! {
        static SEEN: RefCell<Seen> = RefCell::default();
    }

    pub(super) fn log(level: Level, message: &str) {
        SEEN.with_borrow_mut(|seen| seen.logs.push((level, message.to_owned())));
    }
    pub(super) fn count(name: &str, by: u64) {
        SEEN.with_borrow_mut(|seen| *seen.counters.entry(name.to_owned()).or_default() += by);
    }
    /// What was seen on this thread since the last call.
    pub(crate) fn take() -> Seen {
        SEEN.take()
    }
}

/// Logs at [`Level::Trace`], with `format!`'s arguments.
#[macro_export]
macro_rules! trace { ($($message:tt)+) => { $crate::log($crate::Level::Trace, ::core::format_args!($($message)+)) }; }
/// Logs at [`Level::Debug`], with `format!`'s arguments.
#[macro_export]
macro_rules! debug { ($($message:tt)+) => { $crate::log($crate::Level::Debug, ::core::format_args!($($message)+)) }; }
/// Logs at [`Level::Info`], with `format!`'s arguments.
#[macro_export]
macro_rules! info { ($($message:tt)+) => { $crate::log($crate::Level::Info, ::core::format_args!($($message)+)) }; }
/// Logs at [`Level::Warn`], with `format!`'s arguments.
#[macro_export]
macro_rules! warn { ($($message:tt)+) => { $crate::log($crate::Level::Warn, ::core::format_args!($($message)+)) }; }
/// Logs at [`Level::Error`], with `format!`'s arguments.
#[macro_export]
macro_rules! error { ($($message:tt)+) => { $crate::log($crate::Level::Error, ::core::format_args!($($message)+)) }; }
