//! Drives a function over groups by script, micro-batch by micro-batch, natively: it groups rows, keeps the state, fires
//! timeouts and timers as the host does.

use super::messages::Messages;
use super::rows::{encode, one_row};
use super::store::{Group, apply};
use crate::array::Array;
use crate::context::Clock;
use crate::error::Error;
use crate::function::{Entry, Exported, Rejected};
use crate::groups::session::GroupSession;
use crate::groups::state::{Entries, State, plan};
use crate::groups::{Form, Reason};
use crate::host::{Level, sink};
use crate::input::{Arguments, Input, Matching};
use crate::ipc;
use crate::output::Row;
use crate::runtime::Plugin;
use crate::time::{TimeMode, TimeSpan};
use crate::types::Schema;
use crate::values::Timestamp;
use std::collections::BTreeMap;

/// Starts a script for a function over groups, with the key columns of its rows.
///
/// ```
/// # use pelton::{GroupState, Row, Rows};
/// #[derive(Row)]
/// struct Payment<'a> { user: &'a str, amount: i64 }
/// #[derive(Row, Debug, PartialEq)]
/// struct Total { user: String, sum: i64 }
///
/// /// What each user has paid.
/// #[pelton::map_groups]
/// fn totals(user: &str, payments: Rows<'_, Payment>, sum: &mut GroupState<i64>) -> Total {
///     let new = sum.get_option().copied().unwrap_or(0) + payments.map(|p| p.amount).sum::<i64>();
///     sum.update(new);
///     Total { user: user.to_owned(), sum: new }
/// }
/// # fn main() -> Result<(), pelton::Error> {
/// let mut script = pelton::testing::groups::<totals>(&["user"]);
/// let batch = script.rows([Payment { user: "ann", amount: 3 }, Payment { user: "ann", amount: 4 }])?;
/// assert_eq!(batch.rows::<Total>()?, [Total { user: "ann".to_owned(), sum: 7 }]);
/// script.restart();
/// let batch = script.rows([Payment { user: "ann", amount: 1 }])?;
/// assert_eq!(batch.rows::<Total>()?, [Total { user: "ann".to_owned(), sum: 8 }]);
/// # Ok(())
/// # }
/// ```
pub fn groups<F: Exported>(key: &[&str]) -> Script {
    Script {
        plugin: plugin(F::ENTRY),
        key: key.iter().map(|column| (*column).to_owned()).collect(),
        config: "{}".to_owned(),
        clock: Clock::default(),
        input: None,
        open: None,
        groups: BTreeMap::new(),
    }
}

fn plugin(entry: Entry) -> Plugin {
    Plugin { name: "test", version: "0", functions: Vec::leak(vec![entry]) }
}

/// A function, its state, and where time stands.
pub struct Script {
    plugin: Plugin,
    key: Vec<String>,
    config: String,
    clock: Clock,
    /// The rows' schema, once some have come.
    input: Option<Schema>,
    open: Option<Open>,
    /// By the key's row, as a message.
    groups: BTreeMap<Vec<u8>, Group>,
}

/// The function, opened for one schema.
pub(super) struct Open {
    pub(super) session: GroupSession,
    pub(super) input: Schema,
    pub(super) key: Schema,
}

/// The groups of a call: keys and the rows of each.
#[derive(Default)]
pub(super) struct Called {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) rows: Vec<Vec<usize>>,
    pub(super) fired: Vec<(String, i64)>,
}

