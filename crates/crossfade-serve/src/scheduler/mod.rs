//! Which part of which job runs next.
//!
//! A job is cut into chunks of a few pictures, each of which runs its sampler on a thread of its own. A free thread goes to
//! the client with the fewest of them, then to the label and to the job with the fewest: a long job has company from the
//! start and cannot hold up short ones. A client of which nothing runs gets a thread even if there is none free.
mod choice;
mod leases;
mod upkeep;

use crate::batcher::{Batcher, CANCELLED};
use crate::events::{Hub, JobLog};
use crate::job::{Job, JobState, Kind};
use crate::lock;
use crate::metrics::Metrics;
use crate::models::Library;
use crate::run;
use crate::store::{Store, Waiting};
use choice::{Active, Next, State};
use crossfade::Result;
use leases::Held;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the store is looked at when nothing happens.
const IDLE: Duration = Duration::from_millis(500);

/// A job that runs here.
pub struct Running {
    /// The job as it was claimed.
    pub job: Job,
    /// Who shares forward passes fairly.
    pub client: Arc<str>,
    /// Ends its samplers at their next evaluation.
    pub stop: Arc<AtomicBool>,
    /// What happened to it.
    pub log: Arc<JobLog>,
    /// Whether this server leaves it to others: it is not its job any more, or it goes back to the queue.
    pub given_up: AtomicBool,
    /// The first error.
    failure: Mutex<Option<String>>,
    began: f64,
}

/// What is shared by the threads that run jobs.
pub struct Scheduler {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The models.
    pub library: Arc<Library>,
    /// Joins evaluations.
    pub batcher: Arc<Batcher>,
    /// Tells of events.
    pub hub: Arc<Hub>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// The name of this server in leases.
    pub owner: String,
    slots: usize,
    chunk: usize,
    lease: Duration,
    keep: Duration,
    keep_bytes: u64,
    state: Mutex<State>,
    held: Held,
    changed: Condvar,
    draining: AtomicBool,
    abandoned: AtomicBool,
    /// Threads that use the store until the end.
    helpers: Mutex<Vec<JoinHandle<()>>>,
}

/// What a [`Scheduler`] is made of.
pub struct SchedulerParts {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The models.
    pub library: Arc<Library>,
    /// Joins evaluations.
    pub batcher: Arc<Batcher>,
    /// Tells of events.
    pub hub: Arc<Hub>,
    /// Counts.
    pub metrics: Arc<Metrics>,
}

