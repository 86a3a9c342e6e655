//! Stateful functions: what a well-behaved guest's answer becomes, and what is said to every kind of wrong one.

use crate::image::{Changes, Output, Signature, Variable, guest};
use crate::*;
use arrow::array::StringArray;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_ipc::writer::{
    DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
};
use pelton_core::{
    ErrorKind, GroupForm, GroupInput, GroupOutput, GroupReason, Load, StateAction, StateEntries,
    StatefulFunction, TimeMode, Timer, VariableKind,
};

fn options() -> IpcWriteOptions {
    IpcWriteOptions::try_new(8, false, arrow_ipc::MetadataVersion::V5).expect("options")
}

fn schema_of(fields: &[(&str, DataType)]) -> Schema {
    Schema::new(fields.iter().map(|(name, ty)| Field::new(*name, ty.clone(), true)).collect::<Vec<_>>())
}

fn schema_message(schema: &Schema) -> Vec<u8> {
    let mut tracker = DictionaryTracker::new(false);
    let generator = IpcDataGenerator::default();
    let message = generator.schema_to_bytes_with_dictionary_tracker(schema, &mut tracker, &options());
    let mut bytes = Vec::new();
    write_message(&mut bytes, message, &options()).expect("writes");
    bytes
}

fn message(batch: &RecordBatch) -> Vec<u8> {
    let (_, encoded) = IpcDataGenerator::default()
        .encode(batch, &mut DictionaryTracker::new(false), &options(), &mut IpcWriteContext::default())
        .expect("encodes");
    let mut bytes = Vec::new();
    write_message(&mut bytes, encoded, &options()).expect("writes");
    bytes
}

fn longs(name: &str, values: &[i64]) -> RecordBatch {
    let array: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    RecordBatch::try_from_iter_with_nullable([(name, array, true)]).expect("a batch")
}

fn key() -> SchemaRef {
    Arc::new(schema_of(&[("user", DataType::Utf8)]))
}

fn input() -> SchemaRef {
    Arc::new(schema_of(&[("user", DataType::Utf8), ("amount", DataType::Int64), ("place", DataType::Utf8)]))
}

/// A value, a list and a map.
fn variables() -> Vec<Variable> {
    let long = schema_message(&schema_of(&[("value", DataType::Int64)]));
    let variable = |name: &str, kind: u8| Variable {
        name: name.to_owned(),
        kind,
        key: Vec::new(),
        value: long.clone(),
        version: 1,
        ttl_ms: None,
        load: (1, 0),
        keyed_by: Vec::new(),
    };
    let map = Variable {
        key: schema_message(&schema_of(&[("place", DataType::Utf8)])),
        ttl_ms: Some(5000),
        load: (3, 0),
        keyed_by: vec!["place"],
        ..variable("seen", 2)
    };
    vec![variable("sum", 0), Variable { load: (2, 10), ..variable("recent", 1) }, map]
}

fn signature() -> Signature {
    Signature {
        encoding: 0,
        form: 1,
        time_mode: 2,
        output: schema_message(&schema_of(&[("out", DataType::Int64)])),
        reads: Some(vec!["place", "amount"]),
        variables: variables(),
    }
}

fn output() -> Output {
    let put = |value: &[i64]| message(&longs("value", value));
    let names: ArrayRef = Arc::new(StringArray::from(vec!["rome"]));
    let values: ArrayRef = Arc::new(Int64Array::from(vec![4]));
    let entry =
        RecordBatch::try_from_iter_with_nullable([("place", names.clone(), true), ("value", values, true)]);
    let removed = RecordBatch::try_from_iter_with_nullable([("place", names, true)]);
    Output {
        rows: message(&longs("out", &[10, 20, 30])),
        rejected: vec![1],
        changes: vec![
            Changes { groups: vec![0, 1], actions: vec![0, 2], put: put(&[7]), remove: Vec::new() },
            Changes { groups: vec![1, 1], actions: vec![0, 0], put: put(&[1, 2]), remove: Vec::new() },
            Changes {
                groups: vec![0, 1],
                actions: vec![0, 1],
                put: message(&entry.expect("a batch")),
                remove: message(&removed.expect("a batch")),
            },
        ],
        timeouts: vec![(0, 5_000_000), (1, 6_000_000)],
        timers: Vec::new(),
    }
}

