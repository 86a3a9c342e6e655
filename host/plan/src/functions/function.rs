//! What a function of this crate consists of, without the ceremony of DataFusion's trait.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// From the argument types to those that [`Function::invoke`] is given.
pub(super) type Coerce = fn(&Function, &[DataType]) -> Result<Vec<DataType>>;
/// From the (coerced) argument fields and the constant arguments to the result's type.
pub(super) type Returns = fn(&Function, &[FieldRef], &[Option<&ScalarValue>]) -> Result<DataType>;
/// From a batch of arguments to its result.
pub(super) type Invoke = fn(&Function, &ScalarFunctionArgs) -> Result<ArrayRef>;

/// A scalar function; its result may always be null.
pub(crate) struct Function {
    pub(super) name: &'static str,
    pub(super) aliases: Vec<String>,
    pub(super) time_zone: Arc<str>,
    signature: Signature,
    coerce: Coerce,
    returns: Returns,
    invoke: Invoke,
}

impl Function {
    /// A function of its arguments alone.
    pub(super) fn new(
        name: &'static str,
        time_zone: &Arc<str>,
        coerce: Coerce,
        returns: Returns,
        invoke: Invoke,
    ) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { name, aliases: Vec::new(), time_zone: time_zone.clone(), signature, coerce, returns, invoke }
    }

    /// The planner must evaluate it for every batch, even if all its arguments are constant.
    pub(super) fn per_batch(mut self) -> Self {
        self.signature.volatility = Volatility::Volatile;
        self
    }

    pub(super) fn also(mut self, aliases: &[&str]) -> Self {
        self.aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        self
    }

    pub(super) fn udf(self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(self))
    }

    /// An error for a wrong number of arguments.
    pub(super) fn arguments(&self, given: usize, wanted: std::ops::RangeInclusive<usize>) -> Result<()> {
        if wanted.contains(&given) {
            return Ok(());
        }
        let count = match (wanted.start(), wanted.end()) {
            (1, 1) => "1 argument".to_owned(),
            (low, high) if low == high => format!("{low} arguments"),
            (low, high) => format!("{low} to {high} arguments"),
        };
        Err(DataFusionError::Plan(format!("{}() takes {count}, not {given}", self.name)))
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.time_zone == other.time_zone
    }
}
impl Eq for Function {}
impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }
    fn aliases(&self) -> &[String] {
        &self.aliases
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        exec_err!("{} has no type without its arguments", self.name)
    }
    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let data_type = (self.returns)(self, args.arg_fields, args.scalar_arguments)?;
        Ok(Arc::new(Field::new(self.name, data_type, true)))
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        (self.coerce)(self, types)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant =
            !args.args.is_empty() && args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        if constant && self.signature.volatility == Volatility::Immutable {
            let one = ScalarFunctionArgs { number_rows: 1, ..args };
            let value = (self.invoke)(self, &one)?;
            return ScalarValue::try_from_array(&value, 0).map(ColumnarValue::Scalar);
        }
        (self.invoke)(self, &args).map(ColumnarValue::Array)
    }
}

/// All arguments as text.
pub(super) fn texts(_: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    Ok(vec![DataType::Utf8; types.len()])
}

/// All arguments as they are.
pub(super) fn unchanged(_: &Function, types: &[DataType]) -> Result<Vec<DataType>> {
    Ok(types.to_vec())
}

/// The argument as an array as long as the batch.
pub(super) fn array(args: &ScalarFunctionArgs, index: usize) -> Result<ArrayRef> {
    match args.args.get(index) {
        Some(value) => value.to_array(args.number_rows),
        None => exec_err!("argument {index} is missing"),
    }
}

/// A text argument as an array as long as the batch.
pub(super) fn text(args: &ScalarFunctionArgs, index: usize) -> Result<StringArray> {
    let values = array(args, index)?;
    match values.as_string_opt::<i32>() {
        Some(texts) => Ok(texts.clone()),
        None => exec_err!("argument {index} is {} instead of text", values.data_type()),
    }
}

/// The value of a text at a row, or `None` for null.
pub(super) fn at(texts: &StringArray, row: usize) -> Option<&str> {
    texts.is_valid(row).then(|| texts.value(row))
}

/// A constant text argument.
pub(super) fn constant_text<'a>(
    function: &Function,
    values: &[Option<&'a ScalarValue>],
    index: usize,
) -> Result<&'a str> {
    match values.get(index).copied().flatten().and_then(|value| value.try_as_str().flatten()) {
        Some(text) => Ok(text),
        None => Err(DataFusionError::Plan(format!(
            "argument {} of {}() must be a text constant",
            index + 1,
            function.name
        ))),
    }
}

/// An evaluation error, the way Spark's ANSI mode fails a query.
pub(super) fn failed<T>(what: impl Into<String>) -> Result<T> {
    Err(DataFusionError::Execution(what.into()))
}

/// Remembers what was last made from a text argument, because it is nearly always a constant.
pub(super) struct Remembered<T> {
    last: Option<(String, T)>,
}

impl<T> Remembered<T> {
    pub(super) fn new() -> Self {
        Self { last: None }
    }

    pub(super) fn get(&mut self, text: &str, make: impl FnOnce(&str) -> Result<T>) -> Result<&T> {
        if self.last.as_ref().is_none_or(|(known, _)| known != text) {
            self.last = Some((text.to_owned(), make(text)?));
        }
        match &self.last {
            Some((_, value)) => Ok(value),
            None => exec_err!("nothing was remembered"),
        }
    }
}
