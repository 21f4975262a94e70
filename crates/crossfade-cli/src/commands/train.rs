//! `crossfade train`.
use super::config::describe;
use crate::cli::Overrides;
use crate::context::Context;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use crossfade::config::RunConfig;
use serde_json::json;
use std::path::PathBuf;

/// Options of `train`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade train configs/tiny.toml --out runs/tiny
  crossfade train configs/tiny.toml --out runs/tiny --resume --set train.steps=5000
  crossfade train configs/cifar10-small.toml --data-root /data --out runs/cifar --dry-run

Ctrl-C writes a checkpoint before it stops; --resume continues as if the run had never been stopped.")]
pub struct TrainArgs {
    /// The configuration
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,

    /// Directory of the run: log, sample sheets and checkpoints
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    pub out: Option<PathBuf>,

    /// Continue from the last checkpoint in the directory; without it a directory with a run in it is refused
    #[arg(long)]
    pub resume: bool,

    #[command(flatten)]
    pub overrides: Overrides,

    /// Seed of weights, order and noise [default: the configuration's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,

    /// Check configuration and images, print the resolved configuration and its sizes, and stop
    #[arg(long)]
    pub dry_run: bool,
}

impl TrainArgs {
    /// The configuration as asked for.
    pub fn config(&self) -> Result<RunConfig> {
        let config = self.overrides.load(&self.config)?;
        Ok(RunConfig { seed: self.seed.unwrap_or(config.seed), ..config })
    }
}

/// Trains.
pub fn run(args: &TrainArgs, context: &Context) -> Result<()> {
    let config = args.config()?;
    if args.dry_run {
        return dry_run(&config, context);
    }
    bail!("training is not available yet")
}

fn dry_run(config: &RunConfig, context: &Context) -> Result<()> {
    let network = &config.network;
    let data = config.data.open(network.resolution, network.channels).context("opening the images")?;
    let sizes = config.sizes();
    let text = format!("{}\n{}# images: {}\n", config.to_toml()?, describe(&sizes), data.describe());
    let images = json!({ "set": data.describe(), "count": data.len() });
    context.print(text, json!({ "config": config, "sizes": sizes, "images": images }))
}
