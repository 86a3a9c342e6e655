//! A call of a typed function, group by group: what the attribute macros call.

use super::rows::{Reader, Rows};
use super::timers::Timers;
use super::tuple::Variables;
use super::variables::Moment;
use super::{Form, GivenTimer, GroupReply, Groups, Load, Signature, VariableInfo, VariableKind};
use crate::array::Array;
use crate::config::Config;
use crate::context::Context;
use crate::error::Error;
use crate::function::flat_map::Emit;
use crate::function::{Rejected, reuse};
use crate::input::{Arguments, Input, Matching, Plan};
use crate::ipc::Encoder;
use crate::output::{BuildRow, Output, Row};
use crate::time::{TimeMode, TimeSpan};
use crate::types::{DataType, Field, Schema, did_you_mean};
use std::any::Any;
use std::cell::RefCell;
use std::fmt::Display;

/// What an attribute says of a variable.
pub struct Spec {
    name: &'static str,
    ttl_ms: Result<Option<u64>, String>,
    load: Load,
}

impl Spec {
    /// A variable of this name that lives for ever and is loaded whole.
    pub fn new(name: &'static str) -> Self {
        Self { name, ttl_ms: Ok(None), load: Load::Everything }
    }
    /// With a time to live.
    #[must_use]
    pub fn ttl(mut self, ttl: impl TimeToLive) -> Self {
        self.ttl_ms = ttl.ttl_ms();
        self
    }
    /// With another way to load it.
    #[must_use]
    pub fn load(mut self, load: Load) -> Self {
        self.load = load;
        self
    }
}

/// A time to live: a length of time, or an `Option` of one.
pub trait TimeToLive {
    /// In milliseconds.
    ///
    /// # Errors
    /// If it is none.
    fn ttl_ms(self) -> Result<Option<u64>, String>;
}

impl<T: TimeSpan> TimeToLive for T {
    fn ttl_ms(self) -> Result<Option<u64>, String> {
        match self.micros()? / 1000 {
            ms @ 1.. => Ok(Some(ms.unsigned_abs())),
            _ => Err("a time to live must be a millisecond at least".to_owned()),
        }
    }
}

/// What a typed function keeps while it is open.
pub struct TypedGroups<C, V> {
    config: C,
    signature: Signature,
    key_plan: Plan,
    row_plan: Plan,
    entries: Vec<Schema>,
    variable_plans: Vec<Vec<Plan>>,
    variables: V,
    timers: Timers,
    builder: Option<Box<dyn Any>>,
}

impl<C, V> TypedGroups<C, V> {
    /// What the host is told.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }
}

/// The function's configuration; used by the macros, whose attributes may look at it.
///
/// # Errors
/// If the text does not suit it.
pub fn config<C: Config>(text: &str) -> Result<C, Error> {
    C::parse(text).map_err(Error::Unsuitable)
}

