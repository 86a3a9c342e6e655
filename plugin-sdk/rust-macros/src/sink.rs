//! `#[pelton::sink]`.

use crate::function::{check_signature, doc};
use crate::roles::{Role, roles};
use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, ItemFn, Result, Type};

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !attribute.is_empty() {
        return Err(Error::new_spanned(attribute, "this attribute takes no arguments"));
    }
    let function: ItemFn =
        syn::parse2(item.clone()).map_err(|e| Error::new(e.span(), "this attribute is for functions"))?;
    check_signature(&function)?;
    let roles = roles(&function, false)?;
    let ident = &function.sig.ident;
    let (mut row, mut config) = (None, quote!(()));
    let mut passed = Vec::new();
    for role in &roles {
        passed.push(match role {
            Role::Rows(ty) if row.is_none() => {
                row = Some(ty);
                quote!(rows)
            }
            Role::Part => quote!(part),
            Role::Context => quote!(context),
            Role::Config(ty) => {
                config = quote!(#ty);
                quote!(config)
            }
            _ => {
                let what = "a sink takes `Rows<'_, T>`, `BatchPart`, `&Context` and a reference to its configuration";
                return Err(Error::new_spanned(ident, what));
            }
        });
    }
    let row = row.ok_or_else(|| Error::new_spanned(ident, "a sink takes its rows as `Rows<'_, T>`"))?;
    let closure = quote!(#[allow(unused_variables)] |rows, part, context, config| #ident(#(#passed),*));
    Ok(implementation(&function, row, &config, &item, &closure))
}

fn implementation(
    function: &ItemFn,
    row: &Type,
    config: &TokenStream,
    item: &TokenStream,
    closure: &TokenStream,
) -> TokenStream {
    let ItemFn { vis, sig, .. } = function;
    let ident = &sig.ident;
    let name = ident.to_string().trim_start_matches("r#").to_owned();
    let doc = doc(function);
    let check = quote_spanned!(row.span()=> ::pelton::__private::is_row::<#row>(););
    quote! {
        #item

        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #vis struct #ident {}

        #[automatically_derived]
        impl ::pelton::__private::Exported for #ident {
            const ENTRY: ::pelton::__private::Entry = ::pelton::__private::Entry::sink::<Self>(#name, #doc);
        }

        #[automatically_derived]
        impl ::pelton::__private::SinkFunction for #ident {
            type Open = ::pelton::__private::sink::TypedSink<#config>;

            fn open(
                config: &str,
                input: &::pelton::Schema,
            ) -> ::core::result::Result<Self::Open, ::pelton::Error> {
                #check
                ::pelton::__private::sink::open_typed::<#row, _, _, _>(config, input, #closure)
            }
            fn write(
                open: &mut Self::Open,
                context: &::pelton::Context,
                part: ::pelton::BatchPart,
                rows: &::pelton::__private::Array<'_>,
            ) -> ::core::result::Result<(), ::pelton::Error> {
                ::pelton::__private::sink::write_typed::<#row, _, _, _>(open, context, part, rows, #closure)
            }
        }
    }
}
