//! `crossfade compare`.
use super::sweep::ProgressBars;
use crate::cli::one_of;
use crate::context::Context;
use crate::interrupt::{Stopped, stop_on_interrupt};
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::config::{Axes, Evaluate};
use crossfade::metrics::{METRIC_NAMES, RegisteredMetric};
use crossfade::study::{Request, compare};
use std::path::PathBuf;

/// Compare two checkpoints from the same starting noise with the same metric
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade compare runs/a runs/b --metric pixel-frechet --count 1000       needs no weights
  crossfade compare runs/a runs/b --evaluations 5,10,25 --count 5000 --out a-against-b
  crossfade compare old.safetensors new.safetensors --samplers ab2 --steps 10 --json
  crossfade compare runs/sr-a runs/sr-b --metric psnr --held-out data.path=photos/test --count 50
  crossfade compare runs/sal-a runs/sal-b --metric saliency --value max-f --held-out data.split=test --count 500

Both make images from the same noise; without --samplers each by its own sampler. The directory gets comparison.html and
report.html, pages that need nothing else; a comparison that was stopped goes on in the same directory.")]
pub struct CompareArgs {
    /// A run directory or a checkpoint
    #[arg(value_name = "A")]
    a: PathBuf,

    /// Another run directory or checkpoint
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

    /// Images per seed
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(2..))]
    count: u64,

    /// The metric; psnr, ssim, ms-ssim, lpips, saliency and edges compare with targets and need --held-out
    #[arg(long, default_value = "fid", value_parser = one_of(METRIC_NAMES))]
    metric: String,

    /// The value of the metric to show and to test, as max-f of saliency [default: its first one]
    #[arg(long, value_name = "NAME")]
    value: Option<String>,

    /// The protocol of the metric, as pytorch-fid of fid or basicsr of psnr [default: its first one]
    #[arg(long, value_name = "NAME")]
    protocol: Option<String>,

    /// What sets of images are compared with: train for the training images of A, or what `crossfade eval fid` takes; auto
    /// is train, but for a task the targets of its held-out images
    #[arg(long, value_name = "IMAGES", default_value = "auto")]
    reference: String,

    /// For tasks: a setting that puts held-out images in the place of A's training images, as data.path=photos/test
    #[arg(long, value_name = "KEY=VALUE")]
    held_out: Vec<String>,

    /// Directory that relative paths of images start from, those in A's configuration too [default: the current one]
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,

    /// Weights of the metric's network: Inception's [default: the cached ones] or those of LPIPS
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,

    /// Images per batch; changes the speed and nothing else
    #[arg(long, value_name = "B", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65536))]
    batch: u64,
}

impl CompareArgs {
    fn request(&self) -> Result<Request> {
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
                metric: RegisteredMetric::parse(&self.metric)?,
                value: self.value.clone(),
                protocol: self.protocol.clone(),
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
    let mut shown = ProgressBars::new(context);
    let found = compare(&args.request()?, &context.device, &stop, &mut |event| shown.tell(&event))
        .with_context(|| format!("comparing {} and {}", args.a.display(), args.b.display()))?;
    drop(shown);
    let Some(found) = found else {
        return Err(Stopped.into());
    };
    context.note(format_args!("pages: {} and report.html", args.out.join("comparison.html").display()));
    context.print(&found, serde_json::to_value(&found)?)
}
