//! The macros of Pelton's Rust SDK. Plugins use them through `pelton-sdk`, whose names they write; they know
//! nothing of Arrow or Wasm.

mod config;
mod function;
mod groups;
mod roles;
mod row;
mod sink;
mod state;

use proc_macro::TokenStream;

/// A struct whose fields are columns: what a function takes or returns.
///
/// Fields are matched with columns by name; `#[row(name = "…")]` gives another one. A field may be `bool`, `i8`
/// to `i64`, `f32`, `f64`, `&str`, `String`, `&[u8]`, `Vec<u8>`, `Timestamp`, `TimestampNtz`, `Date`,
/// `Decimal<P, S>`, `Option<T>` for nulls, `Vec<T>`, `Vec<(K, V)>` or `BTreeMap<K, V>` for maps, or another such
/// struct. Narrower columns are widened where nothing is lost (`int` to `long`, `float` to `double`).
///
/// A struct with a `'static` field can only be returned.
#[proc_macro_derive(Row, attributes(row))]
pub fn derive_row(input: TokenStream) -> TokenStream {
    finish(syn::parse(input).and_then(|input| row::derive(&input)))
}

/// A struct (or an enum of plain words) read from the plugin's `config` in the pipeline file.
///
/// A key that is not there is an error unless its field is an `Option` or has `#[config(default)]` or
/// `#[config(default = expression)]`; unknown keys are errors. `#[config(name = "…")]` gives another key. An
/// enum's variants are written in snake case.
#[proc_macro_derive(Config, attributes(config))]
pub fn derive_config(input: TokenStream) -> TokenStream {
    finish(syn::parse(input).and_then(|input| config::derive(&input)))
}

/// A function that makes one value of each row. Its arguments are columns in order, or one struct whose fields
/// are matched by name. It returns a value, an `Option`, or a `Result` whose error refuses the row.
#[proc_macro_attribute]
pub fn scalar(attribute: TokenStream, item: TokenStream) -> TokenStream {
    attributed(function::Form::Scalar, attribute, item)
}

/// A scalar function that returns a `bool` and so serves as a `filter` step.
#[proc_macro_attribute]
pub fn filter(attribute: TokenStream, item: TokenStream) -> TokenStream {
    attributed(function::Form::Filter, attribute, item)
}

/// A function that makes a row of a row. It returns a struct, an `Option` of one (`None` drops the row), or a
/// `Result` of these whose error refuses the row.
#[proc_macro_attribute]
pub fn map(attribute: TokenStream, item: TokenStream) -> TokenStream {
    attributed(function::Form::Map, attribute, item)
}

/// A function that makes any number of rows of a row. It returns something to iterate over (or a `Result` of it),
/// or takes `&mut Emit<T>` and returns nothing (or a `Result<(), E>`). An error refuses the row.
#[proc_macro_attribute]
pub fn flat_map(attribute: TokenStream, item: TokenStream) -> TokenStream {
    attributed(function::Form::FlatMap, attribute, item)
}

/// A struct that is kept for a group: what `GroupState`, `ValueState`, `ListState` and `MapState` hold. Its fields are
/// those of `#[derive(Row)]`, which it includes; it owns its values. `#[state(name = "…")]` gives a field another name in
/// the stored state.
///
/// `#[state(version = 2, from = Older)]` on the struct says that it replaces `Older`, a struct with `#[derive(State)]` of
/// the version before (1 if it does not say), by way of `impl From<Older>`. Entries stored by the older version are
/// rewritten when they are read.
#[proc_macro_derive(State, attributes(state))]
pub fn derive_state(input: TokenStream) -> TokenStream {
    finish(syn::parse(input).and_then(|input| state::derive(&input)))
}

/// A function that makes one row of each group: Spark's `mapGroupsWithState`.
///
/// It takes the key (a value, a struct, or a tuple for several key columns), the rows as `Rows<'_, T>`, and, if it keeps
/// anything, `state: &mut GroupState<S>`; beside them `&Context` and a reference to its configuration. It returns a row,
/// or a `Result` of one whose error fails the micro-batch.
///
/// `timeout = "processing_time"` or `"event_time"` lets it set a timeout (default `"none"`); an expression of type
/// `TimeMode` may use `config`.
#[proc_macro_attribute]
pub fn map_groups(attribute: TokenStream, item: TokenStream) -> TokenStream {
    grouped(groups::Form::MapGroups, attribute, item)
}

/// A function that makes any number of rows of each group: Spark's `flatMapGroupsWithState`. As `map_groups`, but it
/// returns something to iterate over (or a `Result` of it), or takes `&mut Emit<T>` and returns nothing (or a
/// `Result<(), E>`).
#[proc_macro_attribute]
pub fn flat_map_groups(attribute: TokenStream, item: TokenStream) -> TokenStream {
    grouped(groups::Form::FlatMapGroups, attribute, item)
}

/// A function over groups with several variables and with timers: Spark's `transformWithState`. As `flat_map_groups`,
/// but what it keeps are its arguments of type `&mut ValueState<T>`, `&mut ListState<T>` and `&mut MapState<K, V>`, and
/// it may take `&mut Timers`.
///
/// A variable has its argument's name for ever. `#[state(name = "…")]` before the argument gives another one,
/// `#[state(ttl = "1 hour")]` a time to live (an expression may use `config`), `#[state(load = …)]` says which entries
/// are read for a call: `everything` (the default), `nothing`, `last(10)` of a list, `keyed_by(column)` of a map.
///
/// `time_mode = "processing_time"` or `"event_time"` says what timers are measured by (default `"none"`).
#[proc_macro_attribute]
pub fn processor(attribute: TokenStream, item: TokenStream) -> TokenStream {
    grouped(groups::Form::Processor, attribute, item)
}

/// A function that writes rows somewhere: Spark's `foreachBatch`. It takes `Rows<'_, T>` and, if it likes, `BatchPart`,
/// `&Context` and a reference to its configuration; it returns nothing, or a `Result<(), E>` whose error fails the
/// micro-batch. After a failure the whole micro-batch comes again: to write each of its rows once is its own work.
#[proc_macro_attribute]
pub fn sink(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expanded(sink::expand(attribute.into(), item.clone().into()), item)
}

fn attributed(form: function::Form, attribute: TokenStream, item: TokenStream) -> TokenStream {
    expanded(function::expand(form, attribute.into(), item.clone().into()), item)
}

fn grouped(form: groups::Form, attribute: TokenStream, item: TokenStream) -> TokenStream {
    let plain = groups::without_settings(item.clone().into());
    expanded(groups::expand(form, attribute.into(), item.into()), plain.into())
}

fn expanded(expanded: syn::Result<proc_macro2::TokenStream>, original: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(original);
    // The function itself stays, so that a mistake in its signature does not also make it unknown elsewhere.
    expanded.unwrap_or_else(|error| [original, error.into_compile_error()].into_iter().collect()).into()
}

fn finish(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(syn::Error::into_compile_error).into()
}
