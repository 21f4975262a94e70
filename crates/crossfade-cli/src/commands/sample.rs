//! `crossfade sample`.
use crate::cli::{Weights, one_of};
use crate::context::Context;
use crate::output::duration;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::Error;
use crossfade::checkpoint::{self, Checkpoint};
use crossfade::config::SampleConfig;
use crossfade::generate::{self, BATCH, Job, Shard};
use crossfade::math::{Blend, GridKind};
use crossfade::sample::{Law, Sampler};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Options of `sample`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade sample runs/tiny --count 16 --out pictures
  crossfade sample model.safetensors --sampler pc --steps 5 --seed 7 --out pictures
  crossfade sample runs/cifar --count 50000 --shard 0/4 --out pictures   one of four portions
  crossfade sample runs/tiny --interpolate 3,8 --count 9 --out between
  crossfade sample runs/edm --sampler heun-churn --churn 40 --steps 18 --grid karras --rho 7 --out pictures
  crossfade sample runs/ddpm --sampler ddim --eta 0.2 --steps 50 --grid quadratic --out pictures

Image k of a seed is the same at any batch size and shard. Every PNG holds the options that made it;
`crossfade reproduce` makes it again.")]
pub struct SampleArgs {
    /// A run directory, one of its checkpoints, or a weights file with its configuration
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: PathBuf,

    /// Directory for the images and their contact sheet
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// How many images
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,

    /// Steps of the sampler, 1 or more [default: the configuration's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: Option<u64>,

    /// The sampler [default: the configuration's]
    #[arg(long, value_name = "NAME", value_parser = one_of(samplers()))]
    pub sampler: Option<String>,

    /// The times of the steps: auto, uniform-t, uniform-sqrt (or quadratic), reference, power, karras, log-snr, or
    /// explicit:1,0.5,… [default: the configuration's]
    #[arg(long, value_name = "NAME", value_parser = GridKind::from_argument)]
    pub grid: Option<GridKind>,

    /// Exponent of the grids karras and power [default: 7]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub rho: Option<f64>,

    /// Noise of the sampler ddim, from 0 (none) to 1 (as ancestral) [default: the configuration's]
    #[arg(long, value_name = "X", value_parser = share)]
    pub eta: Option<f64>,

    /// Fresh noise of the sampler heun-churn, EDM's S_churn [default: the configuration's]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub churn: Option<f64>,

    /// How the two heads become one estimate [default: the configuration's]
    #[arg(long, value_name = "NAME", value_parser = one_of(Blend::NAMES.iter().copied()))]
    pub blend: Option<String>,

    /// Limit the estimate of the clean image to ±X at every step [default: the configuration's]
    #[arg(long, value_name = "X", value_parser = positive)]
    pub clip: Option<f64>,

    /// No limit
    #[arg(long, conflicts_with = "clip")]
    pub no_clip: bool,

    /// Seed of the noise
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,

    /// Number of the first image; the noise of an image depends on its number and the seed only
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub first: u64,

    /// Make only portion i (from 0) of n, to share a job between processes
    #[arg(long, value_name = "I/N", value_parser = Shard::parse, default_value = "0/1")]
    pub shard: Shard,

    /// Images at a time [default: 64, or fewer if there are fewer]
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,

    /// Which weights of a checkpoint
    #[arg(long, default_value = "ema")]
    pub weights: Weights,

    /// Also write what the network saw and estimated at every step, as one strip an image
    #[arg(long)]
    pub trajectory: bool,

    /// Make `count` images between the noise of images A and B
    #[arg(long, value_name = "A,B", value_parser = pair, conflicts_with_all = ["first", "shard"])]
    pub interpolate: Option<(u64, u64)>,
}

/// Names of samplers, and the one that stands for what suits the process.
pub fn samplers() -> impl Iterator<Item = &'static str> {
    Sampler::NAMES.iter().copied()
}

pub fn share(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| "expected a number from 0 to 1".into())
}

fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number".to_string())?;
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err("expected a positive number".into()) }
}

