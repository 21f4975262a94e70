//! What a scheduler does beside running jobs: leases, expiry, jobs of other servers.
use super::Scheduler;
use crate::lock;
use crossfade::Result;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

impl Scheduler {
    /// Sleeps, but not beyond the end of the server.
    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = lock(&self.state);
        while !state.stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn is_stopped(&self) -> bool {
        lock(&self.state).stopped
    }

    /// Extends the leases of this server, takes over ended ones of others, stops what others were asked to stop, forgets
    /// what has expired, and unloads what nobody uses.
    pub(super) fn keep_leases(self: &Arc<Self>) {
        let mut next_expiry = Instant::now();
        let report = |what: &str, result: Result<usize>| match result {
            Ok(count) => count,
            Err(e) => {
                crate::note(&format!("{what}: {e}"));
                0
            }
        };
        while !self.is_stopped() {
            report("leases could not be extended", self.extend_leases().map(|()| 0));
            if report("jobs could not be queued again", self.store.requeue(None)) > 0 {
                self.wake();
            }
            if Instant::now() >= next_expiry {
                report("results could not be expired", self.store.expire(self.keep_bytes));
                next_expiry = Instant::now() + Duration::from_secs(60);
            }
            for id in self.store.to_cancel(&self.owner).unwrap_or_default() {
                self.cancel(&id);
            }
            self.library.unload_unused();
            self.sleep((self.lease / 5).min(Duration::from_secs(1)));
        }
    }

    /// Looks for jobs that other servers have accepted.
    pub(super) fn watch_store(self: &Arc<Self>) {
        while !self.is_stopped() {
            self.store.wait_for_change(Duration::from_secs(1));
            self.wake();
        }
    }
}
