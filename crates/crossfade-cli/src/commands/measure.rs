//! The options of verbs that make images and measure them: `compare` and `average`.
use crate::cli::{one_of, text_path};
use anyhow::Result;
use clap::Args;
use crossfade::config::{Axes, Evaluate};
use crossfade::metrics::{METRIC_NAMES, RegisteredMetric};
use crossfade::study::Measuring;
use std::path::PathBuf;

/// How images are made and measured.
#[derive(Debug, Args)]
pub struct MeasureArgs {
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

    /// The metric; psnr, ssim, ms-ssim, lpips, saliency and edges compare with targets and need --held-out; nll measures the
    /// network at --evaluations noise levels of each of --count images, and samples nothing
    #[arg(long, default_value = "fid", value_parser = one_of(METRIC_NAMES))]
    metric: String,

    /// The value of the metric to show and to test, as max-f of saliency [default: its first one]
    #[arg(long, value_name = "NAME")]
    value: Option<String>,

    /// The protocol of the metric, as pytorch-fid of fid or basicsr of psnr [default: its first one]
    #[arg(long, value_name = "NAME")]
    protocol: Option<String>,

    /// What sets of images are compared with: train for the training images of the (first) checkpoint, or what `crossfade
    /// eval fid` takes; auto is train, but for a task the targets of its held-out images
    #[arg(long, value_name = "IMAGES", default_value = "auto")]
    reference: String,

    /// For tasks and nll: a setting that puts held-out images in the place of the training images, as data.path=photos/test or
    /// data.split=test
    #[arg(long, value_name = "KEY=VALUE")]
    held_out: Vec<String>,

    /// Also measure the images of each class, for fid, pixel-frechet and random-frechet
    #[arg(long)]
    per_class: bool,

    /// Directory that relative paths of images start from, those in the configuration too [default: the current one]
    #[arg(long, value_name = "DIR", value_parser = text_path)]
    data_root: Option<PathBuf>,

    /// Weights of the metric's network: Inception's [default: the cached ones] or those of LPIPS
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,

    /// Images per batch; changes the speed and nothing else
    #[arg(long, value_name = "B", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65536))]
    batch: u64,
}

impl MeasureArgs {
    /// How checkpoints are measured with these samplers, with the results in `out`.
    pub fn measuring(&self, samplers: Vec<String>, out: PathBuf) -> Result<Measuring> {
        let default = self.steps.is_empty() && self.evaluations.is_empty();
        let sample = Axes {
            samplers,
            steps: self.steps.clone(),
            evaluations: if default { vec![10] } else { self.evaluations.clone() },
            seeds: self.seeds.clone(),
            count: self.count,
            ..Axes::default()
        };
        let evaluate = Evaluate {
            metric: RegisteredMetric::parse(&self.metric)?,
            value: self.value.clone(),
            protocol: self.protocol.clone(),
            reference: self.reference.clone(),
            held_out: self.held_out.clone(),
            per_class: self.per_class,
            ..Evaluate::default()
        };
        let (data_root, weights) = (self.data_root.clone(), self.weights.clone());
        Ok(Measuring { sample, evaluate, out, data_root, weights, batch: self.batch as usize })
    }
}
