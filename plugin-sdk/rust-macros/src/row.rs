//! `#[derive(Row)]`: reading a struct from columns and building columns of structs.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{Data, DeriveInput, Error, Fields, Lifetime, Result, Type};

/// A field and its column.
struct Column {
    field: syn::Ident,
    name: String,
    /// As written.
    as_written: Type,
    /// With the struct's lifetime made `'static`, for the builder, which borrows nothing.
    as_static: Type,
}

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let lifetime = only_lifetime(input)?;
    let columns = columns(input, lifetime.as_ref())?;
    let output = output(input, &columns);
    let input = match columns.iter().any(|column| mentions_static(&column.as_written)) {
        true => quote!(),
        false => reader(input, &columns, lifetime),
    };
    Ok(quote! {
        const _: () = {
            #input
            #output
        };
    })
}

fn only_lifetime(input: &DeriveInput) -> Result<Option<Lifetime>> {
    if let Some(parameter) = input.generics.type_params().next() {
        let what = "a row's types must be known: remove this type parameter";
        return Err(Error::new_spanned(parameter, what));
    }
    if let Some(parameter) = input.generics.const_params().next() {
        return Err(Error::new_spanned(parameter, "a row takes no const parameters"));
    }
    let mut lifetimes = input.generics.lifetimes();
    let first = lifetimes.next();
    match lifetimes.next() {
        Some(second) => Err(Error::new_spanned(
            second,
            "a row borrows from one batch: one lifetime is enough for all fields",
        )),
        None => Ok(first.map(|parameter| parameter.lifetime.clone())),
    }
}

fn columns(input: &DeriveInput, lifetime: Option<&Lifetime>) -> Result<Vec<Column>> {
    let named = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) if !fields.named.is_empty() => &fields.named,
            _ => {
                let what = "#[derive(Row)] needs named fields: `struct Flight { carrier: String }`";
                return Err(Error::new_spanned(&input.ident, what));
            }
        },
        _ => {
            return Err(Error::new_spanned(
                &input.ident,
                "#[derive(Row)] is for structs: their fields are columns",
            ));
        }
    };
    let mut columns: Vec<Column> = Vec::new();
    for field in named {
        let Some(ident) = field.ident.clone() else { continue };
        let column = column(field, ident, lifetime)?;
        if columns.iter().any(|other| other.name == column.name) {
            return Err(Error::new_spanned(field, format!("there are two columns '{}'", column.name)));
        }
        columns.push(column);
    }
    Ok(columns)
}

fn column(field: &syn::Field, ident: syn::Ident, lifetime: Option<&Lifetime>) -> Result<Column> {
    let mut name = None;
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("row") || a.path().is_ident("state")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("name") {
                let path = attribute.path().get_ident().map_or_else(String::new, ToString::to_string);
                return Err(meta.error(format!("there is only #[{path}(name = \"…\")]")));
            }
            name = Some(meta.value()?.parse::<syn::LitStr>()?.value());
            Ok(())
        })?;
    }
    check(&field.ty)?;
    let mut as_static = field.ty.clone();
    if let Some(lifetime) = lifetime {
        Static(lifetime).visit_type_mut(&mut as_static);
    }
    let name = name.unwrap_or_else(|| ident.to_string().trim_start_matches("r#").to_owned());
    Ok(Column { field: ident, name, as_written: field.ty.clone(), as_static })
}

/// Names the way out for types that look as if they might do.
fn check(ty: &Type) -> Result<()> {
    let Type::Path(path) = ty else { return Ok(()) };
    let Some(ident) = path.path.get_ident() else { return Ok(()) };
    let instead = match ident.to_string().as_str() {
        "u8" => "i16 (Spark's short)",
        "u16" => "i32 (Spark's int)",
        "u32" | "usize" | "isize" => "i64 (Spark's long)",
        "u64" | "i128" | "u128" => "i64 (Spark's long) or pelton::Decimal",
        "char" => "&str or String",
        "SystemTime" | "Instant" | "NaiveDateTime" => "pelton::Timestamp",
        "NaiveDate" => "pelton::Date",
        _ => return Ok(()),
    };
    Err(Error::new_spanned(ty, format!("`{ident}` is not a type of a column: use {instead}")))
}

struct Static<'a>(&'a Lifetime);

impl VisitMut for Static<'_> {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident == self.0.ident {
            *lifetime = Lifetime::new("'static", lifetime.span());
        }
    }
}

fn mentions_static(ty: &Type) -> bool {
    struct Finder(bool);
    impl VisitMut for Finder {
        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            self.0 |= lifetime.ident == "static";
        }
    }
    let mut finder = Finder(false);
    finder.visit_type_mut(&mut ty.clone());
    finder.0
}