impl Script {
    /// The configuration, as JSON.
    #[must_use]
    pub fn config(mut self, json: &str) -> Self {
        json.clone_into(&mut self.config);
        self
    }
    /// Sets the time of the next micro-batches.
    pub fn processing_time(&mut self, time: Timestamp) -> &mut Self {
        self.clock.processing_time = time;
        self
    }
    /// Moves the time of the next micro-batches on.
    ///
    /// # Panics
    /// If the text is no duration.
    pub fn advance(&mut self, by: impl TimeSpan) -> &mut Self {
        let micros = by.micros().unwrap_or_else(|e| panic!("{e}"));
        self.processing_time(Timestamp(self.clock.processing_time.0 + micros))
    }
    /// Sets the watermark of the next micro-batches.
    pub fn watermark(&mut self, watermark: Timestamp) -> &mut Self {
        self.clock.watermark = Some(watermark);
        self
    }
    /// Stops and starts again: the function is opened anew, the state stays.
    pub fn restart(&mut self) -> &mut Self {
        self.open = None;
        self
    }
    /// Stops and starts with another function: a new version of this one, over the state that it left.
    pub fn restart_with<F: Exported>(&mut self) -> &mut Self {
        self.plugin = plugin(F::ENTRY);
        self.restart()
    }
    /// How many groups have a state, a timeout or a timer.
    pub fn groups(&self) -> usize {
        self.groups.values().filter(|group| !group.is_empty()).count()
    }

    /// The entries of a variable, with the key of their group. That of a `GroupState` is called `state`.
    ///
    /// # Errors
    /// If key or entries are of other types.
    pub fn entries<K: State, T: State>(&self, variable: &str) -> Result<Vec<(K, T)>, Error> {
        let Some(open) = &self.open else { return Ok(Vec::new()) };
        let info = open.session.signature().variables.iter().find(|info| info.name == variable);
        let info = info.ok_or_else(|| Error::Failed(format!("there is no variable '{variable}'")))?;
        let mut found = Vec::new();
        for (key, group) in &self.groups {
            let key = ipc::read_batch(key, &open.key)?;
            let keys = Entries::<K>::new(&plan::<K>(&open.key)?, &key)?;
            let Some(stored) = group.variables.get(variable) else { continue };
            let fields = info.key.len()..stored.schema.fields.len();
            let schema = Schema::new(stored.schema.fields[fields.clone()].to_vec());
            for entry in &stored.entries {
                let row = ipc::read_batch(&entry.row, &stored.schema)?;
                let value = crate::groups::state::some_columns(&row, fields.clone());
                found.push((keys.read(0)?, Entries::<T>::new(&plan::<T>(&schema)?, &value)?.read(0)?));
            }
        }
        Ok(found)
    }

    /// A micro-batch with these rows. Groups with rows are called first, then those whose timeouts or timers have passed.
    ///
    /// # Errors
    /// The function's own; the micro-batch then leaves no trace but in what it logged.
    pub fn rows<R: Row>(&mut self, rows: impl IntoIterator<Item = R>) -> Result<Batch, Error> {
        let schema = Schema::new(R::columns());
        let message = encode(rows, &schema);
        self.open(schema)?;
        self.batch(Some(&message))
    }

    /// A micro-batch without rows, after one that had some.
    ///
    /// # Errors
    /// As [`rows`](Self::rows); also if there was no row before, so that the schema is not known.
    pub fn no_rows(&mut self) -> Result<Batch, Error> {
        match self.input.clone() {
            Some(schema) => self.open(schema)?,
            None => return Err(Error::Failed("a script begins with rows".to_owned())),
        }
        self.batch(None)
    }

    fn open(&mut self, input: Schema) -> Result<(), Error> {
        if self.open.as_ref().is_some_and(|open| open.input == input) {
            return Ok(());
        }
        let column = |name: &String| {
            let at = input.index_of(name);
            at.map(|at| input.fields[at].clone())
                .ok_or_else(|| Error::Unsuitable(format!("there is no key column '{name}'")))
        };
        let key = Schema::new(self.key.iter().map(column).collect::<Result<_, _>>()?);
        let function = self.plugin.functions[0].name;
        let (key_message, input_message) = (ipc::write_schema(&key), ipc::write_schema(&input));
        let session = GroupSession::open(&self.plugin, function, &self.config, &key_message, &input_message)?;
        self.input = Some(input.clone());
        self.open = Some(Open { session, input, key });
        self.migrate()
    }

