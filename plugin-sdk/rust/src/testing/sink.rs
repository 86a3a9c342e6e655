//! A sink function called as the host calls it.

use super::rows::encode;
use crate::context::Clock;
use crate::error::Error;
use crate::function::Exported;
use crate::host::{Level, sink};
use crate::http::sender::{self, Answer};
use crate::http::{Request, Response};
use crate::ipc;
use crate::output::Row;
use crate::runtime::Plugin;
use crate::sink::{OutputMode, SinkSession};
use crate::types::Schema;

/// Starts a test of a sink function.
///
/// ```
/// # use pelton::{BatchPart, Row, Rows};
/// #[derive(Row)]
/// struct Line<'a> { text: &'a str }
///
/// /// Logs each line.
/// #[pelton::sink]
/// fn lines(rows: Rows<'_, Line>, part: BatchPart) {
///     rows.for_each(|line| pelton::info!("{}: {}", part.number, line.text));
/// }
/// # fn main() -> Result<(), pelton::Error> {
/// let mut sink = pelton::testing::sink::<lines>();
/// let logs = sink.batch([Line { text: "wheel" }])?;
/// assert_eq!(logs[0].1, "0: wheel");
/// # Ok(())
/// # }
/// ```
pub fn sink<F: Exported>() -> SinkTest {
    SinkTest {
        plugin: Plugin { name: "test", version: "0", functions: Vec::leak(vec![F::ENTRY]) },
        config: "{}".to_owned(),
        output_mode: OutputMode::Append,
        clock: Clock::default(),
        answer: None,
    }
}

/// A sink function and what it is to be called with.
pub struct SinkTest {
    plugin: Plugin,
    config: String,
    output_mode: OutputMode,
    clock: Clock,
    answer: Option<Answer>,
}

impl SinkTest {
    /// The configuration, as JSON.
    #[must_use]
    pub fn config(mut self, json: &str) -> Self {
        json.clone_into(&mut self.config);
        self
    }
    /// Which rows micro-batches bring.
    #[must_use]
    pub fn output_mode(mut self, output_mode: OutputMode) -> Self {
        self.output_mode = output_mode;
        self
    }
    /// What answers the function's HTTP requests in the place of a server; an error is one of the connection.
    #[must_use]
    pub fn answer(mut self, with: impl FnMut(&Request) -> Result<Response, String> + 'static) -> Self {
        self.answer = Some(Box::new(with));
        self
    }
    /// The clock of the next micro-batch.
    pub fn clock(&mut self, clock: Clock) -> &mut Self {
        self.clock = clock;
        self
    }

    /// A micro-batch of one part, on a fresh instance; what was logged.
    ///
    /// # Errors
    /// The function's own.
    pub fn batch<R: Row>(
        &mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> Result<Vec<(Level, String)>, Error> {
        self.part(rows, 0, true)
    }

    /// One part of a micro-batch, on a fresh instance; what was logged.
    ///
    /// # Errors
    /// The function's own.
    pub fn part<R: Row>(
        &mut self,
        rows: impl IntoIterator<Item = R>,
        number: u32,
        is_last: bool,
    ) -> Result<Vec<(Level, String)>, Error> {
        sink::take();
        let schema = Schema::new(R::columns());
        let rows = encode(rows, &schema);
        let (function, schema) = (self.plugin.functions[0].name, ipc::write_schema(&schema));
        let mut session = SinkSession::open(&self.plugin, function, &self.config, &schema, self.output_mode)?;
        sender::answer(self.answer.take());
        let written = session.write(self.clock, (number, is_last), &rows);
        self.answer = sender::answer(None);
        written?;
        if is_last {
            self.clock.batch_id += 1;
        }
        Ok(sink::take().logs)
    }
}
