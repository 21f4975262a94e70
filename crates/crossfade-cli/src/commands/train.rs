//! `crossfade train`.
mod autoencoder;

use super::config::describe;
use crate::cli::Overrides;
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::Error;
use crossfade::config::{RunConfig, is_autoencoder, read_text};
use crossfade::latent::Latent;
use crossfade::train::{RunDir, Summary, train};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Options of `train`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade train configs/tiny.toml --out runs/tiny
  crossfade train configs/tiny.toml --out runs/tiny --resume
  crossfade train configs/cifar10-small.toml --data-root /data --out runs/cifar --dry-run
  crossfade train configs/ae-faces.toml --data-root /data --out runs/ae-faces
  crossfade train configs/latent-faces.toml --data-root /data --out runs/latent-faces
  crossfade train configs/sr-small.toml --data-root /data --out runs/sr

A configuration with an [autoencoder] section trains an autoencoder, one with a [latent] section a
network on its latents.

Ctrl-C, or a scheduler's SIGTERM, writes a checkpoint before it stops; --resume continues as if the run had
never been stopped.")]
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
    if is_autoencoder(&read_text(&args.config)?) {
        return autoencoder::run(args, context);
    }
    let config = args.config()?;
    if args.dry_run {
        return dry_run(&config, context);
    }
    let Some(out) = &args.out else { return Err(Error::request("--out DIR is needed").into()) };
    let stop = stop_on_interrupt()?;
    let summary = fit(&config, out, args.resume, &stop, context)?;
    let next = match config.task.verb() {
        "sample" => format!("crossfade sample {} --out pictures", out.display()),
        verb => format!("crossfade {verb} IN OUT --checkpoint {}", out.display()),
    };
    finish(&summary, &next, context)
}

/// A flag that Ctrl-C sets, and SIGTERM, with which schedulers announce the end.
pub fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let heard = move || {
        if flag.swap(true, Ordering::Relaxed) {
            // Whoever asks twice does not want to wait; files appear whole or not at all.
            std::process::exit(Stopped::CODE.into());
        }
    };
    ctrlc::set_handler(heard).context("listening for Ctrl-C")?;
    Ok(stop)
}

/// A study ended early because it was asked to: schedulers must not take it for done.
#[derive(Debug)]
pub struct Stopped;

impl Stopped {
    /// The exit code: that of a program ended by Ctrl-C.
    pub const CODE: u8 = 130;
}

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stopped before the end; the same command goes on")
    }
}

impl std::error::Error for Stopped {}

/// Tells how a run ended and what can be done next.
fn finish(summary: &Summary, next: &str, context: &Context) -> Result<()> {
    for damaged in &summary.passed_over {
        context.note(format_args!("passed over: {damaged}"));
    }
    let how = if summary.stopped { "stopped" } else { "done" };
    let text = format!("{how} after {} steps; checkpoint {}\nnext: {next}", summary.step, summary.checkpoint.display());
    if context.json { context.line(summary) } else { context.print(text, json!(null)) }
}

/// Trains with progress; with `--json` every logged step is a line.
pub fn fit(config: &RunConfig, out: &Path, resume: bool, stop: &AtomicBool, context: &Context) -> Result<Summary> {
    let mut progress = context.progress("training", config.train.steps);
    let mut smooth = None::<f64>;
    let mut failed = None;
    let summary = train(config, &RunDir(out.to_path_buf()), &context.device, resume, stop, &mut |step| {
        let mean = smooth.map_or(step.loss, |s| 0.98 * s + 0.02 * step.loss);
        smooth = Some(mean);
        progress.detail(format!("loss {mean:.4}, {:.0} images/s", step.images_per_second));
        progress.set(step.step, config.train.steps);
        if context.json && (step.step.is_multiple_of(config.train.log_every.max(1)) || step.step == config.train.steps)
        {
            failed = failed.take().or(context.line(step).err());
        }
    })
    .with_context(|| format!("training into {}", out.display()))?;
    failed.map_or(Ok(summary), Err)
}

fn dry_run(config: &RunConfig, context: &Context) -> Result<()> {
    let latent = config.latent.as_ref().map(|latent| Latent::open(latent, &context.device)).transpose()?;
    latent.as_ref().map_or(Ok(()), |latent| latent.must_fit(config.channels()))?;
    let data = crossfade::train::images(config, latent.as_ref()).context("opening the images")?;
    let sizes = config.sizes();
    let text = format!("{}\n{}# images: {}\n", config.to_toml()?, describe(&sizes), data.describe());
    let images = json!({ "set": data.describe(), "count": data.len() });
    context.print(text, json!({ "config": config, "sizes": sizes, "images": images }))
}
