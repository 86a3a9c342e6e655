//! The rules for joins. Spark's `checkForStreamStreamJoinWatermark` and its neighbours.

use super::{At, Checker, Rule};
use crate::tree::joins::{JoinParts, JoinTimes, LEFT, RIGHT};
use datafusion::logical_expr::{Join, JoinType};
use pelton_core::OutputMode;

impl Checker<'_> {
    pub(super) fn join(&mut self, join: &Join, at: At) {
        match (self.streams(&join.left), self.streams(&join.right)) {
            (true, true) => self.streams_join(join, at),
            (left_streams, _) => self.static_join(join, left_streams, at),
        }
    }

    /// The static side must not be the one whose unmatched rows are wanted: they could never be told.
    fn static_join(&mut self, join: &Join, left_streams: bool, at: At) {
        use JoinType::{Full, Inner, Left, LeftAnti, LeftSemi, Right};
        let possible = match join.join_type {
            Inner => true,
            Left | LeftSemi | LeftAnti => left_streams,
            Right => !left_streams,
            Full => false,
            _ => false,
        };
        if !possible {
            let (kind, side) = (name(join.join_type), if left_streams { "left" } else { "right" });
            let message = format!(
                "a {kind} join with the stream on the {side} and a static table on the other side is not possible"
            );
            let instead = match join.join_type {
                Full => "use a LEFT OUTER join that keeps the rows of the stream",
                _ => "turn the join around, so that the stream's unmatched rows are those that are kept",
            };
            self.refuse(at, Rule::Join, message, instead);
        }
    }

    fn streams_join(&mut self, join: &Join, at: At) {
        use JoinType::{Full, Inner, Left, LeftSemi, Right};
        let (kind, mode) = (name(join.join_type), self.plan.output_mode);
        if !matches!(join.join_type, Inner | Left | Right | Full | LeftSemi) {
            let message = format!("a {kind} join of two streams is not possible");
            return self.refuse(at, Rule::Join, message, "use a LEFT OUTER join and filter for NULL");
        }
        let also_update = matches!(join.join_type, Inner | LeftSemi);
        if mode == OutputMode::Complete || (mode == OutputMode::Update && !also_update) {
            let modes = if also_update { "append and update" } else { "append" };
            let message = format!("a {kind} join of two streams is possible in output_mode {modes} only");
            self.refuse(at, Rule::Join, message, "use output_mode: append");
        }
        let parts = JoinParts::of(join);
        if parts.keys.is_empty() {
            let message = "two streams can be joined by an equality only";
            self.refuse(at, Rule::Join, message, "add one to ON, for example a.user = b.user");
        }
        let times = JoinTimes::of(join, &parts);
        let bounded = match join.join_type {
            Left | LeftSemi => times.bounds_ms[LEFT].is_some(),
            Right => times.bounds_ms[RIGHT].is_some(),
            Full => times.bounds_ms.iter().any(Option::is_some),
            _ => true,
        };
        if !bounded && times.key.is_none() {
            let (missing, instead) = missing_end(join.join_type, &times);
            let message = format!("a {kind} join of two streams needs an end: {missing}");
            self.refuse(at, Rule::Join, message, instead);
        }
    }
}

/// What is not there of a watermark and a time range, and what to do about it.
fn missing_end(kind: JoinType, times: &JoinTimes) -> (String, String) {
    let has_watermark = |side: usize| times.column(side).is_some();
    let range = "a range such as a.ts BETWEEN b.ts AND b.ts + INTERVAL 5 MINUTES in ON, or an equality of the event times";
    let (kept, other) = match kind {
        JoinType::Right => (RIGHT, LEFT),
        JoinType::Full if !has_watermark(RIGHT) && has_watermark(LEFT) => (RIGHT, LEFT),
        _ => (LEFT, RIGHT),
    };
    let word = |side: usize| if side == LEFT { "left" } else { "right" };
    let (kept, name) = (word(kept), word(other));
    match has_watermark(other) {
        true => (
            format!(
                "the {name} side has a watermark, but ON does not bound the time of the {kept} rows by it"
            ),
            format!("add {range}; or use an INNER join"),
        ),
        false => (
            format!(
                "the {name} side has no watermark, so it is never certain that a {kept} row matches nothing"
            ),
            format!("give the {name} side a watermark, and add {range}; or use an INNER join"),
        ),
    }
}

/// How SQL calls it.
pub(super) fn name(kind: JoinType) -> &'static str {
    match kind {
        JoinType::Inner => "INNER",
        JoinType::Left => "LEFT OUTER",
        JoinType::Right => "RIGHT OUTER",
        JoinType::Full => "FULL OUTER",
        JoinType::LeftSemi => "LEFT SEMI",
        JoinType::LeftAnti => "LEFT ANTI",
        JoinType::RightSemi => "RIGHT SEMI",
        JoinType::RightAnti => "RIGHT ANTI",
        _ => "marking",
    }
}
