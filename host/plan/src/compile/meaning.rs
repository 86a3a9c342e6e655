//! What columns and expressions are in terms of the query's sources: `upper(orders.customer)`, whatever they are called
//! on the way. Two queries with the same text mean the same; so the state of one can be told from that of another.
//!
//! Called for the descriptions of state. Texts are compared and shown, never read; when they change for a query that
//! has not, [`pelton_core::DEFINITION_WORDS`] must grow.

use super::Compiler;
use crate::functions::window::{SESSION_WINDOW, WindowSpec};
use crate::logical::Operation;
use crate::tree::event_time::group_expressions;
use crate::tree::windows::window_call;
use crate::tree::{StreamOp, stream_node};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as DfResult, ScalarValue};
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan as SqlPlan};

/// Longer texts are cut, so that columns made of columns made of columns stay small.
const TEXT_MAX: usize = 1000;

/// The columns of a plan with what they are: expressions over [`word`]s.
pub(super) struct Meanings<'a> {
    schema: &'a DFSchema,
    columns: Vec<Expr>,
}

impl<'a> Meanings<'a> {
    /// Columns of a schema with what they are.
    pub(super) fn new(schema: &'a DFSchema, columns: Vec<Expr>) -> Self {
        Self { schema, columns }
    }

    /// What a column is, by its position.
    pub(super) fn column(&self, index: usize) -> String {
        self.columns.get(index).map(ToString::to_string).unwrap_or_default()
    }

    /// What all columns are.
    pub(super) fn columns(&self) -> &[Expr] {
        &self.columns
    }

    /// What an expression over the columns is, as text.
    pub(super) fn of(&self, expr: &Expr) -> String {
        self.meaning(expr).to_string()
    }

    fn meaning(&self, expr: &Expr) -> Expr {
        if let Some(window) = self.of_window(expr) {
            return word(cut(window));
        }
        let replaced = expr.clone().transform_down(|expr| {
            let words = self.in_words(expr);
            // What a column is stands in words already.
            let rest = if words.1 { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue };
            Ok(Transformed::new(words.0, true, rest))
        });
        let meaning = replaced.map_or_else(|_| expr.clone(), |replaced| replaced.data);
        let text = meaning.to_string();
        if text.len() > TEXT_MAX { word(cut(text)) } else { meaning }
    }

    /// A column as what it is and a constant as people write it, both without the name that the query gives them; and
    /// whether nothing is left to be put in words.
    fn in_words(&self, expr: Expr) -> (Expr, bool) {
        match expr {
            Expr::Alias(alias) => self.in_words(*alias.expr),
            Expr::Column(column) => {
                let meaning = self.schema.maybe_index_of_column(&column);
                let meaning = meaning.and_then(|index| self.columns.get(index).cloned());
                (meaning.unwrap_or(Expr::Column(column)), true)
            }
            Expr::Literal(value, _) => (word(constant(&value)), true),
            Expr::Cast(cast) => match cast.expr.as_ref() {
                Expr::Literal(value, _) => (word(constant(value)), true),
                _ => (Expr::Cast(cast), false),
            },
            other => (other, false),
        }
    }

    /// A time window in the words of its lengths: `10 minutes` and `600 seconds` are the same.
    fn of_window(&self, expr: &Expr) -> Option<String> {
        let call = window_call(expr)?;
        let (time, rest) = call.args.split_first()?;
        let time = self.of(time);
        if call.func.name() == SESSION_WINDOW {
            return Some(format!("a session of {time} with a gap of {}", self.of(rest.first()?)));
        }
        let WindowSpec { size_us, slide_us, start_us } = WindowSpec::of(rest).ok()?;
        let every = if slide_us == size_us { String::new() } else { format!(" every {}", length(slide_us)) };
        let from = if start_us == 0 { String::new() } else { format!(" from {}", length(start_us)) };
        Some(format!("a window of {time} over {}{every}{from}", length(size_us)))
    }
}

