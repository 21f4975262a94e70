//! `crossfade calibrate`.
use super::eval::images;
use super::sample::open;
use crate::cli::{Weights, one_of, sampler_names, text_path};
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::Error;
use crossfade::calibrate::{Fit, TimesConfig, calibrate, fit_times};
use crossfade::checkpoint::Checkpoint;
use crossfade::config::RunConfig;
use crossfade::data::{Dataset, fitted};
use crossfade::error::Shown;
use crossfade::generate::{BATCH, Pipeline};
use crossfade::latent::image_size;
use crossfade::math::Blend;
use crossfade::sample::Sampler;
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

/// Measure the best weights of the two heads of a trained network, or its best sampling times
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade calibrate runs/tiny
  crossfade calibrate runs/tiny --images photos/test --count 1024
  crossfade calibrate runs/cifar --times --evaluations 5,10 --save
  crossfade calibrate runs/cifar --times --sampler alg2 --evaluations 10 --count 256 --candidates 20

Without --times it prints a table of the weight w(t) with the smallest error of x0 = w * (phi head) +
(1 - w) * (eps head), in bins of equal width in sqrt(t), as a line for the [sample] section of a
configuration (docs/METHOD.md, section 10.3).

With --times it searches the largest and smallest noise level and the curvature of the grid log-snr for
which the samples are nearest to the data (random-feature Frechet distance and spectrum), and compares
them with the grids uniform-t and images (docs/METHOD.md, section 10.6). With --save the times are kept
in the checkpoint, where the grid auto finds them; without it nothing is written.

The data is what the network was trained on, unless --images names others.")]
pub struct CalibrateArgs {
    /// Run directory, one of its checkpoints or a model that ships
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,

    /// Images to measure on, instead of the training images: a folder, a zip, DIR:test of CIFAR-10 or an npz
    #[arg(long, value_name = "DATA")]
    images: Option<String>,

    /// Number of images: noised ones for the heads, samples of every candidate for the times
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    count: u32,

    /// Number of bins of the table of weights
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    #[arg(conflicts_with = "times")]
    bins: u16,

    /// Fit the times of sampling instead of the weights of the heads
    #[arg(long)]
    times: bool,

    /// Sampler to fit times for [default: from the configuration]
    #[arg(long, value_name = "NAME", requires = "times", value_parser = one_of(sampler_names()))]
    sampler: Option<String>,

    /// Numbers of network evaluations to fit times for [default: that of the configuration's steps]
    #[arg(long, value_name = "N,…", requires = "times", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=10_000))]
    evaluations: Vec<u32>,

    /// Number of grids to try for each number of evaluations
    #[arg(long, value_name = "N", requires = "times", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(4..=10_000))]
    candidates: u32,

    /// Seed of the noise, which all candidates share
    #[arg(long, value_name = "S", requires = "times", default_value_t = 0)]
    seed: u64,

    /// Keep the fitted times in the checkpoint, where they are better than uniform-t and images
    #[arg(long, requires = "times")]
    save: bool,

    /// Directory that relative data paths start from [default: the current directory]
    #[arg(long, value_name = "DIR", value_parser = text_path)]
    data_root: Option<PathBuf>,

    /// Which copy of the checkpoint's weights to use
    #[arg(long, default_value = "ema")]
    weights: Weights,
}

/// Measures and prints weights or times.
pub fn run(args: &CalibrateArgs, context: &Context) -> Result<()> {
    let checkpoint = open(&args.checkpoint)?;
    let config = match &args.data_root {
        Some(root) => checkpoint.config.clone().with_data_root(root),
        None => checkpoint.config.clone(),
    };
    let pipeline = Pipeline::open(&checkpoint, args.weights.into(), &config.sample, &context.device)?;
    // Refuses the network of a task before images are read.
    pipeline.size()?;
    let (side, channels) = image_size(&config, pipeline.latent());
    let (set, origin) = match &args.images {
        Some(data) => (fitted(images(data)?, side, channels), "images"),
        None => (config.data.open(side, channels).context("opening the images")?, "training images"),
    };
    let measured_on = format!("{origin}: {}", set.describe());
    context.note(format_args!("measuring on {measured_on}"));
    match args.times {
        true => times(args, checkpoint, &pipeline, &*set, &measured_on, context),
        false => heads(args, &config, &pipeline, set, &measured_on, context),
    }
}