    /// Rewrites entries of older versions.
    fn migrate(&mut self) -> Result<(), Error> {
        let Some(open) = &mut self.open else { return Ok(()) };
        for info in open.session.signature().variables.clone() {
            for stored in self.groups.values_mut().filter_map(|group| group.variables.get_mut(&info.name)) {
                if stored.version == info.version {
                    continue;
                }
                let old = ipc::write_schema(&stored.schema);
                for entry in &mut stored.entries {
                    entry.row = open.session.migrate(&info.name, stored.version, &old, &entry.row)?.to_vec();
                }
                (stored.version, stored.schema) = (info.version, info.entries());
            }
        }
        Ok(())
    }

    fn batch(&mut self, rows: Option<&[u8]>) -> Result<Batch, Error> {
        sink::take();
        let now = self.clock.processing_time.0;
        self.groups.values_mut().for_each(|group| group.expire(now));
        let mut answers = Answers::default();
        let mut called = Vec::new();
        if let Some(message) = rows {
            let data = self.by_key(message)?;
            called.clone_from(&data.keys);
            self.call(Reason::Data, &data, Some(message), &mut answers)?;
        }
        let Some(open) = &self.open else { return Err(Error::Failed("nothing is open".to_owned())) };
        let signature = open.session.signature().clone();
        match signature.form {
            Form::Processor => self.fire_timers(signature.time_mode, &mut answers)?,
            _ => {
                let due = self.timed_out(signature.time_mode, &called);
                self.call(Reason::Timeout, &due, None, &mut answers)?;
            }
        }
        self.clock.batch_id += 1;
        Ok(Batch { schema: signature.output, answers, seen: sink::take() })
    }

    /// The groups of rows, in the order in which their first rows came.
    fn by_key(&self, message: &[u8]) -> Result<Called, Error> {
        let Some(open) = &self.open else { return Ok(Called::default()) };
        let rows = ipc::read_batch(message, &open.input)?;
        let columns: Vec<Array<'_>> = open
            .key
            .fields
            .iter()
            .filter_map(|field| open.input.index_of(&field.name))
            .map(|at| rows.columns()[at].clone())
            .collect();
        let mut called = Called::default();
        for row in 0..rows.len() {
            let key = one_row(&columns, row, &open.key);
            match called.keys.iter().position(|other| *other == key) {
                Some(group) => called.rows[group].push(row),
                None => {
                    called.keys.push(key);
                    called.rows.push(vec![row]);
                }
            }
        }
        Ok(called)
    }

    /// Groups without rows whose timeout has passed.
    fn timed_out(&self, time_mode: TimeMode, with_rows: &[Vec<u8>]) -> Called {
        let now = self.now(time_mode);
        let due = |group: &Group| group.timeout.is_some_and(|at| now.is_some_and(|now| at < now));
        let due = self.groups.iter().filter(|(key, group)| due(group) && !with_rows.contains(key));
        let keys: Vec<_> = due.map(|(key, _)| key.clone()).collect();
        Called { rows: vec![Vec::new(); keys.len()], keys, fired: Vec::new() }
    }

    fn now(&self, time_mode: TimeMode) -> Option<i64> {
        match time_mode {
            TimeMode::None => None,
            TimeMode::ProcessingTime => Some(self.clock.processing_time.0),
            TimeMode::EventTime => self.clock.watermark.map(|watermark| watermark.0),
        }
    }

