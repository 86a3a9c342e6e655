//! How a signal ends a run: the first after the micro-batch under way, the second at once. Used by `run`.

use pelton_engine::RunControl;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

/// The signal that told the run to end at once, if one did.
#[derive(Clone, Default)]
pub(super) struct EndedBy(Arc<OnceLock<Signal>>);

/// What ends a run.
#[derive(Clone, Copy)]
enum Signal {
    /// Ctrl-C: SIGINT.
    Interrupt,
    #[cfg(unix)]
    /// SIGTERM.
    Terminate,
}

impl EndedBy {
    /// What to exit with, as shells have it: 128 and the signal's number.
    pub(super) fn exit_code(&self) -> Option<ExitCode> {
        self.0.get().map(|signal| match signal {
            Signal::Interrupt => ExitCode::from(130),
            #[cfg(unix)]
            Signal::Terminate => ExitCode::from(143),
        })
    }

    /// Waits for signals and passes them on.
    pub(super) async fn pass_on(self, control: RunControl) {
        if next_signal().await.is_err() {
            tracing::warn!("signals cannot be received; the query can only be killed");
            return;
        }
        tracing::warn!("finishing the micro-batch; once more ends at once");
        control.stop.cancel();
        if let Ok(signal) = next_signal().await {
            let _ = self.0.set(signal);
            control.abort.cancel();
        }
    }
}

#[cfg(unix)]
async fn next_signal() -> std::io::Result<Signal> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| Signal::Interrupt),
        _ = terminate.recv() => Ok(Signal::Terminate),
    }
}

#[cfg(not(unix))]
async fn next_signal() -> std::io::Result<Signal> {
    tokio::signal::ctrl_c().await.map(|()| Signal::Interrupt)
}
