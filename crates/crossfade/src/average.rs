//! Averages of weights that are chosen after the training (§2.5): any power-function average from the snapshots that a run
//! with `optim.ema_profiles` has stored.
use crate::checkpoint::{self, Checkpoint, Opened, RunDir, average_prefix};
use crate::config::RunConfig;
use crate::error::{Error, Result, Shown};
use crate::nn::BackboneConfig;
use crate::tensorfile::{HostTensor, save_tensors};
use crossfade_math::{PowerProfile, StoredAverage, reconstruct};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The metadata entry of an averaged checkpoint that says how it was made.
const AVERAGE: &str = "average";

/// The stored averages of a run.
pub struct Snapshots {
    /// The steps and files of the snapshots, oldest first.
    files: Vec<(u64, PathBuf)>,
    /// The configuration of the run.
    config: RunConfig,
    /// What a checkpoint of the run contains beside weights, such as the autoencoder of a latent run.
    fixed: (Vec<HostTensor>, BTreeMap<String, String>),
}

/// An average that was made from snapshots.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Averaged {
    /// Its relative width.
    pub sigma: f64,
    /// The training step that it ends at.
    pub step: u64,
    /// The number of stored averages that it is combined from.
    pub stored: usize,
    /// The distance of its profile from the wanted one, relative to the latter's norm.
    pub error: f64,
    /// The checkpoint.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub checkpoint: PathBuf,
}

impl Snapshots {
    /// Finds the snapshots of the run in a directory.
    pub fn open(run: &Path) -> Result<Self> {
        let dir = RunDir(run.to_path_buf());
        let newest = Checkpoint::open(&checkpoint::newest(run)?)?;
        let files = checkpoint::list(&dir.averages())?;
        if files.is_empty() || newest.config.optim.ema_profiles.is_empty() {
            let advice = "train with optim.ema_profiles, for example [0.05, 0.1]";
            return Err(Error::file(run, format!("holds no averages to combine; {advice}")));
        }
        Ok(Self { files, fixed: newest.fixed_parts()?, config: newest.config })
    }

    /// Writes a checkpoint with the average of relative width `sigma` after `step` training steps, by default after those
    /// of the last snapshot.
    pub fn average(&self, sigma: f64, step: Option<u64>, out: &Path) -> Result<Averaged> {
        let wrong = || Error::request(format!("a relative width must be {}, not {sigma}", PowerProfile::RANGE));
        let profile = PowerProfile::new(sigma).ok_or_else(wrong)?;
        let last = self.files.last().map_or(0, |(step, _)| *step);
        let step = step.unwrap_or(last);
        let used: Vec<_> = self.files.iter().filter(|(stored, _)| *stored <= step).collect();
        if step > last || used.is_empty() {
            let first = self.files.first().map_or(0, |(step, _)| *step);
            return Err(Error::request(format!("the stored averages are of steps {first} to {last}, not of {step}")));
        }
        let profiles = self.config.optim.profiles();
        let stored: Vec<_> = (used.iter())
            .flat_map(|(step, _)| profiles.iter().map(|&profile| StoredAverage { profile, step: *step }))
            .collect();
        let found = reconstruct(&stored, &StoredAverage { profile, step });
        let mut sums: Vec<(String, Vec<usize>, Vec<f64>)> = (self.config.network.state_shapes(self.config.ports()))
            .into_iter()
            .map(|(name, shape)| (name, shape.clone(), vec![0.0; shape.iter().product()]))
            .collect();
        for ((_, path), coefficients) in used.iter().zip(found.coefficients.chunks(profiles.len())) {
            let needed = coefficients.iter().zip(&profiles).filter(|(coefficient, _)| **coefficient != 0.0);
            self.add(path, &needed.map(|(c, p)| (*c, *p)).collect::<Vec<_>>(), &mut sums)?;
        }
        let rounded = sums.into_iter().map(|(name, shape, sum)| (name, shape, sum.iter().map(|v| *v as f32).collect()));
        let tensors: Vec<HostTensor> = rounded.chain(self.fixed.0.iter().cloned()).collect();
        let mut metadata = checkpoint::metadata(&self.config, step)?;
        metadata.extend(self.fixed.1.clone());
        metadata.insert(AVERAGE.into(), format!("sigma {sigma}"));
        save_tensors(out, &tensors, &metadata)?;
        Ok(Averaged { sigma, step, stored: stored.len(), error: found.error, checkpoint: out.to_path_buf() })
    }

    /// Adds the averages in a file, each multiplied by its coefficient.
    fn add(
        &self,
        path: &Path,
        parts: &[(f64, PowerProfile)],
        sums: &mut [(String, Vec<usize>, Vec<f64>)],
    ) -> Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let file = Opened::open(path)?;
        let config = RunConfig::parse(&file.config, &path.shown())?;
        config.must_resume_as(&self.config).map_err(|e| Error::file(path, format!("is of another run: {e}")))?;
        let mut tensors = file.read()?;
        for (coefficient, profile) in parts {
            let prefix = average_prefix(profile.sigma);
            for (name, shape, sum) in &mut *sums {
                let found = tensors.remove(&format!("{prefix}{name}")).filter(|(s, _)| s == shape);
                let missing = || Error::file(path, format!("has no tensor {prefix}{name} of the right shape"));
                let (_, values) = found.ok_or_else(missing)?;
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += coefficient * f64::from(value));
            }
        }
        Ok(())
    }
}
