//! Routes that create jobs.
use super::body::Room;
use super::error::ErrorBody;
use super::view::{self, JobView};
use super::{ApiError, App, Client, blocking};
use crate::job::{Job, JobState, Kind};
use crate::request::{Request, ResponseFormat};
use crate::store::{Admission, NewJob};
use axum::Json;
use axum::extract::{Extension, Path, Request as HttpRequest, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};
use utoipa::ToSchema;

/// The header that names the job of an answer.
static JOB: HeaderName = HeaderName::from_static("crossfade-job");

/// Pictures, as OpenAI's clients read them.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ImagesView {
    /// When the job was accepted, in seconds since 1970.
    pub created: u64,
    /// The job.
    pub job: String,
    /// The model.
    pub model: String,
    /// The settings, which can be sent again.
    #[schema(value_type = Object)]
    pub settings: Map<String, Value>,
    /// Network evaluations for each picture.
    pub evaluations: usize,
    /// From the start of the job to its end.
    pub milliseconds: f64,
    /// The pictures.
    pub data: Vec<ImageView>,
}

/// A picture, as OpenAI's clients read it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ImageView {
    /// The PNG.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b64_json: Option<String>,
    /// Where the PNG is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its description.
    #[serde(flatten)]
    pub picture: crate::job::Picture,
}

macro_rules! creating {
    ($($(#[$doc:meta])* $name:ident, $path:literal, $kind:expr, $summary:literal;)*) => {
        $(
            $(#[$doc])*
            #[utoipa::path(post, path = $path, tag = "pictures", summary = $summary,
                responses(
                    (status = 200, description = "The pictures; with `response_format` png the file", body = ImagesView),
                    (status = 202, description = "With `async`: the job", body = JobView),
                    (status = 400, body = ErrorBody, description = "Malformed"),
                    (status = 401, body = ErrorBody, description = "No token"),
                    (status = 403, body = ErrorBody, description = "Another site"),
                    (status = 408, body = ErrorBody, description = "The request came too slowly"),
                    (status = 409, body = ErrorBody, description = "The job was cancelled"),
                    (status = 413, body = ErrorBody, description = "Too large"),
                    (status = 415, body = ErrorBody, description = "Content type"),
                    (status = 422, body = ErrorBody, description = "A field is wrong"),
                    (status = 429, body = ErrorBody, description = "Come back later"),
                    (status = 503, body = ErrorBody, description = "The server is stopping"),
                    (status = 504, body = ErrorBody, description = "The job takes longer; it goes on"),
                ))]
            pub async fn $name(
                State(app): State<Arc<App>>,
                Extension(client): Extension<Client>,
                headers: HeaderMap,
                request: HttpRequest,
            ) -> Result<Response, ApiError> {
                let (request, room) = admitted(&app, &client, request).await?;
                answer(&app, &client, &headers, (request, room), $kind).await
            }
        )*
    };
}

creating! {
    /// Pictures from noise.
    generations, "/v1/images/generations", Kind::Generation, "Pictures from noise";
    /// Pictures that start from a noised picture.
    variations, "/v1/images/variations", Kind::Variation, "Pictures that start from a noised picture";
    /// Fills the hole of a picture.
    edits, "/v1/images/edits", Kind::Edit, "Fills the hole of a picture";
}

/// A task on a picture.
#[utoipa::path(post, path = "/v1/tasks/{task}", tag = "pictures", summary = "A task on a picture",
    params(("task" = String, Path, description = "sr, inpaint, saliency, edge, depth or sketch")),
    responses(
        (status = 200, description = "The pictures; with `response_format` png the file", body = ImagesView),
        (status = 202, description = "With `async`: the job", body = JobView),
        (status = 400, body = ErrorBody, description = "Malformed"),
        (status = 401, body = ErrorBody, description = "No token"),
        (status = 403, body = ErrorBody, description = "Another site"),
        (status = 404, body = ErrorBody, description = "No such task"),
        (status = 408, body = ErrorBody, description = "The request came too slowly"),
        (status = 409, body = ErrorBody, description = "The job was cancelled"),
        (status = 413, body = ErrorBody, description = "Too large"),
        (status = 415, body = ErrorBody, description = "Content type"),
        (status = 422, body = ErrorBody, description = "A field is wrong"),
        (status = 429, body = ErrorBody, description = "Come back later"),
        (status = 503, body = ErrorBody, description = "The server is stopping"),
        (status = 504, body = ErrorBody, description = "The job takes longer; it goes on"),
    ))]
