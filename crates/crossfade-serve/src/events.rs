//! What happens to jobs, for those who watch: kept in memory while it is recent.
//!
//! A log is shared by all its readers, who go through it at their own speed, so that a slow reader costs nothing.
use crate::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Something that happened to a job.
#[derive(Clone, Debug)]
pub enum Event {
    /// Its state changed.
    State,
    /// A step of a picture: the data of the event.
    Step(Arc<str>),
    /// A picture is done: its number.
    Picture(u64),
}

impl Event {
    fn bytes(&self) -> usize {
        64 + if let Self::Step(data) = self { data.len() } else { 0 }
    }
}

#[derive(Default)]
struct Inner {
    events: Vec<Event>,
    over: bool,
}

/// What happened to one job here.
pub struct JobLog {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
    /// Steps that are done, of all its pictures.
    pub steps_done: AtomicU64,
    /// Steps in all.
    pub steps: AtomicU64,
}

impl Default for JobLog {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { inner: Mutex::default(), changed: watch::Sender::new(0), steps_done: zero(), steps: zero() }
    }
}

impl JobLog {
    /// The events from number `from` on, and whether no more will come.
    pub fn since(&self, from: usize) -> (Vec<Event>, bool) {
        let inner = lock(&self.inner);
        (inner.events.get(from..).unwrap_or_default().to_vec(), inner.over)
    }

    /// A receiver that is told of every change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

#[derive(Default)]
struct Logs {
    by_job: HashMap<String, Arc<JobLog>>,
    /// Jobs by the time of their first event, oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

/// The logs of all recent jobs of this server.
pub struct Hub {
    logs: Mutex<Logs>,
    budget: usize,
    /// Tells the events of this process from those of an earlier one with the same numbers.
    pub boot: String,
}

impl Hub {
    /// Keeps up to `budget` bytes.
    pub fn new(budget: usize) -> Self {
        Self { logs: Mutex::default(), budget, boot: crate::random_name()[..8].to_string() }
    }

    /// The log of a job; none if nothing is remembered.
    pub fn get(&self, id: &str) -> Option<Arc<JobLog>> {
        lock(&self.logs).by_job.get(id).cloned()
    }

    /// The log of a job, made if there is none.
    pub fn open(&self, id: &str) -> Arc<JobLog> {
        let mut logs = lock(&self.logs);
        if let Some(log) = logs.by_job.get(id) {
            return log.clone();
        }
        let log = Arc::new(JobLog::default());
        logs.by_job.insert(id.into(), log.clone());
        logs.order.push_back(id.into());
        log
    }

    /// Adds an event and tells the readers. Where there is no room for previews, those of ended jobs go first, then this
    /// one is not kept.
    pub fn add(&self, log: &JobLog, event: Event) {
        let bytes = event.bytes();
        {
            let mut logs = lock(&self.logs);
            while logs.bytes + bytes > self.budget && logs.drop_one_ended() {}
            if logs.bytes + bytes > self.budget && matches!(event, Event::Step(_)) {
                return;
            }
            logs.bytes += bytes;
            lock(&log.inner).events.push(event);
        }
        log.tell();
    }

    /// Nothing more will happen to this job.
    pub fn end(&self, log: &JobLog) {
        lock(&log.inner).over = true;
        log.tell();
        let mut logs = lock(&self.logs);
        while logs.order.len() > MAX_LOGS && logs.drop_one_ended() {}
    }

    /// Forgets a job.
    pub fn forget(&self, id: &str) {
        let mut logs = lock(&self.logs);
        logs.remove(id);
    }
}

/// Jobs that are remembered.
const MAX_LOGS: usize = 4096;

impl Logs {
    /// Drops the log of the oldest job that has ended; false if there is none.
    fn drop_one_ended(&mut self) -> bool {
        let is_over = |id: &String| self.by_job.get(id).is_none_or(|log| lock(&log.inner).over);
        let Some(id) = self.order.iter().find(|id| is_over(id)).cloned() else { return false };
        self.remove(&id);
        true
    }

    fn remove(&mut self, id: &str) {
        if let Some(log) = self.by_job.remove(id) {
            let bytes: usize = lock(&log.inner).events.iter().map(Event::bytes).sum();
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        self.order.retain(|other| other != id);
    }
}

/// Counts up the steps of a job.
pub fn count_step(log: &JobLog) -> u64 {
    log.steps_done.fetch_add(1, Ordering::Relaxed) + 1
}