/// See [`super::GroupFunction::open`]. The function is there for its types.
///
/// # Errors
/// If key, input or configuration do not suit it.
pub fn open<'a, K, T, V, O, C, F>(
    (form, time_mode): (Form, TimeMode),
    specs: Vec<Spec>,
    config: C,
    (key, input): (&Schema, &Schema),
    _function: F,
) -> Result<(TypedGroups<C, V>, Signature), Error>
where
    K: Arguments<'a>,
    T: Input<'a>,
    V: Variables,
    O: Row,
    F: Fn(K, Rows<'_, T>, &mut V, &mut Timers, &mut Emit<O>, &Context, &C) -> Result<(), String>,
{
    let unsuitable = Error::Unsuitable;
    let key_plan = K::plan(key, Matching::NameOrOrder).map_err(|e| unsuitable(format!("its key: {e}")))?;
    let mut variables = variables::<V>(specs)?;
    name_key_columns(input, &mut variables)?;
    let reads = reads::<T>(input, &variables);
    let read = Schema::new(reads.iter().map(|at| input.fields[*at].clone()).collect());
    let all = Field::new("", DataType::Struct(input.fields.clone()), false);
    // Planned over all columns first, so that a message can name the nearest of them.
    T::plan(&all, "").map_err(unsuitable)?;
    let row_plan = T::plan(&Field::new("", DataType::Struct(read.fields), false), "").map_err(unsuitable)?;
    let entries: Vec<Schema> = variables.iter().map(VariableInfo::entries).collect();
    let variable_plans = V::plans(&entries)?;
    let output = Schema::new(O::columns());
    let signature = Signature { form, time_mode, output, reads, variables };
    let open = TypedGroups {
        config,
        signature: signature.clone(),
        key_plan,
        row_plan,
        entries,
        variable_plans,
        variables: V::default(),
        timers: Timers::default(),
        builder: None,
    };
    Ok((open, signature))
}

fn variables<V: Variables>(specs: Vec<Spec>) -> Result<Vec<VariableInfo>, Error> {
    let variable = |(declared, spec): (super::variables::Declared, Spec)| {
        let named = |e: String| Error::Unsuitable(format!("the variable '{}': {e}", spec.name));
        match (&spec.load, declared.kind) {
            (Load::Last(_), kind) if kind != VariableKind::List => {
                return Err(named("only of a list the last entries can be loaded".to_owned()));
            }
            (Load::KeyedBy(_), kind) if kind != VariableKind::Map => {
                return Err(named("only of a map entries can be loaded by key".to_owned()));
            }
            (Load::Nothing, VariableKind::Value) => {
                return Err(named("a value is always loaded".to_owned()));
            }
            _ => {}
        }
        if let Some(twice) = declared.key.iter().find(|k| declared.value.iter().any(|v| v.name == k.name)) {
            return Err(named(format!("its key and its value both have a field '{}'", twice.name)));
        }
        Ok(VariableInfo {
            name: spec.name.to_owned(),
            kind: declared.kind,
            key: declared.key,
            value: declared.value,
            version: declared.version,
            ttl_ms: spec.ttl_ms.map_err(named)?,
            load: spec.load,
        })
    };
    V::declared().into_iter().zip(specs).map(variable).collect()
}

/// Gives the columns by which maps are loaded the names that they have in the input.
fn name_key_columns(input: &Schema, variables: &mut [VariableInfo]) -> Result<(), Error> {
    for variable in variables {
        let Load::KeyedBy(columns) = &mut variable.load else { continue };
        for column in columns {
            let Some(at) = input.index_of(column) else {
                let near = did_you_mean(column, input.fields.iter().map(|field| field.name.as_str()));
                let name = &variable.name;
                return Err(Error::Unsuitable(format!(
                    "the variable '{name}' is keyed by the column '{column}', which is not there{near}"
                )));
            };
            input.fields[at].name.clone_into(column);
        }
    }
    Ok(())
}

/// The columns that the rows' type reads, and those by which maps are loaded.
fn reads<'a, T: Input<'a>>(input: &Schema, variables: &[VariableInfo]) -> Vec<usize> {
    let keyed = variables.iter().flat_map(|variable| match &variable.load {
        Load::KeyedBy(columns) => columns.iter(),
        _ => [].iter(),
    });
    let names = T::FIELDS.iter().copied().chain(keyed.map(String::as_str));
    let mut reads: Vec<usize> = names.filter_map(|name| input.index_of(name)).collect();
    reads.sort_unstable();
    reads.dedup();
    reads
}

/// See [`super::GroupFunction::run`].
///
/// # Errors
/// If the function fails, or something is not what was agreed.
pub fn run<'a, K, T, V, O, C, F>(
    open: &mut TypedGroups<C, V>,
    context: &Context,
    groups: &Groups<'a>,
    reply: &mut GroupReply,
    function: F,
) -> Result<(), Error>
where
    K: Arguments<'a>,
    T: Input<'a>,
    V: Variables,
    O: Row,
    F: Fn(K, Rows<'_, T>, &mut V, &mut Timers, &mut Emit<O>, &Context, &C) -> Result<(), String>,
{
    let keys = K::reader(&open.key_plan, &groups.keys)?;
    let rows = Reader::<T>(T::reader(&open.row_plan, &groups.rows)?);
    let readers = V::readers(&open.variable_plans, &groups.state)?;
    let refused = RefCell::new(std::mem::take(&mut reply.rejected));
    let builder: &mut <O as Output>::Builder = reuse(&mut open.builder);
    let mut emit = Emit::new();
    let (form, time_mode) = (open.signature.form, open.signature.time_mode);
    let moment = Moment { reason: groups.reason, time_mode, clock: context.clock() };
    let mut pending = &groups.pending[..];
    open.variables.forget();
    open.timers.forget();
    for group in 0..groups.keys.len() {
        let range = groups.offsets.range(group);
        let key = match K::read(&keys, group) {
            Ok(key) => key,
            Err(reason) => {
                unreadable_key(form, &reason, range, &refused)?;
                continue;
            }
        };
        open.variables.begin(&readers, &groups.state, group, &moment)?;
        if form == Form::Processor {
            let mine = take_pending(&mut pending, group);
            open.timers.begin(group as u32, groups.fired.get(group), mine, time_mode, moment.clock);
        }
        let rows = Rows::new(&rows, &refused, range);
        function(key, rows, &mut open.variables, &mut open.timers, &mut emit, context, &open.config)
            .map_err(Error::Failed)?;
        open.variables.end(group as u32, &mut reply.timeouts);
        emit.drain().for_each(|row| row.append(builder));
    }
    reply.rejected = refused.into_inner();
    reply.rows(builder);
    open.timers.write(&mut reply.timers);
    open.variables.write(&open.entries, &mut reply.changes);
    Ok(())
}

/// A group whose key has a null where its type has no place for one: its rows are refused.
#[cold]
fn unreadable_key(
    form: Form,
    reason: &str,
    rows: std::ops::Range<usize>,
    refused: &RefCell<Vec<Rejected>>,
) -> Result<(), Error> {
    if form == Form::MapGroups {
        return Err(Error::Failed(format!(
            "{reason} in a group's key; its type must take nulls: use an Option"
        )));
    }
    let rejected = rows.map(|row| Rejected { row: row as u32, reason: format!("{reason} in the key") });
    refused.borrow_mut().extend(rejected);
    Ok(())
}

/// The pending timers of a group, which come next.
fn take_pending<'t, 'a>(pending: &mut &'t [GivenTimer<'a>], group: usize) -> &'t [GivenTimer<'a>] {
    let before = pending.partition_point(|timer| (timer.group as usize) < group);
    let rest = &pending[before..];
    let (mine, after) = rest.split_at(rest.partition_point(|timer| timer.group as usize == group));
    *pending = after;
    mine
}

