//! The choice of what a free thread does next, fair between clients, labels and jobs.
use super::Running;
use crate::store::Waiting;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Clients without a thread get one up to this multiple of the threads.
const BEYOND: usize = 4;

/// A job that runs here.
pub(super) struct Active {
    pub running: Arc<Running>,
    pub chunks: VecDeque<Vec<u64>>,
    pub threads: usize,
}

/// What the choice is made from.
#[derive(Default)]
pub(super) struct State {
    pub active: Vec<Active>,
    pub waiting: Vec<Waiting>,
    /// Whether the store has to be asked for waiting jobs.
    pub stale: bool,
    /// When clients and labels were last given a thread, as a counter.
    pub served: HashMap<(String, Option<String>), u64>,
    pub clock: u64,
    pub stopped: bool,
}

/// What a thread starts.
pub(super) enum Next {
    /// A chunk of this active job.
    Chunk(usize),
    /// This waiting job.
    Job(usize),
}

impl State {
    pub fn note_served(&mut self, client: &str, user: &str) {
        self.clock += 1;
        if self.served.len() > MAX_REMEMBERED {
            self.served.clear();
        }
        self.served.insert((client.into(), None), self.clock);
        self.served.insert((client.into(), Some(user.into())), self.clock);
    }

    /// What to start next; none if no thread is free or nothing is there.
    pub fn next(&self, slots: usize, draining: bool) -> Option<Next> {
        let all: usize = self.active.iter().map(|active| active.threads).sum();
        let of_client = |client: &str| -> usize {
            self.active.iter().filter(|a| a.running.job.client == client).map(|a| a.threads).sum()
        };
        let of_user = |client: &str, user: &str| -> usize {
            let own = |a: &&Active| a.running.job.client == client && a.running.job.user == user;
            self.active.iter().filter(own).map(|a| a.threads).sum()
        };
        let allowed = |client: &str| all < slots || (all < BEYOND * slots && of_client(client) == 0);
        let last = |client: &str, user: Option<&str>| {
            self.served.get(&(client.to_string(), user.map(str::to_string))).copied().unwrap_or(0)
        };
        let rank = |client: &str, user: &str, threads: usize| {
            let (own, label) = (of_client(client), of_user(client, user));
            (own, last(client, None), label, last(client, Some(user)), threads)
        };
        let chunks = self.active.iter().enumerate().filter(|(_, active)| !active.chunks.is_empty());
        let chunks = chunks.map(|(k, active)| {
            let job = &active.running.job;
            (job.client.as_str(), job.user.as_str(), active.threads, Next::Chunk(k))
        });
        let waiting = self.waiting.iter().enumerate().filter(|_| !draining);
        let waiting = waiting.map(|(k, job)| (job.client.as_str(), job.user.as_str(), 0, Next::Job(k)));
        let candidates = chunks.chain(waiting).filter(|(client, ..)| allowed(client));
        candidates.min_by_key(|(client, user, threads, _)| rank(client, user, *threads)).map(|(.., next)| next)
    }
}

/// Clients and labels that are remembered.
const MAX_REMEMBERED: usize = 10_000;
