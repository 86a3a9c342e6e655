//! Shadows of swaps through the API: the routes and their answers. What a shadow is, `runner` and `crate::shadow` know.

use super::failure::{Failure, Refusal};
use super::registry::Registry;
use super::routes::named;
use super::swap::runner;
use crate::shadow::{Shadow, ShadowReport};
use axum::Json;
use axum::extract::{Path, State};
use axum::routing::{MethodRouter, get};
use pelton_core::Error;
use std::sync::Arc;

type Shared = State<Arc<Registry>>;

/// `GET` and `DELETE`.
pub(super) fn shadow_route() -> MethodRouter<Arc<Registry>> {
    get(shadow).delete(end_shadow)
}

fn last(registry: &Registry, name: &str) -> Result<Arc<Shadow>, Refusal> {
    named(registry, name)?;
    runner(registry, name)?.last_shadow().ok_or_else(|| {
        let error = Error::invalid(format!("no version of a plugin has run beside the query '{name}'"));
        Refusal::not_found(error.hint(format!("pelton swap {name} PLUGIN=new.wasm --shadow 10")))
    })
}

/// What the shadow of a swap has found so far
///
/// Of the one that runs, or the last one. It shows rows, so it needs the token.
#[utoipa::path(
    get,
    path = "/queries/{name}/shadow",
    params(("name" = String, Path, description = "The pipeline file's `name`")),
    responses(
        (status = 200, body = ShadowReport),
        (status = 401, body = Failure),
        (status = 404, description = "There was none", body = Failure)
    ),
    security(("token" = []))
)]
pub(super) async fn shadow(
    State(registry): Shared,
    Path(name): Path<String>,
) -> Result<Json<ShadowReport>, Refusal> {
    Ok(Json(last(&registry, &name)?.report()))
}

/// Ends the shadow of a swap
///
/// Answers when it has ended. Ending one that has ended already is no error.
#[utoipa::path(
    delete,
    path = "/queries/{name}/shadow",
    params(("name" = String, Path, description = "The pipeline file's `name`")),
    responses(
        (status = 200, body = ShadowReport),
        (status = 401, body = Failure),
        (status = 404, description = "There was none", body = Failure)
    ),
    security(("token" = []))
)]
pub(super) async fn end_shadow(
    State(registry): Shared,
    Path(name): Path<String>,
) -> Result<Json<ShadowReport>, Refusal> {
    let shadow = last(&registry, &name)?;
    shadow.end.cancel();
    shadow.ended.cancelled().await;
    Ok(Json(shadow.report()))
}
