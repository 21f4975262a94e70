//! The sections that no other module owns.
use crate::error::Result;
use crate::loader::LoaderConfig;
use crate::sample::gaussian::Churn;
use crate::sample::Sampler;
use crossfade_math::{Blend, EmaSchedule, Grid, LrSchedule, Process};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How weights follow the gradient: AdamW, the learning rate over time and the averaged weights (§2.5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimConfig {
    /// Largest learning rate.
    pub lr: f64,
    /// Smallest learning rate after the warm-up.
    pub lr_floor: f64,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// How the learning rate falls: (1 − i/N)^p.
    pub lr_exponent: f64,
    /// Decoupled weight decay, of all parameters.
    pub weight_decay: f64,
    /// Decay of the mean gradient.
    pub beta1: f64,
    /// Decay of the mean squared gradient.
    pub beta2: f64,
    /// Keeps the division by the root of the mean square finite.
    pub adam_eps: f64,
    /// Largest global norm of the gradient; 0 for no limit.
    pub clip: f64,
    /// Largest decay of the averaged weights.
    pub ema_beta: f64,
    /// Until this step the averaged weights are a copy.
    pub ema_after: u64,
    /// Steps between updates of the averaged weights.
    pub ema_every: u64,
}

impl Default for OptimConfig {
    fn default() -> Self {
        Self {
            lr: 1e-4,
            lr_floor: 5e-6,
            warmup: 5000,
            lr_exponent: 0.96,
            weight_decay: 1e-4,
            beta1: 0.9,
            beta2: 0.999,
            adam_eps: 1e-8,
            clip: 1.0,
            ema_beta: 0.9996,
            ema_after: 10_000,
            ema_every: 8,
        }
    }
}

impl OptimConfig {
    /// The limit of the gradient's norm, if there is one.
    pub fn clip(&self) -> Option<f64> {
        (self.clip > 0.0).then_some(self.clip)
    }

    /// The learning rate over `steps` steps.
    pub fn lr_schedule(&self, steps: u64) -> LrSchedule {
        LrSchedule { base: self.lr, floor: self.lr_floor, steps, warmup: self.warmup, exponent: self.lr_exponent }
    }

    /// The decay of the averaged weights over the steps.
    pub fn ema_schedule(&self) -> EmaSchedule {
        EmaSchedule { beta: self.ema_beta, update_after: self.ema_after, update_every: self.ema_every }
    }
}

/// How long a run trains, in what portions, and what it leaves behind on the way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Steps of the optimiser.
    pub steps: u64,
    /// Images a portion.
    pub batch: usize,
    /// Portions a step; their gradients are averaged.
    pub accumulate: usize,
    /// Whether images are mirrored left to right half of the time.
    pub flip: bool,
    /// Probability of each transformation of the augmentation pipe; 0 for none.
    pub augment: f64,
    /// Less memory for more time: what is cheap to compute is not kept for the backward pass. Changes no bit.
    pub recompute: bool,
    /// Threads that read and prepare images.
    pub loader_threads: usize,
    /// Steps between lines of the log.
    pub log_every: u64,
    /// Steps between sheets of sample images; 0 for none.
    pub sample_every: u64,
    /// Steps between checkpoints.
    pub checkpoint_every: u64,
    /// How many checkpoints are kept.
    pub keep: usize,
    /// Whether the log and the sheets are also written as event files for TensorBoard.
    pub tensorboard: bool,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 800_000,
            batch: 128,
            accumulate: 1,
            flip: true,
            augment: 0.0,
            recompute: false,
            loader_threads: 2,
            log_every: 10,
            sample_every: 0,
            checkpoint_every: 10_000,
            keep: 3,
            tensorboard: true,
        }
    }
}

impl TrainConfig {
    /// How images are loaded.
    pub(crate) fn loading(&self, seed: u64) -> LoaderConfig {
        LoaderConfig { batch: self.batch, seed, flip: self.flip, threads: self.loader_threads, cache: true }
    }

    /// With the defaults for what the weights do not depend on: how often things are written, and by how many threads.
    pub(super) fn with_default_output_options(&self) -> Self {
        let Self { log_every, sample_every, checkpoint_every, keep, .. } = Self::default();
        let Self { recompute, tensorboard, loader_threads, .. } = Self::default();
        Self { log_every, sample_every, checkpoint_every, keep, recompute, tensorboard, loader_threads, ..self.clone() }
    }
}

/// The first stage of a latent run; the `[latent]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentConfig {
    /// The autoencoder: a checkpoint of its training or the directory of its run. The run's own checkpoints hold it too.
    pub autoencoder: PathBuf,
    /// Latents are multiplied by this; without it by one over the standard deviation of the first batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// A file for the encoded images, made at the first start; without it images are encoded whenever they are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
}

/// How images are made; the command line can override it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampleConfig {
    /// The sampler; `auto` is the one that suits the process.
    pub sampler: Sampler,
    /// Its steps.
    pub steps: usize,
    /// How the two heads become one estimate.
    pub blend: Blend,
    /// Limits the estimate of x_0 to ±clip at every step; 0 for no limit.
    pub clip: f64,
    /// η of the sampler `ddim`: 0 is deterministic, 1 is `ancestral`.
    pub eta: f64,
    /// The times of its steps; `auto` are those that suit the process.
    pub grid: Grid,
    /// The fresh noise of the sampler `heun-churn`.
    pub churn: Churn,
}

impl Default for SampleConfig {
    fn default() -> Self {
        Self {
            sampler: Sampler::Auto,
            steps: 10,
            blend: Blend::Heads,
            clip: 1.0,
            eta: 0.0,
            grid: Grid::default(),
            churn: Churn::default(),
        }
    }
}

impl SampleConfig {
    /// The limit of x̂_0, if there is one.
    pub fn clip(&self) -> Option<f64> {
        (self.clip > 0.0).then_some(self.clip)
    }

    /// With the sampler and the grid that `auto` stands for; an error if the sampler does not fit.
    pub fn resolved(&self, process: &Process) -> Result<Self> {
        let sampler = self.sampler.resolved(process)?;
        let kind = sampler.grid(process, &self.grid.kind);
        Ok(Self { sampler, grid: Grid { kind, ..self.grid }, ..self.clone() })
    }

    /// The times of the steps, from 1 to 0.
    pub fn times(&self, process: &Process) -> Result<Vec<f64>> {
        self.sampler.resolved(process)?.times(process, &self.grid, self.steps)
    }

    /// How often the network is evaluated for an image.
    pub fn evaluations(&self, process: &Process) -> Result<usize> {
        self.sampler.resolved(process)?.evaluations(process, &self.times(process)?)
    }
}