pub async fn tasks(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(task): Path<String>,
    headers: HeaderMap,
    request: HttpRequest,
) -> Result<Response, ApiError> {
    if !TASKS.contains(&task.as_str()) {
        return Err(ApiError::not_found(&format!("task; known are {}", TASKS.join(", "))));
    }
    let (mut request, room) = admitted(&app, &client, request).await?;
    if request.fields.task.as_ref().is_some_and(|other| *other != task) {
        return Err(ApiError::invalid("task", "the field `task` must be that of the address, or be left out"));
    }
    request.fields.task = Some(task);
    answer(&app, &client, &headers, (request, room), Kind::Task).await
}

/// The tasks of `/v1/tasks/{task}`.
pub(super) const TASKS: [&str; 6] = ["sr", "inpaint", "saliency", "edge", "depth", "sketch"];

/// Any kind of job; answers at once.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", summary = "Creates a job and answers at once",
    responses(
        (status = 202, description = "The job", body = JobView),
        (status = 400, body = ErrorBody, description = "Malformed"),
        (status = 401, body = ErrorBody, description = "No token"),
        (status = 403, body = ErrorBody, description = "Another site"),
        (status = 408, body = ErrorBody, description = "The request came too slowly"),
        (status = 413, body = ErrorBody, description = "Too large"),
        (status = 415, body = ErrorBody, description = "Content type"),
        (status = 422, body = ErrorBody, description = "A field is wrong"),
        (status = 429, body = ErrorBody, description = "Come back later"),
        (status = 503, body = ErrorBody, description = "The server is stopping"),
    ))]
pub async fn jobs(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    request: HttpRequest,
) -> Result<Response, ApiError> {
    let (mut request, room) = admitted(&app, &client, request).await?;
    let kind = request.fields.kind.unwrap_or(Kind::Generation);
    if request.fields.asynchronous == Some(false) {
        return Err(ApiError::invalid("async", "`async` must be true or left out: this route answers at once"));
    }
    request.fields.asynchronous = Some(true);
    answer(&app, &client, &headers, (request, room), kind).await
}

/// The fields of a request that may ask now.
async fn admitted(app: &App, client: &Client, request: HttpRequest) -> Result<(Request, Room), ApiError> {
    if app.scheduler.is_draining() {
        return Err(ApiError::stopping());
    }
    app.rates.take(&client.name)?;
    app.bodies.read(request).await
}

async fn answer(
    app: &Arc<App>,
    client: &Client,
    headers: &HeaderMap,
    (request, room): (Request, Room),
    kind: Kind,
) -> Result<Response, ApiError> {
    if request.fields.kind.is_some_and(|named| named != kind) {
        return Err(ApiError::invalid(
            "kind",
            format!("`kind` must be {}, which this route makes, or be left out", kind.name()),
        ));
    }
    let format = request.fields.response_format.unwrap_or_default();
    let at_once = request.fields.asynchronous == Some(true);
    let (own, client) = (app.clone(), client.name.clone());
    // What was sent takes its room until it is in the store.
    let accepted = blocking(move || {
        let accepted = accept(&own, client, request, kind);
        drop(room);
        accepted
    });
    let id = accepted.await?;
    if at_once {
        let job = find(app, &id).await?;
        let mut response = (StatusCode::ACCEPTED, Json(view::job(app, &job))).into_response();
        if let Ok(location) = HeaderValue::from_str(&format!("{}/v1/jobs/{id}", app.public_path())) {
            response.headers_mut().insert(header::LOCATION, location);
        }
        return Ok(named(response, &id));
    }
    let job = match ended(app, &id, app.limits.wait).await? {
        Some(job) => job,
        None => return Ok(named(ApiError::too_slow(&id).into_response(), &id)),
    };
    if job.state != JobState::Done {
        let message = job.error.as_deref().unwrap_or("the job failed");
        return Ok(named(ApiError::of_job(job.state.name(), message).into_response(), &id));
    }
    let response = if format == ResponseFormat::Png {
        let (store, of) = (app.store.clone(), id.clone());
        let png = blocking(move || Ok(store.picture(&of, 0)?)).await?.ok_or_else(|| ApiError::not_found("picture"))?;
        ([(header::CONTENT_TYPE, "image/png")], png).into_response()
    } else {
        Json(images(app, &job, format, &origin(app, headers)).await?).into_response()
    };
    Ok(named(response, &id))
}

