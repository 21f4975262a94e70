//! Verbs that several processes of MPI run together.
use anyhow::Result;
use crossfade::ranks;

/// The variables in which Open MPI, MPICH (also of Slurm) and MVAPICH tell a process how many there are.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];

/// Joins the other ranks if this process was started by `mpirun` or `srun`; alone, this does nothing.
pub fn join() -> Result<()> {
    let size = SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse::<usize>().ok()).unwrap_or(1);
    if size > 1 { join_mpi(size) } else { Ok(()) }
}

#[cfg(feature = "mpi")]
fn join_mpi(_: usize) -> Result<()> {
    ranks::enter(std::sync::Arc::new(ranks::mpi::group()?));
    Ok(())
}

#[cfg(not(feature = "mpi"))]
fn join_mpi(size: usize) -> Result<()> {
    let problem = format!(
        "started as one of {size} processes of MPI, but this program was built without MPI: build it with \
         `cargo install --path crates/crossfade-cli --features mpi`, or start one process"
    );
    Err(crossfade::Error::request(problem).into())
}

/// Leaves the other ranks, which MPI wants before a process ends.
pub fn leave() {
    ranks::enter(std::sync::Arc::new(ranks::Group::alone()));
}
