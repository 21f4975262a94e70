//! Routes about the server itself.
use super::error::ErrorBody;
use super::{ApiError, App, blocking};
use crate::metrics::Gauges;
use crate::models::ModelInfo;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The models of a server.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ModelList {
    /// `list`.
    pub object: &'static str,
    /// The models, in the order of the command line.
    pub data: Vec<ModelInfo>,
}

/// What a server is.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ServerView {
    /// Its version.
    pub version: &'static str,
    /// `none` or `bearer`.
    pub auth: &'static str,
    /// `sqlite` or `postgres`.
    pub store: &'static str,
    /// Whether it is stopping.
    pub draining: bool,
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that run.
    pub running: u64,
    /// What it allows.
    pub limits: LimitsView,
}

/// What a server allows.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LimitsView {
    /// Bytes of a request.
    pub max_body: usize,
    /// Pixels of a picture.
    pub max_pixels: usize,
    /// Pictures of a job.
    pub max_count: u64,
    /// Steps of a sampler.
    pub max_steps: usize,
    /// Jobs that wait.
    pub max_queue: usize,
    /// Jobs of one client that wait.
    pub max_queue_per_client: usize,
    /// Requests of one client that create jobs.
    pub requests_per_minute: u32,
    /// How long finished jobs are kept.
    pub keep_seconds: u64,
    /// How much of them is kept.
    pub keep_bytes: u64,
    /// How long a request waits for its pictures.
    pub wait_seconds: u64,
}

/// The models.
#[utoipa::path(get, path = "/v1/models", tag = "server",
    responses((status = 200, body = ModelList, description = "The models"),
        (status = 401, body = ErrorBody, description = "No token")))]
pub async fn models(State(app): State<Arc<App>>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: app.library.models().iter().map(|model| model.info()).collect() })
}

/// One model.
#[utoipa::path(get, path = "/v1/models/{id}", tag = "server", params(("id" = String, Path, description = "A model")),
    responses((status = 200, body = ModelInfo, description = "The model"),
        (status = 401, body = ErrorBody, description = "No token"),
        (status = 404, body = ErrorBody, description = "No such model")))]
pub async fn model(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<ModelInfo>, ApiError> {
    let found = app.library.find(&id).ok_or_else(|| ApiError::not_found("model"))?;
    Ok(Json(found.info()))
}

/// The server.
#[utoipa::path(get, path = "/v1/server", tag = "server",
    responses((status = 200, body = ServerView, description = "Version, limits, store"),
        (status = 401, body = ErrorBody, description = "No token")))]
pub async fn server(State(app): State<Arc<App>>) -> Result<Json<ServerView>, ApiError> {
    let store = app.store.clone();
    let counts = blocking(move || Ok(store.counts()?)).await?;
    let limits = &app.limits;
    Ok(Json(ServerView {
        version: env!("CARGO_PKG_VERSION"),
        auth: if app.tokens.is_empty() { "none" } else { "bearer" },
        store: app.store.kind(),
        draining: app.scheduler.is_draining(),
        queued: counts.queued,
        running: counts.running,
        limits: LimitsView {
            max_body: limits.max_body,
            max_pixels: limits.max_pixels,
            max_count: limits.max_count,
            max_steps: limits.max_steps,
            max_queue: limits.max_queue,
            max_queue_per_client: limits.max_queue_per_client,
            requests_per_minute: limits.requests_per_minute,
            keep_seconds: limits.keep.as_secs(),
            keep_bytes: limits.keep_bytes,
            wait_seconds: limits.wait.as_secs(),
        },
    }))
}

/// Whether the process lives.
#[utoipa::path(get, path = "/healthz", tag = "server",
    responses((status = 200, content_type = "text/plain", body = String, description = "It lives")))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether jobs are taken.
#[utoipa::path(get, path = "/readyz", tag = "server",
    responses((status = 200, content_type = "text/plain", body = String, description = "It takes jobs"),
        (status = 503, content_type = "text/plain", body = String, description = "It does not")))]
pub async fn readyz(State(app): State<Arc<App>>) -> Response {
    let store = app.store.clone();
    let answers = blocking(move || Ok(store.counts()?)).await.is_ok();
    match (app.scheduler.is_draining(), answers) {
        (false, true) => "ok\n".into_response(),
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response(),
        (_, false) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n").into_response(),
    }
}

/// What Prometheus reads.
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, content_type = "text/plain", body = String, description = "Prometheus"),
        (status = 401, body = ErrorBody, description = "No token")))]
pub async fn metrics(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let store = app.store.clone();
    let counts = blocking(move || Ok(store.counts()?)).await?;
    let gauges = Gauges {
        queued: counts.queued,
        running: counts.running,
        weights: app.library.bytes(),
        runs: app.scheduler.threads() as u64,
    };
    let text = app.metrics.text(gauges);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// The description of the interface.
pub async fn openapi(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.openapi.clone()).into_response()
}
