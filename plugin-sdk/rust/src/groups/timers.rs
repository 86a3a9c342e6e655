//! Named timers of a processor's groups.

use super::{GivenTimer, TimerChange};
use crate::context::Clock;
use crate::error::Error;
use crate::time::{TimeMode, TimeSpan};
use crate::values::Timestamp;

/// The timers of a group. A timer has a name, of which there is one in a group at a time, and stays until it fires or
/// is deleted. Take it as `&mut Timers`.
///
/// When a timer has passed (the watermark or the micro-batch's time, as the function's `time_mode` says), the group is
/// called without rows and with [`fired`](Self::fired), after its rows if it has any.
#[derive(Debug, Default)]
pub struct Timers {
    time_mode: TimeMode,
    clock: Clock,
    fired: Option<Timer>,
    pending: Vec<Timer>,
    group: u32,
    changes: Vec<TimerChange>,
}

/// A timer of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// Its name.
    pub name: String,
    /// When it is due.
    pub at: Timestamp,
}

impl Timers {
    /// The timer that the group is called for; it is no longer pending.
    pub fn fired(&self) -> Option<&Timer> {
        self.fired.as_ref()
    }
    /// The other timers of the group, with what this call has changed, by time and then name.
    pub fn pending(&self) -> impl Iterator<Item = &Timer> {
        self.pending.iter()
    }

    /// Sets a timer, in place of the one of that name.
    ///
    /// # Errors
    /// If the function has no time mode.
    pub fn set(&mut self, name: impl Into<String>, at: Timestamp) -> Result<(), Error> {
        if self.time_mode == TimeMode::None {
            let what = "Cannot set a timer: the function's time_mode is none";
            return Err(Error::Failed(what.to_owned()));
        }
        let name = name.into();
        self.pending.retain(|timer| timer.name != name);
        let timer = Timer { name: name.clone(), at };
        let place = self.pending.partition_point(|other| (other.at, &other.name) < (timer.at, &timer.name));
        self.pending.insert(place, timer);
        self.changes.push(TimerChange { group: self.group, name, at: Some(at.0) });
        Ok(())
    }

    /// Sets a timer so long after now: after the micro-batch's time or, in event time, after the watermark.
    ///
    /// # Errors
    /// If the function has no time mode, or the text is no duration.
    pub fn set_after(&mut self, name: impl Into<String>, duration: impl TimeSpan) -> Result<(), Error> {
        let now = match self.time_mode {
            TimeMode::EventTime => self.current_watermark(),
            _ => self.current_processing_time(),
        };
        let micros = duration.micros().map_err(Error::Failed)?;
        self.set(name, Timestamp(now.0.saturating_add(micros)))
    }

    /// Deletes the timer of this name, if there is one.
    pub fn delete(&mut self, name: &str) {
        let before = self.pending.len();
        self.pending.retain(|timer| timer.name != name);
        if self.pending.len() < before {
            self.changes.push(TimerChange { group: self.group, name: name.to_owned(), at: None });
        }
    }

    /// The watermark; the Unix epoch as long as none is known.
    pub fn current_watermark(&self) -> Timestamp {
        self.clock.watermark.unwrap_or_default()
    }
    /// The micro-batch's time.
    pub fn current_processing_time(&self) -> Timestamp {
        self.clock.processing_time
    }
}

impl Timers {
    /// Takes on a group.
    pub(super) fn begin(
        &mut self,
        group: u32,
        fired: Option<&GivenTimer<'_>>,
        pending: &[GivenTimer<'_>],
        time_mode: TimeMode,
        clock: Clock,
    ) {
        let timer = |given: &GivenTimer<'_>| Timer { name: given.name.to_owned(), at: Timestamp(given.at) };
        self.fired = fired.map(timer);
        self.pending.clear();
        self.pending.extend(pending.iter().map(timer));
        (self.group, self.time_mode, self.clock) = (group, time_mode, clock);
    }
    pub(super) fn forget(&mut self) {
        self.changes.clear();
    }
    /// Hands the changes of all groups over.
    pub(super) fn write(&mut self, to: &mut Vec<TimerChange>) {
        to.clear();
        to.append(&mut self.changes);
    }
}
