//! What operators say of their state: the same query says the same, however it is written; another one does not.

use super::micro_batches::{Query, physical};
use super::schema;
use pelton_core::StateLayout;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The state of a query over the sources `s` and `t`, both with a watermark if `delay` is given.
fn layouts(steps: Value, delay: Option<&str>) -> Vec<StateLayout> {
    let columns = schema("k string, k2 string, v long, d double, ts timestamp, ts2 timestamp");
    let text = steps.to_string();
    let sources = ["s", "t"].into_iter().filter(|name| *name == "s" || text.contains(" t "));
    let sources: BTreeMap<_, _> = sources.map(|name| (name.to_owned(), columns.clone())).collect();
    let mut spec = json!({"connector": "rate"});
    if let Some(delay) = delay {
        spec["watermark"] = json!({"column": "ts", "delay": delay});
    }
    let specs: BTreeMap<_, _> = sources.keys().map(|name| (name.clone(), spec.clone())).collect();
    let file = json!({
        "name": "q", "sources": specs, "steps": steps, "sink": {"connector": "memory"},
        "output_mode": if text.contains("JOIN") || text.contains("dedup") || delay.is_some() { "append" } else { "update" },
    });
    let plan = physical(&file.to_string(), &sources).expect("a plan");
    let query = Query::new(&plan).expect("a query");
    query.flow.operators().iter().filter_map(|operator| operator.layout.clone()).collect()
}

fn only(steps: Value, delay: Option<&str>) -> StateLayout {
    layouts(steps, delay).pop().expect("an operator with state")
}

fn sql(text: &str) -> StateLayout {
    only(json!([{"sql": text}]), None)
}

fn definition(layout: &StateLayout) -> Vec<String> {
    layout.definition.iter().map(|fact| format!("{}: {}", fact.what, fact.is)).collect()
}

#[test]
fn groups_say_their_keys_windows_and_functions() {
    let layout =
        sql("SELECT upper(k) AS key, window(ts, '600 seconds', '5 minutes') AS w, sum(v) AS x, avg(d) AS y \
                      FROM s GROUP BY upper(k), window(ts, '600 seconds', '5 minutes')");
    assert_eq!((layout.name.as_str(), layout.kind.as_str()), ("sql.aggregate", "aggregate"));
    assert_eq!(layout.form, "groups by the end of their window");
    assert_eq!(
        definition(&layout),
        [
            "key 1: upper(s.k)",
            "key 2: a window of s.ts over 10 minutes every 5 minutes",
            "aggregate 1: sum(s.v)",
            "aggregate 2: avg(s.d)",
        ]
    );
    let types: Vec<&str> = layout.keys.iter().map(|column| column.data_type.as_str()).collect();
    assert_eq!(types, ["string", "struct<start: timestamp, end: timestamp>"]);
    assert!(layout.values.len() >= 3 && layout.values[0].data_type == "long", "{layout}");
}

#[test]
fn names_and_other_ways_to_write_a_query_say_nothing_new() {
    let plain = sql("SELECT k, sum(v) AS x FROM s GROUP BY k");
    for other in [
        "SELECT k AS customer, sum(v) AS total FROM s GROUP BY k",
        "SELECT o.k, sum(o.v) FROM s AS o WHERE o.v > 3 GROUP BY o.k",
        "SELECT a, sum(b) FROM (SELECT k AS a, v AS b, d FROM s) GROUP BY a",
        "SELECT concat(k, '!'), x * 10 FROM (SELECT k, sum(v) AS x FROM s GROUP BY k)",
        "WITH r AS (SELECT v AS amount, k FROM s) SELECT r.k, sum(r.amount) FROM r GROUP BY r.k",
    ] {
        let other_layout = sql(other);
        assert_eq!(definition(&other_layout), definition(&plain), "{other}");
        assert_eq!((&other_layout.form, &other_layout.name), (&plain.form, &plain.name), "{other}");
    }
    let steps = json!([{"filter": "v > 1"}, {"select": ["k AS a", "v AS b"]}, {"sql": "SELECT a, sum(b) FROM input GROUP BY a"}]);
    assert_eq!(definition(&only(steps, None)), definition(&plain));
}

