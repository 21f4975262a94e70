//! `crossfade sample`.
use super::sampler::SamplerArgs;
use crate::cli::Weights;
use crate::context::Context;
use crate::output::duration;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::Error;
use crossfade::checkpoint::{self, Checkpoint};
use crossfade::config::SampleOptions;
use crossfade::error::Shown;
use crossfade::generate::{self, BATCH, Job, Shard};
use crossfade::models;
use crossfade::study::from_environment;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Generate images with a trained network
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade sample                                         the default model, a row for each class
  crossfade sample emoji --class 0 --count 16 --out pictures
  crossfade sample runs/tiny --count 16 --out pictures
  crossfade sample model.safetensors --sampler pc --steps 5 --seed 7 --out pictures
  crossfade sample runs/cifar --count 50000 --shard 0/4 --out pictures   one of four shards
  crossfade sample runs/tiny --interpolate 3,8 --count 9 --out between
  crossfade sample runs/edm --sampler heun-churn --churn 40 --steps 18 --rho 7 --out pictures
  crossfade sample runs/cifar10-classes --class cat --guidance 1.5 --out cats
  crossfade sample runs/cifar10-classes --class all --count 80 --out pictures   a row for each class
  crossfade sample runs/cifar10-classes --guidance 2 --guidance-interval 0.2,0.8 --out pictures
  crossfade sample runs/cifar --guidance 2 --guide runs/cifar/checkpoints/step-00050000.safetensors --out pictures
  crossfade sample runs/ddpm --sampler ddim --eta 0.2 --steps 50 --grid ddim-quadratic --out pictures
  crossfade sample runs/cifar --steps 10 --grid log-snr:kappa_max=20,kappa_min=0.1 --out pictures

Image k of a seed is the same file at any batch size, thread count and shard; the processes of
mpirun or srun divide the images among them and draw one sheet. Every PNG stores the options that
made it, and `crossfade reproduce` regenerates it from them.")]
pub struct SampleArgs {
    /// Name of a model that ships (see `crossfade models`), run directory, one of its checkpoints, or a converted weights file
    /// [default: the model that ships for this]
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: Option<PathBuf>,

    /// Output directory for the images and their contact sheet
    #[arg(long, value_name = "DIR", default_value = "samples")]
    pub out: PathBuf,

    /// Number of images [default: 64; without CHECKPOINT, a row for each class]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    #[command(flatten)]
    pub sampler: SamplerArgs,

    /// Class by name or number, several with commas between them, or all (image k gets class k mod n of these n, a row for
    /// each class on the sheet), random (drawn for each image from the seed) or none [default: from the configuration,
    /// which is random]
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,

    /// Weight of guidance: 1 for none, more for images that are more typical of their class. A guided step takes two
    /// network evaluations [default: from the configuration]
    #[arg(long, value_name = "X", value_parser = not_negative)]
    pub guidance: Option<f64>,

    /// Times between which steps are guided; t = 1 is noise, t = 0 the image [default: 0,1]
    #[arg(long, value_name = "FROM,TO", value_parser = two_times)]
    pub guidance_interval: Option<[f64; 2]>,

    /// Weaker checkpoint or run to guide with, in place of the network's own prediction without a class (autoguidance)
    #[arg(long, value_name = "CHECKPOINT")]
    pub guide: Option<PathBuf>,

    /// Seed of the noise
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,

    /// Index of the first image; the noise of an image depends only on its index and the seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub first: u64,

    /// Generate only shard I (from 0) of N, to split a job among processes; auto takes it from the environment of Slurm, MPI or
    /// Kubernetes [default: all images, which the processes of mpirun or srun share]
    #[arg(long, value_name = "I/N|auto", value_parser = shard)]
    pub shard: Option<Shard>,

    /// Batch size [default: 64, or --count if that is smaller]; it does not change the images
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,

    /// Which copy of the checkpoint's weights to use
    #[arg(long, default_value = "ema")]
    pub weights: Weights,

    /// Also write, for every image, a strip with x_t and the estimate of x_0 at every step
    #[arg(long)]
    pub trajectory: bool,

    /// Interpolate between the starting noises of images A and B in --count images
    #[arg(long, value_name = "A,B", value_parser = two_indices, conflicts_with_all = ["first", "shard"])]
    pub interpolate: Option<(u64, u64)>,
}

/// Value parser for a shard.
pub fn shard(text: &str) -> crossfade::Result<Shard> {
    if text == "auto" { from_environment(|name| std::env::var(name).ok()) } else { Shard::parse(text) }
}

