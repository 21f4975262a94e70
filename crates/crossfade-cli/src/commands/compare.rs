//! `crossfade compare`.
use super::sweep::Shown;
use crate::cli::one_of;
use crate::context::Context;
use crate::interrupt::{Stopped, stop_on_interrupt};
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::Error;
use crossfade::config::{Axes, Evaluate, Metric};
use crossfade::metrics::features::Protocol;
use crossfade::study::{Request, compare};
use std::path::PathBuf;

/// Compare two checkpoints from the same starting noise with the same metric
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade compare runs/a runs/b --metric pixel-frechet --count 1000       needs no weights
  crossfade compare runs/a runs/b --evaluations 5,10,25 --count 5000 --out a-against-b
  crossfade compare old.safetensors new.safetensors --samplers ab2 --steps 10 --json
  crossfade compare runs/sr-a runs/sr-b --metric psnr --held-out data.path=photos/test --count 50

Both make images from the same noise; without --samplers each by its own sampler. The directory gets comparison.html and
report.html, pages that need nothing else; a comparison that was stopped goes on in the same directory.")]
pub struct CompareArgs {
    /// A run directory or a checkpoint
    #[arg(value_name = "A")]
    a: PathBuf,

    /// Another
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Directory for results and pages
    #[arg(long, value_name = "DIR", default_value = "comparison")]
    out: PathBuf,

    /// Samplers [default: each one's own]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    samplers: Vec<String>,

    /// Steps of the sampler
    #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with = "evaluations")]
    steps: Vec<usize>,

    /// Network evaluations instead of steps [default: 10]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    evaluations: Vec<usize>,

    /// Seeds; the t-test needs two or more
    #[arg(long, value_name = "S,…", value_delimiter = ',', default_value = "0,1,2")]
    seeds: Vec<u64>,

    /// Images a seed
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(2..))]
    count: u64,

    /// What is measured; fid, kid, is and pr need the weights of Inception, psnr is for networks with a condition
    #[arg(long, default_value = "fid", value_parser = one_of(Metric::ALL.map(Metric::name)))]
    metric: String,

    /// How pictures are resized for Inception
    #[arg(long, default_value = "torch-fidelity", value_parser = one_of(Protocol::NAMES.iter().copied()))]
    protocol: String,

    /// What images are compared with: train for the training images of A, or what `crossfade eval fid` takes
    #[arg(long, value_name = "IMAGES", default_value = "train")]
    reference: String,

    /// For psnr: a setting that puts held-out images in the place of A's training images, as data.path=photos/test
    #[arg(long, value_name = "KEY=VALUE")]
    held_out: Vec<String>,

    /// Directory that relative paths of images start from, those in A's configuration too [default: the current one]
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,

    /// Weights of the Inception network [default: the cached ones]
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,

    /// Images at a time; changes the speed and nothing else
    #[arg(long, value_name = "B", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65536))]
    batch: u64,
}

impl CompareArgs {
    fn request(&self) -> Result<Request> {
        let metric = Metric::ALL.into_iter().find(|metric| metric.name() == self.metric);
        let unknown = || Error::request("an unknown metric");
        let default = self.steps.is_empty() && self.evaluations.is_empty();
        Ok(Request {
            checkpoints: [self.a.clone(), self.b.clone()],
            sample: Axes {
                samplers: self.samplers.clone(),
                steps: self.steps.clone(),
                evaluations: if default { vec![10] } else { self.evaluations.clone() },
                seeds: self.seeds.clone(),
                count: self.count,
                ..Axes::default()
            },
            evaluate: Evaluate {
                metric: metric.ok_or_else(unknown)?,
                protocol: Protocol::parse(&self.protocol)?,
                reference: self.reference.clone(),
                held_out: self.held_out.clone(),
                ..Evaluate::default()
            },
            out: self.out.clone(),
            data_root: self.data_root.clone(),
            weights: self.weights.clone(),
            batch: self.batch as usize,
        })
    }
}

/// Compares.
pub fn run(args: &CompareArgs, context: &Context) -> Result<()> {
    let stop = stop_on_interrupt()?;
    let mut shown = Shown::new(context);
    let found = compare(&args.request()?, &context.device, &stop, &mut |event| shown.tell(&event))
        .with_context(|| format!("comparing {} and {}", args.a.display(), args.b.display()))?;
    drop(shown);
    let Some(found) = found else {
        return Err(Stopped.into());
    };
    context.note(format_args!("pages: {} and report.html", args.out.join("comparison.html").display()));
    context.print(&found, serde_json::to_value(&found)?)
}
