//! `crossfade train`.
mod autoencoder;
mod fine_tune;

use super::config::describe;
use crate::cli::{Overrides, text_path};
use crate::context::Context;
use crate::interrupt::stop_on_interrupt;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::Error;
use crossfade::config::{RunConfig, is_autoencoder, read_text};
use crossfade::error::Shown;
use crossfade::latent::Latent;
use crossfade::nn::BackboneConfig;
use crossfade::ranks;
use crossfade::train::{FineTuning, RunDir, Summary, train};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Train a network from a configuration file
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade train configs/tiny.toml --out runs/tiny
  crossfade train configs/tiny.toml --out runs/tiny --resume
  crossfade train configs/cifar10-small.toml --data-root /data --out runs/cifar --dry-run
  crossfade train configs/ae-faces.toml --data-root /data --out runs/ae-faces
  crossfade train configs/latent-faces.toml --data-root /data --out runs/latent-faces
  crossfade train configs/sr-small.toml --data-root /data --out runs/sr
  crossfade train --from emoji --set data.path=photos --out runs/mine      fine-tuning
  crossfade train configs/emoji.toml --from runs/emoji --set optim.lr=1e-4 --out runs/longer

A configuration with an [autoencoder] section trains an autoencoder; one with a [latent] section
trains a diffusion network on the latents of an autoencoder.

On Ctrl-C or SIGTERM the run writes a checkpoint and stops. --resume then continues to exactly
the same weights as an uninterrupted run; it needs neither CONFIG nor --from.

--from starts from the averaged weights of a model that ships (see `crossfade models`), a run or a
checkpoint; the network must be the same. Without CONFIG the settings are those of the model, for 2000
steps. If the images have another number of classes, the class embedding starts anew.")]
pub struct TrainArgs {
    /// Configuration file; not needed with --from or --resume
    #[arg(value_name = "CONFIG", required_unless_present_any = ["from", "resume"])]
    pub config: Option<PathBuf>,

    /// Run directory, for the log, sample sheets and checkpoints
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    pub out: Option<PathBuf>,

    /// Start from the weights of a model that ships, a run or a checkpoint, in place of random ones
    #[arg(long, value_name = "MODEL", value_parser = text_path)]
    pub from: Option<PathBuf>,

    /// Continue from the last checkpoint in the run directory; without this option an existing run is an error
    #[arg(long)]
    pub resume: bool,

    #[command(flatten)]
    pub overrides: Overrides,

    /// Seed of the initial weights, the data order and the noise [default: from the configuration]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,

    /// Check the configuration and the images, print the resolved configuration and its memory use, and exit
    #[arg(long)]
    pub dry_run: bool,
}

impl TrainArgs {
    /// The file of the configuration: the given one, or that of the run to resume.
    fn file(&self) -> Option<PathBuf> {
        let resumed = self.out.as_ref().filter(|_| self.resume && self.from.is_none());
        self.config.clone().or_else(|| resumed.map(|out| RunDir(out.clone()).config()))
    }

    /// The configuration with the overrides, the weights to start from and the seed applied.
    fn config(&self, context: &Context) -> Result<RunConfig> {
        let mut config = match (self.file(), &self.from) {
            (Some(file), _) => self.overrides.load(&file)?,
            (None, Some(from)) => fine_tune::config(from, &self.overrides, context)?,
            (None, None) => return Err(Error::request("--out DIR is needed to resume a run").into()),
        };
        config.train.from = self.from.clone().or(config.train.from);
        Ok(RunConfig { seed: self.seed.unwrap_or(config.seed), ..config })
    }
}

/// Trains a diffusion network or, if the configuration says so, an autoencoder.
pub fn run(args: &TrainArgs, context: &Context) -> Result<()> {
    if let Some(file) = args.file()
        && is_autoencoder(&read_text(&file)?)
    {
        return autoencoder::run(args, &file, context);
    }
    let config = args.config(context)?;
    if let Some(from) = config.train.from.as_ref().filter(|_| !args.resume) {
        let start = FineTuning::open(from, &config)?;
        context.note(format_args!("starting from the weights of {}", start.checkpoint.path.shown()));
        start.note(&config).into_iter().for_each(|note| context.note(note));
    }
    if args.dry_run {
        return dry_run(&config, context);
    }
    let Some(out) = &args.out else { return Err(Error::request("--out DIR is needed").into()) };
    let stop = stop_on_interrupt()?;
    let summary = fit(&config, out, args.resume, &stop, context)?;
    let next = match config.task.verb() {
        "sample" => format!("crossfade sample {} --out pictures", out.shown()),
        verb => format!("crossfade {verb} IN OUT --checkpoint {}", out.shown()),
    };
    finish(&summary, &next, context)
}

/// Prints how a run ended and the command to run next.
fn finish(summary: &Summary, next: &str, context: &Context) -> Result<()> {
    for damaged in &summary.passed_over {
        context.note(format_args!("skipped a damaged checkpoint: {damaged}"));
    }
    let group = ranks::current();
    if group.size() > 1 {
        context.note(format_args!(
            "{} ranks; the first has sent {} bytes to the others",
            group.size(),
            group.bytes_sent()
        ));
    }
    let outcome = if summary.stopped { "stopped" } else { "finished" };
    let text =
        format!("{outcome} after {} steps; checkpoint {}\nnext: {next}", summary.step, summary.checkpoint.shown());
    if context.json { context.line(summary) } else { context.print(text, json!(null)) }
}

/// Trains with a progress bar; with `--json`, prints one line for every logged step.
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
    .with_context(|| format!("training in {}", out.shown()))?;
    failed.map_or(Ok(summary), Err)
}

/// Prints the resolved configuration, its sizes and the dataset, after checking that all of them can be opened.
fn dry_run(config: &RunConfig, context: &Context) -> Result<()> {
    config.validate_training()?;
    let from = config.train.from.as_ref().map(|from| FineTuning::open(from, config)).transpose()?;
    let own = from.map(|from| Latent::of(&from.checkpoint, &context.device)).transpose()?.flatten();
    let latent = match (own, &config.latent) {
        (_, None) => None,
        (None, Some(latent)) => Some(Latent::open(latent, &context.device)?),
        (own, _) => own,
    };
    latent.as_ref().map_or(Ok(()), |latent| latent.must_fit(config.network.channels()))?;
    let data = crossfade::train::images(config, latent.as_ref()).context("opening the images")?;
    let classes = crossfade::train::classes(config, &*data)?.map(|classes| classes.names);
    let sizes = config.sizes();
    let mut text = format!("{}\n{}# images: {}\n", config.to_toml()?, describe(&sizes), data.describe());
    if let Some(names) = &classes {
        text.push_str(&format!("# classes: {}\n", names.join(", ")));
    }
    let images = json!({ "set": data.describe(), "count": data.len(), "classes": classes });
    context.print(text, json!({ "config": config, "sizes": sizes, "images": images }))
}
