//! Ranks that are processes of MPI.
use super::{Group, Transport};
use crate::error::{Error, Result};
use mpi::collective::SystemOperation;
use mpi::datatype::{Partition, PartitionMut};
use mpi::environment::{Threading, Universe};
use mpi::traits::{Communicator, CommunicatorCollectives};

/// Bytes that a rank sends and receives in one call at most, because MPI counts in 32 bits.
const MOST: u64 = 1 << 30;

struct World {
    universe: Universe,
    rank: usize,
    size: usize,
}

/// The group of this process; an error if MPI has been started before. MPI ends when the group is dropped.
pub fn group() -> Result<Group> {
    let started = mpi::initialize_with_threading(Threading::Funneled);
    let (universe, _) = started.ok_or_else(|| Error::Run("MPI cannot be started twice".into()))?;
    let (rank, size) = (universe.world().rank() as usize, universe.world().size() as usize);
    Ok(Group::new(World { universe, rank, size }))
}

impl Transport for World {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let world = self.universe.world();
        let lengths: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
        let mut coming = vec![0u64; self.size];
        world.all_to_all_into(&lengths[..], &mut coming[..]);
        // All ranks must make the same number of calls.
        let (own, mut longest) = (lengths.iter().copied().max().unwrap_or(0), 0u64);
        world.all_reduce_into(&own, &mut longest, SystemOperation::max());
        let chunk = (MOST / self.size as u64).max(1);
        let mut received: Vec<Vec<u8>> = coming.iter().map(|&n| Vec::with_capacity(n as usize)).collect();
        for from in (0..longest).step_by(chunk as usize) {
            let piece = |length: u64| length.saturating_sub(from).min(chunk) as usize;
            let (send, receive) = (pieces(&lengths, piece), pieces(&coming, piece));
            let mut out = Vec::with_capacity(send.total);
            for part in &parts {
                let size = piece(part.len() as u64);
                let start = (from as usize).min(part.len());
                out.extend_from_slice(&part[start..start + size]);
            }
            let mut found = vec![0u8; receive.total];
            {
                let sent = Partition::new(&out[..], &send.counts[..], &send.starts[..]);
                let mut taken = PartitionMut::new(&mut found[..], &receive.counts[..], &receive.starts[..]);
                world.all_to_all_varcount_into(&sent, &mut taken);
            }
            let mut rest = &found[..];
            for (part, &count) in received.iter_mut().zip(&receive.counts) {
                let (piece, after) = rest.split_at(count as usize);
                part.extend_from_slice(piece);
                rest = after;
            }
        }
        Ok(received)
    }
}

/// Sizes and places of the pieces of one call.
struct Pieces {
    counts: Vec<i32>,
    starts: Vec<i32>,
    total: usize,
}

fn pieces(lengths: &[u64], piece: impl Fn(u64) -> usize) -> Pieces {
    let (mut counts, mut starts, mut total) = (vec![], vec![], 0);
    for &length in lengths {
        let size = piece(length);
        // Both fit: a call moves at most `MOST` bytes.
        counts.push(size as i32);
        starts.push(total as i32);
        total += size;
    }
    Pieces { counts, starts, total }
}
