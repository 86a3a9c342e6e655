//! Spark's `GroupState`: one value and one timeout for each group.

use super::state::{Entries, State};
use super::variables::{Declared, Moment, ValueState, Variable};
use super::written::Changes;
use super::{Reason, Timeout};
use crate::array::Array;
use crate::error::Error;
use crate::input::Plan;
use crate::ipc::Encoder;
use crate::time::{TimeMode, TimeSpan};
use crate::types::Schema;
use crate::values::Timestamp;
use std::ops::Range;

/// What a `map_groups` or `flat_map_groups` function keeps for a group, and its timeout: Spark's `GroupState`, with
/// Spark's meaning.
///
/// * Every call clears the group's timeout; a function that still wants one sets it again.
/// * A group whose timeout has passed is called without rows, with [`has_timed_out`](Self::has_timed_out); not in a
///   micro-batch that has rows for it.
/// * [`remove`](Self::remove) takes the state away, not the timeout. A timeout may be set without a state.
pub struct GroupState<S: State> {
    state: ValueState<S>,
    moment: Moment,
    timeout: Option<i64>,
}

impl<S: State> Default for GroupState<S> {
    fn default() -> Self {
        Self { state: ValueState::default(), moment: Moment::default(), timeout: None }
    }
}

impl<S: State> GroupState<S> {
    /// Whether there is a state.
    #[inline]
    pub fn exists(&self) -> bool {
        self.state.exists()
    }
    /// The state.
    ///
    /// # Errors
    /// If there is none, or it was removed.
    #[inline]
    pub fn get(&self) -> Result<&S, Error> {
        self.state.get().ok_or_else(missing)
    }
    /// The state, if there is one.
    #[inline]
    pub fn get_option(&self) -> Option<&S> {
        self.state.get()
    }
    /// Sets the state.
    #[inline]
    pub fn update(&mut self, state: S) {
        self.state.update(state);
    }
    /// Takes the state away. A timeout stays, and one can be set.
    #[inline]
    pub fn remove(&mut self) {
        self.state.clear();
    }
    /// Whether the function is called because the group's timeout has passed.
    #[inline]
    pub fn has_timed_out(&self) -> bool {
        self.moment.reason == Reason::Timeout
    }

    /// Sets the timeout so long after the micro-batch's time: a [`std::time::Duration`] or a text as Spark writes it
    /// (`"10 minutes"`).
    ///
    /// # Errors
    /// If the function's timeout is not `"processing_time"`, or the duration is not positive.
    pub fn set_timeout_duration(&mut self, duration: impl TimeSpan) -> Result<(), Error> {
        if self.moment.time_mode != TimeMode::ProcessingTime {
            return failed("Cannot set timeout duration without enabling processing time timeout");
        }
        let micros = duration.micros().map_err(Error::Failed)?;
        if micros <= 0 {
            return failed("Timeout duration must be positive");
        }
        self.timeout = Some(self.moment.clock.processing_time.0.saturating_add(micros));
        Ok(())
    }

    /// Sets the timeout to when the watermark has passed this time.
    ///
    /// # Errors
    /// If the function's timeout is not `"event_time"`, or the time is not positive or before the watermark.
    pub fn set_timeout_timestamp(&mut self, timestamp: Timestamp) -> Result<(), Error> {
        if self.moment.time_mode != TimeMode::EventTime {
            return failed("Cannot set timeout timestamp without enabling event time timeout");
        }
        if timestamp.0 <= 0 {
            return failed("Timeout timestamp must be positive");
        }
        if let Some(watermark) = self.moment.clock.watermark.filter(|watermark| timestamp < *watermark) {
            let (at, watermark) = (timestamp.millis(), watermark.millis());
            return failed(&format!(
                "Timeout timestamp ({at}) cannot be earlier than the current watermark ({watermark})"
            ));
        }
        self.timeout = Some(timestamp.0);
        Ok(())
    }

    /// The watermark; the Unix epoch as long as none is known.
    pub fn current_watermark(&self) -> Timestamp {
        self.moment.clock.watermark.unwrap_or_default()
    }
    /// The micro-batch's time.
    pub fn current_processing_time(&self) -> Timestamp {
        self.moment.clock.processing_time
    }
}

#[cold]
fn missing() -> Error {
    Error::Failed("State is either not defined or has already been removed".to_owned())
}

#[cold]
fn failed(message: &str) -> Result<(), Error> {
    Err(Error::Failed(message.to_owned()))
}

impl<S: State> Variable for GroupState<S> {
    type Reader<'a> = Entries<'a, S>;

    fn declared() -> Declared {
        ValueState::<S>::declared()
    }
    fn plans(entries: &Schema) -> Result<Vec<Plan>, Error> {
        ValueState::<S>::plans(entries)
    }
    fn reader<'a>(plans: &[Plan], entries: &Array<'a>) -> Result<Entries<'a, S>, Error> {
        ValueState::<S>::reader(plans, entries)
    }
    #[inline]
    fn begin(
        &mut self,
        reader: &Entries<'_, S>,
        entries: Range<usize>,
        moment: &Moment,
    ) -> Result<(), Error> {
        (self.moment, self.timeout) = (*moment, None);
        self.state.begin(reader, entries, moment)
    }
    #[inline]
    fn end(&mut self, group: u32, timeouts: &mut Vec<Timeout>) {
        timeouts.extend(self.timeout.map(|at| Timeout { group, at }));
        self.state.end(group, timeouts);
    }
    fn forget(&mut self) {
        self.state.forget();
    }
    fn write(&mut self, entries: &Schema, changes: &mut Changes) {
        self.state.write(entries, changes);
    }
    fn migrate(from: u32, old: &Schema, entries: &Array<'_>, to: &mut Encoder) -> Result<(), Error> {
        ValueState::<S>::migrate(from, old, entries, to)
    }
}