fn named(mut response: Response, id: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(id) {
        response.headers_mut().insert(JOB.clone(), value);
    }
    response
}

/// Stores the job of a request; from then on it will be done.
fn accept(app: &App, client: String, request: Request, kind: Kind) -> Result<String, ApiError> {
    let user = request.fields.user.clone().unwrap_or_default();
    let prepared = request.prepare(kind, &app.library, &app.limits)?;
    let id = format!("job_{}", crate::random_name());
    let new = NewJob { id: id.clone(), client, user, spec: prepared.spec, inputs: prepared.inputs };
    match app.store.insert(&new, &app.limits)? {
        Admission::Accepted => (),
        Admission::QueueFull => {
            let message = format!("{} jobs are waiting already; ask again in a moment", app.limits.max_queue);
            return Err(ApiError::busy(message, "queue_full", RETRY));
        }
        Admission::ClientFull => {
            let most = app.limits.max_queue_per_client;
            let message = format!("{most} jobs of this client are waiting already; wait for some of them");
            return Err(ApiError::busy(message, "client_queue_full", RETRY));
        }
    }
    // Who waits for the job is told when it begins here.
    app.hub.open(&id);
    app.metrics.accept();
    app.scheduler.wake();
    Ok(id)
}

/// Seconds after which there may be room in the queue.
const RETRY: u64 = 2;

pub(super) async fn find(app: &Arc<App>, id: &str) -> Result<Job, ApiError> {
    let (store, id) = (app.store.clone(), id.to_string());
    blocking(move || store.get(&id)?.ok_or_else(|| ApiError::not_found("job"))).await
}

/// How often the store is asked about a job that does not run here: another server may make it.
const POLL: Duration = Duration::from_millis(500);
/// How often it is asked about one that does, although its end will be told.
const CHECK: Duration = Duration::from_secs(5);

/// Waits for the end of a job; none if that takes too long.
async fn ended(app: &Arc<App>, id: &str, time: Duration) -> Result<Option<Job>, ApiError> {
    let until = Instant::now() + time;
    loop {
        let log = app.hub.get(id);
        let changed = log.as_ref().map(|log| log.subscribe());
        let here = log.as_ref().is_some_and(|log| log.is_here());
        match find(app, id).await {
            Ok(job) if job.state.is_over() => return Ok(Some(job)),
            // The job is not lost because the store does not answer for a moment.
            Err(e) if !e.is_ours() => return Err(e),
            _ => (),
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let pause = tokio::time::sleep(left.min(if here { CHECK } else { POLL }));
        let Some((log, mut changed)) = log.zip(changed) else {
            pause.await;
            continue;
        };
        // Steps and pictures are changes too; only the end matters here.
        let over = async { while changed.changed().await.is_ok() && log.is_here() {} };
        tokio::select! { () = over => (), () = pause => () }
    }
}

async fn images(app: &Arc<App>, job: &Job, format: ResponseFormat, base: &str) -> Result<ImagesView, ApiError> {
    let mut data = vec![];
    for picture in &job.pictures {
        let (store, id, index) = (app.store.clone(), job.id.clone(), picture.index);
        let (b64_json, url) = match format {
            ResponseFormat::Url => (None, Some(format!("{base}{}", view::picture(app, &job.id, picture).url))),
            _ => {
                let png = blocking(move || Ok(store.picture(&id, index)?)).await?;
                let png = png.ok_or_else(|| ApiError::not_found("picture"))?;
                (Some(base64::engine::general_purpose::STANDARD.encode(png)), None)
            }
        };
        data.push(ImageView { b64_json, url, picture: picture.clone() });
    }
    let (started, finished) = (job.started.unwrap_or(job.created), job.finished.unwrap_or(job.created));
    Ok(ImagesView {
        created: job.created as u64,
        job: job.id.clone(),
        model: job.spec.model.clone(),
        settings: job.spec.settings(),
        evaluations: job.spec.evaluations,
        milliseconds: 1e3 * (finished - started).max(0.0),
        data,
    })
}

/// The scheme and the host that the client knows this server by.
fn origin(app: &App, headers: &HeaderMap) -> String {
    if let Some(url) = &app.public_url {
        return url[..url.len() - app.public_path().len()].to_string();
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    if host.is_empty() || !host.chars().all(plain) { String::new() } else { format!("http://{host}") }
}
