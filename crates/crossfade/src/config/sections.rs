//! The sections whose types belong to no other module.
use crate::error::Result;
use crate::loader::LoaderConfig;
use crate::sample::gaussian::Churn;
use crate::sample::{FittedTimes, Sampler};
use crossfade_math::{Blend, EmaSchedule, Grid, GridKind, LrSchedule, Process};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The optimiser: AdamW, the learning rate schedule and the moving average of the weights (§2.5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OptimConfig {
    /// Largest learning rate.
    pub lr: f64,
    /// Smallest learning rate after the warm-up.
    pub lr_floor: f64,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// The exponent p of the learning rate decay (1 − i/N)^p.
    pub lr_exponent: f64,
    /// Decoupled weight decay of all parameters.
    pub weight_decay: f64,
    /// Decay of the first moment of the gradient.
    pub beta1: f64,
    /// Decay of the second moment of the gradient.
    pub beta2: f64,
    /// AdamW's ε, which is added to the denominator.
    pub adam_eps: f64,
    /// Gradients are clipped to this global norm; 0 for no clipping.
    pub clip: f64,
    /// Largest decay of the moving average of the weights.
    pub ema_beta: f64,
    /// Until this step the moving average is a copy of the weights.
    pub ema_after: u64,
    /// Steps between updates of the moving average.
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
    /// The norm that gradients are clipped to, if they are.
    pub fn clip(&self) -> Option<f64> {
        (self.clip > 0.0).then_some(self.clip)
    }

    /// The learning rate schedule of a run of `steps` steps.
    pub fn lr_schedule(&self, steps: u64) -> LrSchedule {
        LrSchedule { base: self.lr, floor: self.lr_floor, steps, warmup: self.warmup, exponent: self.lr_exponent }
    }

    /// The decay of the moving average of the weights, as a function of the step.
    pub fn ema_schedule(&self) -> EmaSchedule {
        EmaSchedule { beta: self.ema_beta, update_after: self.ema_after, update_every: self.ema_every }
    }
}

/// The training loop: steps, batches, augmentation, and the files that a run writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Steps of the optimiser.
    pub steps: u64,
    /// Images per micro-batch.
    pub batch: usize,
    /// Micro-batches per step; their gradients are averaged.
    pub accumulate: usize,
    /// Whether images are mirrored left to right half of the time.
    pub flip: bool,
    /// Probability of each transformation of EDM's augmentation pipeline (§2.6); 0 for none.
    pub augment: f64,
    /// Activation checkpointing: activations that are cheap to compute are recomputed in the backward pass, which takes
    /// less memory and more time. Results are bit-identical.
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
    /// The options of the data loader.
    pub(crate) fn loading(&self, seed: u64) -> LoaderConfig {
        LoaderConfig { batch: self.batch, seed, flip: self.flip, threads: self.loader_threads, cache: true }
    }

    /// The section with defaults for the options that the weights do not depend on, such as output intervals and threads.
    pub(super) fn with_default_output_options(&self) -> Self {
        let Self { log_every, sample_every, checkpoint_every, keep, .. } = Self::default();
        let Self { recompute, tensorboard, loader_threads, .. } = Self::default();
        Self { log_every, sample_every, checkpoint_every, keep, recompute, tensorboard, loader_threads, ..self.clone() }
    }
}

/// The autoencoder of a latent diffusion run; the `[latent]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentConfig {
    /// A checkpoint of the autoencoder, or the directory of its run. The autoencoder is copied into the checkpoints of the
    /// latent run, so that these are self-contained.
    pub autoencoder: PathBuf,
    /// The factor that latents are multiplied by. By default it is one over the standard deviation of the first batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// A file for the encoded images, which is written when the run first starts. Without it, images are encoded in every
    /// step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
}

/// Deserialises a `[process]` section, in which `kind` may be missing. Serde's tagged enums need the tag, so the
/// default kind is inserted first.
pub(super) fn process<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Process, D::Error> {
    let mut section = <toml::Table as Deserialize>::deserialize(deserializer)?;
    section.entry("kind").or_insert_with(|| Process::default().name().into());
    // The bare message, without toml's context: `read::explain` parses serde's own messages.
    section.try_into().map_err(|e: toml::de::Error| serde::de::Error::custom(e.message()))
}

/// The sampler and its settings; the command line can override them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SampleConfig {
    /// The sampler; `auto` chooses one for the process.
    pub sampler: Sampler,
    /// Sampling steps.
    pub steps: usize,
    /// How the outputs of the two heads are combined to one estimate of x_0.
    pub blend: Blend,
    /// The estimate of x_0 is clamped to ±clip at every step; 0 for no clamping.
    pub clip: f64,
    /// η of the sampler `ddim`: 0 is deterministic, 1 is `ancestral`.
    pub eta: f64,
    /// The grid of times; `auto` chooses one for process and sampler.
    pub grid: Grid,
    /// The noise that the sampler `heun-churn` adds.
    pub churn: Churn,
    /// Times that `crossfade calibrate --times --save` has fitted to the weights; the grid `auto` uses them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<FittedTimes>,
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
            fitted: vec![],
        }
    }
}

impl SampleConfig {
    /// The bound that x̂_0 is clamped to, if it is.
    pub fn clip(&self) -> Option<f64> {
        (self.clip > 0.0).then_some(self.clip)
    }

    /// The settings with `auto` replaced by a sampler and a grid; an error if the sampler cannot run on the process. The
    /// grid is that of the fitted times, if there are some for this sampler and number of steps.
    pub fn resolved(&self, process: &Process) -> Result<Self> {
        let sampler = self.sampler.resolved(process)?;
        let automatic = self.grid.kind == GridKind::Auto;
        let fitted = FittedTimes::find(&self.fitted, sampler, self.steps).filter(|_| automatic);
        let kind = fitted.unwrap_or_else(|| sampler.grid(process, &self.grid.kind));
        // The list is dropped: what is recorded in images and results is the grid that was used.
        Ok(Self { sampler, grid: Grid { kind, ..self.grid }, fitted: vec![], ..self.clone() })
    }

    /// The times of the steps, down to 0.
    pub fn times(&self, process: &Process) -> Result<Vec<f64>> {
        let own = self.resolved(process)?;
        own.sampler.times(process, &own.grid, own.steps)
    }

    /// Network evaluations per image.
    pub fn evaluations(&self, process: &Process) -> Result<usize> {
        self.sampler.resolved(process)?.evaluations(process, &self.times(process)?)
    }
}
