//! The macros of Pelton's Rust SDK. Plugins use them through `pelton-sdk`, whose names they write; they know
//! nothing of Arrow or Wasm.

mod config;
mod function;
mod row;

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

fn attributed(form: function::Form, attribute: TokenStream, item: TokenStream) -> TokenStream {
    let original = proc_macro2::TokenStream::from(item.clone());
    let expanded = function::expand(form, attribute.into(), item.into());
    // The function itself stays, so that a mistake in its signature does not also make it unknown elsewhere.
    expanded.unwrap_or_else(|error| [original, error.into_compile_error()].into_iter().collect()).into()
}

fn finish(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(syn::Error::into_compile_error).into()
}
