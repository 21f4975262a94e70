//! Which jobs of the store belong to this server.
//!
//! The store is told of them from time to time, and queues what else this server has claimed: a claim whose answer was
//! lost, or a job whose end could not be stored. What the store does not confirm is stopped here.
use super::{Running, Scheduler};
use crate::job::{Job, JobState};
use crate::lock;
use crossfade::Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often the end of a job is stored again, after 0.1 s, 0.2 s and so on, before the job is left to the queue.
const ATTEMPTS: usize = 8;

/// The jobs of this server by their names, without what runs for those that are being claimed. The lock is held while the
/// store is told of all of them or of the end of one, so that none is missed.
#[derive(Default)]
pub(super) struct Held(Mutex<HashMap<String, Option<Arc<Running>>>>);

impl Held {
    /// A job that was claimed runs now.
    pub fn runs(&self, running: &Arc<Running>) {
        lock(&self.0).insert(running.job.id.clone(), Some(running.clone()));
    }

    /// A job does not belong to this server any more.
    pub fn release(&self, id: &str) {
        lock(&self.0).remove(id);
    }
}

impl Scheduler {
    /// Takes a job that waits; none if another server was faster.
    pub(super) fn claim(&self, id: &str) -> Option<Job> {
        {
            let mut held = lock(&self.held.0);
            // A job that was lost and is queued again may still be ending here.
            if held.contains_key(id) {
                return None;
            }
            held.insert(id.into(), None);
        }
        let claimed = self.store.claim(id, &self.owner, self.lease);
        let claimed = claimed.unwrap_or_else(|e| {
            crate::note(&format!("the job {id} could not be claimed: {e}"));
            None
        });
        if claimed.is_none() {
            self.held.release(id);
        }
        claimed
    }

    /// Extends the leases of the jobs of this server, and stops those that it has lost.
    pub(super) fn extend_leases(&self) -> Result<()> {
        let lost: Vec<Arc<Running>> = {
            let held = lock(&self.held.0);
            let ids: Vec<String> = held.keys().cloned().collect();
            let confirmed = self.store.extend(&self.owner, &ids, self.lease)?;
            let lost = held.iter().filter(|(id, _)| !confirmed.contains(id));
            lost.filter_map(|(_, running)| running.clone()).collect()
        };
        for running in lost {
            running.give_up();
            self.cancel(&running.job.id);
        }
        Ok(())
    }

    /// Stores the end of a job, which does not belong to this server afterwards; false if it was not stored.
    pub(super) fn store_end(&self, id: &str, state: JobState, error: Option<&str>) -> bool {
        let mut pause = Duration::from_millis(100);
        for _ in 0..ATTEMPTS {
            let mut held = lock(&self.held.0);
            match self.store.finish(id, Some(&self.owner), state, error, self.keep) {
                Ok(stored) => {
                    held.remove(id);
                    return stored;
                }
                Err(e) => crate::note(&format!("the end of the job {id} could not be stored: {e}")),
            }
            drop(held);
            // A store that does not answer for a moment must not lose the end of a job.
            std::thread::sleep(pause);
            pause *= 2;
        }
        self.held.release(id);
        false
    }
}