fn heads(
    args: &CalibrateArgs,
    config: &RunConfig,
    pipeline: &Pipeline,
    set: Box<dyn Dataset>,
    measured_on: &str,
    context: &Context,
) -> Result<()> {
    let mut progress = context.progress("images", u64::from(args.count));
    let (count, bins) = (args.count as usize, usize::from(args.bins));
    let table = calibrate(pipeline, config, Arc::from(set), count, bins, &mut |done, all| {
        progress.set(done as u64, all as u64);
    })?;
    drop(progress);
    let rounded: Vec<f64> = table.iter().map(|w| (w * 1e4).round() / 1e4).collect();
    let blend = Blend::Table(rounded.clone());
    let text = format!("# measured on {count} {measured_on}\n[sample]\nblend = {{ table = {rounded:?} }}");
    context.print(text, json!({ "blend": blend, "count": args.count, "measured_on": measured_on }))
}

fn times(
    args: &CalibrateArgs,
    mut checkpoint: Checkpoint,
    pipeline: &Pipeline,
    set: &dyn Dataset,
    measured_on: &str,
    context: &Context,
) -> Result<()> {
    let sampler = match &args.sampler {
        Some(name) => Sampler::parse(name)?,
        None => checkpoint.config.sample.sampler,
    }
    .resolved(pipeline.process())?;
    let evaluations = match args.evaluations.is_empty() {
        true => vec![pipeline.evaluations()?],
        false => args.evaluations.iter().map(|&n| n as usize).collect(),
    };
    let mut fits: Vec<Fit> = vec![];
    for evaluations in evaluations {
        let config = TimesConfig {
            sampler,
            evaluations,
            count: args.count as usize,
            candidates: args.candidates as usize,
            seed: args.seed,
            batch: BATCH.min(args.count as usize),
        };
        let mut progress = context.progress(&format!("{evaluations} evaluations"), 0);
        fits.push(fit_times(pipeline, set, &config, &mut |done, all| progress.set(done, all))?);
    }
    let mut text = format!(
        "Sampler {}, {} samples of each grid against {measured_on}.\n\
         Distances are shares of that of uniform-t, with other noise than the search used; lower is better.\n",
        sampler.name(),
        args.count
    );
    for fit in &fits {
        let _ = writeln!(
            text,
            "\n{} steps\n{:>10} {:>10} {:>10}  grid",
            fit.fitted.steps, "distance", "features", "spectrum"
        );
        for score in &fit.scores {
            let (distance, features, spectrum) = (score.distance, score.features, score.spectrum);
            let _ = writeln!(text, "{distance:>10.4} {features:>10.4} {spectrum:>10.4}  {}", score.grid);
        }
        if !fit.is_better() {
            let _ = writeln!(text, "the fitted times are no better than the others; more images (--count) may help");
        }
    }
    let better: Vec<_> = fits.iter().filter(|fit| fit.is_better()).map(|fit| fit.fitted).collect();
    if args.save && !better.is_empty() {
        checkpoint.keep_times(&better).context("keeping the times in the checkpoint")?;
        let _ = writeln!(text, "\nkept in {}: the grid auto uses them", checkpoint.path.shown());
    } else if args.save {
        return Err(Error::Run(format!("{text}\nnothing was kept")).into());
    } else {
        let _ = writeln!(text, "\nnothing was written; keep the fitted times with --save");
    }
    context.print(text, json!({ "fits": fits, "measured_on": measured_on, "kept": args.save }))
}
