//! What the condition of a join says: equalities, conditions of one side, and how event times bound each other.
//!
//! The bounds follow Spark's `StreamingJoinHelper`: from `a.ts > b.ts + c` and b's watermark follows that rows of a
//! up to `watermark + c` can match nothing more.

use super::conjuncts;
use super::event_time::{EventTime, event_times, of_expression};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Column, DFSchemaRef, NullEquality, ScalarValue};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Expr, Join, Operator, binary_expr};

/// A join's condition, taken apart.
#[derive(Debug, Clone, Default)]
pub(crate) struct JoinParts {
    /// Left and right of each equality, and whether NULL equals NULL.
    pub(crate) keys: Vec<(Expr, Expr, bool)>,
    /// Conditions of one side alone: left, right.
    pub(crate) one_sided: [Vec<Expr>; 2],
    /// The others.
    pub(crate) both: Vec<Expr>,
}

/// The two sides, by number.
pub(crate) const LEFT: usize = 0;
/// See [`LEFT`].
pub(crate) const RIGHT: usize = 1;

impl JoinParts {
    pub(crate) fn of(join: &Join) -> Self {
        let mut parts = Self::default();
        let null_safe = join.null_equality == NullEquality::NullEqualsNull;
        for (left, right) in &join.on {
            let op = if null_safe { Operator::IsNotDistinctFrom } else { Operator::Eq };
            parts.add(binary_expr(left.clone(), op, right.clone()), join);
        }
        for condition in join.filter.iter().flat_map(conjuncts) {
            parts.add(condition, join);
        }
        parts
    }

    fn add(&mut self, condition: Expr, join: &Join) {
        let (left, right) = (join.left.schema(), join.right.schema());
        if let Expr::BinaryExpr(BinaryExpr { left: a, op, right: b }) = &condition
            && matches!(op, Operator::Eq | Operator::IsNotDistinctFrom)
        {
            let null_safe = *op == Operator::IsNotDistinctFrom;
            if reads_only(a, left) && reads_only(b, right) {
                return self.keys.push((a.as_ref().clone(), b.as_ref().clone(), null_safe));
            }
            if reads_only(a, right) && reads_only(b, left) {
                return self.keys.push((b.as_ref().clone(), a.as_ref().clone(), null_safe));
            }
        }
        let refs = condition.column_refs();
        let all_in = |schema: &DFSchemaRef| refs.iter().all(|column| schema.has_column(column));
        match (refs.is_empty(), all_in(left), all_in(right)) {
            (false, true, _) => self.one_sided[LEFT].push(condition),
            (false, _, true) => self.one_sided[RIGHT].push(condition),
            _ => self.both.push(condition),
        }
    }
}

/// Whether an expression reads columns, all of them of this schema.
fn reads_only(expr: &Expr, schema: &DFSchemaRef) -> bool {
    let refs = expr.column_refs();
    !refs.is_empty() && refs.iter().all(|column| schema.has_column(column))
}

/// How the state of a stream–stream join is bounded.
#[derive(Debug, Clone)]
pub(crate) struct JoinTimes {
    /// Which columns carry the event time: of left, of right.
    pub(crate) event_times: [Vec<Option<EventTime>>; 2],
    /// The equality that is about event time, by its position in [`JoinParts::keys`].
    pub(crate) key: Option<usize>,
    /// Of each side: its rows with event time up to the watermark plus this (ms) can match nothing more. Whether or not
    /// the side itself has an event time.
    pub(crate) bounds_ms: [Option<i64>; 2],
}

impl JoinTimes {
    pub(crate) fn of(join: &Join, parts: &JoinParts) -> Self {
        let times = [event_times(&join.left), event_times(&join.right)];
        let schemas = [join.left.schema(), join.right.schema()];
        let is_time = |expr: &Expr, side: usize| of_expression(expr, schemas[side], &times[side]).is_some();
        let key = parts.keys.iter().position(|(left, right, _)| is_time(left, LEFT) || is_time(right, RIGHT));
        let bound = |side: usize| {
            let other = 1 - side;
            let bounds = parts.both.iter().filter_map(|condition| {
                lower_bound(condition, schemas[side], |column| {
                    schemas[other]
                        .maybe_index_of_column(column)
                        .is_some_and(|index| times[other].get(index).copied().flatten().is_some())
                })
            });
            bounds.min()
        };
        let bounds_ms = [bound(LEFT), bound(RIGHT)];
        Self { event_times: times, key, bounds_ms }
    }

