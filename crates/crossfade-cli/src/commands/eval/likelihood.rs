//! `crossfade eval nll`.
use super::images;
use crate::cli::Weights;
use crate::commands::sample::open;
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use crossfade::data::fitted;
use crossfade::generate::{LikelihoodConfig, Pipeline};
use crossfade::latent::image_size;
use crossfade::math::KAPPA_MIN;
use crossfade::metrics::Report;
use std::path::PathBuf;

/// Verbs that measure a network and not its images.
#[derive(Debug, Subcommand)]
pub enum LikelihoodCommand {
    /// Bits per dimension of images under a network: an upper bound of the negative log-likelihood
    #[command(after_help = "Examples:
  crossfade eval nll runs/cifar cifar10:test
  crossfade eval nll runs/cifar cifar10:test --count 10000 --times-per-image 4 --seed 1 --json
  crossfade eval nll runs/tiny photos --weights model --kappa-min 0.005

The bound is the sum of three terms (docs/METHOD.md, section 10.7): what is left of the images at the
largest noise level, the cost of the 8-bit values at the smallest one, and the integral of the denoising
error over the noise levels between them. Lower is better. It needs no other network, and all networks
that are measured with the same seed see the same noise. Compare values with the same --kappa-min.

The network must be unconditional or class-conditional, on pixels, with constant attenuation or any other
process but CLD. A network with classes is told those of the images, if DATA has classes.

DATA is what `crossfade eval fid` takes as images. They are cropped and resized to the size of the network.")]
    Nll(NllArgs),
}

/// Options of `eval nll`.
#[derive(Debug, Args)]
pub struct NllArgs {
    /// Run directory, one of its checkpoints or a model that ships
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,

    /// The images: a folder, a zip, DIR:train or DIR:test of CIFAR-10, or an npz; test images, for a fair number
    #[arg(value_name = "DATA")]
    data: String,

    /// Number of images, evenly spread over DATA; all if there are fewer
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..))]
    count: u32,

    /// Network evaluations of each image, one in each of K equally probable ranges of noise levels
    #[arg(long, value_name = "K", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    times_per_image: u32,

    /// The noise level sigma/alpha at which the 8-bit values are decoded; DDPM and VE have a smallest one of their own
    #[arg(long, value_name = "KAPPA", default_value_t = KAPPA_MIN)]
    kappa_min: f64,

    /// Seed of noise and noise levels
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,

    /// Which copy of the checkpoint's weights to use
    #[arg(long, default_value = "ema")]
    weights: Weights,

    /// Noised images per batch; changes the speed and nothing else
    #[arg(long, value_name = "B", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
}

/// Measures and prints the bound.
pub fn run(command: &LikelihoodCommand, context: &Context) -> Result<()> {
    let LikelihoodCommand::Nll(args) = command;
    let checkpoint = open(&args.checkpoint)?;
    let sample = &checkpoint.config.sample;
    let pipeline = Pipeline::open(&checkpoint, args.weights.into(), sample, &context.device)?;
    let (side, channels) = image_size(&checkpoint.config, pipeline.latent());
    let source = images(&args.data).context("opening the images")?;
    let set = fitted(source, side, channels);
    let config = LikelihoodConfig {
        count: args.count as usize,
        times: args.times_per_image as usize,
        kappa_min: args.kappa_min,
        seed: args.seed,
        batch: args.batch as usize,
    };
    let mut progress = context.progress("noised images", 0);
    let found = pipeline.likelihood(&*set, &config, &mut |done, all| progress.set(done, all))?;
    drop(progress);
    let mut report = Report::new("nll")
        .with("checkpoint", format!("{}, step {}", checkpoint.path.display(), checkpoint.step))
        .with("weights", if matches!(args.weights, Weights::Ema) { "ema" } else { "model" })
        .with("process", checkpoint.config.process.name())
        .with("images", set.describe())
        .with("images count", found.images)
        .with("times per image", format!("{}, seed {}", found.times, args.seed))
        .with(
            "noise levels",
            match found.kappa_max {
                Some(most) => format!("sigma/alpha from {} to {most:.6}", found.kappa_min),
                None => format!("sigma/alpha from {}, without an upper limit", found.kappa_min),
            },
        )
        .with(
            "estimate of x_0",
            match sample.clip() {
                Some(clip) => format!("clamped to ±{clip} (sample.clip)"),
                None => "not clamped".into(),
            },
        )
        .with("classes", if found.with_classes { "those of the images" } else { "none" })
        .value("bits per dimension", found.bits_per_dim)
        .value("standard error", found.standard_error)
        .value("prior", found.prior)
        .value("reconstruction", found.reconstruction)
        .value("diffusion", found.diffusion);
    if found.kappa_min > args.kappa_min * 1.01 {
        report = report.warn(format!(
            "the smallest noise level of {} is {}; compare only with values at that --kappa-min",
            checkpoint.config.process.name(),
            found.kappa_min
        ));
    }
    context.print(&report, serde_json::to_value(&report)?)
}
