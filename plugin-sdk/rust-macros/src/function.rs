//! The attributes: a plain function becomes one of a plugin's.
//!
//! The function stays as it is. Beside it comes an empty struct of the same name (types and functions have
//! separate names), which implements `Function`: it is what `pelton::plugin!` and the testing harness take.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{Error, FnArg, ItemFn, Lifetime, Result, ReturnType, Type};

/// Which attribute it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Scalar,
    Filter,
    Map,
    FlatMap,
}

/// What an argument is there for.
enum Role {
    /// A column or the row; by reference if the function takes the struct by reference.
    Value {
        ty: Box<Type>,
        by_reference: bool,
    },
    Context,
    Config(Box<Type>),
    Emit,
}

pub(crate) fn expand(form: Form, attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !attribute.is_empty() {
        return Err(Error::new_spanned(attribute, "this attribute takes no arguments"));
    }
    let what = "this attribute is for functions";
    let function: ItemFn = syn::parse2(item.clone()).map_err(|e| Error::new(e.span(), what))?;
    check_signature(&function)?;
    let roles = roles(form, &function)?;
    check_roles(form, &function, &roles)?;
    let implementation = implementation(form, &function, &roles);
    Ok(quote!(#item #implementation))
}

pub(crate) fn check_signature(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if let Some(token) = &signature.asyncness {
        return Err(Error::new_spanned(
            token,
            "a plugin's function is not async: the host calls it batch by batch",
        ));
    }
    if let Some(parameter) = signature.generics.type_params().next() {
        return Err(Error::new_spanned(
            parameter,
            "a plugin's function has no type parameters: name the types",
        ));
    }
    Ok(())
}

fn roles(form: Form, function: &ItemFn) -> Result<Vec<Role>> {
    let role = |(i, argument): (usize, &FnArg)| match argument {
        FnArg::Receiver(receiver) => {
            Err(Error::new_spanned(receiver, "a plugin's function stands alone: it takes no self"))
        }
        FnArg::Typed(argument) => Ok(role(form, i, &argument.ty)),
    };
    function.sig.inputs.iter().enumerate().map(role).collect()
}

fn role(form: Form, index: usize, ty: &Type) -> Role {
    let value = |ty: &Type, by_reference| Role::Value { ty: Box::new(without_lifetimes(ty)), by_reference };
    let Type::Reference(reference) = ty else { return value(ty, false) };
    let last = match &*reference.elem {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    };
    match last.as_deref() {
        Some("Context") => Role::Context,
        Some("Emit") if form == Form::FlatMap && reference.mutability.is_some() => Role::Emit,
        None | Some("str") => value(ty, false),
        Some(_) if index == 0 => value(&reference.elem, true),
        Some(_) => Role::Config(Box::new(without_lifetimes(&reference.elem))),
    }
}

fn check_roles(form: Form, function: &ItemFn, roles: &[Role]) -> Result<()> {
    let signature = &function.sig;
    let values = roles.iter().filter(|role| matches!(role, Role::Value { .. })).count();
    let emits = roles.iter().any(|role| matches!(role, Role::Emit));
    if roles.iter().filter(|role| matches!(role, Role::Config(_))).count() > 1 {
        return Err(Error::new_spanned(&signature.inputs, "a function takes one configuration at most"));
    }
    match form {
        Form::Scalar | Form::Filter if !(1..=8).contains(&values) => {
            let what = "it takes the row as a struct, or one to eight columns";
            return Err(Error::new_spanned(&signature.ident, what));
        }
        Form::Map | Form::FlatMap if values != 1 => {
            let what = "it takes one row: a struct with #[derive(pelton::Row)]; beside it there may be \
                        `&pelton::Context` and a reference to its configuration";
            return Err(Error::new_spanned(&signature.ident, what));
        }
        _ => {}
    }
    if matches!(signature.output, ReturnType::Default) && !emits {
        let what = match form {
            Form::Scalar => "it returns nothing: a scalar function returns a value",
            Form::Filter => "it returns nothing: a filter returns a `bool`",
            Form::Map => "it returns nothing: a map function returns a row",
            Form::FlatMap => "it returns nothing: return rows, or take `&mut pelton::Emit<T>`",
        };
        return Err(Error::new_spanned(&signature.ident, what));
    }
    Ok(())
}

fn implementation(form: Form, function: &ItemFn, roles: &[Role]) -> TokenStream {
    let ItemFn { vis, sig, .. } = function;
    let ident = &sig.ident;
    let name = ident.to_string().trim_start_matches("r#").to_owned();
    let doc = doc(function);
    let kind = match form {
        Form::Scalar | Form::Filter => quote!(scalar),
        Form::Map | Form::FlatMap => quote!(transform),
    };
    let module = match form {
        Form::Scalar | Form::Filter => quote!(scalar),
        Form::Map => quote!(map),
        Form::FlatMap => quote!(flat_map),
    };
    let values: Vec<&Type> = roles
        .iter()
        .filter_map(|role| match role {
            Role::Value { ty, .. } => Some(&**ty),
            _ => None,
        })
        .collect();
    let config = roles.iter().find_map(|role| match role {
        Role::Config(ty) => Some(quote!(#ty)),
        _ => None,
    });
    let config = config.unwrap_or_else(|| quote!(()));
    let name_argument = matches!(form, Form::Scalar | Form::Filter).then(|| quote!(#name,));
    let placeholders = vec![quote!(_); if form == Form::FlatMap { 4 } else { 3 }];
    let closure = closure(form, function, roles, &config);
    let types = quote!((#(#values,)*), #(#placeholders),*);
    let checks = checks(form, function, &values);
    quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #vis struct #ident {}

        #[automatically_derived]
        impl ::pelton::__private::Exported for #ident {
            const ENTRY: ::pelton::__private::Entry =
                ::pelton::__private::Entry::#kind::<Self>(#name, #doc);
        }

        #[automatically_derived]
        impl ::pelton::__private::Function for #ident {
            type State = ::pelton::__private::Typed<#config>;

            fn open(
                config: &str,
                input: &::pelton::Schema,
            ) -> ::core::result::Result<(Self::State, ::pelton::Schema), ::pelton::Error> {
                #checks
                ::pelton::__private::#module::open::<#types>(#name_argument config, input, #closure)
            }
            fn run(
                state: &mut Self::State,
                context: &::pelton::Context,
                rows: &::pelton::__private::Array<'_>,
                reply: &mut ::pelton::__private::Reply,
            ) -> ::core::result::Result<(), ::pelton::Error> {
                ::pelton::__private::#module::run::<#types>(state, context, rows, reply, #closure)
            }
        }
    }
}

/// The function as the runtime calls it: `|(arguments…), emit, context, config|`.
fn closure(form: Form, function: &ItemFn, roles: &[Role], config: &TokenStream) -> TokenStream {
    let ident = &function.sig.ident;
    let mut patterns = Vec::new();
    let mut passed = Vec::new();
    for (i, role) in roles.iter().enumerate() {
        let argument = format_ident!("argument_{i}");
        match role {
            Role::Value { by_reference, .. } => {
                passed.push(if *by_reference { quote!(&#argument) } else { quote!(#argument) });
                patterns.push(argument);
            }
            Role::Context => passed.push(quote!(context)),
            Role::Config(_) => passed.push(quote!(config)),
            Role::Emit => passed.push(quote!(emit)),
        }
    }
    let arguments = quote!((#(#patterns,)*));
    let tail = quote!(context: &::pelton::Context, config: &#config);
    let unused = quote!(#[allow(unused_variables)]);
    let call = quote!(#ident(#(#passed),*));
    if form != Form::FlatMap {
        return quote!(#unused |#arguments, #tail| #call);
    }
    let body = if roles.iter().any(|role| matches!(role, Role::Emit)) {
        call
    } else if returns_result(function) {
        quote! {
            match #call {
                ::core::result::Result::Ok(rows) => {
                    ::pelton::__private::flat_map::emit_all(rows, emit);
                    ::core::result::Result::Ok(())
                }
                ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
            }
        }
    } else {
        quote!(::pelton::__private::flat_map::emit_all(#call, emit))
    };
    quote!(#unused |#arguments, emit, #tail| #body)
}

/// Calls that only type-check, spanned so that the compiler points at the user's types.
fn checks(form: Form, function: &ItemFn, values: &[&Type]) -> TokenStream {
    let row = match form {
        Form::Map | Form::FlatMap => {
            values.first().map(|ty| quote_spanned!(ty.span()=> ::pelton::__private::is_row::<#ty>();))
        }
        _ => None,
    };
    let returned = match (&function.sig.output, form) {
        (ReturnType::Type(_, ty), Form::Filter) => {
            let ty = without_lifetimes(ty);
            Some(quote_spanned!(ty.span()=> ::pelton::__private::scalar::is_filter::<#ty>();))
        }
        _ => None,
    };
    quote!(#row #returned)
}

pub(crate) fn returns_result(function: &ItemFn) -> bool {
    let ReturnType::Type(_, ty) = &function.sig.output else { return false };
    let Type::Path(path) = &**ty else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == "Result")
}

/// The first paragraph of the doc comment.
pub(crate) fn doc(function: &ItemFn) -> String {
    let mut lines = Vec::new();
    for attribute in function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        let syn::Meta::NameValue(meta) = &attribute.meta else { continue };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &meta.value else { continue };
        match text.value().trim() {
            "" if lines.is_empty() => {}
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    lines.join(" ")
}

/// In the body of a function lifetimes are inferred; the user's names are unknown there.
pub(crate) fn without_lifetimes(ty: &Type) -> Type {
    struct Elide;
    impl VisitMut for Elide {
        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            if lifetime.ident != "static" {
                *lifetime = Lifetime::new("'_", lifetime.span());
            }
        }
    }
    let mut ty = ty.clone();
    Elide.visit_type_mut(&mut ty);
    ty
}