fn open_with(signature: &Signature, output: &Output, limits: Limits) -> Result<Arc<dyn StatefulFunction>> {
    load_with(&guest(signature, output, &message(&longs("value", &[1]))), limits)?.stateful(
        "f",
        key(),
        input(),
    )
}

/// Two groups with a row each, without state.
fn groups(function: &Arc<dyn StatefulFunction>, reason: GroupReason) -> GroupInput {
    let users: ArrayRef = Arc::new(StringArray::from(vec!["ann", "bob"]));
    let keys = RecordBatch::try_from_iter_with_nullable([("user", users, true)]).expect("a batch");
    let amounts: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let places: ArrayRef = Arc::new(StringArray::from(vec![Some("rome"), None]));
    let columns = [("amount", amounts, true), ("place", places, true)];
    let variables = &function.signature().variables;
    let none = |variable: &pelton_core::StateVariable| StateEntries {
        rows: RecordBatch::new_empty(variable.entries.clone()),
        offsets: vec![0, 0, 0],
    };
    let fired = match reason {
        GroupReason::Timer => (0..2).map(|group| Timer { group, name: "t".into(), at: 9 }).collect(),
        _ => Vec::new(),
    };
    GroupInput {
        reason,
        keys,
        rows: RecordBatch::try_from_iter_with_nullable(columns).expect("a batch"),
        offsets: vec![0, 1, 2],
        state: variables.iter().map(none).collect(),
        fired,
        pending: vec![Timer { group: 1, name: "p".into(), at: 11 }],
    }
}

fn answer_with(signature: &Signature, output: &Output, limits: Limits) -> Result<GroupOutput> {
    let function = open_with(signature, output, limits)?;
    let reason = if signature.form == 2 { GroupReason::Timer } else { GroupReason::Data };
    in_batch(7, |scope| function.process(scope, &groups(&function, reason)))
}

#[test]
fn a_signature_says_what_a_function_reads_and_keeps() {
    let function = open_with(&signature(), &output(), limits()).expect("opens");
    let signature = function.signature();
    assert_eq!((signature.form, signature.time_mode), (GroupForm::FlatMapGroups, TimeMode::EventTime));
    assert_eq!(signature.reads, [1, 2], "ascending, whatever the order of the names");
    let [sum, recent, seen] = &signature.variables[..] else { panic!("three") };
    assert_eq!((sum.kind, &sum.load, sum.ttl_ms), (VariableKind::Value, &Load::Everything, None));
    assert_eq!((recent.kind, &recent.load), (VariableKind::List, &Load::Last(10)));
    // By position among the columns that are read.
    assert_eq!(
        (seen.kind, &seen.load, seen.ttl_ms),
        (VariableKind::Map, &Load::KeyedBy(vec![1]), Some(5000))
    );
    assert_eq!(
        seen.entries.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(),
        ["place", "value"]
    );
}

#[test]
fn an_honest_answer_comes_through() {
    let output = answer_with(&signature(), &output(), limits()).expect("answers");
    assert_eq!(output.rows.num_rows(), 3);
    assert_eq!(output.rejected[0].row, 1);
    assert_eq!(output.timeouts, [(0, 5_000_000), (1, 6_000_000)]);
    let [sum, recent, seen] = &output.changes[..] else { panic!("three") };
    assert_eq!(
        (&sum.groups[..], &sum.actions[..]),
        (&[0, 1][..], &[StateAction::Put, StateAction::Clear][..])
    );
    assert_eq!(recent.put.num_rows(), 2);
    assert_eq!((seen.put.num_rows(), seen.remove.num_rows()), (1, 1));
}