    /// The position of the event-time column of a side.
    pub(crate) fn column(&self, side: usize) -> Option<usize> {
        self.event_times[side].iter().position(Option::is_some)
    }

    /// How far the watermark of the result stays behind that of the inputs, in milliseconds: a joined row can be as old
    /// as the oldest row that is still buffered.
    pub(crate) fn output_offset_ms(&self) -> i64 {
        if self.key.is_some() {
            return 0;
        }
        let sides = (0..2).filter(|side| self.column(*side).is_some());
        sides.filter_map(|side| self.bounds_ms[side]).fold(0, i64::min)
    }
}

/// `c` in milliseconds, if the condition is `time > other + c` or `time >= other + c`, where `time` is a column of
/// `side` and `other` an event-time column of the other side. For `>=` one millisecond less, so that rows up to the
/// bound, included, can go.
fn lower_bound(condition: &Expr, side: &DFSchemaRef, is_other_time: impl Fn(&Column) -> bool) -> Option<i64> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return None };
    let (small, large, inclusive) = match op {
        Operator::Lt => (left, right, false),
        Operator::LtEq => (left, right, true),
        Operator::Gt => (right, left, false),
        Operator::GtEq => (right, left, true),
        _ => return None,
    };
    // large - small > 0
    let mut sum = Linear::default();
    sum.add(large, 1)?;
    sum.add(small, -1)?;
    let of_side = sum.columns.iter().filter(|(column, _)| side.has_column(column));
    let others = sum.columns.iter().filter(|(column, _)| !side.has_column(column));
    let (mut of_side, mut others) = (of_side, others);
    match (of_side.next(), of_side.next(), others.next(), others.next()) {
        (Some((_, 1)), None, Some((other, -1)), None) if is_other_time(other) => {
            let millis = sum.micros.checked_neg()?.div_euclid(1000);
            Some(if inclusive { millis - 1 } else { millis })
        }
        _ => None,
    }
}

/// A sum of columns and a constant.
#[derive(Default)]
struct Linear {
    columns: Vec<(Column, i64)>,
    micros: i64,
}

impl Linear {
    fn add(&mut self, expr: &Expr, sign: i64) -> Option<()> {
        match expr {
            Expr::Column(column) => self.columns.push((column.clone(), sign)),
            Expr::Alias(alias) => self.add(&alias.expr, sign)?,
            Expr::Cast(cast) if is_time(cast.field.data_type()) => self.add(&cast.expr, sign)?,
            Expr::Negative(inner) => self.add(inner, -sign)?,
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus, right }) => {
                self.add(left, sign)?;
                self.add(right, sign)?;
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => {
                self.add(left, sign)?;
                self.add(right, -sign)?;
            }
            Expr::Literal(value, _) => {
                self.micros = self.micros.checked_add(micros(value)?.checked_mul(sign)?)?;
            }
            _ => return None,
        }
        Some(())
    }
}

fn is_time(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..) | DataType::Interval(_) | DataType::Duration(_))
}

fn micros(value: &ScalarValue) -> Option<i64> {
    let scaled = |number: i64, unit: &TimeUnit| match unit {
        TimeUnit::Second => number.checked_mul(1_000_000),
        TimeUnit::Millisecond => number.checked_mul(1000),
        TimeUnit::Microsecond => Some(number),
        TimeUnit::Nanosecond => Some(number / 1000),
    };
    match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
            i64::from(interval.days).checked_mul(86_400_000_000)?.checked_add(interval.nanoseconds / 1000)
        }
        ScalarValue::IntervalDayTime(Some(interval)) => i64::from(interval.days)
            .checked_mul(86_400_000_000)?
            .checked_add(i64::from(interval.milliseconds) * 1000),
        ScalarValue::DurationSecond(Some(n)) => scaled(*n, &TimeUnit::Second),
        ScalarValue::DurationMillisecond(Some(n)) => scaled(*n, &TimeUnit::Millisecond),
        ScalarValue::DurationMicrosecond(Some(n)) => Some(*n),
        ScalarValue::DurationNanosecond(Some(n)) => scaled(*n, &TimeUnit::Nanosecond),
        ScalarValue::TimestampMicrosecond(Some(n), _) => Some(*n),
        _ => None,
    }
}
