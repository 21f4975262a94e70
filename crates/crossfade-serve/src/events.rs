//! What happens to jobs, for those who watch: kept in memory while it is recent.
//!
//! A log is shared by all its readers, who go through it at their own speed, so that a slow reader costs nothing. It has
//! the events of a job while this server works at it; of a job that waits, has ended or runs elsewhere the store knows more.
use crate::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    events: VecDeque<Event>,
    /// The number of the first event that is kept.
    first: usize,
    /// The hub has no such log any more, and nothing more is kept.
    forgotten: bool,
}

/// What happened to one job here.
pub struct JobLog {
    inner: Mutex<Inner>,
    bytes: AtomicUsize,
    changed: watch::Sender<u64>,
    here: AtomicBool,
    /// Steps that are done, of all its pictures.
    pub steps_done: AtomicU64,
    /// Steps in all.
    pub steps: AtomicU64,
}

impl Default for JobLog {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            inner: Mutex::default(),
            bytes: AtomicUsize::new(0),
            changed: watch::Sender::new(0),
            here: AtomicBool::new(false),
            steps_done: zero(),
            steps: zero(),
        }
    }
}

impl JobLog {
    /// At most `most` events from number `from` on, and the number of the first of them: earlier ones may be forgotten.
    pub fn since(&self, from: usize, most: usize) -> (usize, Vec<Event>) {
        let inner = lock(&self.inner);
        let start = from.clamp(inner.first, inner.first + inner.events.len());
        (start, inner.events.iter().skip(start - inner.first).take(most).cloned().collect())
    }

    /// Whether this server works at the job, so that everything that happens to it is told here.
    pub fn is_here(&self) -> bool {
        self.here.load(Ordering::SeqCst)
    }

    /// A receiver that is told of every change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Keeps an event; the number of its bytes.
    fn push(&self, event: Event) -> usize {
        let mut inner = lock(&self.inner);
        if inner.forgotten {
            return 0;
        }
        let bytes = event.bytes();
        inner.events.push_back(event);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Drops its oldest events beyond so many bytes; the number of bytes that are free now.
    fn trim(&self, most: usize) -> usize {
        let mut inner = lock(&self.inner);
        let mut freed = 0;
        while self.bytes.load(Ordering::Relaxed) > most
            && let Some(event) = inner.events.pop_front()
        {
            inner.first += 1;
            freed += event.bytes();
            self.bytes.fetch_sub(event.bytes(), Ordering::Relaxed);
        }
        freed
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
        while logs.order.len() >= MAX_LOGS && logs.drop_oldest(|_| true) {}
        let log = Arc::new(JobLog::default());
        logs.by_job.insert(id.into(), log.clone());
        logs.order.push_back(id.into());
        log
    }

    /// The log of a job that this server works at from now on.
    pub fn begin(&self, id: &str) -> Arc<JobLog> {
        let log = self.open(id);
        log.here.store(true, Ordering::SeqCst);
        self.add(&log, Event::State);
        log
    }

    /// Adds an event and tells the readers. Where there is no room, the oldest events of a job with more than its share go
    /// first, then jobs at which nobody works here, the oldest before the others, then events of the job with the most.
    pub fn add(&self, log: &JobLog, event: Event) {
        {
            let mut logs = lock(&self.logs);
            logs.bytes += log.push(event);
            let freed = log.trim(self.budget / SHARE);
            logs.bytes -= freed;
            while logs.bytes > self.budget && logs.drop_oldest(|log| log.bytes.load(Ordering::Relaxed) > 0) {}
            while logs.bytes > self.budget {
                let bytes = |log: &Arc<JobLog>| log.bytes.load(Ordering::Relaxed);
                let Some(largest) = logs.by_job.values().max_by_key(|log| bytes(log)).cloned() else { break };
                let freed = largest.trim(bytes(&largest) / 2);
                if freed == 0 {
                    break;
                }
                logs.bytes -= freed;
            }
        }
        log.tell();
    }

    /// This server does not work at the job any more: it has ended, or another server or nobody has it. The store says
    /// which.
    pub fn end(&self, log: &JobLog) {
        log.here.store(false, Ordering::SeqCst);
        log.tell();
    }

    /// Forgets a job.
    pub fn forget(&self, id: &str) {
        let mut logs = lock(&self.logs);
        if let Some(log) = logs.remove(id) {
            self.end(&log);
        }
    }
}

/// Jobs that are remembered.
const MAX_LOGS: usize = 4096;
/// A job may use one part of so many of the room for events.
const SHARE: usize = 4;

impl Logs {
    /// Drops the log of the oldest job among those at which nobody works here; false if there is none.
    fn drop_oldest(&mut self, wanted: impl Fn(&JobLog) -> bool) -> bool {
        let dropped = |id: &&String| self.by_job.get(*id).is_none_or(|log| !log.is_here() && wanted(log));
        let Some(id) = self.order.iter().find(dropped).cloned() else { return false };
        self.remove(&id);
        true
    }

