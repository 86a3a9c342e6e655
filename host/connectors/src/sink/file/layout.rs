//! How a sink writes its files, in words that can be compared: what is written alike can be put together.

use super::FileSinkOptions;
use super::log::Layout;
use arrow::datatypes::Schema;
use pelton_core::types::type_name;

/// The layout of files with these columns, whose head takes so many bytes.
pub(super) fn layout_of(options: &FileSinkOptions, columns: &Schema, head_bytes: usize) -> Layout {
    let column = |field: &std::sync::Arc<arrow::datatypes::Field>| {
        (field.name().clone(), type_name(field.data_type()))
    };
    Layout {
        format: options.format.as_str().to_owned(),
        options: options.options.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        partition_by: options.partition_by.clone(),
        columns: columns.fields().iter().map(column).collect(),
        head_bytes: head_bytes as u64,
    }
}
