//! `crossfade cost`.
use super::config::{is_checkpoint, named};
use super::sample::open;
use crate::cli::{one_of, sampler_names};
use crate::context::Context;
use anyhow::Result;
use clap::Args;
use crossfade::Error;
use crossfade::checkpoint::{Checkpoint, Weights};
use crossfade::config::RunConfig;
use crossfade::cost::{Cost, Speed, measure};
use crossfade::generate::Pipeline;
use crossfade::nn::BackboneConfig;
use crossfade::sample::Sampler;
use std::path::Path;

/// Report what a network costs: parameters, multiply-accumulates, evaluations, speed, memory
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade cost cifar10-two-m192 --steps 10 --count-only
  crossfade cost configs/tiny.toml --steps 10
  crossfade cost runs/tiny --sampler midpoint --steps 5 --batch 64 --json

A configuration is timed with random weights, which take the same time as trained ones.")]
pub struct CostArgs {
    /// Configuration file, name of a network (see `config list`), run directory, checkpoint or model that ships
    #[arg(value_name = "CONFIG|CHECKPOINT")]
    target: String,

    /// Number of sampler steps [default: from the configuration]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    steps: Option<u64>,

    /// Sampler [default: from the configuration]
    #[arg(long, value_name = "NAME", value_parser = one_of(sampler_names()))]
    sampler: Option<String>,

    /// Batch size of the timed runs
    #[arg(long, value_name = "B", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=65536))]
    batch: u64,

    /// Number of timed runs; the fastest counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeat: u64,

    /// Only count, do not run the network
    #[arg(long, conflicts_with_all = ["batch", "repeat"])]
    count_only: bool,

    /// Override one value of the configuration; repeatable
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
}

/// Counts, and times the network unless `--count-only` is given.
pub fn run(args: &CostArgs, context: &Context) -> Result<()> {
    let path = Path::new(&args.target);
    let checkpoint = if is_checkpoint(path) { Some(open(path)?) } else { None };
    let config = match &checkpoint {
        Some(checkpoint) => checkpoint.config.clone(),
        None => named(&args.target)?,
    };
    let mut config = config.with_overrides(&args.sets)?;
    if let Some(steps) = args.steps {
        config.sample.steps = steps as usize;
    }
    if let Some(name) = &args.sampler {
        config.sample.sampler = Sampler::parse(name)?;
    }
    let mut cost = Cost::count(&config)?;
    if !args.count_only {
        cost.speed = Some(speed(args, checkpoint.as_ref(), &config, context)?);
    }
    context.print(&cost, serde_json::to_value(&cost)?)
}

/// Times the network of a checkpoint, or one with random weights.
fn speed(args: &CostArgs, checkpoint: Option<&Checkpoint>, config: &RunConfig, context: &Context) -> Result<Speed> {
    let (device, batch, repeat) = (&context.device, args.batch as usize, args.repeat as usize);
    let mut progress = context.progress("batches", args.repeat);
    let mut report = |done: usize, all: usize| progress.set(done as u64, all as u64);
    let pipeline = match checkpoint {
        Some(checkpoint) => Pipeline::open(checkpoint, Weights::Ema, &config.sample, device)?,
        None if config.latent.is_some() && !config.task.is_unconditional() => {
            let problem = "a network on latents can only be timed from a checkpoint; give one, or use --count-only";
            return Err(Error::request(problem).into());
        }
        None => {
            let net = config.denoiser(config.network.init(config.ports(), 0, device));
            // Any mean will do to count the evaluations of a network with random weights.
            let shape = config.network.resolution().map(|side| vec![config.network.channels(), side, side]);
            let mean = shape.map(|shape| (shape.clone(), vec![0.0; shape.iter().product()]));
            Pipeline::new(net, None, mean, config, &config.sample, device)?
        }
    };
    Ok(measure(&pipeline, config, batch, repeat, &mut report)?)
}