impl Scheduler {
    /// Starts the threads that choose jobs and keep leases.
    pub fn start(parts: SchedulerParts, config: &crate::ServeConfig) -> std::io::Result<Arc<Self>> {
        let SchedulerParts { store, library, batcher, hub, metrics } = parts;
        let scheduler = Arc::new(Self {
            store,
            library,
            batcher,
            hub,
            metrics,
            owner: crate::random_name(),
            slots: config.slots.max(1),
            chunk: config.chunk.max(1),
            lease: config.lease,
            keep: config.limits.keep,
            keep_bytes: config.limits.keep_bytes,
            state: Mutex::new(State { stale: true, ..State::default() }),
            held: Held::default(),
            changed: Condvar::new(),
            draining: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            helpers: Mutex::default(),
        });
        let spawn = |name: &str, work: fn(&Arc<Self>)| -> std::io::Result<()> {
            let own = scheduler.clone();
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&own))?;
            lock(&scheduler.helpers).push(thread);
            Ok(())
        };
        spawn("scheduler", Self::choose_jobs)?;
        spawn("leases", Self::keep_leases)?;
        if scheduler.store.is_shared() {
            spawn("changes", Self::watch_store)?;
        }
        Ok(scheduler)
    }

    /// A job was accepted.
    pub fn wake(&self) {
        lock(&self.state).stale = true;
        self.changed.notify_all();
    }

    /// Samplers that run.
    pub fn threads(&self) -> usize {
        lock(&self.state).active.iter().map(|active| active.threads).sum()
    }

    /// Whether no new jobs are taken.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Stops a job that runs here; false if it does not.
    pub fn cancel(&self, id: &str) -> bool {
        let mut state = lock(&self.state);
        let Some(k) = state.active.iter().position(|active| active.running.job.id == id) else { return false };
        state.active[k].running.stop.store(true, Ordering::Relaxed);
        state.active[k].chunks.clear();
        // The last of its threads ends the job; without one it is done here.
        let without_thread = (state.active[k].threads == 0).then(|| state.active.remove(k));
        drop(state);
        if let Some(active) = without_thread {
            self.finish(&active.running);
        }
        true
    }

    /// Takes no new jobs and waits up to `time` for those that run. What is not done then goes back to the queue.
    pub fn drain(&self, time: Duration) {
        self.draining.store(true, Ordering::Relaxed);
        self.changed.notify_all();
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        while !state.active.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && !self.abandoned.swap(true, Ordering::Relaxed) {
                for active in &mut state.active {
                    active.running.stop.store(true, Ordering::Relaxed);
                    active.chunks.clear();
                }
                state.active.retain(|active| active.threads > 0);
                continue;
            }
            let wait = if left.is_zero() { IDLE } else { left.min(IDLE) };
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.stopped = true;
        drop(state);
        self.changed.notify_all();
        self.batcher.stop();
        for helper in std::mem::take(&mut *lock(&self.helpers)) {
            let _ = helper.join();
        }
        if let Err(e) = self.store.requeue(Some(&self.owner)) {
            crate::note(&format!("jobs could not be given back: {e}"));
        }
    }

    fn choose_jobs(self: &Arc<Self>) {
        loop {
            let mut state = lock(&self.state);
            if state.stopped {
                return;
            }
            if std::mem::take(&mut state.stale) && !self.is_draining() {
                drop(state);
                let waiting = self.store.waiting();
                state = lock(&self.state);
                match waiting {
                    Ok(waiting) => state.waiting = waiting,
                    Err(e) => crate::note(&format!("the queue could not be read: {e}")),
                }
            }
            match state.next(self.slots, self.is_draining()) {
                Some(Next::Chunk(k)) => self.start_chunk(&mut state, k),
                Some(Next::Job(k)) => {
                    let waiting = state.waiting.remove(k);
                    drop(state);
                    self.take(&waiting);
                }
                None => {
                    let (mut state, timeout) =
                        self.changed.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
                    state.stale |= timeout.timed_out();
                }
            }
        }
    }

    /// Claims a job that waits.
    fn take(self: &Arc<Self>, waiting: &Waiting) {
        let Some(job) = self.claim(&waiting.id) else { return };
        let log = self.hub.begin(&job.id);
        let per_picture = job.spec.steps.max(1) as u64;
        log.steps.store(job.spec.n * per_picture, Ordering::Relaxed);
        log.steps_done.store(job.pictures.len() as u64 * per_picture, Ordering::Relaxed);
        // Pictures that an earlier server has stored are not made again.
        let done: Vec<u64> = job.pictures.iter().map(|picture| picture.index).collect();
        let left: Vec<u64> = (0..job.spec.n).filter(|k| !done.contains(k)).collect();
        let size = if job.spec.kind == Kind::Generation { self.chunk } else { 1 };
        let chunks = left.chunks(size).map(<[u64]>::to_vec).collect();
        let client = Arc::from(job.client.as_str());
        let stop = Arc::new(AtomicBool::new(job.cancel));
        let (given_up, failure, began) = (AtomicBool::new(false), Mutex::default(), crate::now());
        let running = Arc::new(Running { job, client, stop, log, given_up, failure, began });
        self.held.runs(&running);
        let active = Active { running: running.clone(), chunks, threads: 0 };
        if active.chunks.is_empty() || running.stop.load(Ordering::Relaxed) {
            return self.finish(&running);
        }
        lock(&self.state).active.push(active);
    }

    fn start_chunk(self: &Arc<Self>, state: &mut State, k: usize) {
        let Some(pictures) = state.active[k].chunks.pop_front() else { return };
        state.active[k].threads += 1;
        let running = state.active[k].running.clone();
        state.note_served(&running.job.client, &running.job.user);
        let own = self.clone();
        let of = running.clone();
        let thread = std::thread::Builder::new().name("sampler".into()).spawn(move || {
            crate::prepare_thread();
            let work = || run::pictures(&own, &of, &pictures);
            own.chunk_done(&of, catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(run::panicked())));
        });
        if thread.is_err() {
            // There are no more threads to be had; what runs already goes on, and this job waits.
            crate::note(&format!("there is no thread for the job {}, which is queued again", running.job.id));
            running.give_up();
            state.active[k].threads -= 1;
            state.active[k].chunks.clear();
            if state.active[k].threads == 0 {
                state.active.remove(k);
                let own = self.clone();
                own.finish(&running);
            }
        }
    }

    fn chunk_done(self: &Arc<Self>, running: &Arc<Running>, result: Result<()>) {
        if let Err(e) = result
            && !running.stop.swap(true, Ordering::Relaxed)
        {
            *lock(&running.failure) = Some(e.to_string());
        }
        let mut state = lock(&self.state);
        let Some(k) = state.active.iter().position(|active| Arc::ptr_eq(&active.running, running)) else { return };
        state.active[k].threads -= 1;
        if running.stop.load(Ordering::Relaxed) {
            state.active[k].chunks.clear();
        }
        let over = state.active[k].threads == 0 && state.active[k].chunks.is_empty();
        drop(state);
        if over {
            // The job stays among the active ones until it has ended in the store, so that a drain waits for it.
            self.finish(running);
            lock(&self.state).active.retain(|active| !Arc::ptr_eq(&active.running, running));
        }
        self.changed.notify_all();
    }

    /// Ends a job in the store, or leaves it to others.
    fn finish(&self, running: &Arc<Running>) {
        let failure = lock(&running.failure).take();
        let stopped = running.stop.load(Ordering::Relaxed);
        let end = match failure {
            _ if running.given_up.load(Ordering::Relaxed) => None,
            Some(message) if message != CANCELLED => Some((JobState::Failed, Some(message))),
            _ if stopped && self.abandoned.load(Ordering::Relaxed) => None,
            _ if stopped => Some((JobState::Cancelled, None)),
            _ => Some((JobState::Done, None)),
        };
        let job = &running.job;
        match end {
            Some((state, error)) => {
                if let Some(message) = &error {
                    crate::note(&format!("the job {} failed: {message}", job.id));
                }
                if self.store_end(&job.id, state, error.as_deref()) {
                    self.metrics.end(state.name(), running.began - job.created, crate::now() - running.began);
                }
            }
            None => self.held.release(&job.id),
        }
        self.hub.end(&running.log);
    }
}

impl Running {
    /// Stops its samplers and leaves the job to others.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
        self.stop.store(true, Ordering::Relaxed);
    }
}