    /// Calls groups for the timers that were due when it began, by time; each once in a call.
    fn fire_timers(&mut self, time_mode: TimeMode, answers: &mut Answers) -> Result<(), Error> {
        let Some(now) = self.now(time_mode) else { return Ok(()) };
        let timers = self.groups.iter().flat_map(|(key, group)| {
            let due = group.timers.iter().filter(move |(_, at)| **at <= now);
            due.map(|(name, at)| (*at, key.clone(), name.clone()))
        });
        let mut due: Vec<_> = timers.collect();
        due.sort();
        for (at, key, name) in due {
            let Some(group) = self.groups.get_mut(&key) else { continue };
            if group.timers.get(&name) != Some(&at) {
                continue;
            }
            group.timers.remove(&name);
            let called = Called { keys: vec![key], rows: vec![Vec::new()], fired: vec![(name, at)] };
            self.call(Reason::Timer, &called, None, answers)?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        reason: Reason,
        called: &Called,
        rows: Option<&[u8]>,
        answers: &mut Answers,
    ) -> Result<(), Error> {
        let Some(open) = self.open.as_mut().filter(|_| !called.keys.is_empty()) else { return Ok(()) };
        for key in &called.keys {
            self.groups.entry(key.clone()).or_default();
        }
        let groups: Vec<&Group> = called.keys.iter().filter_map(|key| self.groups.get(key)).collect();
        let messages = Messages::new(open, called, rows, &groups)?;
        open.session.run(self.clock, &messages.raw(reason, called, &groups))?;
        answers.take(&open.session, &messages.row_numbers);
        self.store(called)
    }

    /// Does to the groups what the last call said.
    fn store(&mut self, called: &Called) -> Result<(), Error> {
        let Some(open) = &self.open else { return Ok(()) };
        let (reply, signature) = (open.session.reply(), open.session.signature());
        let mut by_key: BTreeMap<&Vec<u8>, &mut Group> = self.groups.iter_mut().collect();
        let mut groups: Vec<&mut Group> = called.keys.iter().filter_map(|key| by_key.remove(key)).collect();
        for (info, changes) in signature.variables.iter().zip(&reply.changes) {
            apply(changes, info, self.clock.processing_time.0, &mut groups)?;
        }
        if signature.form != Form::Processor {
            groups.iter_mut().for_each(|group| group.timeout = None);
        }
        for timeout in &reply.timeouts {
            groups[timeout.group as usize].timeout = Some(timeout.at);
        }
        for change in &reply.timers {
            let timers = &mut groups[change.group as usize].timers;
            match change.at {
                Some(at) => drop(timers.insert(change.name.clone(), at)),
                None => drop(timers.remove(&change.name)),
            }
        }
        Ok(())
    }
}

/// What the calls of a micro-batch answered.
#[derive(Default)]
struct Answers {
    rows: Vec<Vec<u8>>,
    rejected: Vec<Rejected>,
}

impl Answers {
    fn take(&mut self, session: &GroupSession, row_numbers: &[usize]) {
        let reply = session.reply();
        self.rows.push(reply.rows.message().to_vec());
        let rejected = reply.rejected.iter().map(|rejected| Rejected {
            row: row_numbers[rejected.row as usize] as u32,
            reason: rejected.reason.clone(),
        });
        self.rejected.extend(rejected);
        self.rejected.sort_by_key(|rejected| rejected.row);
    }
}

/// What a micro-batch brought.
pub struct Batch {
    schema: Schema,
    answers: Answers,
    seen: sink::Seen,
}

impl Batch {
    /// The rows that came out: those of groups with rows first, then those of timeouts or timers.
    ///
    /// # Errors
    /// If they do not have the columns that `R` reads, or hold a null where it has no place for one.
    pub fn rows<'a, R: Input<'a>>(&'a self) -> Result<Vec<R>, Error> {
        let plan = <(R,) as Arguments>::plan(&self.schema, Matching::Name).map_err(Error::Failed)?;
        let mut all = Vec::new();
        for message in &self.answers.rows {
            let rows = ipc::read_batch(message, &self.schema)?;
            let reader = <(R,) as Arguments>::reader(&plan, &rows)?;
            for row in 0..rows.len() {
                all.push(<(R,) as Arguments>::read(&reader, row).map_err(Error::Failed)?.0);
            }
        }
        Ok(all)
    }
    /// The columns that came out.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }
    /// The input rows that were refused, by their place in the micro-batch.
    pub fn rejected(&self) -> &[Rejected] {
        &self.answers.rejected
    }
    /// What was logged.
    pub fn logs(&self) -> &[(Level, String)] {
        &self.seen.logs
    }
    /// What was counted.
    pub fn counters(&self) -> &BTreeMap<String, u64> {
        &self.seen.counters
    }
}
