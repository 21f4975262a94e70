//! Routes of jobs.
use super::create::find;
use super::error::ErrorBody;
use super::view::{self, JobList, JobView};
use super::{ApiError, App, Client, blocking};
use crate::job::{Job, JobState, Kind};
use crate::run::picture_name;
use crate::store::Filter;
use axum::Json;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

/// Which jobs to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct ListQuery {
    /// At most so many, 1 to 100.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// Those accepted before this job.
    before: Option<String>,
    /// Those in this state.
    state: Option<JobState>,
    /// Those of this kind.
    kind: Option<Kind>,
    /// Those of this model.
    model: Option<String>,
}

/// A job that the client may see.
pub async fn own(app: &Arc<App>, client: &Client, id: &str) -> Result<Job, ApiError> {
    let job = find(app, id).await?;
    // Jobs of others do not exist for this client, so that their names cannot be guessed.
    if client.only_own && job.client != client.name { Err(ApiError::not_found("job")) } else { Ok(job) }
}

/// Lists jobs, newest first.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(ListQuery),
    responses((status = 200, body = JobList, description = "Jobs, newest first"),
        (status = 401, body = ErrorBody, description = "No token"),
        (status = 422, body = ErrorBody, description = "A parameter is wrong")))]
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<JobList>, ApiError> {
    let allowed = "a parameter is unknown or wrong; there are limit (a number), before, state, kind and model";
    let Query(query) = query.map_err(|_| ApiError::invalid("query", allowed))?;
    let limit = query.limit.unwrap_or(20);
    if !(1..=100).contains(&limit) {
        return Err(ApiError::invalid("limit", "`limit` must be from 1 to 100"));
    }
    if let Some(before) = &query.before {
        let known = own(&app, &client, before).await;
        known.map_err(|_| ApiError::invalid("before", "`before` names no job"))?;
    }
    let filter = Filter {
        client: client.only_own.then(|| client.name.clone()),
        state: query.state,
        kind: query.kind,
        model: query.model,
        before: query.before,
        limit: limit + 1,
    };
    let store = app.store.clone();
    let mut found = blocking(move || Ok(store.list(&filter)?)).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    Ok(Json(JobList { object: "list", data: found.iter().map(|job| view::job(&app, job)).collect(), has_more }))
}

/// One job.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path, description = "A job")),
    responses((status = 200, body = JobView, description = "The job"),
        (status = 401, body = ErrorBody, description = "No token"),
        (status = 404, body = ErrorBody, description = "No such job")))]
pub async fn show(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Json<JobView>, ApiError> {
    let job = own(&app, &client, &id).await?;
    Ok(Json(view::job(&app, &job)))
}

/// Stops a job.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", tag = "jobs", params(("id" = String, Path, description = "A job")),
    responses((status = 200, body = JobView, description = "The job as it is now"),
        (status = 401, body = ErrorBody, description = "No token"),
        (status = 404, body = ErrorBody, description = "No such job")))]
pub async fn cancel(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Json<JobView>, ApiError> {
    let job = own(&app, &client, &id).await?;
    stop(&app, &job).await?;
    let job = find(&app, &id).await?;
    Ok(Json(view::job(&app, &job)))
}

/// Stops and forgets a job.
#[utoipa::path(delete, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path, description = "A job")),
    responses((status = 204, description = "It is gone"),
        (status = 401, body = ErrorBody, description = "No token"),
        (status = 404, body = ErrorBody, description = "No such job")))]
pub async fn delete(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let job = own(&app, &client, &id).await?;
    stop(&app, &job).await?;
    let app = app.clone();
    blocking(move || {
        app.store.delete(&id)?;
        app.hub.forget(&id);
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

async fn stop(app: &Arc<App>, job: &Job) -> Result<(), ApiError> {
    if job.state.is_over() {
        return Ok(());
    }
    let (app, id) = (app.clone(), job.id.clone());
    blocking(move || {
        app.store.ask_to_cancel(&id)?;
        // It waits, or it runs here, or another server reads of the wish in the store.
        if app.store.finish(&id, None, JobState::Cancelled, None, app.limits.keep)? {
            app.metrics.end("cancelled", 0.0, 0.0);
            if let Some(log) = app.hub.get(&id) {
                app.hub.end(&log);
            }
        } else {
            app.scheduler.cancel(&id);
        }
        Ok(())
    })
    .await
}

/// A picture of a job.
#[utoipa::path(get, path = "/v1/jobs/{id}/images/{index}", tag = "jobs",
    params(("id" = String, Path, description = "A job"), ("index" = u64, Path, description = "The number of the picture")),
    responses((status = 200, content_type = "image/png", description = "The PNG with its recipe"),
        (status = 401, body = ErrorBody, description = "No token"),
        (status = 404, body = ErrorBody, description = "No such picture, or not yet")))]
pub async fn image(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path((id, index)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let job = own(&app, &client, &id).await?;
    // The number alone, or with the ending that browsers give a file.
    let index: u64 = index.trim_end_matches(".png").parse().map_err(|_| ApiError::not_found("picture"))?;
    let store = app.store.clone();
    let png = blocking(move || store.picture(&id, index)?.ok_or_else(|| ApiError::not_found("picture yet"))).await?;
    let name = format!("inline; filename=\"{}\"", picture_name(&job, index).replace(['"', '\\'], ""));
    let mut response = ([(header::CONTENT_TYPE, "image/png")], png).into_response();
    if let Ok(name) = HeaderValue::from_str(&name) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    }
    // A picture never changes, but what one client may see must not be kept for others.
    let keep = HeaderValue::from_static("private, max-age=3600, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, keep);
    Ok(response)
}

/// What was sent with a job.
#[utoipa::path(get, path = "/v1/jobs/{id}/inputs/{name}", tag = "jobs",
    params(("id" = String, Path, description = "A job"), ("name" = String, Path, description = "`image` or `mask`")),
    responses((status = 200, content_type = "image/png", description = "The picture as it was sent"),
        (status = 401, body = ErrorBody, description = "No token"),
        (status = 404, body = ErrorBody, description = "Nothing was sent")))]
pub async fn input(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path((id, name)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    own(&app, &client, &id).await?;
    let store = app.store.clone();
    let bytes = blocking(move || store.input(&id, &name)?.ok_or_else(|| ApiError::not_found("input"))).await?;
    let kind = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, ..] => "image/jpeg",
        [b'R', b'I', b'F', b'F', ..] => "image/webp",
        _ => "application/octet-stream",
    };
    Ok(([(header::CONTENT_TYPE, kind)], bytes).into_response())
}
