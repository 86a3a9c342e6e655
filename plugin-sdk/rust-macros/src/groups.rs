//! `#[pelton::map_groups]`, `#[pelton::flat_map_groups]`, `#[pelton::processor]`.
//!
//! As in `function`, the function stays as it is (but for `#[state(…)]` on its arguments), and beside it comes an empty
//! struct of the same name that implements `GroupFunction`.

use crate::function::{check_signature, doc, returns_result};
use crate::roles::{Role, roles};
use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, ItemFn, Lit, LitInt, LitStr, Pat, Result, ReturnType, Type,
};

/// Which attribute it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    MapGroups,
    FlatMapGroups,
    Processor,
}

pub(crate) fn expand(form: Form, attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let time_mode = time_mode(form, attribute)?;
    let mut function: ItemFn =
        syn::parse2(item).map_err(|e| Error::new(e.span(), "this attribute is for functions"))?;
    check_signature(&function)?;
    let settings = take_settings(&mut function)?;
    let roles = roles(&function, true)?;
    check_roles(form, &function, &roles)?;
    let implementation = implementation(form, &function, &roles, &settings, &time_mode)?;
    Ok(quote!(#function #implementation))
}

/// The function without `#[state(…)]` on its arguments, which only this attribute understands.
pub(crate) fn without_settings(item: TokenStream) -> TokenStream {
    let Ok(mut function) = syn::parse2::<ItemFn>(item.clone()) else { return item };
    for argument in &mut function.sig.inputs {
        if let FnArg::Typed(argument) = argument {
            argument.attrs.retain(|attribute| !attribute.path().is_ident("state"));
        }
    }
    function.into_token_stream()
}

/// `timeout = …` or `time_mode = …`, as an expression of type `TimeMode`.
fn time_mode(form: Form, attribute: TokenStream) -> Result<TokenStream> {
    let (word, mut found) = (if form == Form::Processor { "time_mode" } else { "timeout" }, None);
    let parser = syn::meta::parser(|meta| {
        if !meta.path.is_ident(word) {
            return Err(
                meta.error(format!("there is only {word} = \"none\", \"processing_time\" or \"event_time\""))
            );
        }
        found = Some(meta.value()?.parse::<Expr>()?);
        Ok(())
    });
    parser.parse2(attribute)?;
    let mode = |name: &str| {
        let name = format_ident!("{name}");
        quote!(::pelton::TimeMode::#name)
    };
    match found {
        None => Ok(mode("None")),
        Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => match text.value().as_str() {
            "none" => Ok(mode("None")),
            "processing_time" => Ok(mode("ProcessingTime")),
            "event_time" => Ok(mode("EventTime")),
            _ => Err(Error::new_spanned(text, "there are \"none\", \"processing_time\" and \"event_time\"")),
        },
        Some(expression) => Ok(expression.into_token_stream()),
    }
}

/// What `#[state(…)]` says of an argument.
#[derive(Default)]
struct Settings {
    name: Option<String>,
    ttl: Option<Expr>,
    load: Option<TokenStream>,
}

/// The settings of all arguments, whose attributes are taken away.
fn take_settings(function: &mut ItemFn) -> Result<Vec<Settings>> {
    let settings = function.sig.inputs.iter_mut().map(|argument| {
        let FnArg::Typed(argument) = argument else { return Ok(Settings::default()) };
        let (of_state, others): (Vec<_>, Vec<_>) =
            argument.attrs.drain(..).partition(|attribute| attribute.path().is_ident("state"));
        argument.attrs = others;
        read_settings(&of_state)
    });
    settings.collect()
}

fn read_settings(attributes: &[Attribute]) -> Result<Settings> {
    let mut settings = Settings::default();
    for attribute in attributes {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                settings.name = Some(meta.value()?.parse::<LitStr>()?.value());
            } else if meta.path.is_ident("ttl") {
                settings.ttl = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("load") {
                settings.load = Some(load(meta.value()?)?);
            } else {
                return Err(
                    meta.error("there are #[state(name = \"…\")], #[state(ttl = …)] and #[state(load = …)]")
                );
            }
            Ok(())
        })?;
    }
    Ok(settings)
}

/// `everything`, `nothing`, `last(10)`, `keyed_by(a, b)`.
fn load(input: ParseStream<'_>) -> Result<TokenStream> {
    let word: Ident = input.parse()?;
    let load = quote!(::pelton::__private::Load);
    match word.to_string().as_str() {
        "everything" => Ok(quote!(#load::Everything)),
        "nothing" => Ok(quote!(#load::Nothing)),
        "last" => {
            let content;
            syn::parenthesized!(content in input);
            let count = content.parse::<LitInt>()?;
            match count.base10_parse::<u32>()? {
                0 => Err(Error::new_spanned(count, "to load no entry there is `nothing`")),
                count => Ok(quote!(#load::Last(#count))),
            }
        }
        "keyed_by" => {
            let content;
            syn::parenthesized!(content in input);
            let columns = content.parse_terminated(Column::parse, syn::Token![,])?;
            let columns = columns.iter().map(|column| &column.0);
            Ok(quote!(#load::KeyedBy(::std::vec![#(::std::string::String::from(#columns)),*])))
        }
        _ => Err(Error::new_spanned(word, "there are everything, nothing, last(10) and keyed_by(column)")),
    }
}

/// A column: a plain name, or a text.
struct Column(String);

impl Parse for Column {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(LitStr) {
            return Ok(Self(input.parse::<LitStr>()?.value()));
        }
        Ok(Self(input.parse::<Ident>()?.to_string()))
    }
}

fn check_roles(form: Form, function: &ItemFn, roles: &[Role]) -> Result<()> {
    let ident = &function.sig.ident;
    let wrong = |what: &str| Err(Error::new_spanned(ident, what));
    let count = |is: fn(&Role) -> bool| roles.iter().filter(|role| is(role)).count();
    if count(|role| matches!(role, Role::Key { .. })) != 1 {
        return wrong("its first argument is the key: a value, a struct, or a tuple for several key columns");
    }
    if count(|role| matches!(role, Role::Rows(_))) != 1 {
        return wrong("it takes the group's rows as `Rows<'_, T>`, once");
    }
    for (is, what) in [
        (count(|role| matches!(role, Role::Config(_))), "a function takes one configuration at most"),
        (count(|role| matches!(role, Role::Timers)), "a function takes `&mut Timers` once"),
        (count(|role| matches!(role, Role::Emit)), "a function takes `&mut Emit<T>` once"),
    ] {
        if is > 1 {
            return wrong(what);
        }
    }
    for role in roles {
        let Role::Variable { ty, argument } = role else { continue };
        let is_group_state = ty.to_token_stream().to_string().contains("GroupState");
        match (form, is_group_state) {
            (Form::Processor, true) => {
                let what = "a processor keeps ValueState, ListState and MapState; GroupState is for map_groups and \
                            flat_map_groups";
                return Err(Error::new_spanned(&function.sig.inputs[*argument], what));
            }
            (Form::MapGroups | Form::FlatMapGroups, false) => {
                let what =
                    "this is for #[pelton::processor]; here `&mut GroupState<S>` holds all that is kept";
                return Err(Error::new_spanned(&function.sig.inputs[*argument], what));
            }
            _ => {}
        }
    }
    if count(|role| matches!(role, Role::Variable { .. })) > if form == Form::Processor { 8 } else { 1 } {
        return wrong(match form {
            Form::Processor => "a function has eight variables at most: put several into a struct",
            _ => "a group has one state: put all of it into a struct",
        });
    }
    if form != Form::Processor && count(|role| matches!(role, Role::Timers)) > 0 {
        return wrong("only a #[pelton::processor] has timers; a GroupState has one timeout");
    }
    check_output(form, function, count(|role| matches!(role, Role::Emit)) > 0)
}

fn check_output(form: Form, function: &ItemFn, emits: bool) -> Result<()> {
    let nothing = matches!(function.sig.output, ReturnType::Default);
    let what = match (form, emits) {
        (Form::MapGroups, true) => "it returns its one row; `&mut Emit<T>` is for flat_map_groups",
        (Form::MapGroups, false) if nothing => "it returns nothing: a map_groups function returns a row",
        (_, false) if nothing => "it returns nothing: return rows, or take `&mut pelton::Emit<T>`",
        _ => return Ok(()),
    };
    Err(Error::new_spanned(&function.sig.ident, what))
}

fn implementation(
    form: Form,
    function: &ItemFn,
    roles: &[Role],
    settings: &[Settings],
    time_mode: &TokenStream,
) -> Result<TokenStream> {
    let ItemFn { vis, sig, .. } = function;
    let ident = &sig.ident;
    let name = ident.to_string().trim_start_matches("r#").to_owned();
    let doc = doc(function);
    let form_name = match form {
        Form::MapGroups => quote!(MapGroups),
        Form::FlatMapGroups => quote!(FlatMapGroups),
        Form::Processor => quote!(Processor),
    };
    let Types { key, row, variables, config } = types(function, roles)?;
    let specs = specs(function, roles, settings)?;
    let closure = closure(form, function, roles);
    let check = quote_spanned!(row.span()=> ::pelton::__private::is_row::<#row>(););
    let group = quote!(::pelton::__private::group);
    let result = |ok: TokenStream| quote!(::core::result::Result<#ok, ::pelton::Error>);
    let (opened, done) = (result(quote!((Self::Open, ::pelton::__private::Signature))), result(quote!(())));
    Ok(quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #vis struct #ident {}

        #[automatically_derived]
        impl ::pelton::__private::Exported for #ident {
            const ENTRY: ::pelton::__private::Entry = ::pelton::__private::Entry::groups::<Self>(#name, #doc);
        }

        #[automatically_derived]
        impl ::pelton::__private::GroupFunction for #ident {
            type Open = #group::TypedGroups<#config, (#(#variables,)*)>;

            fn open(config: &str, key: &::pelton::Schema, input: &::pelton::Schema) -> #opened {
                #check
                let parsed = #group::config::<#config>(config)?;
                #[allow(unused_variables)]
                let config = &parsed;
                let form = (::pelton::__private::Form::#form_name, #time_mode);
                let specs = ::std::vec![#(#specs),*];
                #group::open::<#key, #row, (#(#variables,)*), _, #config, _>(form, specs, parsed, (key, input), #closure)
            }
            fn run(
                open: &mut Self::Open,
                context: &::pelton::Context,
                groups: &::pelton::__private::Groups<'_>,
                reply: &mut ::pelton::__private::GroupReply,
            ) -> #done {
                #group::run::<#key, #row, (#(#variables,)*), _, #config, _>(open, context, groups, reply, #closure)
            }
            fn migrate(
                open: &Self::Open,
                variable: usize,
                from: u32,
                old: &::pelton::Schema,
                entries: &::pelton::__private::Array<'_>,
                to: &mut ::pelton::__private::Encoder,
            ) -> #done {
                #group::migrate(open, variable, from, old, entries, to)
            }
        }
    })
}

/// The types that the runtime needs to know.
struct Types<'a> {
    /// A tuple of key columns.
    key: TokenStream,
    row: &'a Type,
    variables: Vec<&'a Type>,
    config: TokenStream,
}

fn types<'r>(function: &ItemFn, roles: &'r [Role]) -> Result<Types<'r>> {
    let (mut key, mut row, mut variables, mut config) = (quote!(()), None, Vec::new(), quote!(()));
    for role in roles {
        match role {
            Role::Key { ty: ty @ Type::Tuple(_), .. } => key = quote!(#ty),
            Role::Key { ty, .. } => key = quote!((#ty,)),
            Role::Rows(ty) => row = Some(ty),
            Role::Variable { ty, .. } => variables.push(ty),
            Role::Config(ty) => config = quote!(#ty),
            _ => {}
        }
    }
    let row = row.ok_or_else(|| Error::new_spanned(&function.sig.ident, "it takes no rows"))?;
    Ok(Types { key, row, variables, config })
}

/// A `Spec` for each variable.
fn specs(function: &ItemFn, roles: &[Role], settings: &[Settings]) -> Result<Vec<TokenStream>> {
    let mut names = Vec::new();
    let mut specs = Vec::new();
    for role in roles {
        let Role::Variable { ty, argument } = role else { continue };
        let Settings { name, ttl, load } = &settings[*argument];
        let input = &function.sig.inputs[*argument];
        let own = match input {
            // There is one state, and what it is called in the function is nobody's business.
            _ if ty.to_token_stream().to_string().contains("GroupState") => "state".to_owned(),
            FnArg::Typed(argument) => match &*argument.pat {
                Pat::Ident(ident) => ident.ident.to_string().trim_start_matches("r#").to_owned(),
                _ => return Err(Error::new_spanned(input, "give this argument a name: the variable's")),
            },
            FnArg::Receiver(_) => continue,
        };
        let name = name.clone().unwrap_or(own);
        if names.contains(&name) {
            return Err(Error::new_spanned(input, format!("there are two variables '{name}'")));
        }
        let ttl = ttl.as_ref().map(|ttl| quote!(.ttl(#ttl)));
        let load = load.as_ref().map(|load| quote!(.load(#load)));
        specs.push(quote!(::pelton::__private::Spec::new(#name)#ttl #load));
        names.push(name);
    }
    Ok(specs)
}

/// The function as the runtime calls it: `|key, rows, variables, timers, emit, context, config|`.
fn closure(form: Form, function: &ItemFn, roles: &[Role]) -> TokenStream {
    let ident = &function.sig.ident;
    let mut variable = 0;
    let mut key_pattern = quote!(key);
    let passed = roles.iter().map(|role| match role {
        Role::Key { ty, by_reference } => {
            if !matches!(ty, Type::Tuple(_)) {
                key_pattern = quote!((key,));
            }
            if *by_reference { quote!(&key) } else { quote!(key) }
        }
        Role::Rows(_) => quote!(rows),
        Role::Variable { .. } => {
            let index = syn::Index::from(variable);
            variable += 1;
            quote!(&mut variables.#index)
        }
        Role::Timers => quote!(timers),
        Role::Emit => quote!(emit),
        Role::Context => quote!(context),
        Role::Config(_) => quote!(config),
        Role::Part => quote!(),
    });
    let passed: Vec<_> = passed.collect();
    let call = quote!(#ident(#(#passed),*));
    let body = body(form, function, roles, &call);
    quote!(#[allow(unused_variables)] |#key_pattern, rows, variables, timers, emit, context, config| #body)
}

fn body(form: Form, function: &ItemFn, roles: &[Role], call: &TokenStream) -> TokenStream {
    if form == Form::MapGroups {
        return quote!(::pelton::__private::group::emit_one(#call, emit));
    }
    if roles.iter().any(|role| matches!(role, Role::Emit)) {
        return quote!(::pelton::__private::flat_map::EmitReturn::outcome(#call));
    }
    let emit_all = quote!(::pelton::__private::flat_map::emit_all);
    if returns_result(function) {
        return quote! {
            match #call {
                ::core::result::Result::Ok(rows) => {
                    #emit_all(rows, emit);
                    ::core::result::Result::Ok(())
                }
                ::core::result::Result::Err(error) => {
                    ::core::result::Result::Err(::std::string::ToString::to_string(&error))
                }
            }
        };
    }
    quote!({
        #emit_all(#call, emit);
        ::core::result::Result::Ok(())
    })
}