#[test]
fn a_guest_may_speak_json() {
    let schema = |field: &str| {
        let text =
            r#"{"type":"struct","fields":[{"name":"NAME","type":"long","nullable":true,"metadata":{}}]}"#;
        text.replace("NAME", field).into_bytes()
    };
    let sum = Variable { value: schema("value"), ..variables().remove(0) };
    let signature = Signature { encoding: 1, output: schema("out"), variables: vec![sum], ..signature() };
    let put = br#"[{"value":7}]"#.to_vec();
    let changes = vec![Changes { groups: vec![1], actions: vec![0], put, remove: Vec::new() }];
    let output = Output { rows: br#"[{"out":1},{"out":null}]"#.to_vec(), changes, ..Output::default() };
    let answer = answer_with(&signature, &output, limits()).expect("answers");
    assert_eq!((answer.rows.num_rows(), answer.changes[0].put.num_rows()), (2, 1));
    assert_eq!(answer.changes[0].put, longs("value", &[7]));
}

#[test]
fn nothing_is_a_short_answer() {
    let output = answer_with(&signature(), &Output::default(), limits()).expect("answers");
    assert_eq!((output.rows.num_rows(), output.changes.len()), (0, 3));
    assert!(output.changes.iter().all(|changes| changes.groups.is_empty()));
}

fn refused(change: impl FnOnce(&mut Signature, &mut Output), reason: &str) {
    let (mut signature, mut output) = (signature(), output());
    change(&mut signature, &mut output);
    let limits = Limits { timers: 3, variables: 4, ..limits() };
    let error = answer_with(&signature, &output, limits).expect_err(reason);
    assert_eq!(error.kind(), ErrorKind::Plugin, "{error}");
    assert!(error.message().contains(reason), "expected {reason:?}, got {error}");
}

#[test]
fn wrong_changes_are_refused() {
    let on = |at: usize, change: fn(&mut Changes)| {
        move |_: &mut Signature, output: &mut Output| change(&mut output.changes[at])
    };
    refused(on(0, |c| c.actions.push(0)), "variable 'sum': 2 groups for 3 actions");
    refused(on(0, |c| c.groups = vec![1, 0]), "groups must ascend, group 0 comes after group 1");
    refused(on(0, |c| c.groups = vec![0, 2]), "group 2, there are 2");
    refused(on(0, |c| c.groups = vec![0, u32::MAX]), "group 4294967295, there are 2");
    refused(on(0, |c| c.actions = vec![0, 0]), "1 rows to put for 2 actions");
    refused(on(0, |c| c.actions = vec![2, 2]), "1 rows to put for 0 actions");
    refused(on(1, |c| c.actions = vec![0, 1]), "'remove' is for maps alone");
    refused(on(2, |c| c.remove = Vec::new()), "0 rows to remove for 1 actions");
    refused(on(2, |c| c.put = vec![1, 2, 3]), "(put) expected an Arrow IPC message");
    refused(on(2, |c| c.put = message(&longs("value", &[1]))), "(put) its column");
    refused(on(0, |c| c.actions = vec![0, 3]), "unexpected discriminant: 3");
    refused(|_, output| drop(output.changes.pop()), "changes of 2 variables, it has 3");
}

#[test]
fn wrong_rows_timeouts_and_timers_are_refused() {
    refused(
        |signature, _| signature.form = 0,
        "3 rows for 2 groups; a map-groups function gives one for each",
    );
    refused(|_, output| output.rejected = vec![2], "row 2 is rejected, there are 2");
    refused(|_, output| output.rejected = vec![1, 0], "rejected rows must ascend");
    refused(|_, output| output.timeouts[1].0 = 0, "group 0 comes after group 0");
    refused(|_, output| output.timeouts[1].0 = 2, "a timeout for group 2, there are 2");
    refused(|signature, _| signature.time_mode = 0, "timeouts, but its time mode is 'none'");
    refused(|signature, _| signature.form = 2, "timeouts; a processor has timers instead");
    let timer = |group: u32, name: &str| (group, name.to_owned(), Some(1));
    refused(|_, output| output.timers = vec![timer(0, "t")], "timers; only a processor has timers");
    let timers = |timers: Vec<(u32, String, Option<i64>)>| {
        move |signature: &mut Signature, output: &mut Output| {
            signature.form = 2;
            output.timeouts.clear();
            output.timers = timers;
        }
    };
    refused(timers(vec![timer(2, "t")]), "a timer for group 2, there are 2");
    refused(timers(vec![timer(0, &"n".repeat(257))]), "a timer with a name of 257 bytes (at most 256)");
    refused(timers(vec![timer(0, "t"); 4]), "4 changes of timers (limit timers: 3)");
}

#[test]
fn wrong_signatures_are_refused() {
    let on = |at: usize, change: fn(&mut Variable)| {
        move |signature: &mut Signature, _: &mut Output| change(&mut signature.variables[at])
    };
    refused(on(1, |v| v.name = "sum".into()), "it has two variables named 'sum'");
    refused(on(1, |v| v.name = "a b".into()), "its variable 'a b': this is no name");
    refused(on(1, |v| v.value = vec![0; 40]), "the schema of its value: its IPC message");
    refused(on(1, |v| v.value = Vec::new()), "its value has no fields");
    refused(on(2, |v| v.key = Vec::new()), "a map needs a key");
    refused(on(0, |v| v.key = v.value.clone()), "only a map has a key");
    refused(on(2, |v| v.key = v.value.clone()), "its key and its value both have a field 'value'");
    refused(on(0, |v| v.load = (0, 0)), "a value is always loaded");
    refused(on(1, |v| v.load = (2, 0)), "it loads the last 0 entries");
    refused(on(2, |v| v.load = (2, 1)), "only of a list the last entries can be loaded");
    refused(on(1, |v| v.load = (3, 0)), "only of a map entries can be loaded by key");
    refused(on(2, |v| v.keyed_by = vec!["plaice"]), "did you mean 'place'?");
    refused(on(2, |v| v.keyed_by = vec!["user"]), "'user', which the function does not read");
    refused(on(2, |v| v.keyed_by = vec!["amount"]), "'amount' of type Int64");
    refused(on(2, |v| v.keyed_by = Vec::new()), "it is keyed by 0 columns, its key has 1 fields");
    refused(on(0, |v| v.ttl_ms = Some(0)), "its time to live must be a millisecond at least");
    refused(on(0, |v| v.ttl_ms = Some(u64::MAX)), "is too long");
    refused(|signature, _| signature.reads = Some(vec!["amuont"]), "did you mean 'amount'?");
    refused(|signature, _| signature.reads = Some(vec!["amount", "amount"]), "it reads a column twice");
    refused(|signature, _| signature.output = vec![1], "answered a wrong signature");
    refused(
        |signature, _| {
            let sum = signature.variables[0].clone();
            signature.variables = (0..5).map(|i| Variable { name: format!("v{i}"), ..sum.clone() }).collect();
        },
        "it has 5 variables (limit variables: 4)",
    );
}

#[test]
fn rewritten_entries_are_as_many_as_there_were() {
    let function = open_with(&signature(), &output(), limits()).expect("opens");
    let old = longs("older", &[5]);
    assert_eq!(function.migrate(0, 0, &old).expect("one for one").num_rows(), 1);
    let error = function.migrate(0, 0, &longs("older", &[5, 6])).expect_err("one for two");
    assert!(
        error
            .message()
            .contains("rewrote the entries of 'sum' from version 0: answered wrong entries: 1 entries for 2"),
        "{error}"
    );
    assert!(function.migrate(9, 0, &old).is_err());
}

#[test]
fn an_instance_can_be_thrown_away_after_every_call() {
    let settings = PluginSettings { discard_after_every_call: true, ..PluginSettings::default() };
    let plugin = host().load("p", &guest(&signature(), &output(), &[]), settings).expect("loads");
    let function = plugin.stateful("f", key(), input()).expect("opens");
    let groups = groups(&function, GroupReason::Data);
    for _ in 0..3 {
        in_batch(7, |scope| function.process(scope, &groups)).expect("answers");
    }
    assert_eq!(plugin.metrics().instances, 1 + 1 + 3, "described, opened, three calls");
}
