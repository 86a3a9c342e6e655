//! The table of changes: what was kept, what would be kept, what is said to it.

use super::*;
use pelton_core::KIND_WITH_VARIABLES;
use pelton_core::{DEFINITION_WORDS, VariableKind, VariableLayout};

fn columns(text: &str) -> Vec<StateColumn> {
    let column = |column: &str| {
        let (name, data_type) = column.split_once(": ").unwrap();
        StateColumn { name: name.into(), data_type: data_type.into() }
    };
    text.split(", ").filter(|column| !column.is_empty()).map(column).collect()
}

/// `SELECT k, sum(v) FROM s GROUP BY k` with a window.
fn sums() -> StateLayout {
    StateLayout {
        name: "sql.aggregate".into(),
        kind: "aggregate".into(),
        form: "by key".into(),
        keys: columns("k: string, n: long"),
        values: columns("sum(s.v): long"),
        words: DEFINITION_WORDS,
        definition: vec![StateFact::new("key 1", "s.k"), StateFact::new("aggregate 1", "sum(s.v)")],
        settings: vec![StateFact::new("the join", "inner")],
        ..StateLayout::default()
    }
}

fn changed(change: impl FnOnce(&mut StateLayout)) -> Vec<StateLayout> {
    let mut layout = sums();
    change(&mut layout);
    vec![layout]
}

