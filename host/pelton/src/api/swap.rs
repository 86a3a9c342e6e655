//! Swapping plugins through the API: the routes and their answers. What a swap is, `runner` and the engine know.

use super::failure::{Failure, Refusal};
use super::registry::Registry;
use super::routes::{Options, named, read};
use crate::runner::{DryRun, QueryRunner, Swapped};
use crate::shadow::{PromoteIf, ShadowOptions, ShadowReport};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use pelton_core::Error;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

/// The largest plugin that is taken: the host's own limit on a module is the one that counts.
const BODY_BYTES_MAX: usize = 256 << 20;

type Shared = State<Arc<Registry>>;

/// `POST` of a plugin's bytes.
pub(super) fn swap_route() -> MethodRouter<Arc<Registry>> {
    post(swap).layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// Whoever swaps the plugins of a query.
pub(super) fn runner(registry: &Registry, name: &str) -> Result<Arc<QueryRunner>, Refusal> {
    let runner = named(registry, name)?.runner();
    runner.ok_or_else(|| {
        let hint = "ask again when it is ready: see /health/ready";
        Refusal::from(Error::unavailable(format!("the query '{name}' has not started yet")).hint(hint))
    })
}

/// How to swap.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Swap {
    /// Only say what it would do: compile, compare, and read some of the state as the new version migrates it.
    #[serde(default)]
    dry_run: bool,
    /// Do not swap: let it run beside the query for so many micro-batches, on the same rows and a fork of the state, and
    /// compare. See `/queries/{name}/shadow`.
    shadow: Option<u64>,
    /// With `shadow`: swap at its end if it is so: `identical`, or for example `within=0.1%` of the rows.
    promote_if: Option<String>,
    /// With `shadow`: the columns by which rows belong together, with commas between. Otherwise those by which the last
    /// stateful operator groups, if the rows for the sink have them; else rows are compared as a whole.
    key: Option<String>,
}

impl Swap {
    /// How to try it first, if that is wished.
    fn shadow(&self) -> Result<Option<ShadowOptions>, Error> {
        let Some(batches) = self.shadow else {
            return match self.promote_if.is_some() || self.key.is_some() {
                true => Err(Error::invalid("'promote_if' and 'key' are for a shadow: add `shadow=N`")),
                false => Ok(None),
            };
        };
        if batches == 0 {
            return Err(Error::invalid("a shadow runs for at least 1 micro-batch"));
        }
        let condition = self.promote_if.as_deref().map(str::parse::<PromoteIf>).transpose();
        let promote_if = condition.map_err(|wrong| Error::invalid(format!("promote_if: {wrong}")))?;
        let key = self.key.iter().flat_map(|key| key.split(',')).map(|column| column.trim().to_owned());
        Ok(Some(ShadowOptions { batches, promote_if, key: key.collect() }))
    }
}

/// Swaps a plugin of a query for another version
///
/// Answers when the first micro-batch with it is committed, or when it was refused or swapped back; the running version
/// goes on then. With `shadow` it answers when the shadow has begun.
#[utoipa::path(
    post,
    path = "/queries/{name}/plugins/{plugin}",
    params(
        ("name" = String, Path, description = "The pipeline file's `name`"),
        ("plugin" = String, Path, description = "The plugin's name in the pipeline file"),
        Swap
    ),
    request_body(content = Vec<u8>, description = "The new version", content_type = "application/wasm"),
    responses(
        (status = 200, description = "It has taken over; with `dry_run` a `DryRun`", body = Swapped),
        (status = 202, description = "Its shadow has begun", body = ShadowReport),
        (status = 400, description = "It is refused", body = Failure),
        (status = 401, body = Failure),
        (status = 404, body = Failure),
        (status = 422, description = "It failed and is swapped back, or cannot migrate the state", body = Failure)
    ),
    security(("token" = []))
)]
pub(super) async fn swap(
    State(registry): Shared,
    Path((name, plugin)): Path<(String, String)>,
    options: Options<Swap>,
    bytes: Bytes,
) -> Result<Response, Refusal> {
    let options = read(options)?;
    let shadow = options.shadow()?;
    let runner = runner(&registry, &name)?;
    if let Some(shadow) = shadow {
        let begun = runner.shadow(&plugin, bytes, shadow).await?;
        return Ok((StatusCode::ACCEPTED, Json(begun)).into_response());
    }
    if options.dry_run {
        let found: DryRun = runner.dry_run(&plugin, bytes).await?;
        return Ok(Json(found).into_response());
    }
    Ok(Json(runner.swap(&plugin, bytes).await?).into_response())
}

/// What to go back with.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Rollback {
    /// The plugin's name in the pipeline file; not needed if only one was swapped.
    plugin: Option<String>,
}

/// Swaps a plugin of a query for the version before
#[utoipa::path(
    post,
    path = "/queries/{name}/rollback",
    params(("name" = String, Path, description = "The pipeline file's `name`"), Rollback),
    responses(
        (status = 200, description = "It has taken over", body = Swapped),
        (status = 400, description = "There is none, or it cannot read the state", body = Failure),
        (status = 401, body = Failure),
        (status = 404, body = Failure),
        (status = 422, description = "It failed and is swapped back", body = Failure)
    ),
    security(("token" = []))
)]
pub(super) async fn rollback(
    State(registry): Shared,
    Path(name): Path<String>,
    options: Options<Rollback>,
) -> Result<Json<Swapped>, Refusal> {
    let Rollback { plugin } = read(options)?;
    Ok(Json(runner(&registry, &name)?.rollback(plugin.as_deref()).await?))
}
