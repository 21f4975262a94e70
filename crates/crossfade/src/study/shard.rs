//! The shard of a process, from the environment variables of cluster schedulers.
use crate::error::{Error, Result};
use crate::generate::Shard;

/// The shard from the environment of Slurm, MPI or a Kubernetes indexed job; `variable` reads an environment variable.
///
/// In a Slurm array of jobs with several tasks each, every task of every job is a shard.
pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Shard> {
    let number = |name: &str| -> Result<Option<u64>> {
        let Some(text) = variable(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let bad = |_| Error::request(format!("--shard auto: the variable {name} is '{text}', no number"));
        text.parse().map(Some).map_err(bad)
    };
    let pair = |index: &str, count: &str| -> Result<Option<(u64, u64)>> {
        match (number(index)?, number(count)?) {
            (Some(i), Some(n)) => Ok(Some((i, n))),
            _ => Ok(None),
        }
    };
    // The variables of MPI come first: within a batch script, Slurm gives every process that mpirun starts the task
    // number 0. Only a step of srun has several Slurm tasks.
    let ranks = [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ];
    let mut tasks = None;
    for (index, count) in ranks {
        tasks = tasks.or(pair(index, count)?);
    }
    let found = if let Some((id, count)) = pair("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT")? {
        let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
        let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
        let (task, per_job) = tasks.unwrap_or((0, 1));
        let place = (id.saturating_sub(first) / step).saturating_mul(per_job).saturating_add(task);
        Some((place, count.saturating_mul(per_job)))
    } else if tasks.is_some() {
        tasks
    } else if let Some(index) = number("JOB_COMPLETION_INDEX")? {
        let count = number("JOB_COMPLETIONS")?.ok_or_else(|| {
            let advice =
                "Kubernetes does not tell a pod how many there are; set JOB_COMPLETIONS to the job's completions";
            Error::request(format!("--shard auto: {advice}"))
        })?;
        Some((index, count))
    } else {
        None
    };
    match found {
        Some((index, count)) if index < count => Ok(Shard { index, count }),
        Some((index, count)) => Err(Error::request(format!("--shard auto: part {index} of {count} does not exist"))),
        None => Err(Error::request(
            "--shard auto: no shard in the environment; known are SLURM_ARRAY_TASK_ID, SLURM_PROCID of a step of srun, \
             OMPI_COMM_WORLD_RANK, PMI_RANK, and JOB_COMPLETION_INDEX with JOB_COMPLETIONS",
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shard(variables: &[(&str, &str)]) -> Result<Shard> {
        from_environment(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string()))
    }

    #[test]
    fn schedulers_are_understood() {
        let is = |variables: &[(&str, &str)], index, count| {
            assert_eq!(shard(variables).unwrap(), Shard { index, count }, "{variables:?}");
        };
        is(&[("SLURM_PROCID", "3"), ("SLURM_NTASKS", "8"), ("SLURM_STEP_NUM_TASKS", "8")], 3, 8);
        // mpirun within a batch script.
        let batch = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        is(&[&batch[..], &[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8")]].concat(), 3, 8);
        assert!(shard(&batch).is_err(), "a batch script is not one of the tasks that it asked for");
        let array = [("SLURM_ARRAY_TASK_ID", "7"), ("SLURM_ARRAY_TASK_COUNT", "4"), ("SLURM_ARRAY_TASK_MIN", "1")];
        is(&[&array[..], &[("SLURM_ARRAY_TASK_STEP", "2")]].concat(), 3, 4);
        let two = [("SLURM_ARRAY_TASK_STEP", "2"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        is(&[&array[..], &two].concat(), 7, 8);
        is(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")], 0, 2);
        is(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")], 1, 2);
        is(&[("JOB_COMPLETION_INDEX", "4"), ("JOB_COMPLETIONS", "5")], 4, 5);
        for bad in [&[][..], &[("JOB_COMPLETION_INDEX", "4")], &[("PMI_RANK", "x"), ("PMI_SIZE", "2")]] {
            assert!(matches!(shard(bad), Err(Error::Request(_))), "{bad:?}");
        }
        assert!(shard(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]).is_err());
    }
}
