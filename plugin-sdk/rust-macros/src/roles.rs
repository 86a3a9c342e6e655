//! What the arguments of functions over groups and of sinks are there for. `groups` and `sink` use it.

use crate::function::without_lifetimes;
use syn::{Error, FnArg, GenericArgument, ItemFn, PathArguments, Result, Type};

/// What an argument is there for.
pub(crate) enum Role {
    /// By reference if the function takes it so.
    Key {
        ty: Type,
        by_reference: bool,
    },
    /// `Rows<'_, T>`, with `T`.
    Rows(Type),
    /// `&mut GroupState<S>` and its siblings: the type, and the argument's place.
    Variable {
        ty: Type,
        argument: usize,
    },
    Timers,
    Emit,
    Context,
    Config(Type),
    Part,
}

/// The roles of a function's arguments, in order.
pub(crate) fn roles(function: &ItemFn, has_key: bool) -> Result<Vec<Role>> {
    let role = |(i, argument): (usize, &FnArg)| match argument {
        FnArg::Receiver(receiver) => {
            Err(Error::new_spanned(receiver, "a plugin's function stands alone: it takes no self"))
        }
        FnArg::Typed(argument) => role(i, &argument.ty, has_key),
    };
    function.sig.inputs.iter().enumerate().map(role).collect()
}

fn role(index: usize, ty: &Type, has_key: bool) -> Result<Role> {
    let is_key = has_key && index == 0;
    let Type::Reference(reference) = ty else {
        return match name(ty).as_deref() {
            Some("Rows") => rows(ty),
            Some("BatchPart") if !has_key => Ok(Role::Part),
            Some("GroupState" | "ValueState" | "ListState" | "MapState" | "Timers" | "Emit") => {
                Err(Error::new_spanned(ty, "take it by `&mut`"))
            }
            _ if is_key => Ok(Role::Key { ty: without_lifetimes(ty), by_reference: false }),
            _ => Err(Error::new_spanned(
                ty,
                "what this argument is for cannot be seen: beside the rows there are \
                references to state, timers, `&Context` and the configuration",
            )),
        };
    };
    let inner = without_lifetimes(&reference.elem);
    match (name(&reference.elem).as_deref(), reference.mutability.is_some()) {
        (Some("GroupState" | "ValueState" | "ListState" | "MapState"), true) => {
            Ok(Role::Variable { ty: inner, argument: index })
        }
        (Some("Timers"), true) => Ok(Role::Timers),
        (Some("Emit"), true) => Ok(Role::Emit),
        (Some("GroupState" | "ValueState" | "ListState" | "MapState" | "Timers" | "Emit"), false) => {
            Err(Error::new_spanned(ty, "take it by `&mut`"))
        }
        (Some("Context"), _) => Ok(Role::Context),
        (None | Some("str"), _) if is_key => Ok(Role::Key { ty: without_lifetimes(ty), by_reference: false }),
        _ if is_key => Ok(Role::Key { ty: inner, by_reference: true }),
        (_, true) => Err(Error::new_spanned(ty, "the configuration is taken by `&`, and not changed")),
        _ => Ok(Role::Config(inner)),
    }
}

fn rows(ty: &Type) -> Result<Role> {
    let Type::Path(path) = ty else { return Err(Error::new_spanned(ty, "expected Rows<'_, T>")) };
    let arguments = path.path.segments.last().map(|segment| &segment.arguments);
    if let Some(PathArguments::AngleBracketed(arguments)) = arguments {
        let row = arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::Type(ty) => Some(ty),
            _ => None,
        });
        if let Some(row) = row {
            return Ok(Role::Rows(without_lifetimes(row)));
        }
    }
    Err(Error::new_spanned(
        ty,
        "name the type of the rows: Rows<'_, T> with a struct T that has #[derive(pelton::Row)]",
    ))
}

fn name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}