enum Answer {
    Allowed,
    /// With a note that contains this.
    Noted(&'static str),
    /// With a message that contains this, whatever the file accepts.
    Refused(&'static str),
    /// Likewise, unless the file accepts it.
    Nonsense(&'static str),
}
use Answer::{Allowed, Nonsense, Noted, Refused};

fn table() -> Vec<(&'static str, Vec<StateLayout>, Answer)> {
    let other = || StateLayout { name: "dedup".into(), kind: "dedup".into(), ..StateLayout::default() };
    vec![
        ("nothing", vec![sums()], Allowed),
        ("a column's name", changed(|l| l.keys[0].name = "customer".into()), Allowed),
        (
            "a setting",
            changed(|l| l.settings[0].is = "left outer".into()),
            Noted("the join was inner and is left outer"),
        ),
        ("a setting gone", changed(|l| l.settings.clear()), Noted("the join was inner and is nothing")),
        (
            "other words",
            changed(|l| (l.words, l.definition) = (99, Vec::new())),
            Noted("only types were compared"),
        ),
        (
            "a key's type",
            changed(|l| l.keys = columns("k: string, n: int")),
            Refused("its key 2 was `n: long` and would now be `n: int`"),
        ),
        (
            "keys swapped",
            changed(|l| l.keys.swap(0, 1)),
            Refused("its key 1 was `k: string` and would now be `n: long`"),
        ),
        (
            "a key more",
            changed(|l| l.keys.extend(columns("d: double"))),
            Refused("the number of its keys was 2 and would now be 3"),
        ),
        (
            "a key fewer",
            changed(|l| l.keys.truncate(1)),
            Refused("the number of its keys was 2 and would now be 1"),
        ),
        (
            "a value's type",
            changed(|l| l.values = columns("sum(s.d): double")),
            Refused("its value 1 was `sum(s.v): long` and would now be `sum(s.d): double`"),
        ),
        (
            "a value more",
            changed(|l| l.values.extend(columns("n: long"))),
            Refused("the number of its values was 1 and would now be 2"),
        ),
        (
            "another kind",
            changed(|l| l.kind = "session_window".into()),
            Refused("it was of kind aggregate and is of kind session_window"),
        ),
        (
            "another form",
            changed(|l| l.form = "by time".into()),
            Refused("laid out as 'by key' and would now be as 'by time'"),
        ),
        (
            "an operator more",
            vec![sums(), other()],
            Refused("the operator 'dedup' (dedup) is new in the pipeline"),
        ),
        (
            "no operator",
            Vec::new(),
            Refused(
                "the state of the operator 'sql.aggregate' (aggregate), which the pipeline no longer has",
            ),
        ),
        ("another operator", vec![other()], Refused("no longer has; the operator 'dedup' (dedup) is new")),
    ]
}

/// Changes of what the same types mean.
fn nonsense() -> Vec<(&'static str, Vec<StateLayout>, Answer)> {
    vec![
        (
            "another key",
            changed(|l| l.definition[0].is = "upper(s.k)".into()),
            Nonsense("key 1 was s.k and is upper(s.k)"),
        ),
        (
            "another function",
            changed(|l| l.definition[1].is = "max(s.v)".into()),
            Nonsense("aggregate 1 was sum(s.v) and is max(s.v)"),
        ),
        (
            "a fact more",
            changed(|l| l.definition.push(StateFact::new("window", "5 min"))),
            Nonsense("window was nothing and is 5 min"),
        ),
    ]
}

#[test]
fn the_table_of_changes() {
    let all = |layouts: &[StateLayout]| layouts.iter().map(|layout| layout.name.clone()).collect();
    let nothing = BTreeSet::new();
    for (change, now, answer) in table().into_iter().chain(nonsense()) {
        let accepted: BTreeSet<String> = all(&now);
        let (plain, willing) = (goes_on(&[sums()], &now, &nothing), goes_on(&[sums()], &now, &accepted));
        match answer {
            Allowed => assert_eq!(plain.unwrap(), Vec::<String>::new(), "{change}"),
            Noted(part) => {
                let notes = plain.unwrap();
                assert!(notes.len() == 1 && notes[0].contains(part), "{change}: {notes:?}");
            }
            Refused(part) => {
                for refused in [plain.unwrap_err(), willing.unwrap_err()] {
                    assert!(refused.message().contains(part), "{change}: {refused}");
                    assert!(
                        refused.message().contains("\n  checkpoint: ") || now.len() > 1,
                        "{change}: {refused}"
                    );
                    assert!(refused.hint_text().unwrap().contains("new checkpoint"), "{change}");
                }
            }
            Nonsense(part) => {
                let refused = plain.unwrap_err();
                assert!(refused.message().contains(part), "{change}: {refused}");
                let way_out = "accept_changed_state: ['sql.aggregate']";
                assert!(refused.hint_text().unwrap().contains(way_out), "{change}: {refused:?}");
                let notes = willing.unwrap();
                assert!(notes.len() == 1 && notes[0].contains(part), "{change}: {notes:?}");
            }
        }
    }
}

#[test]
fn an_operator_that_only_lost_its_name_is_recognised() {
    let now = changed(|layout| layout.name = "sql-2.aggregate".into());
    let refused = goes_on(&[sums()], &now, &BTreeSet::new()).unwrap_err();
    let hint = refused.hint_text().unwrap();
    assert!(hint.contains("'sql-2.aggregate' is only another name of 'sql.aggregate'"), "{hint}");
}

#[test]
fn a_refusal_shows_both_schemas() {
    let now = changed(|layout| layout.keys = columns("n: long"));
    let refused = goes_on(&[sums()], &now, &BTreeSet::new()).unwrap_err();
    let expected = "the operator 'sql.aggregate' cannot go on with the state in the checkpoint: the number of its \
                    keys was 2 and would now be 1\n  checkpoint: keys (k: string, n: long), values \
                    (sum(s.v): long)\n  pipeline: keys (n: long), values (sum(s.v): long)";
    assert_eq!(refused.message(), expected);
}

/// What a plugin's function keeps.
fn function() -> StateLayout {
    let total = VariableLayout {
        name: "total".into(),
        kind: VariableKind::Value,
        version: 2,
        key: Vec::new(),
        value: columns("n: long, sum: long"),
        nullable: vec![false, false],
        set_aside: false,
    };
    let seen = VariableLayout {
        name: "seen".into(),
        kind: VariableKind::Map,
        key: columns("id: string"),
        value: columns("n: long"),
        nullable: vec![true],
        ..total.clone()
    };
    StateLayout {
        kind: KIND_WITH_VARIABLES.into(),
        values: columns("timeout: event time"),
        variables: vec![total, seen],
        ..sums()
    }
}

#[test]
fn variables_go_on_where_their_function_can_read_them() {
    let changed = |change: fn(&mut VariableLayout)| {
        let mut layout = function();
        change(&mut layout.variables[0]);
        vec![layout]
    };
    let allowed = |now: &[StateLayout]| goes_on(&[function()], now, &BTreeSet::new());
    let renamed = changed(|v| v.value = columns("count: long, total: long"));
    assert_eq!(allowed(&renamed).unwrap(), Vec::<String>::new());
    let notes = |now: &[StateLayout]| allowed(now).unwrap().join("; ");
    let migrated = changed(|v| (v.version, v.value) = (3, columns("n: double")));
    assert!(notes(&migrated).contains("goes from version 2 to 3"), "{}", notes(&migrated));
    let wider = changed(|v| {
        (v.value, v.nullable) = (columns("n: long, sum: long, max: long"), vec![false, false, true])
    });
    assert!(notes(&wider).contains("'total' has other fields from here on"), "{}", notes(&wider));
    let other = changed(|v| v.name = "totals".into());
    assert!(notes(&other).contains("'totals' is new") && notes(&other).contains("'total' is no longer used"));
    let refused = |now: &[StateLayout]| allowed(now).unwrap_err();
    let retyped = refused(&changed(|v| v.value = columns("n: long, sum: double")));
    assert!(retyped.message().contains("`sum: long` would now be `sum: double`"), "{retyped}");
    assert!(retyped.message().contains("total: value v2 (n: long, sum: double)"), "{retyped}");
    assert!(retyped.hint_text().unwrap().contains("migrate"), "{retyped:?}");
    let narrow =
        changed(|v| (v.value, v.nullable) = (columns("n: long, sum: long, max: long"), vec![false; 3]));
    assert!(refused(&narrow).message().contains("the new field `max: long` cannot be null"));
    let mut null = function();
    null.variables[1].nullable = vec![false];
    assert!(refused(&[null]).message().contains("`n: long` may be null in what is stored and could not be"));
    let kind = refused(&changed(|v| v.kind = VariableKind::List));
    assert!(kind.message().contains("'total' was a value and would now be a list"), "{kind}");
    assert!(refused(&changed(|v| v.version = 1)).message().contains("stored in version 2"));
    let mut keyed = function();
    keyed.variables[1].key = columns("id: long");
    assert!(refused(&[keyed]).message().contains("the key of its map 'seen' has other types"));
    let mut timed = function();
    timed.values = columns("timeout: processing time");
    assert!(
        refused(&[timed])
            .message()
            .contains("`timeout: event time` and would now be `timeout: processing time`")
    );
}

#[test]
fn a_variable_that_was_dropped_does_not_come_back_by_itself() {
    let mut then = function();
    then.variables[1].set_aside = true;
    let back = goes_on(&[then.clone()], &[function()], &BTreeSet::new()).unwrap_err();
    assert!(back.message().contains("the variable 'seen' of the operator 'sql.aggregate' is back"), "{back}");
    assert!(back.hint_text().unwrap().contains("--reset-state sql.aggregate.seen"), "{back:?}");
    let mut now = function();
    now.variables.truncate(1);
    assert_eq!(goes_on(&[then], &[now], &BTreeSet::new()).unwrap(), Vec::<String>::new());
}

#[test]
fn the_one_value_of_a_group_is_not_dropped_or_renamed() {
    let function = || StateLayout { kind: "flatMapGroupsWithState".into(), ..function() };
    let refused = |change: fn(&mut StateLayout)| {
        let mut now = function();
        change(&mut now);
        goes_on(&[function()], &[now], &BTreeSet::new()).unwrap_err()
    };
    let expected = "the value of a group has another name";
    assert!(refused(|now| now.variables.truncate(1)).message().contains(expected));
    assert!(refused(|now| now.variables[1].name = "v".into()).message().contains(expected));
}
