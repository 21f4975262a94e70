//! Ranks that are threads of one process: training on several ranks can be tested without MPI.
use super::{Group, Transport};
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

struct Threads {
    rank: usize,
    /// One channel to each rank and one from each.
    to: Vec<Sender<Vec<u8>>>,
    from: Mutex<Vec<Receiver<Vec<u8>>>>,
    /// Whether a rank has sent a signal, one for all of them.
    signal: Arc<AtomicBool>,
}

/// The groups of `size` threads, one for each, in the order of the ranks.
pub fn groups(size: usize) -> Vec<Group> {
    let (mut to, mut from): (Vec<Vec<_>>, Vec<Vec<_>>) = ((0..size).map(|_| vec![]).collect(), vec![]);
    for _ in 0..size {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
        to.iter_mut().zip(senders).for_each(|(to, sender)| to.push(sender));
        from.push(receivers);
    }
    let (ranks, signal) = (to.into_iter().zip(from).enumerate(), Arc::new(AtomicBool::new(false)));
    let group = |(rank, (to, from)): (usize, (Vec<_>, Vec<_>))| {
        Group::new(Threads { rank, to, from: Mutex::new(from), signal: Arc::clone(&signal) })
    };
    ranks.map(group).collect()
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn exchange(&self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let gone = |rank: usize| Error::Run(format!("rank {rank} is gone"));
        for (rank, (to, part)) in self.to.iter().zip(parts).enumerate() {
            to.send(part).map_err(|_| gone(rank))?;
        }
        let from = self.from.lock().map_err(|_| gone(self.rank))?;
        from.iter().enumerate().map(|(rank, from)| from.recv().map_err(|_| gone(rank))).collect()
    }

    fn signal(&self) {
        self.signal.store(true, Ordering::Relaxed);
    }

    fn signalled(&self) -> bool {
        self.signal.load(Ordering::Relaxed)
    }
}
