//! Catches what a plugin logs while a case runs. Used by `answer`, on the thread that calls the plugin.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// A log line: its level (`info`) and its text.
pub(super) type Line = (String, String);

/// Runs something and gives back what plugins logged meanwhile, in order.
pub(super) fn logs_of<T>(run: impl FnOnce() -> T) -> (T, Vec<Line>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let subscriber = tracing_subscriber::registry().with(Capture(Arc::clone(&lines)));
    let result = tracing::subscriber::with_default(subscriber, run);
    let lines = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
    (result, lines)
}

struct Capture(Arc<Mutex<Vec<Line>>>);

impl<S: Subscriber> Layer<S> for Capture {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut parts = Parts::default();
        event.record(&mut parts);
        // Only a plugin's own lines carry its name.
        if let (Some(text), true) = (parts.message, parts.of_plugin) {
            let level = event.metadata().level().as_str().to_lowercase();
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((level, text));
        }
    }
}

#[derive(Default)]
struct Parts {
    message: Option<String>,
    of_plugin: bool,
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = Some(format!("{value:?}")),
            "plugin" => self.of_plugin = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugins_lines_are_caught_and_no_others() {
        let (result, lines) = logs_of(|| {
            tracing::info!(plugin = %"flights", "hello {}", 1);
            tracing::warn!("the host's own");
            7
        });
        assert_eq!((result, lines), (7, vec![("info".to_owned(), "hello 1".to_owned())]));
    }
}
