//! `crossfade lab`.
mod images;

use crate::cli::{Weights, one_of, samplers};
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::Args;
use clap::builder::PossibleValue;
use crossfade::Error;
use crossfade::error::Shown;
use crossfade::files::Folder;
use crossfade::lab::{LabConfig, processes, run as run_lab};
use crossfade::math::{Attenuation, GridKind, NoiseScale};
use crossfade::sample::Sampler;
use std::path::PathBuf;

/// Measure samplers against exact denoisers, without training
///
/// For a mixture of Gaussians the optimal network is known in closed form. Deterministic samplers are compared with the exact
/// solution of their equation from the same noise, stochastic samplers by the distribution that they make of one Gaussian, and
/// all of them with the distribution of the data. The table shows errors and observed orders of convergence.
///
/// With --images the data is the spectrum of an image set, whose optimal linear denoiser is known. The table shows which share
/// of the standard deviation of the images a sampler leaves in each octave of frequencies, computed exactly: 1 is right, less
/// is blurred, more is noisy. With --checkpoint a trained network is sampled, and the same table measures its images; the error
/// of its estimate of x_0 over the noise is listed beside that of the linear denoiser.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade lab --out lab                             about a minute; writes a chart and JSON
  crossfade lab --std 0.05 --evaluations 5,10,20      narrow modes, few steps
  crossfade lab --processes all --out lab             all processes, every sampler that fits
  crossfade lab --attenuations all --samplers ab2,pc  all attenuations, two samplers

  crossfade lab --images cifar10:train                what ten evaluations leave of the detail of CIFAR-10
  crossfade lab --images faces.zip --processes adm,flow,edm --samplers ab2,ddim --grids auto,images --evaluations 5,10
  crossfade lab --images cifar10:train --noise linear --samplers ab2 --grids all --out lab
  crossfade lab --images cifar10:train --checkpoint runs/cifar --evaluations 5,10,20
  crossfade lab --images cifar10:train --checkpoint runs/cifar --samplers alg2,ab2 --grids uniform-t,images --count 2000 --seed 1

What --images can be (all images must have one size):
  FOLDER            PNG, JPEG and WebP files, also in folders below
  FILE.zip          the same in a zip
  DIR:train|test    CIFAR-10, binary or Python layout
  FILE.npz          images as uint8 of shape N, H, W, C
Any of these may end in [START:END] for a part of it, as in cifar10:train[0:5000].")]
pub struct LabArgs {
    /// Dimensions of a point, 1 to 64 [default: 8]
    #[arg(long, value_name = "N")]
    dim: Option<usize>,

    /// Number of Gaussians in the mixture, 1 to 64 [default: 6]
    #[arg(long, value_name = "N")]
    components: Option<usize>,

    /// Standard deviation of each Gaussian; 0.05 gives narrow modes, as images have [default: 0.2]
    #[arg(long, value_name = "S")]
    std: Option<f64>,

    /// Points in each run; more make the distance to the data (W2) more precise [default: 1000]
    #[arg(long, value_name = "N")]
    samples: Option<usize>,

    /// Seed of the mixture, the noise and the data; with --checkpoint, of the images
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Attenuations to compare, or all [default: constant]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = one_of(attenuations()))]
    attenuations: Vec<String>,

    /// Noise schedule: sqrt (sigma = sqrt(t), the paper) or linear (sigma = t, rectified flow)
    #[arg(long, default_value = "sqrt", value_parser = one_of(["sqrt", "linear"]))]
    noise: String,

    /// Processes to compare instead of attenuations, or all; each runs with the samplers that fit it, on their default grids
    /// or, with --images, on --grids [default with --images: adm]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = one_of(process_names()))]
    processes: Vec<String>,

    /// Samplers to compare, or all [default: all for attenuation, or all that fit --processes; with --checkpoint its own]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = one_of(sampler_names()))]
    samplers: Vec<String>,

    /// Time grids to compare, or all [default: uniform-sqrt,uniform-t,reference; with --images auto,images; with --checkpoint
    /// its own]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = one_of(grids()))]
    grids: Vec<String>,

    /// Numbers of network evaluations, in ascending order [default: 5,10,20,40,80,160,320; with --images 10]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    evaluations: Vec<usize>,

    /// Images whose spectrum is the data, instead of a mixture; see below
    #[arg(long, value_name = "DATA", conflicts_with_all = ["dim", "components", "std", "samples", "attenuations"])]
    images: Option<String>,

    /// Measure this trained network: a run directory, one of its checkpoints or a model that ships
    #[arg(long, value_name = "CHECKPOINT", requires = "images", conflicts_with_all = ["processes", "noise"])]
    checkpoint: Option<PathBuf>,

    /// Images to sample from --checkpoint for each row of the table [default: 1000]
    #[arg(long, value_name = "N", requires = "checkpoint", value_parser = clap::value_parser!(u64).range(2..))]
    count: Option<u64>,

    /// Which copy of the weights of --checkpoint to use
    #[arg(long, default_value = "ema", requires = "checkpoint")]
    weights: Weights,

    /// Directory for lab.json, lab.md, lab.svg and lab.png
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn attenuations() -> impl Iterator<Item = &'static str> {
    Attenuation::ALL.iter().map(|a| a.name()).chain(["all"])
}

