//! What can be asked: the routes, their answers, and the OpenAPI document that describes them.
//!
//! A route is a function with its description above it, and a line in [`routes`] and in [`Document`]. Whatever is no GET
//! needs the token: `guard` sees to that, no route does.

use super::failure::{Failure, Refusal};
use super::guard::{Guard, guard};
use super::metrics;
use super::registry::{Registry, Running};
use super::shadow;
use super::status::{Counts, PluginStatus, QueryState, QueryStatus, ShadowStatus, SourceStatus, SwapStatus};
use super::swap;
use crate::assembly::Migrated;
use crate::runner::{DryRun, Swapped};
use crate::shadow::{DifferenceCounts, Sample, ShadowOutcome, ShadowReport, VersionReport};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router, middleware};
use pelton_core::Error;
use pelton_core::suggest::did_you_mean;
use pelton_engine::Progress;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ArrayBuilder, Ref, RefOr, Schema};
use utoipa::{IntoParams, Modify, OpenApi, ToSchema};

type Shared = State<Arc<Registry>>;

/// What stands behind the `?`, or why it is not understood.
pub(super) type Options<T> = Result<Query<T>, QueryRejection>;

/// All routes of the server.
fn routes() -> [(&'static str, MethodRouter<Arc<Registry>>); 11] {
    [
        ("/queries", get(queries)),
        ("/queries/{name}", get(query)),
        ("/queries/{name}/progress", get(progress)),
        ("/queries/{name}/stop", post(stop)),
        ("/queries/{name}/plugins/{plugin}", swap::swap_route()),
        ("/queries/{name}/rollback", post(swap::rollback)),
        ("/queries/{name}/shadow", shadow::shadow_route()),
        ("/health/live", get(live)),
        ("/health/ready", get(ready)),
        ("/metrics", get(scrape)),
        ("/openapi.json", get(openapi)),
    ]
}

/// The description of all of them.
#[derive(OpenApi)]
#[openapi(
    info(title = "Pelton", description = "What the queries of a `pelton run` do, how to end them and to swap their plugins."),
    paths(
        queries, query, progress, stop, swap::swap, swap::rollback, shadow::shadow, shadow::end_shadow, live, ready, scrape,
        openapi
    ),
    components(schemas(
        QueryStatus, QueryState, Counts, SourceStatus, PluginStatus, SwapStatus, ShadowStatus, Swapped, DryRun, Migrated,
        ShadowReport, ShadowOutcome, DifferenceCounts, Sample, VersionReport, Health, Failure
    )),
    modifiers(&BearerToken)
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "Needed for whatever changes something, and for reading if the API listens elsewhere than on loopback.",
            ))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// The server's work: the routes behind the guard.
pub(super) fn router(registry: Arc<Registry>, who: Guard) -> Router {
    let router = routes().into_iter().fold(Router::new(), |router, (path, route)| router.route(path, route));
    router
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .layer(middleware::from_fn_with_state(Arc::new(who), guard))
        .with_state(registry)
}

async fn nothing_here() -> Refusal {
    let paths = routes().map(|(path, _)| path).join(", ");
    Refusal::not_found(Error::invalid("there is no such path").hint(format!("there are {paths}")))
}

async fn not_so() -> Refusal {
    let error = Error::invalid("this path does not answer to this method").hint("see /openapi.json");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error)
}

pub(super) fn named<'a>(registry: &'a Registry, name: &str) -> Result<&'a Arc<Running>, Refusal> {
    let found = registry.queries().iter().find(|query| query.name == name);
    found.ok_or_else(|| {
        let names = || registry.queries().iter().map(|query| query.name.as_str());
        let error =
            Error::invalid(format!("this process has no query '{name}'{}", did_you_mean(name, names())));
        Refusal::not_found(error.hint(format!("it has {}", names().collect::<Vec<_>>().join(", "))))
    })
}

pub(super) fn read<T>(options: Options<T>) -> Result<T, Refusal> {
    options.map(|Query(options)| options).map_err(|why| Error::invalid(why.body_text()).into())
}

/// All queries of the process
#[utoipa::path(get, path = "/queries", responses((status = 200, body = [QueryStatus])))]
async fn queries(State(registry): Shared) -> Json<Vec<QueryStatus>> {
    Json(registry.queries().iter().map(|query| QueryStatus::of(query)).collect())
}

/// One query
#[utoipa::path(
    get,
    path = "/queries/{name}",
    params(("name" = String, Path, description = "The pipeline file's `name`")),
    responses((status = 200, body = QueryStatus), (status = 404, body = Failure))
)]
async fn query(State(registry): Shared, Path(name): Path<String>) -> Result<Json<QueryStatus>, Refusal> {
    Ok(Json(QueryStatus::of(named(&registry, &name)?)))
}

/// Which micro-batches.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Last {
    /// So many, the newest; all that are remembered (100) if it is not given.
    last: Option<usize>,
}