impl Compiler<'_> {
    /// What the columns of a plan are.
    pub(super) fn meanings<'a>(&self, plan: &'a SqlPlan) -> Meanings<'a> {
        let mut columns = self.column_meanings(plan);
        let names = plan.schema().fields().iter().skip(columns.len());
        columns.extend(names.map(|field| word(field.name().clone())).collect::<Vec<_>>());
        Meanings::new(plan.schema(), columns)
    }

    fn column_meanings(&self, plan: &SqlPlan) -> Vec<Expr> {
        let of = |exprs: &[Expr], input: &SqlPlan| {
            let meanings = self.meanings(input);
            exprs.iter().map(|expr| meanings.meaning(expr)).collect::<Vec<_>>()
        };
        match plan {
            SqlPlan::TableScan(scan) => {
                let table = scan.table_name.table();
                plan.schema().fields().iter().map(|field| word(format!("{table}.{}", field.name()))).collect()
            }
            SqlPlan::Projection(node) => of(&node.expr, &node.input),
            SqlPlan::Aggregate(node) => {
                let keys = group_expressions(&node.group_expr);
                let key_columns = of(&keys, &node.input);
                let has_set = node.schema.fields().len() > keys.len() + node.aggr_expr.len();
                let set = has_set.then(|| word("the grouping set".to_owned()));
                key_columns.into_iter().chain(set).chain(of(&node.aggr_expr, &node.input)).collect()
            }
            SqlPlan::Distinct(Distinct::On(node)) => of(&node.select_expr, &node.input),
            SqlPlan::Join(node) => match node.join_type {
                JoinType::LeftSemi | JoinType::LeftAnti => self.meanings(&node.left).columns,
                JoinType::RightSemi | JoinType::RightAnti => self.meanings(&node.right).columns,
                _ => [self.meanings(&node.left).columns, self.meanings(&node.right).columns].concat(),
            },
            SqlPlan::Union(node) => united(node.inputs.iter().map(|input| self.meanings(input).columns)),
            SqlPlan::Unnest(node) => {
                let input = self.meanings(&node.input);
                let fields = node.schema.fields().iter().zip(&node.dependency_indices);
                let below = node.input.schema();
                let column = |(field, index): (&datafusion::arrow::datatypes::FieldRef, &usize)| {
                    let same = below.field(*index).data_type() == field.data_type();
                    match input.columns.get(*index) {
                        Some(meaning) if same => meaning.clone(),
                        _ => word(cut(format!("unnest({})", input.column(*index)))),
                    }
                };
                fields.map(column).collect()
            }
            SqlPlan::Extension(_) => self.of_stream_node(plan),
            // Filters, other names of tables, sorts, limits: the same columns.
            _ => match plan.inputs()[..] {
                [input] if input.schema().fields().len() == plan.schema().fields().len() => {
                    self.meanings(input).columns
                }
                _ => Vec::new(),
            },
        }
    }

    fn of_stream_node(&self, plan: &SqlPlan) -> Vec<Expr> {
        let Some(node) = stream_node(plan) else { return Vec::new() };
        let (StreamOp::PluginTransform(step) | StreamOp::GroupState(step)) = &node.op else {
            return self.meanings(&node.input).columns;
        };
        let function = match self.logical.steps.get(*step).map(|step| &step.operation) {
            Some(Operation::PluginTransform { function, .. }) => function.to_string(),
            Some(Operation::GroupState(group)) => group.function.to_string(),
            _ => String::new(),
        };
        node.schema.fields().iter().map(|field| word(format!("{function}().{}", field.name()))).collect()
    }
}

fn united(inputs: impl Iterator<Item = Vec<Expr>>) -> Vec<Expr> {
    let inputs: Vec<Vec<Expr>> = inputs.collect();
    let width = inputs.iter().map(Vec::len).max().unwrap_or(0);
    let column = |index: usize| {
        let mut all: Vec<&Expr> = Vec::new();
        for meaning in inputs.iter().filter_map(|columns| columns.get(index)) {
            if !all.contains(&meaning) {
                all.push(meaning);
            }
        }
        match all[..] {
            [one] => one.clone(),
            _ => word(cut(all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "))),
        }
    };
    (0..width).map(column).collect()
}

/// A text that stands for an expression.
fn word(text: String) -> Expr {
    Expr::Column(Column::from_name(text))
}

/// A constant; its type follows from what it stands in.
fn constant(value: &ScalarValue) -> String {
    match value {
        _ if value.is_null() => "NULL".to_owned(),
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        other => other.to_string(),
    }
}

/// A text of bounded length; what is cut off is told by its hash.
fn cut(text: String) -> String {
    if text.len() <= TEXT_MAX {
        return text;
    }
    let end = (0..=TEXT_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    // FNV-1a: the text is kept in checkpoints, so the hash must be the same for ever.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{} … ({hash:016x})", &text[..end])
}

/// A length of time in its largest whole unit.
fn length(micros: i64) -> String {
    let units = [(86_400_000_000, "days"), (3_600_000_000, "hours"), (60_000_000, "minutes")];
    let small = [(1_000_000, "seconds"), (1_000, "milliseconds"), (1, "microseconds")];
    let unit = units.iter().chain(&small).find(|(unit, _)| micros % unit == 0);
    unit.map_or_else(String::new, |(unit, name)| format!("{} {name}", micros / unit))
}

/// The names that people see of a plan's columns.
pub(super) fn names(plan: &SqlPlan) -> Vec<String> {
    plan.schema().fields().iter().map(|field| field.name().clone()).collect()
}

/// The type of an expression, for a description.
pub(super) fn type_of(expr: &Expr, schema: &DFSchema) -> DfResult<datafusion::arrow::datatypes::DataType> {
    datafusion::logical_expr::ExprSchemable::get_type(expr, schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_still_told_apart() {
        let (a, b) = (cut("é".repeat(2000) + "a"), cut("é".repeat(2000) + "b"));
        assert!(a.len() < TEXT_MAX + 40 && a != b, "{a}");
        assert_eq!(cut("short".to_owned()), "short");
    }

    #[test]
    fn lengths_have_the_largest_whole_unit() {
        assert_eq!(length(600_000_000), "10 minutes");
        assert_eq!(length(90_000_000), "90 seconds");
    }

    #[test]
    fn constants_are_as_people_write_them() {
        let schema = DFSchema::empty();
        let meanings = Meanings::new(&schema, Vec::new());
        let (one, text) = (datafusion::logical_expr::lit(1_i32), datafusion::logical_expr::lit("it's"));
        assert_eq!(meanings.of(&one.clone().alias("a")), "1");
        let wide = datafusion::logical_expr::cast(one, datafusion::arrow::datatypes::DataType::Int64);
        assert_eq!(meanings.of(&(datafusion::logical_expr::col("x") + wide)), "x + 1");
        assert_eq!(meanings.of(&text), "'it''s'");
    }
}