/// `impl Input`.
fn reader(input: &DeriveInput, columns: &[Column], lifetime: Option<Lifetime>) -> TokenStream {
    let ident = &input.ident;
    let a = lifetime.clone().unwrap_or_else(|| Lifetime::new("'__rows", Span::call_site()));
    let arguments = lifetime.map(|lifetime| quote!(<#lifetime>));
    let names: Vec<&String> = columns.iter().map(|column| &column.name).collect();
    let readers = columns.iter().map(|column| {
        let ty = &column.as_written;
        quote_spanned!(ty.span()=> <#ty as ::pelton::Input<#a>>::Reader)
    });
    let plans =
        columns.iter().map(|Column { as_written, name, .. }| quote!(plan.field::<#as_written>(#name)?;));
    let made = columns.iter().enumerate().map(|(i, Column { as_written, .. })| {
        quote!(<#as_written as ::pelton::Input<#a>>::reader(plan.part(#i), plan.column(#i, array)?)?)
    });
    let values = columns.iter().enumerate().map(|(i, Column { field, name, as_written, .. })| {
        let i = syn::Index::from(i);
        quote! {
            #field: match <#as_written as ::pelton::Input<#a>>::read(&reader.1.#i, row) {
                ::core::result::Result::Ok(value) => value,
                ::core::result::Result::Err(missing) => {
                    return ::core::result::Result::Err(missing.within(#name));
                }
            }
        }
    });
    quote! {
        #[automatically_derived]
        impl<#a> ::pelton::Input<#a> for #ident #arguments {
            const ROW: bool = true;
            const FIELDS: &'static [&'static str] = &[#(#names),*];
            type Reader = (::pelton::__private::Nulls<#a>, (#(#readers,)*));

            fn plan(
                found: &::pelton::Field,
                path: &str,
            ) -> ::core::result::Result<::pelton::__private::Plan, ::std::string::String> {
                let mut plan = ::pelton::__private::StructPlan::new(found, path)?;
                #(#plans)*
                ::core::result::Result::Ok(plan.finish())
            }
            fn reader(
                plan: &::pelton::__private::Plan,
                array: &::pelton::__private::Array<#a>,
            ) -> ::core::result::Result<Self::Reader, ::pelton::Error> {
                ::core::result::Result::Ok((array.nulls(), (#(#made,)*)))
            }
            #[inline]
            fn is_null(reader: &Self::Reader, row: usize) -> bool {
                reader.0.is_null(row)
            }
            #[inline]
            fn value(
                reader: &Self::Reader,
                row: usize,
            ) -> ::core::result::Result<Self, ::pelton::__private::Missing> {
                ::core::result::Result::Ok(Self { #(#values,)* })
            }
        }
    }
}

/// `impl Output`, `impl Row` and the builder.
fn output(input: &DeriveInput, columns: &[Column]) -> TokenStream {
    let ident = &input.ident;
    let generics = &input.generics;
    let builder = format_ident!("{ident}Builder");
    let fields: Vec<_> = columns.iter().map(|column| &column.field).collect();
    let names = columns.iter().map(|column| &column.name);
    let types = columns.iter().map(|column| &column.as_written);
    let builders = columns.iter().map(|column| {
        let ty = &column.as_static;
        quote_spanned!(ty.span()=> <#ty as ::pelton::Output>::Builder)
    });
    quote! {
        #[doc(hidden)]
        #[derive(::core::default::Default)]
        pub struct #builder {
            __validity: ::pelton::__private::Validity,
            __len: usize,
            #(#fields: #builders,)*
        }

        #[automatically_derived]
        impl #generics ::pelton::Output for #ident #generics {
            type Builder = #builder;
            fn data_type() -> ::pelton::DataType {
                ::pelton::DataType::Struct(<Self as ::pelton::Row>::columns())
            }
            #[inline]
            fn append(self, builder: &mut #builder) {
                builder.__validity.push_valid(builder.__len);
                builder.__len += 1;
                #(::pelton::Output::append(self.#fields, &mut builder.#fields);)*
            }
        }

        #[automatically_derived]
        impl #generics ::pelton::Row for #ident #generics {
            fn columns() -> ::std::vec::Vec<::pelton::Field> {
                ::std::vec![#(<#types as ::pelton::Output>::field(#names)),*]
            }
        }

        #[automatically_derived]
        impl ::pelton::__private::Build for #builder {
            fn append_null(&mut self) {
                self.__validity.push_null(self.__len);
                self.__len += 1;
                #(::pelton::__private::Build::append_null(&mut self.#fields);)*
            }
            fn len(&self) -> usize {
                self.__len
            }
            fn clear(&mut self) {
                self.__validity.clear();
                self.__len = 0;
                #(::pelton::__private::Build::clear(&mut self.#fields);)*
            }
            fn write(&self, to: &mut ::pelton::__private::Encoder) {
                self.__validity.write(self.__len, to);
                ::pelton::__private::BuildRow::write_columns(self, to);
            }
        }

        #[automatically_derived]
        impl ::pelton::__private::BuildRow for #builder {
            fn write_columns(&self, to: &mut ::pelton::__private::Encoder) {
                #(::pelton::__private::Build::write(&self.#fields, to);)*
            }
        }
    }
}
