//! The processes (ranks) that work together: who they are, and the one exchange that everything they share is made of.
//!
//! A rank is a process, whose [`Transport`] the program brings (MPI, with its feature `mpi`), or a thread in tests (`threads.rs`). A thread belongs to the
//! group that [`enter`] has set for it, and is alone otherwise.
mod packing;
pub mod threads;

use crate::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) use packing::{Packed, Unpacked};

/// What carries bytes between ranks.
pub trait Transport: Send + Sync {
    /// The number of this rank.
    fn rank(&self) -> usize;
    /// The number of ranks.
    fn size(&self) -> usize;
    /// Sends `parts[k]` to rank k and returns what every rank has sent to this one, in the order of the ranks. All ranks call
    /// this together.
    fn exchange(&self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>>;
    /// Tells the other ranks, without waiting for them, that this one has failed and waits in an exchange.
    fn signal(&self);
    /// Whether another rank has sent a signal.
    fn signalled(&self) -> bool;
}

/// The ranks that work together.
pub struct Group {
    /// None for a process that is alone.
    transport: Option<Box<dyn Transport>>,
    /// Why some rank has failed, after which the ranks are no longer in step.
    failed: OnceLock<String>,
    sent: AtomicU64,
}

thread_local! {
    static CURRENT: RefCell<Arc<Group>> = RefCell::new(Arc::new(Group::alone()));
}

/// The group of this thread.
pub fn current() -> Arc<Group> {
    CURRENT.with_borrow(Arc::clone)
}

/// Makes `group` that of this thread.
pub fn enter(group: Arc<Group>) {
    CURRENT.set(group);
}

/// Does `work` as a process that is alone, for work that ranks do beside each other and not together.
pub fn alone<T>(work: impl FnOnce() -> T) -> T {
    let group = CURRENT.replace(Arc::new(Group::alone()));
    let done = work();
    enter(group);
    done
}

/// Last byte of a message: the rest is meant for the receiver, or is the text of an error that has stopped the sender.
const CONTENT: u8 = 0;
const FAILURE: u8 = 1;

impl Group {
    /// One process.
    pub fn alone() -> Self {
        Self { transport: None, failed: OnceLock::new(), sent: AtomicU64::new(0) }
    }

    /// The ranks that `transport` connects.
    pub fn new(transport: impl Transport + 'static) -> Self {
        let transport = (transport.size() > 1).then(|| Box::new(transport) as Box<dyn Transport>);
        Self { transport, ..Self::alone() }
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.transport.as_ref().map_or(0, |transport| transport.rank())
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.transport.as_ref().map_or(1, |transport| transport.size())
    }

    /// Whether this rank writes the files.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Bytes that this rank has sent to others.
    pub fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Sends `parts[k]` to rank k and returns what every rank has sent to this one, in the order of the ranks. An error if some
    /// rank has failed: then all ranks get it.
    pub fn exchange(&self, mut parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let Some(transport) = &self.transport else { return Ok(parts) };
        if let Some(reason) = self.failed.get() {
            return Err(Error::Run(reason.clone()));
        }
        parts.iter_mut().for_each(|part| part.push(CONTENT));
        let mut received = self.transfer(&**transport, parts)?;
        for (rank, part) in received.iter_mut().enumerate() {
            if part.pop() != Some(CONTENT) {
                let reason = format!("rank {rank} has failed: {}", String::from_utf8_lossy(part));
                return Err(self.fail(reason));
            }
        }
        Ok(received)
    }

    fn transfer(&self, transport: &dyn Transport, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let others = parts.iter().enumerate().filter(|(k, _)| *k != transport.rank());
        self.sent.fetch_add(others.map(|(_, part)| part.len() as u64).sum(), Ordering::Relaxed);
        transport.exchange(parts).map_err(|error| self.fail(error.to_string()))
    }

    /// Remembers why the ranks are out of step: whoever goes on to the next exchange gets the same error there.
    fn fail(&self, reason: String) -> Error {
        Error::Run(self.failed.get_or_init(|| reason).clone())
    }

    /// An error if another rank has failed meanwhile. Work that takes long between two exchanges calls this now and then, so
    /// that it stops within seconds.
    pub fn check(&self) -> Result<()> {
        match &self.transport {
            Some(transport) if self.failed.get().is_some() || transport.signalled() => {
                // The rank that has failed tells its reason in the next exchange.
                self.wait()
            }
            _ => Ok(()),
        }
    }

    /// Sends the same to every rank, also to this one.
    pub fn to_all(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.exchange(vec![bytes; self.size()])
    }

    /// Sends to the first rank, which gets what every rank has sent; the others get nothing.
    pub fn to_first(&self, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let mut parts = vec![vec![]; self.size()];
        parts[0] = bytes;
        self.exchange(parts)
    }

    /// Sends `value` to the first rank, which gets those of all ranks in their order; the others get none.
    pub fn gather<T: Serialize + DeserializeOwned>(&self, value: &T) -> Result<Option<Vec<T>>> {
        let damaged = |e: serde_json::Error| Error::Run(format!("what ranks send each other cannot be read: {e}"));
        let received = self.to_first(serde_json::to_vec(value).map_err(damaged)?)?;
        if !self.is_first() {
            return Ok(None);
        }
        let all = received.iter().map(|part| serde_json::from_slice(part).map_err(damaged));
        all.collect::<Result<_>>().map(Some)
    }

    /// The flag of the first rank, which decides for all of them.
    pub fn decided(&self, flag: bool) -> Result<bool> {
        Ok(self.to_all(vec![u8::from(flag)])?.first().is_some_and(|part| part.first() == Some(&1)))
    }

    /// Whether `flag` is set on any rank.
    pub fn any(&self, flag: bool) -> Result<bool> {
        Ok(self.to_all(vec![u8::from(flag)])?.iter().any(|part| part.first() == Some(&1)))
    }

    /// Waits until all ranks are here.
    pub fn wait(&self) -> Result<()> {
        self.any(false).map(|_| ())
    }

    /// Tells the other ranks why this one stops, so that they stop with the same reason in place of waiting for it. Does nothing
    /// if they know, or if they have failed.
    pub fn announce(&self, error: &impl Display) {
        if let Some(transport) = &self.transport
            && self.failed.get().is_none()
        {
            let mut part = error.to_string().into_bytes();
            part.push(FAILURE);
            transport.signal();
            // There is nobody left to tell that this fails, too.
            let _ = self.transfer(&**transport, vec![part; transport.size()]);
            self.fail(error.to_string());
        }
    }

    /// Checks that `facts`, each with its name, are the same on all ranks; the error names the first that is not.
    pub fn agree(&self, facts: &[(&str, String)]) -> Result<()> {
        let mut packed = Packed::default();
        facts.iter().for_each(|(_, fact)| packed.bytes(fact.as_bytes()));
        let received = self.to_all(packed.0)?;
        let mut ranks = received.iter().map(|part| Unpacked(part)).collect::<Vec<_>>();
        for (name, own) in facts {
            for (rank, facts) in ranks.iter_mut().enumerate() {
                let other = facts.bytes()?;
                if other != own.as_bytes() {
                    let other = String::from_utf8_lossy(&other).into_owned();
                    return Err(Error::Run(format!(
                        "the {name} of rank {rank} ({other}) is not that of rank {} ({own}): start the same program with the \
                         same files on all of them",
                        self.rank()
                    )));
                }
            }
        }
        Ok(())
    }
}
