//! Ranks that are processes of MPI.
use crossfade::error::{Error, Result};
use crossfade::ranks::{Group, Transport};
use mpi::environment::{Threading, Universe};
use mpi::request::scope;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};

/// Bytes of one message at most, because MPI counts in 32 bits.
const MOST: usize = 1 << 30;

/// The tags of what an exchange sends, and of a signal.
const MESSAGE: i32 = 0;
const SIGNAL: i32 = 1;

struct World {
    universe: Universe,
    rank: usize,
    size: usize,
}

/// The group of this process, which was started as one of `size`; an error if MPI does not know of the others. MPI ends when the
/// group is dropped.
pub fn group(size: usize) -> Result<Group> {
    let started = mpi::initialize_with_threading(Threading::Funneled);
    let (universe, _) = started.ok_or_else(|| Error::Run("MPI cannot be started twice".into()))?;
    let (rank, found) = (universe.world().rank() as usize, universe.world().size() as usize);
    if found != size {
        return Err(Error::Run(format!(
            "started as one of {size} processes, but MPI finds {found}: start it with the mpirun of the MPI that this program \
             was built with, or with an srun that supports it (srun --mpi=list)"
        )));
    }
    Ok(Group::new(World { universe, rank, size }))
}

impl Transport for World {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&self, mut parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let world = self.universe.world();
        let lengths: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
        let mut coming = vec![0u64; self.size];
        world.all_to_all_into(&lengths[..], &mut coming[..]);
        // What is for this rank itself is not copied.
        let own = std::mem::take(&mut parts[self.rank]);
        coming[self.rank] = 0;
        let mut received: Vec<Vec<u8>> = coming.iter().map(|&length| vec![0; length as usize]).collect();
        scope(|scope| {
            let mut requests = vec![];
            for (rank, part) in received.iter_mut().enumerate() {
                let from = world.process_at_rank(rank as i32);
                requests.extend(
                    part.chunks_mut(MOST).map(|chunk| from.immediate_receive_into_with_tag(scope, chunk, MESSAGE)),
                );
            }
            for (rank, part) in parts.iter().enumerate() {
                let to = world.process_at_rank(rank as i32);
                requests.extend(part.chunks(MOST).map(|chunk| to.immediate_send_with_tag(scope, chunk, MESSAGE)));
            }
            requests.into_iter().for_each(|request| request.wait_without_status());
        });
        received[self.rank] = own;
        Ok(received)
    }

    fn signal(&self) {
        let world = self.universe.world();
        for rank in (0..self.size).filter(|&rank| rank != self.rank) {
            // An empty message does not wait for its receiver.
            world.process_at_rank(rank as i32).send_with_tag(&[0u8; 0][..], SIGNAL);
        }
    }

    fn signalled(&self) -> bool {
        let world = self.universe.world();
        let found = world.any_process().immediate_probe_with_tag(SIGNAL);
        let Some(status) = found else { return false };
        let from = world.process_at_rank(status.source_rank());
        from.receive_into_with_tag(&mut [0u8; 0][..], SIGNAL);
        true
    }
}

impl Drop for World {
    /// MPI wants that every message is received: ranks that waited in an exchange have not looked for signals.
    fn drop(&mut self) {
        while self.signalled() {}
    }
}
