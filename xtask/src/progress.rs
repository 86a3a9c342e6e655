//! Says what is being done: one spinner on a terminal, one line a step elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// One step under way; it is finished with [`Step::done`], and silently when dropped after an error.
pub(crate) struct Step {
    bar: ProgressBar,
    name: String,
}

impl Step {
    /// Announces a step.
    pub(crate) fn start(name: impl Into<String>) -> Self {
        let name = name.into();
        if !std::io::stderr().is_terminal() {
            eprintln!("== {name}");
            return Self { bar: ProgressBar::hidden(), name };
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) =
            ProgressStyle::with_template("{spinner:.cyan} {prefix} {elapsed:.dim} {wide_msg:.dim}")
        {
            bar.set_style(style);
        }
        bar.set_prefix(name.clone());
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, name }
    }

    /// What it is at: beside the spinner, or a line of its own.
    pub(crate) fn detail(&self, text: &str) {
        if self.bar.is_hidden() {
            eprintln!("   {text}");
        } else {
            self.bar.set_message(text.to_owned());
        }
    }

    /// The step has succeeded.
    pub(crate) fn done(self, result: &str) {
        let hidden = self.bar.is_hidden();
        self.bar.finish_and_clear();
        if hidden {
            eprintln!("   {result}");
        } else {
            eprintln!("== {}: {result}", self.name);
        }
    }
}

/// A step whose programs print their own progress.
pub(crate) fn heading(name: &str) {
    eprintln!("== {name}");
}
