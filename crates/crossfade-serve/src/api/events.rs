//! Server-sent events of a job.
use super::create::find;
use super::error::ErrorBody;
use super::jobs::own;
use super::{ApiError, App, Client, view};
use crate::events::{Event as Happened, JobLog};
use crate::job::{Job, JobState};
use axum::extract::{Extension, Path, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{Stream, unfold};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// How often the store is asked about a job that another server makes.
const POLL: Duration = Duration::from_millis(500);
/// How often a comment is sent.
const ALIVE: Duration = Duration::from_secs(15);

/// Follows a job until it has ended.
#[utoipa::path(get, path = "/v1/jobs/{id}/events", tag = "jobs", params(("id" = String, Path, description = "A job")),
    responses((status = 200, content_type = "text/event-stream", description = "`job`, `step`, `image` and `end`"),
        (status = 401, body = ErrorBody, description = "No token"),
        (status = 404, body = ErrorBody, description = "No such job")))]
pub async fn follow(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let job = own(&app, &client, &id).await?;
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let seen = last.and_then(|last| last.strip_prefix(&app.hub.boot)?.strip_prefix('-')?.parse().ok()).unwrap_or(0);
    let log = app.hub.get(&id);
    let follower =
        Follower { app, id, log, next: seen, ready: VecDeque::new(), state: None, told: vec![], over: false };
    let follower = follower.begin(&job);
    let events = unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok(event), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)))
}

struct Follower {
    app: Arc<App>,
    id: String,
    /// What happened here; none for a job of another server or of an earlier start.
    log: Option<Arc<JobLog>>,
    /// The number of the next event in the log.
    next: usize,
    ready: VecDeque<Event>,
    state: Option<JobState>,
    /// Pictures that were told.
    told: Vec<u64>,
    over: bool,
}

impl Follower {
    fn begin(mut self, job: &Job) -> Self {
        self.tell_job(job);
        self
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            self.fill().await;
        }
    }

    /// Waits until there is something to tell.
    async fn fill(&mut self) {
        let mut changed = self.log.as_ref().map(|log| log.subscribe());
        let (events, ended) = self.log.as_ref().map_or((vec![], false), |log| log.since(self.next));
        let mut ask = ended || self.log.is_none();
        for event in events {
            self.next += 1;
            match event {
                Happened::Step(data) => {
                    let event = self.numbered("step").data(data);
                    self.ready.push_back(event);
                }
                Happened::State | Happened::Picture(_) => ask = true,
            }
        }
        if ask {
            match find(&self.app, &self.id).await {
                Ok(job) => {
                    self.tell_job(&job);
                    self.tell_pictures(&job);
                    if job.state.is_over() {
                        let end = self.numbered("end").json_data(view::job(&self.app, &job));
                        self.ready.extend(end.ok());
                        self.over = true;
                    }
                }
                // It was deleted, or the store is gone: nothing more can be told.
                Err(_) => self.over = true,
            }
        }
        if !self.ready.is_empty() || self.over {
            return;
        }
        let pause = tokio::time::sleep(POLL);
        match &mut changed {
            Some(changed) if !ended => {
                tokio::select! { _ = changed.changed() => (), () = pause => () }
            }
            _ => pause.await,
        }
    }

    fn numbered(&self, name: &str) -> Event {
        Event::default().event(name).id(format!("{}-{}", self.app.hub.boot, self.next))
    }

    fn tell_job(&mut self, job: &Job) {
        // The last state is told by `end`.
        let before = self.state.replace(job.state);
        if before == Some(job.state) || (before.is_some() && job.state.is_over()) {
            return;
        }
        let event = self.numbered("job").json_data(view::job(&self.app, job));
        self.ready.extend(event.ok());
    }

    fn tell_pictures(&mut self, job: &Job) {
        for picture in &job.pictures {
            if self.told.contains(&picture.index) {
                continue;
            }
            self.told.push(picture.index);
            let data = serde_json::json!({ "index": picture.index, "image": view::picture(&job.id, picture) });
            let event = self.numbered("image").data(data.to_string());
            self.ready.push_back(event);
        }
    }
}
