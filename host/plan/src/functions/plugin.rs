//! A plugin's scalar function as an SQL function: `plugin.function(column, …)`.

use crate::logical::FunctionRef;
use crate::scope;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use parking_lot::Mutex;
use pelton_core::types::normalize;
use pelton_core::{Error, ErrorKind, Plugin, ScalarFunction};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A call within an expression that failed: the source of the error of its evaluation. Whoever evaluates the expression can
/// look for the rows on which it fails.
#[derive(Debug, Clone)]
pub struct FailedCall {
    /// Which function, and what is to follow.
    pub function: FunctionRef,
    /// Why it failed.
    pub reason: String,
}

impl FailedCall {
    /// The call whose failure is the cause of an error.
    pub fn of(error: &Error) -> Option<&Self> {
        std::error::Error::source(error)?.downcast_ref()
    }
}

impl fmt::Display for FailedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.function, self.reason)
    }
}

impl std::error::Error for FailedCall {}

/// The SQL function of a plugin's scalar function. A row that it refuses fails the micro-batch with its reason, as an
/// exception in a Spark UDF does.
pub(crate) fn udf(function: FunctionRef, plugin: &Arc<dyn Plugin>, time_zone: &Arc<str>) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(PluginCall {
        name: function.to_string(),
        function,
        plugin: plugin.clone(),
        time_zone: time_zone.clone(),
        // Volatile: it must be called once for every row that reaches it, with the micro-batch's scope.
        signature: Signature::user_defined(Volatility::Volatile),
        bound: Mutex::new(Vec::new()),
    }))
}

/// The schema that a scalar function is bound to: its arguments are known by position and named `arg0`, `arg1`, ….
pub(crate) fn arguments_schema(types: &[(DataType, bool)]) -> SchemaRef {
    let field = |(index, (data_type, nullable)): (usize, &(DataType, bool))| {
        Field::new(format!("arg{index}"), data_type.clone(), *nullable)
    };
    Arc::new(Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// A function that was bound to the types of its arguments, and the schema it was bound to.
type Bound = (SchemaRef, Arc<dyn ScalarFunction>);

struct PluginCall {
    name: String,
    function: FunctionRef,
    plugin: Arc<dyn Plugin>,
    time_zone: Arc<str>,
    signature: Signature,
    bound: Mutex<Vec<Bound>>,
}

impl PluginCall {
    /// Binds once for every combination of argument types.
    fn bind(&self, fields: &[FieldRef]) -> Result<Bound> {
        // Nullable always: the planner may see a column's nullability more narrowly later on.
        let types: Vec<_> = fields.iter().map(|f| (f.data_type().clone(), true)).collect();
        let schema = arguments_schema(&types);
        let mut bound = self.bound.lock();
        if let Some(known) = bound.iter().find(|(known, _)| *known == schema) {
            return Ok(known.clone());
        }
        let function = self
            .plugin
            .scalar(&self.function.function, schema.clone())
            .map_err(|e| DataFusionError::Plan(format!("{}(): {}", self.name, e.message())))?;
        bound.push((schema.clone(), function.clone()));
        Ok((schema, function))
    }

    /// The error of a call, with what is known of the function.
    fn failed(&self, error: Error) -> DataFusionError {
        DataFusionError::External(Box::new(match error.kind() {
            ErrorKind::Plugin => {
                let reason = error.call_failure().to_owned();
                error.caused_by(FailedCall { function: self.function.clone(), reason })
            }
            _ => error,
        }))
    }
}

impl fmt::Debug for PluginCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
impl PartialEq for PluginCall {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.plugin.digest() == other.plugin.digest()
    }
}
impl Eq for PluginCall {}
impl Hash for PluginCall {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for PluginCall {
    fn name(&self) -> &str {
        &self.name
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        exec_err!("{} has no type without its arguments", self.name)
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let (_, function) = self.bind(args.arg_fields)?;
        Ok(Arc::new(function.field().as_ref().clone().with_name(&self.name)))
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let one = |data_type: &DataType| {
            normalize(data_type, &self.time_zone).ok_or_else(|| {
                DataFusionError::Plan(format!("{}() cannot be given a value of type {data_type}", self.name))
            })
        };
        types.iter().map(one).collect()
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (schema, function) = self.bind(&args.arg_fields)?;
        let column = |(value, field): (&ColumnarValue, &FieldRef)| -> Result<ArrayRef> {
            let values = value.to_array(args.number_rows)?;
            if values.data_type() == field.data_type() {
                Ok(values)
            } else {
                Ok(cast(&values, field.data_type())?)
            }
        };
        let columns = args.args.iter().zip(schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(args.number_rows));
        let rows = RecordBatch::try_new_with_options(schema, columns, &options)?;
        let output = scope::call(&self.name, |scope| {
            let evaluated = self.function.on_failure.run(|| function.evaluate(scope, &rows));
            evaluated.map_err(|failed| self.failed(failed))
        })?;
        if let Some(rejected) = output.rejected.first() {
            let what = format!(
                "{}() refused a row: {}; use it alone in a filter step to send such rows to the dead letters",
                self.name, rejected.reason
            );
            let plugin = self.name.split('.').next().unwrap_or_default();
            return Err(DataFusionError::External(Box::new(Error::data(what).of_plugin(plugin))));
        }
        Ok(ColumnarValue::Array(output.column))
    }
}