fn two_indices(text: &str) -> Result<(u64, u64), String> {
    let numbers = text.split_once(',').and_then(|(a, b)| Some((a.trim().parse().ok()?, b.trim().parse().ok()?)));
    numbers.ok_or_else(|| "expected the indices of two images, for example 3,8".into())
}

/// Value parser for an interval of times.
pub fn two_times(text: &str) -> Result<[f64; 2], String> {
    let times = text.split_once(',').and_then(|(a, b)| Some([a.trim().parse().ok()?, b.trim().parse().ok()?]));
    times
        .filter(|[from, to]| 0.0 <= *from && from < to && *to <= 1.0)
        .ok_or_else(|| "expected two times from 0 to 1, the smaller one first, for example 0.2,0.8".into())
}

/// Value parser for a finite number from 0.
pub fn not_negative(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| *value >= 0.0 && value.is_finite());
    value.ok_or_else(|| "expected a number from 0, for example 1.5".into())
}

/// Opens a checkpoint, the newest one of a run directory, or a model that ships.
pub fn open(path: &Path) -> Result<Checkpoint> {
    Ok(Checkpoint::open(&checkpoint::newest(path)?)?)
}

/// As [`open`]; without a path, the model that ships for the task.
pub fn open_or_default(path: Option<&Path>, task: &str) -> Result<Checkpoint> {
    match (path, models::default_of(task)) {
        (Some(path), _) => open(path),
        (None, Some(model)) => open(Path::new(model.name)),
        (None, None) => {
            let what = if task == "generate" { "CHECKPOINT" } else { "--checkpoint" };
            let problem = format!(
                "no model for the task {task} ships with this program: name a run or a checkpoint ({what}), which \
                 `crossfade train CONFIG --out DIR` makes; `crossfade models` lists the models that ship"
            );
            Err(Error::request(problem).into())
        }
    }
}

/// Images in the row of each class, where neither a checkpoint nor a number of images is given.
const PER_CLASS: u64 = 8;

impl SampleArgs {
    /// The settings that replace those of the checkpoint.
    fn options(&self) -> Result<SampleOptions> {
        Ok(SampleOptions {
            class: self.class.clone(),
            guidance: self.guidance,
            guidance_interval: self.guidance_interval,
            ..self.sampler.options()?
        })
    }
}

/// Generates the images.
pub fn run(args: &SampleArgs, context: &Context) -> Result<()> {
    let checkpoint = open_or_default(args.checkpoint.as_deref(), "generate")?;
    let mut config = args.options()?.applied(&checkpoint.config, |name| format!("--{name}"))?;
    let (own, process) = (&checkpoint.config.sample, &checkpoint.config.process);
    if let Some(distill) = &checkpoint.config.distill
        && (config.sampler, config.times(process)?) != (own.sampler, own.times(process)?)
    {
        context.note(format_args!(
            "the network was distilled for its own {} steps; other samplers and times do not suit it",
            distill.steps
        ));
    }
    let classes = checkpoint.class_names.len() as u64;
    let by_class = args.checkpoint.is_none() && args.class.is_none() && classes > 0;
    if by_class {
        config.class = "all".into();
    }
    let count = args.count.unwrap_or(if by_class { PER_CLASS * classes } else { 64 });
    let job = Job {
        seed: args.seed,
        first: args.first,
        count,
        shard: args.shard.unwrap_or(Shard::ALL),
        batch: args.batch.unwrap_or(BATCH as u64).min(count) as usize,
        trajectory: args.trajectory,
        between: args.interpolate,
        guide: args.guide.as_deref().map(checkpoint::newest).transpose()?,
        out: args.out.clone(),
    };
    let mut progress = context.progress("images", count);
    let began = std::time::Instant::now();
    let before = began - context.began;
    let report = generate::run(&checkpoint, args.weights.into(), &config, &job, &context.device, &mut |done, all| {
        progress.set(done as u64, all as u64);
    })
    .with_context(|| format!("sampling from {}", checkpoint.path.shown()))?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    let text = format!(
        "{} images in {}, {} network evaluations each, sampler {}, grid {}; contact sheet {}",
        report.images,
        duration(seconds),
        report.evaluations,
        config.sampler.name(),
        config.grid.kind.argument(),
        report.sheet.shown()
    );
    // Time from the start of the program to the first network evaluation.
    let start_ms = before.as_secs_f64() * 1e3 + report.loading_ms;
    let facts =
        json!({ "report": report, "sample": config, "seconds": seconds, "seed": args.seed, "start_ms": start_ms });
    context.print(text, facts)
}
