//! Where `tracing` events go: to stderr, in colour on a terminal. Called once, by `main`.

use crate::cli::Logging;
use crate::report::{colours_on_stderr, say};
use tracing_subscriber::EnvFilter;

/// Starts it. `PELTON_LOG` (`debug`, `pelton_engine=trace,warn` …) goes before `-v` and `-q`.
/// Commands whose user has arranged what others are warned of say less (`warn_unasked` is false): tests.
pub(crate) fn start(logging: &Logging, warn_unasked: bool) {
    let level = match (logging.quiet, logging.verbose) {
        (true, _) => "error",
        (false, 0) if !warn_unasked => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    // What our dependencies say is of interest to those who look for it.
    let ours = format!("warn,pelton={level},plugin={level}");
    let crates = ["core", "plan", "operators", "checkpoint", "state", "wasm", "connectors", "engine"];
    let ours = crates.iter().fold(ours, |all, name| format!("{all},pelton_{name}={level}"));
    let wanted = std::env::var("PELTON_LOG").ok().filter(|wanted| !wanted.is_empty());
    let filter = match wanted.as_deref().map(EnvFilter::try_new) {
        Some(Ok(filter)) => filter,
        Some(Err(why)) => {
            say(format_args!("PELTON_LOG is not understood ({why}); going on without it"));
            EnvFilter::new(ours)
        }
        None => EnvFilter::new(ours),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours_on_stderr())
        .with_target(logging.verbose > 1)
        .init();
}
