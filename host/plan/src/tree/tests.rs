//! What the tree says: which columns carry the event time, where conditions go, how joins end.

use crate::physical::PhysicalStep;
use crate::stateful::{
    Aggregate, DedupExpiry, EventTimeKey, JoinExpiry, Lane, StatefulOperator, StreamJoin, TimeWindow,
};
use crate::{LogicalPlan, PhysicalPlan, PipelineFile, PlanInputs, warnings};
use datafusion::arrow::datatypes::Schema;
use datafusion::physical_plan::displayable;
use pelton_core::types::parse_columns;
use std::sync::Arc;

const SOURCES: &str = "sources:
  a: {connector: memory, schema: 'k string, v long, lt timestamp', watermark: {column: lt, delay: 10 minutes}}
  b: {connector: memory, schema: 'k string, w long, rt timestamp', watermark: {column: rt, delay: 5 minutes}}
sink: {connector: memory}
";
const ONE: &str = "sources:
  a: {connector: memory, schema: 'k string, v long, lt timestamp', watermark: {column: lt, delay: 10 minutes}}
sink: {connector: memory}
";

fn resolved(text: &str) -> LogicalPlan {
    let file = PipelineFile::read(&format!("name: q\n{text}"), "p.yaml", &[]).expect("reads");
    let columns = |name: &str| match name {
        "a" => "k string, v long, lt timestamp",
        _ => "k string, w long, rt timestamp",
    };
    let schema = |name: &str| Arc::new(Schema::new(parse_columns(columns(name), "UTC").expect("columns")));
    let sources = file.sources.value.keys().map(|name| (name.clone(), schema(name))).collect();
    let inputs = PlanInputs { sources, ..PlanInputs::default() };
    LogicalPlan::resolve(&file, &inputs).unwrap_or_else(|e| panic!("{e}"))
}

fn planned(text: &str) -> PhysicalPlan {
    PhysicalPlan::build(&resolved(text)).unwrap_or_else(|e| panic!("{e}"))
}

fn join(on: &str, kind: &str) -> (PhysicalPlan, [JoinExpiry; 2]) {
    let sql = format!("SELECT l.k AS k, r.w AS w FROM a AS l {kind} JOIN b AS r ON {on}");
    let plan = planned(&format!("{SOURCES}steps:\n- sql: {sql}\n"));
    let StatefulOperator::Join(StreamJoin { sides: [left, right], .. }) = &plan.nodes[0].operator else {
        panic!("a join")
    };
    let ends = [left.expiry, right.expiry];
    (plan, ends)
}

fn value(expiry: JoinExpiry) -> Option<i64> {
    match expiry {
        JoinExpiry::Value { offset_ms, .. } => Some(offset_ms),
        _ => None,
    }
}

/// The operators of a lane: `W` for a watermark, else the plan of a native run.
fn steps(lane: &Lane) -> Vec<String> {
    let text = |step: &PhysicalStep| match step {
        PhysicalStep::Watermark(_) => "W".to_owned(),
        PhysicalStep::Native(run) => displayable(run.plan.as_ref()).indent(false).to_string(),
        _ => "other".to_owned(),
    };
    lane.steps.iter().map(text).collect()
}

#[test]
fn a_time_range_bounds_both_sides_to_the_millisecond() {
    let (plan, ends) = join("l.k = r.k AND r.rt >= l.lt AND r.rt <= l.lt + INTERVAL 5 MINUTES", "INNER");
    // l.lt >= r.rt - 5 min, r.rt >= l.lt
    assert_eq!(ends.map(value), [Some(-300_001), Some(-1)]);
    assert_eq!(plan.nodes[0].watermark_offset_ms, Some(0));
    let (_, ends) = join("l.k = r.k AND r.rt > l.lt - INTERVAL 1 HOUR", "INNER");
    assert_eq!(ends.map(value), [None, Some(-3_600_000)], "nothing bounds the left side");
}

#[test]
fn a_join_by_event_time_ends_with_its_key() {
    let (_, ends) = join("l.k = r.k AND l.lt = r.rt", "LEFT OUTER");
    assert_eq!(ends, [JoinExpiry::Key(1), JoinExpiry::Key(1)]);
    let (_, ends) = join("l.k = r.k", "INNER");
    assert_eq!(ends, [JoinExpiry::Never, JoinExpiry::Never]);
}

#[test]
fn an_operator_behind_a_join_by_range_has_a_watermark_that_is_as_far_behind() {
    let sql = "SELECT window(lt, '10 minutes') AS w, count(*) AS n FROM (SELECT l.lt AS lt FROM a AS l JOIN b AS r ON \
               l.k = r.k AND r.rt >= l.lt AND r.rt <= l.lt + INTERVAL 5 MINUTES) GROUP BY 1";
    let plan = planned(&format!("{SOURCES}steps:\n- sql: \"{sql}\"\n"));
    let offsets: Vec<_> = plan.nodes.iter().map(|node| node.watermark_offset_ms).collect();
    assert_eq!(offsets, [Some(0), Some(-300_001)]);
}