    fn remove(&mut self, id: &str) -> Option<Arc<JobLog>> {
        self.order.retain(|other| other != id);
        let log = self.by_job.remove(id)?;
        lock(&log.inner).forgotten = true;
        self.bytes -= log.bytes.load(Ordering::Relaxed);
        Some(log)
    }
}

/// Counts up the steps of a job.
pub fn count_step(log: &JobLog) -> u64 {
    log.steps_done.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn step(number: usize) -> Event {
        Event::Step(format!("{number:>936}").into())
    }

    #[test]
    fn a_long_job_does_not_remove_the_events_of_others() {
        // Room for forty steps of a thousand bytes.
        let hub = Hub::new(40_000);
        let others: Vec<Arc<JobLog>> = ["a", "b", "c"].map(|id| hub.begin(id)).to_vec();
        for log in &others {
            (0..5).for_each(|k| hub.add(log, step(k)));
            hub.end(log);
        }
        let long = hub.begin("long");
        (0..100).for_each(|k| hub.add(&long, step(k)));
        for (id, log) in ["a", "b", "c"].iter().zip(&others) {
            assert_eq!(log.since(0, 99).1.len(), 6, "the state and five steps");
            assert!(hub.get(id).is_some());
        }
        // It keeps its own latest ones, under their numbers.
        let (first, kept) = long.since(0, 999);
        assert_eq!((first + kept.len(), kept.len(), kept.last()), (101, 10, Some(&step(99))));
        assert_eq!(long.since(99, 1), (99, vec![step(98)]));
        assert_eq!(long.since(5000, 4), (101, vec![]), "no such event yet");
        assert!(lock(&hub.logs).bytes <= 40_000);
    }

    #[test]
    fn room_is_kept_whatever_happens() {
        let hub = Hub::new(10_000);
        // Eight that run: none of them can be dropped, all of them lose events.
        let logs: Vec<Arc<JobLog>> = (0..8).map(|k| hub.begin(&k.to_string())).collect();
        for k in 0..50 {
            logs.iter().for_each(|log| hub.add(log, step(k)));
            assert!(lock(&hub.logs).bytes <= 10_000);
        }
        hub.forget("0");
        hub.add(&logs[0], step(0));
        logs[1..].iter().for_each(|log| hub.end(log));
        let next = hub.begin("next");
        (0..50).for_each(|k| hub.add(&next, step(k)));
        let sum: usize = lock(&hub.logs).by_job.values().map(|log| log.bytes.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, lock(&hub.logs).bytes, "what is counted is what is kept");
        assert!(!logs[0].is_here(), "nobody waits for more of a job that was forgotten");
    }

    #[test]
    fn jobs_of_other_servers_are_forgotten_too() {
        let hub = Hub::new(1000);
        let here = hub.begin("here");
        (0..MAX_LOGS + 10).for_each(|k| drop(hub.open(&k.to_string())));
        assert_eq!(lock(&hub.logs).by_job.len(), MAX_LOGS);
        assert!(hub.get("here").is_some_and(|log| Arc::ptr_eq(&log, &here)), "what runs here is not");
    }
}
