//! Jobs as the interface shows them.
use super::App;
use crate::job::{Job, JobState, Kind, Picture};
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::atomic::Ordering;
use utoipa::ToSchema;

/// A job.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct JobView {
    /// Its name.
    pub id: String,
    /// `job`.
    pub object: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The task, as in `/v1/tasks/{task}`.
    pub task: Option<String>,
    /// How far it is.
    pub state: JobState,
    /// The model.
    pub model: String,
    /// Identifies the weights.
    pub digest: String,
    /// The label that was given.
    pub user: Option<String>,
    /// When it was accepted, in seconds since 1970.
    pub created: f64,
    /// When it was started.
    pub started: Option<f64>,
    /// When it ended.
    pub finished: Option<f64>,
    /// When it will be forgotten.
    pub expires: Option<f64>,
    /// The settings, which can be sent again.
    #[schema(value_type = Object)]
    pub settings: Map<String, Value>,
    /// Network evaluations for each picture.
    pub evaluations: usize,
    /// Jobs before it in the queue.
    pub position: Option<u64>,
    /// How far its pictures are.
    pub progress: Progress,
    /// Its finished pictures.
    pub images: Vec<PictureView>,
    /// What was sent with it.
    pub inputs: Vec<String>,
    /// Makes the same pictures on the command line.
    pub command: String,
    /// How long it took.
    pub milliseconds: Milliseconds,
    /// Why it failed.
    pub error: Option<JobError>,
}

/// How far a job is.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Progress {
    /// Steps in all.
    pub steps: u64,
    /// Steps that are done.
    pub steps_done: u64,
    /// Pictures in all.
    pub images: u64,
    /// Pictures that are done.
    pub images_done: u64,
}

/// How long a job took.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Milliseconds {
    /// In the queue.
    pub waiting: f64,
    /// From its start on.
    pub running: Option<f64>,
}

/// Why a job failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct JobError {
    /// A sentence.
    pub message: String,
}

/// A finished picture.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PictureView {
    /// Its description.
    #[serde(flatten)]
    pub picture: Picture,
    /// Where it is.
    pub url: String,
}

/// Jobs, newest first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct JobList {
    /// `list`.
    pub object: &'static str,
    /// The jobs.
    pub data: Vec<JobView>,
    /// Whether there are older ones.
    pub has_more: bool,
}

/// A picture of a job with its address on this host.
pub fn picture(app: &App, id: &str, picture: &Picture) -> PictureView {
    let url = format!("{}/v1/jobs/{id}/images/{}", app.public_path(), picture.index);
    PictureView { url, picture: picture.clone() }
}

/// A job as it is now.
pub fn job(app: &App, job: &Job) -> JobView {
    let spec = &job.spec;
    let done = job.pictures.len() as u64;
    let per_picture = spec.steps.max(1) as u64;
    // Of a job of another server only the pictures are known.
    let log = app.hub.get(&job.id).filter(|log| job.state == JobState::Running && log.is_here());
    let (steps, steps_done) = match &log {
        Some(log) => (log.steps.load(Ordering::Relaxed), log.steps_done.load(Ordering::Relaxed)),
        None => (spec.n * per_picture, done * per_picture),
    };
    let now = crate::now();
    let over = job.finished.unwrap_or(now);
    JobView {
        id: job.id.clone(),
        object: "job",
        kind: spec.kind,
        task: spec.task.clone(),
        state: job.state,
        model: spec.model.clone(),
        digest: spec.digest.clone(),
        user: Some(job.user.clone()).filter(|user| !user.is_empty()),
        created: job.created,
        started: job.started,
        finished: job.finished,
        expires: job.expires,
        settings: spec.settings(),
        evaluations: spec.evaluations,
        position: job.position,
        progress: Progress { steps, steps_done: steps_done.min(steps), images: spec.n, images_done: done },
        images: job.pictures.iter().map(|of| picture(app, &job.id, of)).collect(),
        inputs: job.inputs.clone(),
        command: spec.command(&spec.model),
        milliseconds: Milliseconds {
            waiting: 1e3 * (job.started.unwrap_or(over) - job.created).max(0.0),
            running: job.started.map(|started| 1e3 * (over - started).max(0.0)),
        },
        error: job.error.clone().map(|message| JobError { message }),
    }
}
