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
use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// How often the store is asked about a job that does not run here: another server may make it.
const POLL: Duration = Duration::from_millis(500);
/// Events that are taken from the log at once: a reader that does not read holds no more than these.
const TAKEN: usize = 4;
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
        Follower { app, id, log, next: seen, ready: VecDeque::new(), state: None, told: HashSet::new(), over: false };
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
    told: HashSet<u64>,
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
        if !self.is_here() {
            self.find_log();
        }
        // Before anything is read, so that no change is missed.
        let changed = self.log.as_ref().map(|log| log.subscribe());
        let here = self.is_here();
        let more = self.take_events();
        // Everything that happens here is in the log, and it says when to ask; of other jobs only the store knows.
        if more.ask || (!here && !more.left) {
            self.ask().await;
        }
        if !self.ready.is_empty() || self.over || more.left {
            return;
        }
        let pause = tokio::time::sleep(POLL);
        match changed {
            Some(mut changed) => {
                tokio::select! { _ = changed.changed() => (), () = pause => () }
            }
            None => pause.await,
        }
    }

    fn is_here(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_here())
    }

    /// A log may be made, or made anew, when this server begins to work at the job.
    fn find_log(&mut self) {
        let Some(found) = self.app.hub.get(&self.id) else { return };
        if self.log.as_ref().is_none_or(|log| !Arc::ptr_eq(log, &found)) {
            self.next = if self.log.is_some() { 0 } else { self.next };
            self.log = Some(found);
        }
    }

    /// Takes the next events from the log.
    fn take_events(&mut self) -> Taken {
        let Some(log) = &self.log else { return Taken::default() };
        let (first, events) = log.since(self.next, TAKEN);
        let mut taken = Taken { left: events.len() == TAKEN, ask: first > self.next };
        self.next = first;
        for event in events {
            self.next += 1;
            match event {
                Happened::Step(data) => {
                    let event = self.numbered("step").data(data);
                    self.ready.push_back(event);
                }
                Happened::State | Happened::Picture(_) => taken.ask = true,
            }
        }
        taken
    }

    /// Tells what the store knows.
    async fn ask(&mut self) {
        match find(&self.app, &self.id).await {
            Ok(job) => {
                self.tell_job(&job);
                self.tell_pictures(&job);
                if job.state.is_over() && !self.is_behind() {
                    let end = self.numbered("end").json_data(view::job(&self.app, &job));
                    self.ready.extend(end.ok());
                    self.over = true;
                }
            }
            Err(e) if e.is_not_found() => self.over = true,
            // The store may be back in a moment.
            Err(_) => (),
        }
    }

    /// Whether the log has events that were not told; the end comes after them.
    fn is_behind(&self) -> bool {
        self.log.as_ref().is_some_and(|log| !log.since(self.next, 1).1.is_empty())
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
            if !self.told.insert(picture.index) {
                continue;
            }
            let data =
                serde_json::json!({ "index": picture.index, "image": view::picture(&self.app, &job.id, picture) });
            let event = self.numbered("image").data(data.to_string());
            self.ready.push_back(event);
        }
    }
}

/// What was found in a log.
#[derive(Default)]
struct Taken {
    /// There may be more.
    left: bool,
    /// The store is to be asked.
    ask: bool,
}
