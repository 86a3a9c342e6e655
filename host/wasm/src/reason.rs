//! Why a guest's call failed, in words for the person who wrote or uses the plugin. `code` asks it after every
//! failure. It decides nothing but the words.

use crate::guest::Guest;
use crate::limits::{Limits, bytes_text, clean_text, time_text};
use wasmtime::{Error, Trap, WasmBacktrace};

/// At most so much of a message of the guest's or of Wasmtime's is shown.
const MESSAGE_BYTES: usize = 2 << 10;

/// The reason of a failed call.
pub(crate) fn reason(error: &Error, guest: &Guest, limits: &Limits, stack_bytes: usize) -> String {
    let mut reason = match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => format!("ran longer than {} (limit time)", time_text(limits.time_ms)),
        Some(Trap::StackOverflow) => {
            format!("overflowed its stack of {}", bytes_text(stack_bytes as u64))
        }
        Some(Trap::UnreachableCodeReached) => "trapped: it reached an 'unreachable' instruction".to_owned(),
        Some(trap) => {
            let text = trap.to_string();
            format!("trapped: {}", text.strip_prefix("wasm trap: ").unwrap_or(&text))
        }
        None => other(error, guest),
    };
    if let Some(function) = trapping_function(error) {
        reason.push_str(&format!(", in its function '{function}'"));
    }
    if let Some(panic) = guest.log.panic() {
        reason.push_str(&format!("; it {panic}"));
    }
    if let Some(denied) = &guest.limiter.denied {
        reason.push_str(&format!("; {denied}"));
    }
    reason
}

fn other(error: &Error, guest: &Guest) -> String {
    // Wasmtime has no public type for this error.
    if error.chain().any(|cause| cause.to_string().contains("fuel allocated for hostcalls")) {
        let (limit, bytes) = guest.transfer_limit;
        return format!("answered or passed more than {} (limit {limit})", bytes_text(bytes));
    }
    // The outermost message of an error in guest code is the backtrace, which says nothing to a user.
    let mut messages: Vec<String> = error
        .chain()
        .map(ToString::to_string)
        .filter(|message| !message.starts_with("error while executing at wasm backtrace"))
        .collect();
    messages.dedup();
    match messages.as_slice() {
        [] => "failed for no known reason".to_owned(),
        messages => clean_text(&messages.join(": "), MESSAGE_BYTES),
    }
}

/// The innermost guest function that has a name.
fn trapping_function(error: &Error) -> Option<String> {
    let backtrace = error.downcast_ref::<WasmBacktrace>()?;
    let name = backtrace.frames().iter().find_map(|frame| frame.func_name())?;
    Some(clean_text(name, 120))
}

/// What the guest said itself.
pub(crate) fn said(message: &str) -> String {
    match clean_text(message, MESSAGE_BYTES) {
        message if message.is_empty() => "gave no reason".to_owned(),
        message => message,
    }
}
