//! `#[derive(State)]`: a row that can be kept, with its version.

use crate::row;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, LitInt, Result, Type};

/// What `#[state(…)]` says of the struct.
#[derive(Default)]
struct Settings {
    version: Option<LitInt>,
    from: Option<Type>,
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    if let Some(lifetime) = input.generics.lifetimes().next() {
        let what = "state outlives the rows it was made of: it owns its values (String instead of &str)";
        return Err(Error::new_spanned(lifetime, what));
    }
    let Settings { version, from } = settings(input)?;
    let row = row::derive(input)?;
    let ident = &input.ident;
    let version = version.map(|version| quote!(const VERSION: u32 = #version;));
    let migrated = from.map(|from| {
        quote! {
            fn migrated(
                from: u32,
                old: &::pelton::Schema,
                rows: &::pelton::__private::Array<'_>,
            ) -> ::core::result::Result<::std::vec::Vec<Self>, ::pelton::Error> {
                const { assert!(
                    <#from as ::pelton::State>::VERSION < <#ident as ::pelton::State>::VERSION,
                    "the older state must have a smaller version"
                ) };
                ::pelton::__private::through::<#from, Self>(from, old, rows)
            }
        }
    });
    Ok(quote! {
        #row
        #[automatically_derived]
        impl ::pelton::State for #ident {
            #version
            fn columns() -> ::std::vec::Vec<::pelton::Field> {
                <Self as ::pelton::Row>::columns()
            }
            fn write_columns(
                builder: &<Self as ::pelton::Output>::Builder,
                to: &mut ::pelton::__private::Encoder,
            ) {
                ::pelton::__private::BuildRow::write_columns(builder, to);
            }
            #migrated
        }
    })
}

fn settings(input: &DeriveInput) -> Result<Settings> {
    let mut settings = Settings::default();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("state")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("version") {
                let version = meta.value()?.parse::<LitInt>()?;
                version.base10_parse::<u32>()?;
                settings.version = Some(version);
            } else if meta.path.is_ident("from") {
                settings.from = Some(meta.value()?.parse()?);
            } else {
                return Err(meta.error("there are #[state(version = 2)] and #[state(from = Older)]"));
            }
            Ok(())
        })?;
    }
    Ok(settings)
}