fn process_names() -> Vec<&'static str> {
    processes(NoiseScale::Sqrt).iter().map(|law| law.name()).chain(["all"]).collect()
}

fn sampler_names() -> impl Iterator<Item = PossibleValue> {
    samplers().chain(["all".into()])
}

fn all_grids() -> Vec<GridKind> {
    [GridKind::Auto].into_iter().chain(GridKind::all()).collect()
}

fn grids() -> Vec<&'static str> {
    all_grids().iter().map(GridKind::name).chain(["all"]).collect()
}

/// The items of `all` that `names` selects, each once and in that order, because the chart shows the first; `default` if
/// `names` is empty.
fn select<T: Clone + PartialEq>(
    names: &[String],
    all: &[T],
    name: impl Fn(&T) -> &'static str,
    default: Vec<T>,
) -> Vec<T> {
    if names.is_empty() {
        return default;
    }
    let mut items: Vec<T> = Vec::new();
    for wanted in names {
        for item in all.iter().filter(|item| wanted == "all" || wanted == name(item)) {
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
    }
    items
}

impl LabArgs {
    /// The samplers that were named, also by an alias.
    fn samplers(&self, default: Vec<Sampler>) -> Vec<Sampler> {
        let own_name = |name: &String| Sampler::parse(name).map_or(name.clone(), |sampler| sampler.name().into());
        let names: Vec<String> = self.samplers.iter().map(own_name).collect();
        select(&names, Sampler::ALL, |s| s.name(), default)
    }

    fn config(&self) -> LabConfig {
        let default = LabConfig::default();
        let noise = if self.noise == "linear" { NoiseScale::Linear } else { NoiseScale::Sqrt };
        let attenuations = if self.processes.is_empty() { default.attenuations } else { vec![] };
        // `all` leaves out grids by the noise level, which only constant attenuation has; they can be named.
        let all = self.grids.iter().any(|name| name == "all");
        let named_grids = if all { GridKind::all_in_time() } else { all_grids() };
        LabConfig {
            dim: self.dim.unwrap_or(default.dim),
            components: self.components.unwrap_or(default.components),
            std: self.std.unwrap_or(default.std),
            samples: self.samples.unwrap_or(default.samples),
            seed: self.seed,
            attenuations: select(&self.attenuations, Attenuation::ALL, |a| a.name(), attenuations),
            processes: select(&self.processes, &processes(noise), |law| law.name(), default.processes),
            noise,
            samplers: self.samplers(default.samplers),
            grids: select(&self.grids, &named_grids, GridKind::name, default.grids),
            evaluations: if self.evaluations.is_empty() { default.evaluations } else { self.evaluations.clone() },
        }
    }
}

/// Runs the laboratory.
pub fn run(args: &LabArgs, context: &Context) -> Result<()> {
    // Before the work, which takes minutes, so that a wrong name is reported at once.
    let _folder = args.out.as_deref().map(Folder::create).transpose()?;
    if let Some(data) = &args.images {
        return images::run(args, data, context);
    }
    if !args.processes.is_empty() && !args.grids.is_empty() {
        let advice =
            "--processes run on the default grids of their samplers; --grids needs --images, or no --processes";
        return Err(Error::request(advice).into());
    }
    let mut progress = context.progress("curves", 0);
    let report = run_lab(&args.config(), &mut |done, all| progress.set(done as u64, all as u64))?;
    drop(progress);
    if let Some(dir) = &args.out {
        report.save(dir).with_context(|| format!("writing to {}", dir.shown()))?;
        context.note(format_args!("wrote lab.json, lab.md, lab.svg and lab.png to {}", dir.shown()));
    }
    context.print(&report, serde_json::to_value(&report)?)
}