impl GroupReply {
    fn rows<B: BuildRow>(&mut self, builder: &B) {
        self.count = builder.len();
        builder.write_columns(&mut self.rows);
    }
}

/// See [`super::GroupFunction::migrate`].
///
/// # Errors
/// If there is no way from that version.
pub fn migrate<C, V: Variables>(
    _: &TypedGroups<C, V>,
    variable: usize,
    from: u32,
    old: &Schema,
    entries: &Array<'_>,
    to: &mut Encoder,
) -> Result<(), Error> {
    V::migrate(variable, from, old, entries, to)
}

/// What a map_groups function may return: a row, or a `Result` of one whose error fails the micro-batch.
#[diagnostic::on_unimplemented(
    message = "a map_groups function cannot return `{Self}`",
    label = "the return type of a map_groups function",
    note = "it returns one row for each group, a struct with #[derive(pelton::Row)], or a Result of it; \
            for any number of rows there is #[pelton::flat_map_groups]"
)]
pub trait MapGroupsReturn {
    /// The row.
    type Row: Row;
    /// The row, or why the micro-batch fails.
    ///
    /// # Errors
    /// The reason.
    fn outcome(self) -> Result<Self::Row, String>;
}

impl<T: Row> MapGroupsReturn for T {
    type Row = T;
    #[inline]
    fn outcome(self) -> Result<T, String> {
        Ok(self)
    }
}

impl<T: Row, E: Display> MapGroupsReturn for Result<T, E> {
    type Row = T;
    #[inline]
    fn outcome(self) -> Result<T, String> {
        self.map_err(|e| e.to_string())
    }
}

/// Emits the one row of a group.
///
/// # Errors
/// The function's.
#[inline]
pub fn emit_one<R: MapGroupsReturn>(returned: R, emit: &mut Emit<R::Row>) -> Result<(), String> {
    emit.row(returned.outcome()?);
    Ok(())
}
