//! `crossfade eval nll`.
use super::images;
use super::print;
use crate::cli::Weights;
use crate::commands::sample::open;
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use crossfade::data::fitted;
use crossfade::error::Shown;
use crossfade::generate::{FlowConfig, LikelihoodConfig, Pipeline, Trace};
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
  crossfade eval nll runs/cifar cifar10:test --ode --count 32 --ode-steps 64

The bound is the sum of three terms (docs/METHOD.md, section 10.7): what is left of the images at the
largest noise level, the cost of the 8-bit values at the smallest one, and the integral of the denoising
error over the noise levels between them. Lower is better. It needs no other network, and all networks
that are measured with the same seed see the same noise. Compare values with the same --kappa-min.

--ode also follows the probability flow of each image from the smallest noise level to the largest one and
integrates its divergence (section 10.8). Its value has no slack, so that the difference to the bound shows
how much of the bound is slack; both use the same images and the same noise of the decoder.

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

    /// Also measure the exact likelihood of the probability flow, as a check of the bound: expensive, so give a small --count
    #[arg(long)]
    ode: bool,

    /// Steps of the flow from the smallest noise level to the largest one
    #[arg(long, value_name = "N", default_value_t = 64, requires = "ode", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    ode_steps: u32,

    /// Vectors of random signs that estimate the trace of the Jacobian, or exact for tiny images
    #[arg(long, value_name = "N|exact", default_value = "1", requires = "ode", value_parser = trace)]
    ode_probes: Trace,

    /// Noised images per batch; changes the speed and nothing else
    #[arg(long, value_name = "B", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    batch: u32,
}

fn trace(text: &str) -> Result<Trace, String> {
    match text {
        "exact" => Ok(Trace::Exact),
        _ => (text.parse().ok().filter(|n| (1..=10_000).contains(n)).map(Trace::Probes))
            .ok_or_else(|| "expected a number from 1 to 10000, or exact".into()),
    }
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
        flow: args.ode.then_some(FlowConfig { steps: args.ode_steps as usize, trace: args.ode_probes }),
    };
    let mut progress = context.progress("noised images", 0);
    let mut tell = |done, all| {
        progress.set(done, all);
        true
    };
    let found = pipeline.likelihood(&*set, &config, &mut tell)?.context("the measurement was stopped")?;
    drop(progress);
    let mut report = Report::new("nll")
        .with("checkpoint", format!("{}, step {}", checkpoint.path.shown(), checkpoint.step))
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
        .with("classes", if found.with_classes { "those of the images" } else { "none" });
    for (name, value) in found.values() {
        report = report.value(&name, value);
    }
    if let Some(flow) = &found.flow {
        let trace = flow.probes.map_or("exact trace".into(), |probes| format!("{probes} probes of the trace"));
        let steps = format!("Heun, {} steps, {trace}, {} evaluations of each image", flow.steps, flow.evaluations);
        report = report
            .with("probability flow", steps)
            .value("flow: bits per dimension", flow.bits_per_dim)
            .value("flow: standard error", flow.standard_error)
            .value("bound minus flow", flow.gap)
            .value("bound minus flow: standard error", flow.gap_error);
    }
    if found.kappa_min > args.kappa_min * 1.01 {
        report = report.warn(format!(
            "the smallest noise level of {} is {}; compare only with values at that --kappa-min",
            checkpoint.config.process.name(),
            found.kappa_min
        ));
    }
    print(report, context)
}
