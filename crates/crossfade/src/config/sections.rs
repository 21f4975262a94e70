//! The sections whose types belong to no other module.
use crate::error::Result;
use crate::loader::{LoaderConfig, Share};
use crate::nn::Precision;
use crate::ranks;
use crate::sample::gaussian::Churn;
use crate::sample::{EvaluationOptions, FittedTimes, Guidance, Sampler};
use crossfade_math::{Blend, EmaAction, EmaSchedule, Grid, GridKind, LrSchedule, PowerProfile, Process};
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
    /// Relative width of a power-function average (§2.5), such as 0.1, in place of the ramp of the three options above:
    /// it suits any length of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema_sigma: Option<f64>,
    /// Relative widths of power-function averages that are kept beside the moving average, such as `[0.05, 0.1]`.
    /// `crossfade average` makes an average of any other width from them after the training.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ema_profiles: Vec<f64>,
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
            ema_sigma: None,
            ema_profiles: vec![],
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

    /// The ramp of the moving average, which [`Self::ema_sigma`] replaces.
    pub fn ema_schedule(&self) -> EmaSchedule {
        EmaSchedule { beta: self.ema_beta, update_after: self.ema_after, update_every: self.ema_every }
    }

    /// What happens to the moving average of the weights at `step`, counted from 0.
    pub fn ema_action(&self, step: u64) -> EmaAction {
        match self.ema_sigma.and_then(PowerProfile::new) {
            Some(profile) => profile.action(step),
            None => self.ema_schedule().action(step),
        }
    }

    /// The profiles of the averages that are kept beside the moving average.
    pub fn profiles(&self) -> Vec<PowerProfile> {
        self.ema_profiles.iter().filter_map(|&sigma| PowerProfile::new(sigma)).collect()
    }
}

/// The training loop: steps, batches, augmentation, and the files that a run writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// A checkpoint, a run or a model that ships whose weights the run starts from, in place of random ones (fine-tuning).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
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
    /// Probability that a training sample is shown without its class, so that one network learns both: with a class and
    /// without. Guidance needs both.
    #[serde(skip_serializing_if = "is_default_dropout")]
    pub label_dropout: f64,
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
    /// Steps between stored snapshots of the averages `optim.ema_profiles`, which are all kept; 0 for every checkpoint.
    #[serde(skip_serializing_if = "is_zero")]
    pub average_every: u64,
    /// Whether the log and the sheets are also written as event files for TensorBoard.
    pub tensorboard: bool,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            from: None,
            steps: 800_000,
            batch: 128,
            accumulate: 1,
            flip: true,
            augment: 0.0,
            label_dropout: LABEL_DROPOUT,
            recompute: false,
            loader_threads: 2,
            log_every: 10,
            sample_every: 0,
            checkpoint_every: 10_000,
            keep: 3,
            average_every: 0,
            tensorboard: true,
        }
    }
}

/// The usual probability of training samples without their class.
pub(super) const LABEL_DROPOUT: f64 = 0.1;

/// Keys that are not written where they have their defaults: the options for classes, so that the fingerprints of networks
/// without classes stay as they were before there were classes.
pub(super) const LEFT_OUT: [&str; 5] =
    ["network.classes", "train.label_dropout", "sample.class", "sample.guidance", "sample.guidance_interval"];

fn is_default_dropout(dropout: &f64) -> bool {
    *dropout == LABEL_DROPOUT
}

impl TrainConfig {
    /// The options of the data loader, which makes the batches of this rank.
    pub(crate) fn loading(&self, seed: u64) -> LoaderConfig {
        let group = ranks::current();
        let share =
            Share { micro_batches: self.accumulate as u64, rank: group.rank() as u64, ranks: group.size() as u64 };
        LoaderConfig { batch: self.batch, seed, flip: self.flip, threads: self.loader_threads, cache: true, share }
    }

    /// The section with defaults for the options that the weights do not depend on, such as output intervals and threads, or
    /// that a resumed run does not need: the weights that it started from are in its checkpoints.
    pub(super) fn with_default_output_options(&self) -> Self {
        Self {
            steps: self.steps,
            batch: self.batch,
            accumulate: self.accumulate,
            flip: self.flip,
            augment: self.augment,
            label_dropout: self.label_dropout,
            ..Self::default()
        }
    }

    /// Steps between snapshots of the averages `optim.ema_profiles`.
    pub(crate) fn snapshot_interval(&self) -> u64 {
        if self.average_every > 0 { self.average_every } else { self.checkpoint_every }
    }
}

fn is_zero(value: &u64) -> bool {
    *value == 0
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
    /// Whether the evaluation at t = 1 is saved: what an ideal network returns there is known from the mean of the training
    /// images, which is stored in the checkpoint (§3.5).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub free_first_step: bool,
    /// The numbers that the network's convolutions and products compute with.
    #[serde(skip_serializing_if = "Precision::is_f32")]
    pub precision: Precision,
    /// The class of the images of a network with classes: a name or number, several with commas between them or `all`
    /// (image k gets class k mod n of these n), `random` (drawn for each image), or `none`.
    #[serde(skip_serializing_if = "is_random")]
    pub class: String,
    /// The weight w of guidance: 1 for none, which takes one network evaluation in place of two.
    #[serde(skip_serializing_if = "is_one")]
    pub guidance: f64,
    /// The times [from, to] between which predictions are guided; t = 1 is noise.
    #[serde(skip_serializing_if = "is_whole")]
    pub guidance_interval: [f64; 2],
    /// Times that `crossfade calibrate --times --save` has fitted to the weights; the grid `auto` uses them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<FittedTimes>,
}

/// The default of `sample.class`.
pub(crate) const RANDOM_CLASS: &str = "random";

fn is_random(class: &str) -> bool {
    class == RANDOM_CLASS
}

fn is_one(guidance: &f64) -> bool {
    *guidance == 1.0
}

fn is_whole(interval: &[f64; 2]) -> bool {
    *interval == Guidance::NONE.interval
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
            free_first_step: false,
            precision: Precision::F32,
            class: RANDOM_CLASS.into(),
            guidance: Guidance::NONE.scale,
            guidance_interval: Guidance::NONE.interval,
            fitted: vec![],
        }
    }
}

impl SampleConfig {
    /// The bound that x̂_0 is clamped to, if it is.
    pub fn clip(&self) -> Option<f64> {
        (self.clip > 0.0).then_some(self.clip)
    }

    /// How predictions are guided.
    pub fn guidance(&self) -> Guidance {
        Guidance { scale: self.guidance, interval: self.guidance_interval }
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

    /// What changes the number of network evaluations besides the times.
    pub(crate) fn evaluation_options(&self) -> EvaluationOptions {
        EvaluationOptions { guidance: self.guidance(), free_first_step: self.free_first_step }
    }

    /// Network evaluations per image.
    pub fn evaluations(&self, process: &Process) -> Result<usize> {
        self.sampler.resolved(process)?.evaluations(process, &self.times(process)?, self.evaluation_options())
    }
}
