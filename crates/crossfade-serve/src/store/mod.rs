//! The store: accepted jobs, what was sent with them, and their pictures.
//!
//! A job is in the store before its acceptance is told, and leaves it only by expiring or by a request. A server that works
//! at a job holds a lease on it; a job whose lease has ended is queued again, and its pictures so far are kept.
mod connections;
mod postgres;
mod sqlite;

pub use self::postgres::PostgresStore;
pub use sqlite::SqliteStore;

use crate::config::{Limits, StoreAddress};
use crate::job::{Job, JobSpec, JobState, Kind, Picture};
use crossfade::{Error, Result};
use std::sync::Arc;
use std::time::Duration;

/// A job to be accepted.
pub struct NewJob {
    /// Its name.
    pub id: String,
    /// Who asks for it.
    pub client: String,
    /// The label within the client.
    pub user: String,
    /// What is to be made.
    pub spec: JobSpec,
    /// What was sent with it, by name.
    pub inputs: Vec<(&'static str, Vec<u8>)>,
}

/// What became of a job that was to be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is in the store.
    Accepted,
    /// The queue is full.
    QueueFull,
    /// The client's share of the queue is full.
    ClientFull,
}

/// A job that waits, as far as the choice of the next one needs it.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Its name.
    pub id: String,
    /// Who asked for it.
    pub client: String,
    /// The label within the client.
    pub user: String,
}

/// Which jobs to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Those of this client; none for all.
    pub client: Option<String>,
    /// Those in this state.
    pub state: Option<JobState>,
    /// Those of this kind.
    pub kind: Option<Kind>,
    /// Those of this model.
    pub model: Option<String>,
    /// Those accepted before this one.
    pub before: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// Counts of jobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that run.
    pub running: u64,
}

/// Where jobs are kept. All functions block.
pub trait Store: Send + Sync {
    /// The name of the kind of store.
    fn kind(&self) -> &'static str;
    /// Whether other servers use it too.
    fn is_shared(&self) -> bool;
    /// Accepts a job if there is room; then it is safe.
    fn insert(&self, job: &NewJob, limits: &Limits) -> Result<Admission>;
    /// A job; none if there is none of this name.
    fn get(&self, id: &str) -> Result<Option<Job>>;
    /// Jobs, newest first.
    fn list(&self, filter: &Filter) -> Result<Vec<Job>>;
    /// Jobs that wait, oldest first.
    fn waiting(&self) -> Result<Vec<Waiting>>;
    /// Takes a job that waits for the server `owner`; none if another one was faster.
    fn claim(&self, id: &str, owner: &str, lease: Duration) -> Result<Option<Job>>;
    /// Extends the leases of the jobs that a server works at, and returns those that it still holds. What else it has
    /// claimed is queued again: the answer to the claim was lost, or the end of the job could not be stored.
    fn extend(&self, owner: &str, active: &[String], lease: Duration) -> Result<Vec<String>>;
    /// Queues running jobs whose lease has ended, and those of `owner`, if it is given. Returns their number.
    fn requeue(&self, owner: Option<&str>) -> Result<usize>;
    /// Keeps a picture of a job.
    fn put_picture(&self, id: &str, picture: &Picture, png: &[u8]) -> Result<()>;
    /// Ends a job that `owner` works at, or one that waits if there is no owner; false if it was not so.
    fn finish(
        &self,
        id: &str,
        owner: Option<&str>,
        state: JobState,
        error: Option<&str>,
        keep: Duration,
    ) -> Result<bool>;
    /// Asks to stop a job that runs.
    fn ask_to_cancel(&self, id: &str) -> Result<()>;
    /// Which of the jobs of `owner` are to be stopped.
    fn to_cancel(&self, owner: &str) -> Result<Vec<String>>;
    /// Forgets a job.
    fn delete(&self, id: &str) -> Result<()>;
    /// The bytes of a picture.
    fn picture(&self, id: &str, index: u64) -> Result<Option<Vec<u8>>>;
    /// What was sent with a job.
    fn input(&self, id: &str, name: &str) -> Result<Option<Vec<u8>>>;
    /// Forgets what is too old or too much.
    fn expire(&self, keep_bytes: u64) -> Result<usize>;
    /// Counts of jobs.
    fn counts(&self) -> Result<Counts>;
    /// Waits until jobs may have changed by another server, or the time is over.
    fn wait_for_change(&self, time: Duration);
}

/// Opens a store, and makes its tables where they are missing.
pub fn open(address: &StoreAddress) -> Result<Arc<dyn Store>> {
    Ok(match address {
        StoreAddress::Sqlite(path) => Arc::new(SqliteStore::open(path)?),
        StoreAddress::Postgres(url) => Arc::new(PostgresStore::open(url)?),
    })
}

/// The columns of a row, in the order of [`COLUMNS`].
struct Row {
    id: String,
    client: String,
    user: String,
    spec: String,
    state: String,
    created: f64,
    started: Option<f64>,
    finished: Option<f64>,
    expires: Option<f64>,
    cancel: bool,
    error: Option<String>,
}

/// The columns that a [`Row`] is read from.
const COLUMNS: &str = "id, client, label, spec, state, created, started, finished, expires, cancel, error";

impl Row {
    fn into_job(self, pictures: Vec<String>, inputs: Vec<String>, position: Option<u64>) -> Result<Job> {
        let damaged = |what: &str| Error::Run(format!("the store is damaged: {what} of the job {}", self.id));
        let pictures = pictures.iter().map(|text| serde_json::from_str(text).map_err(|_| damaged("a picture")));
        let pictures = pictures.collect::<Result<Vec<Picture>>>()?;
        let spec = serde_json::from_str(&self.spec).map_err(|_| damaged("the settings"))?;
        let state = JobState::parse(&self.state).ok_or_else(|| damaged("the state"))?;
        Ok(Job {
            spec,
            state,
            pictures,
            inputs,
            position: position.filter(|_| state == JobState::Queued),
            id: self.id,
            client: self.client,
            user: self.user,
            created: self.created,
            started: self.started,
            finished: self.finished,
            expires: self.expires,
            cancel: self.cancel,
            error: self.error,
        })
    }
}

fn to_text(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::Run(format!("cannot be stored: {e}")))
}
