//! Where operators and types of SQL text get Spark's meaning: division, access to parts, type names.

use crate::functions::{access, arithmetic, arrays};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Column, DFSchema, DataFusionError, Result, TableReference};
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr, TypePlanner,
};
use datafusion::logical_expr::{
    Expr, ExprSchemable, GetFieldAccess, Operator, ScalarUDF, binary_expr, cast, lit,
};
use datafusion::sql::sqlparser::ast::{BinaryOperator, DataType as SqlType};
use pelton_core::types::parse_type;
use std::collections::HashMap;
use std::sync::Arc;

/// Plans operators the way Spark means them.
#[derive(Debug)]
pub(super) struct SparkPlanner {
    functions: HashMap<&'static str, Arc<ScalarUDF>>,
}

impl SparkPlanner {
    pub(super) fn new(functions: &HashMap<String, Arc<ScalarUDF>>) -> Self {
        let names = [
            arithmetic::DIVIDE,
            arithmetic::DIV,
            arithmetic::REMAINDER,
            access::FIELD,
            access::ITEM,
            arrays::CONCAT,
        ];
        let known = names.into_iter().filter_map(|name| Some((name, functions.get(name)?.clone())));
        Self { functions: known.collect() }
    }

    fn call(&self, name: &str, args: Vec<Expr>) -> Option<Expr> {
        self.functions.get(name).map(|function| function.call(args))
    }
}

impl ExprPlanner for SparkPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = expr;
        let plain = |e: &Expr| {
            Ok::<_, datafusion::error::DataFusionError>(arithmetic::is_plain_number(&e.get_type(schema)?))
        };
        let floats =
            |e: &Expr| Ok::<_, datafusion::error::DataFusionError>(e.get_type(schema)?.is_floating());
        let types = (left.get_type(schema)?, right.get_type(schema)?);
        let planned = match &op {
            BinaryOperator::Plus
            | BinaryOperator::Minus
            | BinaryOperator::Multiply
            | BinaryOperator::Modulo
                if let Some(number) = number_of_text(&types) =>
            {
                let as_number = |e: &Expr, of: &DataType| match of {
                    DataType::Utf8 => cast(e.clone(), number.clone()),
                    _ => e.clone(),
                };
                let (left, right) = (as_number(&left, &types.0), as_number(&right, &types.1));
                return self.plan_binary_op(RawBinaryExpr { op, left, right }, schema);
            }
            BinaryOperator::Divide if plain(&left)? || plain(&right)? => {
                let decimal =
                    |e: &Expr| Ok::<_, datafusion::error::DataFusionError>(e.get_type(schema)?.is_decimal());
                // A decimal with a whole number stays a decimal; everything else is a double.
                let stays = (decimal(&left)? && !floats(&right)?) || (decimal(&right)? && !floats(&left)?);
                if stays { None } else { self.call(arithmetic::DIVIDE, vec![left.clone(), right.clone()]) }
            }
            BinaryOperator::Modulo if floats(&left)? || floats(&right)? => {
                self.call(arithmetic::REMAINDER, vec![left.clone(), right.clone()])
            }
            BinaryOperator::Minus if types == (DataType::Date32, DataType::Date32) => {
                let what = "a date minus a date is an interval, which cannot leave a step; use datediff(end, start) for the days between them";
                return Err(DataFusionError::Plan(what.to_owned()));
            }
            BinaryOperator::StringConcat
                if [&types.0, &types.1].iter().any(|t| matches!(t, DataType::List(_))) =>
            {
                self.call(arrays::CONCAT, vec![left.clone(), right.clone()])
            }
            BinaryOperator::MyIntegerDivide => self.call(arithmetic::DIV, vec![left.clone(), right.clone()]),
            BinaryOperator::Spaceship => {
                Some(binary_expr(left.clone(), Operator::IsNotDistinctFrom, right.clone()))
            }
            _ => None,
        };
        Ok(match planned {
            Some(expr) => PlannerResult::Planned(expr),
            None => PlannerResult::Original(RawBinaryExpr { op, left, right }),
        })
    }

    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let key = match &expr.field_access {
            GetFieldAccess::NamedStructField { name } => Expr::Literal(name.clone(), None),
            GetFieldAccess::ListIndex { key } => key.as_ref().clone(),
            GetFieldAccess::ListRange { .. } => return Ok(PlannerResult::Original(expr)),
        };
        Ok(match self.call(access::ITEM, vec![expr.expr.clone(), key]) {
            Some(planned) => PlannerResult::Planned(planned),
            None => PlannerResult::Original(expr),
        })
    }

    fn plan_compound_identifier(
        &self,
        field: &Field,
        qualifier: Option<&TableReference>,
        nested_names: &[String],
    ) -> Result<PlannerResult<Vec<Expr>>> {
        let mut expr = Expr::Column(Column::from((qualifier, &Arc::new(field.clone()))));
        for name in nested_names {
            match self.call(access::FIELD, vec![expr.clone(), lit(name.as_str())]) {
                Some(next) => expr = next,
                None => return Ok(PlannerResult::Original(vec![expr])),
            }
        }
        Ok(PlannerResult::Planned(expr))
    }
}

/// What a text beside a number becomes in arithmetic, as in Spark: `long` beside a whole number, otherwise `double`.
fn number_of_text(types: &(DataType, DataType)) -> Option<DataType> {
    let ((DataType::Utf8, number) | (number, DataType::Utf8)) = types else { return None };
    match number {
        number if number.is_integer() => Some(DataType::Int64),
        number if number.is_floating() || number.is_decimal() => Some(DataType::Float64),
        _ => None,
    }
}

/// Reads type names as Spark's: `STRING`, `LONG`, `TIMESTAMP` in the session's zone, `array<int>`.
#[derive(Debug)]
pub(super) struct SparkTypes {
    pub(super) time_zone: Arc<str>,
}

impl TypePlanner for SparkTypes {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        let parsed: Option<DataType> = parse_type(&sql_type.to_string(), &self.time_zone).ok();
        Ok(parsed.map(|data_type| Arc::new(Field::new("", data_type, true))))
    }
}