/// The last micro-batches of a query, the newest last
///
/// Each has the fields of Spark's `StreamingQueryProgress`, in snake case, and some more.
#[utoipa::path(
    get,
    path = "/queries/{name}/progress",
    params(("name" = String, Path, description = "The pipeline file's `name`"), Last),
    responses((status = 200, body = inline(RecentProgress)), (status = 404, body = Failure))
)]
async fn progress(
    State(registry): Shared,
    Path(name): Path<String>,
    options: Options<Last>,
) -> Result<Json<Vec<Arc<Progress>>>, Refusal> {
    let Last { last } = read(options)?;
    let recent = named(&registry, &name)?.seen().recent;
    let passed_over = recent.len().saturating_sub(last.unwrap_or(usize::MAX));
    Ok(Json(recent.into_iter().skip(passed_over).map(|committed| committed.progress).collect()))
}

/// How to end a query.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Stop {
    /// At once: the micro-batch that is running is not committed, and runs again at the next start.
    #[serde(default)]
    now: bool,
    /// Answer when it has ended (the default), or (`false`) at once.
    wait: Option<bool>,
}

/// Ends a query
///
/// The micro-batch that is running is committed before. When it has ended, its checkpoint is free. Asking twice is no
/// error.
#[utoipa::path(
    post,
    path = "/queries/{name}/stop",
    params(("name" = String, Path, description = "The pipeline file's `name`"), Stop),
    responses(
        (status = 200, description = "It has ended", body = QueryStatus),
        (status = 202, description = "It will end", body = QueryStatus),
        (status = 401, body = Failure),
        (status = 404, body = Failure)
    ),
    security(("token" = []))
)]
async fn stop(
    State(registry): Shared,
    Path(name): Path<String>,
    options: Options<Stop>,
) -> Result<Response, Refusal> {
    let Stop { now, wait } = read(options)?;
    let query = named(&registry, &name)?;
    if now {
        // First: a query that waits would else have stopped before it hears of it.
        query.control.abort.cancel();
    }
    query.control.stop.cancel();
    if wait == Some(false) {
        return Ok((StatusCode::ACCEPTED, Json(QueryStatus::of(query))).into_response());
    }
    query.ended.cancelled().await;
    Ok(Json(QueryStatus::of(query)).into_response())
}

/// How the process is.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `live`, `ready`, `starting` or `failed`
    status: &'static str,
}

/// Whether the process answers
#[utoipa::path(get, path = "/health/live", responses((status = 200, body = Health)))]
async fn live() -> Json<Health> {
    Json(Health { status: "live" })
}

/// Whether all queries run
///
/// Ready: each has begun its first micro-batch, or waits for data. Not ready any more: one has failed.
#[utoipa::path(
    get,
    path = "/health/ready",
    responses((status = 200, body = Health), (status = 503, body = Health))
)]
async fn ready(State(registry): Shared) -> (StatusCode, Json<Health>) {
    let is_any = |state| registry.queries().iter().any(|query| query.state() == state);
    let (code, status) = match (is_any(QueryState::Failed), is_any(QueryState::Starting)) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
        (_, true) => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
        _ => (StatusCode::OK, "ready"),
    };
    (code, Json(Health { status }))
}

/// Metrics for Prometheus, in the OpenMetrics format
#[utoipa::path(
    get,
    path = "/metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text"))
)]
async fn scrape(State(registry): Shared) -> Result<Response, Refusal> {
    let text = metrics::text(&registry)?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

/// This description
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, body = Value)))]
async fn openapi() -> Result<Json<Value>, Refusal> {
    let broken = |why| Error::internal(format!("the description cannot be written: {why}"));
    let mut document = serde_json::to_value(Document::openapi()).map_err(broken)?;
    document["components"]["schemas"]
        .as_object_mut()
        .into_iter()
        .for_each(|schemas| schemas.extend(progress_schemas()));
    Ok(Json(document))
}

/// What [`RecentProgress`] refers to: the engine, which knows of no HTTP, says of what its progress consists.
fn progress_schemas() -> serde_json::Map<String, Value> {
    let mut settings = SchemaSettings::draft2020_12().for_serialize();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    generator.subschema_for::<Progress>();
    generator.take_definitions(true)
}

/// Micro-batches, as the description refers to them.
struct RecentProgress;

impl utoipa::PartialSchema for RecentProgress {
    fn schema() -> RefOr<Schema> {
        ArrayBuilder::new().items(Ref::from_schema_name("Progress")).into()
    }
}

impl ToSchema for RecentProgress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_exactly_the_routes() {
        let mut routed: Vec<&str> = routes().iter().map(|(path, _)| *path).collect();
        routed.sort_unstable();
        let document = Document::openapi();
        let described: Vec<&str> = document.paths.paths.keys().map(String::as_str).collect();
        assert_eq!(described, routed);
    }
}
