//! Verbs that several processes of MPI run together.
use anyhow::{Result, anyhow};
use crossfade::ranks;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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
    ranks::enter(std::sync::Arc::new(ranks::mpi::group(size)?));
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

/// Runs `work` on this rank. All ranks end together: if one fails, the others stop and return its number and reason.
pub fn together(work: impl FnOnce() -> Result<()>) -> Result<()> {
    let group = ranks::current();
    if group.size() == 1 {
        return work();
    }
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

/// Leaves the other ranks, which MPI wants before a process ends.
pub fn leave() {
    ranks::enter(std::sync::Arc::new(ranks::Group::alone()));
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