#[test]
fn what_is_computed_on_the_way_is_part_of_the_meaning() {
    let plain = sql("SELECT k, sum(v) AS x FROM s GROUP BY k");
    for (other, said) in [
        ("SELECT k, sum(v) FROM (SELECT lower(k2) AS k, v FROM s) GROUP BY k", "key 1: lower(s.k2)"),
        ("SELECT k, sum(v) FROM (SELECT k, v + 1 AS v FROM s) GROUP BY k", "aggregate 1: sum(s.v + 1)"),
        ("SELECT k, max(v) FROM s GROUP BY k", "aggregate 1: max(s.v)"),
        (
            "SELECT k, sum(v) FILTER (WHERE d > 2) FROM s GROUP BY k",
            "aggregate 1: sum(s.v) FILTER (WHERE s.d > 2)",
        ),
    ] {
        let other_layout = sql(other);
        assert_ne!(definition(&other_layout), definition(&plain), "{other}");
        assert!(definition(&other_layout).contains(&said.to_owned()), "{:?}", definition(&other_layout));
    }
}

#[test]
fn a_watermark_changes_neither_the_meaning_nor_the_form_of_groups_and_keys() {
    let windows =
        "SELECT k, window(ts, '10 minutes') AS w, sum(v) FROM s GROUP BY k, window(ts, '10 minutes')";
    for steps in [json!([{"sql": windows}]), json!([{"dedup": ["k", "ts"]}])] {
        let without = only(steps.clone(), None);
        assert_eq!(only(steps.clone(), Some("10 minutes")), without);
        assert_eq!(only(steps, Some("1 hour")), without);
    }
}

#[test]
fn deduplication_says_its_columns_and_whether_it_is_within_the_watermark() {
    let plain = only(json!([{"select": ["k2 AS id", "v"]}, {"dedup": ["id"]}]), None);
    assert_eq!(definition(&plain), ["key 1: s.k2"]);
    assert_eq!((plain.kind.as_str(), plain.form.as_str()), ("dedup", "keys"));
    let within = json!([{"dedup": {"columns": ["k"], "within_watermark": true}}]);
    let within = only(within, Some("10 minutes"));
    assert_eq!(
        (within.kind.as_str(), within.settings[0].is.as_str()),
        ("dedup_within_watermark", "600000 ms")
    );
}

#[test]
fn a_join_says_its_keys_its_rows_and_its_condition_and_its_kind_is_a_setting() {
    let join = |kind: &str| {
        let text = format!(
            "SELECT l.k, l.v FROM s AS l {kind} JOIN t AS r ON l.k = r.k AND r.ts >= l.ts AND r.ts <= l.ts + INTERVAL \
             5 MINUTES AND r.v > 0"
        );
        only(json!([{"sql": text}]), Some("10 minutes"))
    };
    let (inner, outer, semi) = (join("INNER"), join("LEFT OUTER"), join("LEFT SEMI"));
    assert_eq!(definition(&inner), definition(&outer));
    assert_eq!((&inner.keys, &inner.values, &inner.form), (&outer.keys, &outer.values, &outer.form));
    assert_eq!((inner.settings[0].is.as_str(), outer.settings[0].is.as_str()), ("inner", "left outer"));
    assert_ne!(definition(&inner), definition(&semi));
    let said = definition(&inner);
    assert!(said.contains(&"key 1: s.k = t.k".to_owned()), "{said:?}");
    assert!(said.iter().any(|fact| fact.starts_with("the condition: t.ts >= s.ts AND ")), "{said:?}");
    assert!(said.contains(&"column 2 of the right rows: t.k2".to_owned()), "{said:?}");
}

#[test]
fn a_limit_says_its_count_as_a_setting_and_a_sort_keeps_nothing() {
    let layout = only(json!([{"sql": "SELECT k FROM s LIMIT 7"}]), Some("1 hour"));
    assert_eq!((layout.kind.as_str(), layout.settings[0].is.as_str()), ("limit", "7 rows"));
    assert!(layout.definition.is_empty());
}