fn pair(text: &str) -> Result<(u64, u64), String> {
    let numbers = text.split_once(',').and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    numbers.ok_or_else(|| "expected two numbers of images, for example 3,8".into())
}

/// The checkpoint itself, or the newest of a run directory.
pub fn open(path: &Path) -> Result<Checkpoint> {
    Ok(Checkpoint::open(&checkpoint::newest(path)?)?)
}

impl SampleArgs {
    /// The checkpoint's way of sampling with what was asked for.
    fn sampling(&self, mut config: SampleConfig, law: &Law) -> Result<SampleConfig> {
        if let Some(steps) = self.steps {
            config.steps = steps as usize;
        }
        if let Some(name) = &self.sampler {
            config.sampler = Sampler::parse(name)?;
        }
        if let Some(kind) = &self.grid {
            config.grid.kind = kind.clone();
        }
        config.eta = self.eta.unwrap_or(config.eta);
        config.churn.amount = self.churn.unwrap_or(config.churn.amount);
        if let Some(name) = &self.blend {
            config.blend = Blend::parse(name)?;
        }
        config.clip = if self.no_clip { 0.0 } else { self.clip.unwrap_or(config.clip) };
        let mut config = config.resolved(law)?;
        self.check(&config, law)?;
        if let Some(wanted) = self.rho {
            match &mut config.grid.kind {
                GridKind::Karras { rho } | GridKind::Power { rho, .. } => *rho = wanted,
                other => {
                    return Err(Error::request(format!(
                        "--rho is for the grids karras and power, not {}",
                        other.name()
                    ))
                    .into());
                }
            }
        }
        Ok(config)
    }

    /// An error if something was asked for that would change nothing.
    fn check(&self, config: &SampleConfig, law: &Law) -> Result<()> {
        let idle = [
            (self.eta.is_some() && config.sampler != Sampler::Ddim, "--eta is for the sampler ddim"),
            (self.churn.is_some() && config.sampler != Sampler::HeunChurn, "--churn is for the sampler heun-churn"),
            (
                self.blend.is_some() && !law.blends(&config.blend),
                "--blend is for attenuation; phi and eps also for ddpm-x0",
            ),
            (
                (self.clip.is_some() || self.no_clip) && matches!(law, Law::Cld(_)),
                "--clip and --no-clip are not for cld, whose score says nothing of x_0",
            ),
            (
                self.steps.is_some() && matches!(config.grid.kind, GridKind::Explicit { .. }),
                "--steps is for grids that have any number of steps, not for explicit times",
            ),
        ];
        match idle.iter().find(|(idle, _)| *idle) {
            Some((_, message)) => Err(Error::request(*message).into()),
            None => Ok(()),
        }
    }
}

/// Makes images.
pub fn run(args: &SampleArgs, context: &Context) -> Result<()> {
    let checkpoint = open(&args.checkpoint)?;
    let config = args.sampling(checkpoint.config.sample.clone(), &checkpoint.config.law())?;
    let job = Job {
        seed: args.seed,
        first: args.first,
        count: args.count,
        shard: args.shard,
        batch: args.batch.unwrap_or(BATCH as u64).min(args.count) as usize,
        trajectory: args.trajectory,
        between: args.interpolate,
        out: args.out.clone(),
    };
    let mut progress = context.progress("images", args.count);
    let began = std::time::Instant::now();
    let before = began - context.began;
    let report = generate::run(&checkpoint, args.weights.into(), &config, &job, &context.device, &mut |done, all| {
        progress.set(done as u64, all as u64);
    })
    .with_context(|| format!("sampling {}", checkpoint.path.display()))?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    let text = format!(
        "{} images in {}, {} evaluations each, {}; sheet {}",
        report.images,
        duration(seconds),
        report.evaluations,
        config.sampler.name(),
        report.sheet.display()
    );
    // From the beginning of the program to the first evaluation of the network.
    let start_ms = before.as_secs_f64() * 1e3 + report.loading_ms;
    let facts =
        json!({ "report": report, "sample": config, "seconds": seconds, "seed": args.seed, "start_ms": start_ms });
    context.print(text, facts)
}
