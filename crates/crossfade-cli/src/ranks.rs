//! Verbs that several processes of MPI run together.
#[cfg(feature = "mpi")]
mod mpi;

use anyhow::{Result, anyhow};
use crossfade::engine::device;
use crossfade::ranks;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// The variables in which Open MPI, MPICH (also of Slurm) and MVAPICH tell a process how many there are.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];

/// The number of processes that were started together, of which `variable` tells.
fn size(variable: impl Fn(&str) -> Option<String>) -> usize {
    // PMIx, by which newer versions of srun start programs, has no variable for it; Slurm has one.
    let slurm = variable("PMIX_RANK").and_then(|_| variable("SLURM_STEP_NUM_TASKS"));
    let found = SIZES.iter().find_map(|name| variable(name)).or(slurm);
    found.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Joins the other ranks if this process was started by `mpirun` or `srun`; alone, this does nothing.
pub fn join() -> Result<()> {
    let size = size(|name| std::env::var(name).ok());
    if size > 1 { join_mpi(size) } else { Ok(()) }
}

#[cfg(feature = "mpi")]
fn join_mpi(size: usize) -> Result<()> {
    ranks::enter(Arc::new(mpi::group(size)?));
    Ok(())
}

#[cfg(not(feature = "mpi"))]
fn join_mpi(size: usize) -> Result<()> {
    let problem = format!(
        "started as one of {size} processes of MPI, but this program was built without MPI: build it with \
         `cargo install --path crates/crossfade-cli --features mpi`, start one process, or divide `sample` and `sweep` with \
         --shard auto"
    );
    Err(crossfade::Error::request(problem).into())
}

/// Runs `work` on this rank with its device. All ranks end together: if one fails, the others stop and return its number and
/// reason. Devices of different kinds round differently, so they cannot share work.
pub fn together(device: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let group = ranks::current();
    if group.size() == 1 {
        return work();
    }
    let kind = device.split(':').next().unwrap_or_default();
    let work = || {
        group.agree(&[("kind of device", kind.into())])?;
        work()
    };
    let done = catch_unwind(AssertUnwindSafe(work));
    match done {
        Ok(Ok(())) => Ok(group.wait()?),
        Ok(Err(error)) => {
            group.announce(&format_args!("{error:#}"));
            Err(error)
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            group.announce(&anyhow!("panicked: {}", text.unwrap_or_default()));
            drop(group);
            leave();
            resume_unwind(panic)
        }
    }
}

/// Runs `work` on every device, in a thread of this process that is a rank; `is_shared` says whether the verb can be shared.
pub fn on_devices(devices: &[String], is_shared: bool, work: impl Fn(&str) -> Result<()> + Sync) -> Result<()> {
    if !is_shared {
        let problem = "this verb uses one device, and several are named; train, distill, sample, sweep, eval stats and the tasks \
                       share their work";
        return Err(crossfade::Error::request(problem).into());
    }
    if ranks::current().size() > 1 {
        let problem = "each process of mpirun has one device: start one process for each and name its --device";
        return Err(crossfade::Error::request(problem).into());
    }
    // A device that is not there ends the program before any work.
    devices.iter().try_for_each(|name| device(name).map(drop))?;
    let as_rank = &|device: &str, group: ranks::Group| {
        ranks::enter(Arc::new(group));
        let done = together(device, || work(device));
        leave();
        done
    };
    std::thread::scope(|scope| {
        let groups = ranks::threads::groups(devices.len()).into_iter().zip(devices);
        let threads: Vec<_> = groups.map(|(group, device)| scope.spawn(move || as_rank(device, group))).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        // All of them fail if one does; each error says which rank was the first.
        ended.into_iter().try_for_each(|done| done.unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Leaves the other ranks, which MPI wants before a process ends.
pub fn leave() {
    ranks::enter(Arc::new(ranks::Group::alone()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_processes_is_found() {
        let of = |variables: &[(&str, &str)]| {
            size(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string()))
        };
        assert_eq!(of(&[]), 1);
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "4")]), 4);
        assert_eq!(of(&[("PMI_SIZE", "3"), ("SLURM_STEP_NUM_TASKS", "9")]), 3);
        assert_eq!(of(&[("PMIX_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "2")]), 2);
        // A program that srun has started without MPI is alone.
        assert_eq!(of(&[("SLURM_STEP_NUM_TASKS", "2")]), 1);
    }
}