#[test]
fn an_outer_join_without_an_end_is_warned_of() {
    let text = SOURCES.replace(", watermark: {column: lt, delay: 10 minutes}", "");
    let sql =
        "SELECT l.k AS k FROM a AS l LEFT JOIN b AS r ON l.k = r.k AND r.rt <= l.lt + INTERVAL 5 MINUTES";
    let found = warnings(&resolved(&format!("{text}steps:\n- sql: {sql}\n")));
    assert!(
        matches!(found.as_slice(), [one] if one.contains("never gives rows of its left side")),
        "{found:?}"
    );
    let found = warnings(&resolved(&format!("{SOURCES}steps:\n- sql: {sql}\n")));
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn conditions_that_do_not_name_the_event_time_go_below_its_watermark() {
    let plan =
        planned(&format!("{ONE}steps:\n- filter: v > 1 AND lt > TIMESTAMP '2026-01-01' AND k = 'x'\n"));
    let steps = steps(&plan.lanes[0]);
    let at = steps.iter().position(|step| step == "W").expect("a watermark");
    let (below, above) = (steps[..at].concat(), steps[at + 1..].concat());
    assert!(below.contains("v@") && below.contains("k@") && !below.contains("lt@2 >"), "{below}");
    assert!(above.contains("lt@") && !above.contains("v@1 >"), "{above}");
}

#[test]
fn rows_whose_key_is_null_do_not_reach_the_watermark_of_an_inner_join() {
    let (plan, _) = join("l.k = r.k", "INNER");
    for lane in plan.lanes.iter().take(2) {
        let steps = steps(lane);
        assert!(steps[0].contains("k@0 IS NOT NULL") && steps[1] == "W", "{steps:?}");
    }
    let (plan, _) = join("l.k = r.k AND l.lt = r.rt", "FULL OUTER");
    assert!(plan.lanes.iter().take(2).all(|lane| steps(lane)[0] == "W"));
}

#[test]
fn windows_are_found_among_the_keys_and_by_their_names() {
    let sql = "SELECT k, window.start AS s, window, count(*) AS n FROM a GROUP BY k, window(lt, '10 minutes', '5 minutes')";
    let plan = planned(&format!("{ONE}steps:\n- sql: {sql}\n"));
    let StatefulOperator::Aggregate(Aggregate { window, event_time, keys, .. }) = &plan.nodes[0].operator
    else {
        panic!("an aggregation")
    };
    assert!(matches!(window, Some(TimeWindow::Sliding { size_us: 600_000_000, slide_us: 300_000_000, .. })));
    assert_eq!((*event_time, keys.len()), (Some(EventTimeKey::Window), 2));
    let names: Vec<&str> = plan.schema.fields().iter().map(|f| f.name().as_str()).collect();
    assert_eq!(names, ["k", "s", "window", "n"]);
}

#[test]
fn an_aggregation_of_windows_counts_their_last_moment() {
    let sql = "SELECT window(w5, '15 minutes') AS w, sum(n) AS n FROM (SELECT window(lt, '5 minutes') AS w5, count(*) AS n \
               FROM a GROUP BY 1) GROUP BY 1";
    let plan = planned(&format!("{ONE}steps:\n- sql: \"{sql}\"\n"));
    let between = plan.lanes.iter().find(|lane| steps(lane).concat().contains("window_time"));
    assert!(between.is_some(), "the second aggregation reads window_time()");
}

#[test]
fn a_deduplicated_key_is_forgotten_as_its_columns_say() {
    let expiry = |dedup: &str| {
        let plan = planned(&format!("{ONE}steps:\n- dedup: {dedup}\n"));
        match &plan.nodes[0].operator {
            StatefulOperator::Dedup(dedup) => dedup.expiry,
            _ => panic!("a deduplication"),
        }
    };
    assert_eq!(expiry("[k]"), DedupExpiry::Never);
    assert_eq!(expiry("[k, lt]"), DedupExpiry::EventTime);
    assert_eq!(expiry("all"), DedupExpiry::EventTime);
    assert_eq!(expiry("{columns: [k], within_watermark: true}"), DedupExpiry::Within { delay_ms: 600_000 });
}

#[test]
fn rollup_multiplies_the_rows_of_its_lane_also_behind_a_watermark() {
    let sql = "SELECT window, k, v, grouping_id() AS g, count(*) AS n FROM a GROUP BY window(lt, '1 hour'), ROLLUP (k, v)";
    let plan = planned(&format!("{ONE}steps:\n- sql: {sql}\n"));
    assert_eq!(plan.lanes.len(), 2, "into the aggregation and out of it");
    let into = steps(&plan.lanes[0]).concat();
    assert_eq!(into.matches("InputExec").count(), 3, "{into}");
}

#[test]
fn sets_of_keys_that_would_melt_are_refused() {
    let refused = |sql: &str| {
        let plan = resolved(&format!("{ONE}steps:\n- sql: {sql}\noutput_mode: update\n"));
        PhysicalPlan::build(&plan).err().map(|e| e.message().to_owned()).unwrap_or_default()
    };
    let twice = refused("SELECT k, count(*) AS n FROM a GROUP BY GROUPING SETS ((k), (k))");
    assert!(twice.contains("twice"), "{twice}");
    let window = refused("SELECT k, count(*) AS n FROM a GROUP BY ROLLUP (window(lt, '1 hour'), k)");
    assert!(window.contains("in every set"), "{window}");
}

#[test]
fn conditions_go_below_distinct_and_past_explode() {
    for sql in ["SELECT DISTINCT k, lt FROM a", "SELECT k, lt, explode(array(1, 2)) AS e FROM a"] {
        let plan = planned(&format!("{ONE}steps:\n- sql: {sql}\n- filter: k <> 'bad'\n"));
        let steps = steps(&plan.lanes[0]);
        assert!(steps[0].contains("FilterExec") && steps[1] == "W", "{sql}: {steps:?}");
    }
}

#[test]
fn doubles_stay_doubles_beside_decimal_literals() {
    let sql =
        "SELECT k FROM (SELECT k, CAST(v AS double) AS d FROM a) WHERE d > 0.5 AND d BETWEEN 0.1 AND 0.9";
    let plan = planned(&format!("{ONE}steps:\n- sql: {sql}\n"));
    let steps = steps(&plan.lanes[0]).concat();
    assert!(!steps.contains("Decimal128"), "{steps}");
}
