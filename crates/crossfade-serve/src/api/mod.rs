//! The HTTP interface, see docs/SERVING.md.
pub(crate) mod body;
mod create;
mod discard;
mod error;
mod events;
mod flat;
mod guard;
mod jobs;
mod meta;
mod openapi;
mod page;
mod view;

pub use error::{ApiError, Param};
pub use openapi::document;

use crate::config::{Limits, ServeConfig};
use crate::events::Hub;
use crate::metrics::Metrics;
use crate::models::Library;
use crate::scheduler::Scheduler;
use crate::store::Store;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use body::Bodies;
use guard::{Rates, Tokens};
use std::net::SocketAddr;
use std::sync::Arc;

/// What all requests share.
pub struct App {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The models.
    pub library: Arc<Library>,
    /// Runs jobs.
    pub scheduler: Arc<Scheduler>,
    /// Events of jobs.
    pub hub: Arc<Hub>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// The limits.
    pub limits: Limits,
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// The address that clients know it by, if it was told.
    pub public_url: Option<String>,
    tokens: Tokens,
    rates: Rates,
    bodies: Bodies,
    openapi: String,
}

impl App {
    /// Puts everything together; without tokens everybody may ask.
    pub fn new(scheduler: &Arc<Scheduler>, metrics: Arc<Metrics>, config: &ServeConfig, address: SocketAddr) -> Self {
        Self {
            store: scheduler.store.clone(),
            library: scheduler.library.clone(),
            hub: scheduler.hub.clone(),
            scheduler: scheduler.clone(),
            metrics,
            rates: Rates::new(config.limits.requests_per_minute),
            bodies: Bodies::new(&config.limits),
            limits: config.limits.clone(),
            address,
            public_url: config.public_url.clone(),
            tokens: Tokens::new(&config.tokens),
            openapi: document().to_string(),
        }
    }

    /// The path of the address that clients know this server by, without a slash at its end.
    fn public_path(&self) -> &str {
        let rest = self.public_url.as_deref().and_then(|url| url.split_once("://")).map_or("", |(_, rest)| rest);
        rest.find('/').map_or("", |at| &rest[at..])
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub struct Client {
    /// The name of its token, or its address.
    pub name: String,
    /// Whether it sees its own jobs only.
    pub only_own: bool,
}

/// All routes.
pub fn router(app: &Arc<App>) -> Router {
    let v1 = Router::new()
        .route("/v1/images/generations", post(create::generations))
        .route("/v1/images/variations", post(create::variations))
        .route("/v1/images/edits", post(create::edits))
        .route("/v1/tasks/{task}", post(create::tasks))
        .route("/v1/jobs", post(create::jobs).get(jobs::list))
        .route("/v1/jobs/{id}", get(jobs::show).delete(jobs::delete))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{id}/events", get(events::follow))
        .route("/v1/jobs/{id}/images/{index}", get(jobs::image))
        .route("/v1/jobs/{id}/inputs/{name}", get(jobs::input))
        .route("/v1/models", get(meta::models))
        .route("/v1/models/{id}", get(meta::model))
        .route("/v1/server", get(meta::server))
        .route("/metrics", get(meta::metrics))
        .layer(DefaultBodyLimit::max(app.limits.max_body))
        .layer(from_fn_with_state(app.clone(), guard::identify));
    Router::new()
        .merge(v1)
        .route("/healthz", get(meta::healthz))
        .route("/readyz", get(meta::readyz))
        .route("/openapi.json", get(meta::openapi))
        .route("/docs", get(page::docs))
        .route("/", get(page::index))
        .route("/{*path}", get(page::file))
        .method_not_allowed_fallback(error::wrong_method)
        .fallback(error::no_route)
        .layer(from_fn_with_state(app.clone(), guard::same_site))
        .layer(from_fn(guard::headers))
        .layer(from_fn_with_state(app.clone(), guard::count))
        .layer(from_fn_with_state(app.clone(), discard::read_to_the_end))
        .with_state(app.clone())
}

/// Runs blocking work, such as a question to the store, off the threads that serve connections.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(ApiError::internal("the server made a mistake; see its log")),
    }
}
