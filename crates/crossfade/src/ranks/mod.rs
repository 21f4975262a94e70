//! The processes (ranks) that work on one training: who they are, and the one exchange that everything they share is made of.
//!
//! A rank is a process of MPI (`mpi.rs`, with the feature `mpi`), or a thread in tests (`threads.rs`). A thread that trains
//! belongs to the group that [`enter`] has set for it, and is alone otherwise.
#[cfg(feature = "mpi")]
pub mod mpi;
mod packing;
pub mod threads;

use crate::error::{Error, Result};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
}

/// The ranks that train together.
pub struct Group {
    /// None for a process that is alone.
    transport: Option<Box<dyn Transport>>,
    /// Whether an exchange has failed, after which the ranks are no longer in step.
    failed: AtomicBool,
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

/// First byte of a message: what follows is meant for the receiver, or the text of an error that has stopped the sender.
const CONTENT: u8 = 0;
const FAILURE: u8 = 1;

impl Group {
    /// One process.
    pub fn alone() -> Self {
        Self { transport: None, failed: AtomicBool::new(false), sent: AtomicU64::new(0) }
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
    pub fn exchange(&self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let Some(transport) = &self.transport else { return Ok(parts) };
        let parts: Vec<Vec<u8>> = parts.into_iter().map(|part| [&[CONTENT], &part[..]].concat()).collect();
        let received = self.transfer(&**transport, parts)?;
        let failure = received.iter().enumerate().find(|(_, part)| part.first() != Some(&CONTENT));
        if let Some((rank, part)) = failure {
            self.failed.store(true, Ordering::Relaxed);
            let reason = String::from_utf8_lossy(part.get(1..).unwrap_or_default()).into_owned();
            return Err(Error::Run(format!("rank {rank} has failed: {reason}")));
        }
        Ok(received.into_iter().map(|mut part| part.split_off(1)).collect())
    }

    fn transfer(&self, transport: &dyn Transport, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let others = parts.iter().enumerate().filter(|(k, _)| *k != transport.rank());
        self.sent.fetch_add(others.map(|(_, part)| part.len() as u64).sum(), Ordering::Relaxed);
        transport.exchange(parts).inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
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
    pub fn announce(&self, error: &Error) {
        if let Some(transport) = &self.transport
            && !self.failed.load(Ordering::Relaxed)
        {
            let part = [&[FAILURE], error.to_string().as_bytes()].concat();
            // There is nobody left to tell that this fails, too.
            let _ = self.transfer(&**transport, vec![part; transport.size()]);
            self.failed.store(true, Ordering::Relaxed);
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
