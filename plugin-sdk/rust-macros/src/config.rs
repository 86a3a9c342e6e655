//! `#[derive(Config)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Expr, Fields, Result};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a configuration owns its values: no parameters here",
        ));
    }
    let ident = &input.ident;
    let body = match &input.data {
        Data::Struct(data) => structure(ident, &data.fields)?,
        Data::Enum(data) => words(ident, data)?,
        Data::Union(_) => return Err(Error::new_spanned(ident, "a configuration is a struct or an enum")),
    };
    Ok(quote! {
        #[automatically_derived]
        impl ::pelton::Config for #ident {
            fn from_value(
                value: &::pelton::Json,
                path: &str,
            ) -> ::core::result::Result<Self, ::std::string::String> {
                #body
            }
        }
    })
}

/// What stands for a key that is not there.
enum Missing {
    Error,
    Default,
    Value(Box<Expr>),
}

fn structure(ident: &syn::Ident, fields: &Fields) -> Result<TokenStream> {
    let Fields::Named(fields) = fields else {
        return Err(Error::new_spanned(ident, "#[derive(Config)] needs named fields: they are the keys"));
    };
    let mut names = Vec::new();
    let mut values = Vec::new();
    for field in &fields.named {
        let Some(ident) = &field.ident else { continue };
        let (name, missing) = attributes(field)?;
        let name = name.unwrap_or_else(|| ident.to_string().trim_start_matches("r#").to_owned());
        values.push(match missing {
            Missing::Error => quote!(#ident: object.need(#name)?),
            Missing::Default => quote!(#ident: object.get(#name)?.unwrap_or_default()),
            Missing::Value(value) => quote! {
                #ident: match object.get(#name)? {
                    ::core::option::Option::Some(value) => value,
                    ::core::option::Option::None => ::core::convert::Into::into(#value),
                }
            },
        });
        names.push(name);
    }
    Ok(quote! {
        let object = ::pelton::__private::ObjectReader::new(value, path, &[#(#names),*])?;
        ::core::result::Result::Ok(Self { #(#values,)* })
    })
}

fn attributes(field: &syn::Field) -> Result<(Option<String>, Missing)> {
    let (mut name, mut missing) = (None, Missing::Error);
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("config")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = Some(meta.value()?.parse::<syn::LitStr>()?.value());
            } else if meta.path.is_ident("default") {
                missing = match meta.input.peek(syn::Token![=]) {
                    true => Missing::Value(Box::new(meta.value()?.parse()?)),
                    false => Missing::Default,
                };
            } else {
                return Err(meta.error(
                    "there are #[config(name = \"…\")], #[config(default)] and #[config(default = …)]",
                ));
            }
            Ok(())
        })?;
    }
    Ok((name, missing))
}

fn words(ident: &syn::Ident, data: &syn::DataEnum) -> Result<TokenStream> {
    if let Some(variant) = data.variants.iter().find(|variant| !matches!(variant.fields, Fields::Unit)) {
        return Err(Error::new_spanned(
            variant,
            "#[derive(Config)] on an enum takes variants without fields",
        ));
    }
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let words: Vec<String> = variants.iter().map(|variant| snake_case(&variant.to_string())).collect();
    let Some((last, others)) = variants.split_last() else {
        return Err(Error::new_spanned(ident, "an enum without variants cannot be configured"));
    };
    let other_words = &words[..others.len()];
    Ok(quote! {
        ::core::result::Result::Ok(match ::pelton::__private::word(value, path, &[#(#words),*])? {
            #(#other_words => Self::#others,)*
            _ => Self::#last,
        })
    })
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (i, c) in name.chars().enumerate() {
        if c.is_uppercase() && i > 0 {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}
