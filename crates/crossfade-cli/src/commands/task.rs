//! What `crossfade sr`, `inpaint`, `saliency`, `edge`, `depth` and `sketch` share: a trained task applied to images.
use super::sample::open_or_default;
use super::sampler::SamplerArgs;
use crate::cli::Weights;
use crate::context::Context;
use crate::jobs::{ImageJob, check_overwrites, folders, list_jobs};
use crate::output::duration;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::Error;
use crossfade::apply::{Application, Applied, Blending, Options};
use crossfade::checkpoint::Checkpoint;
use crossfade::config::SampleConfig;
use crossfade::data::{IMAGE_ENDINGS, Image16, LabelMap};
use crossfade::error::Shown;
use crossfade::files::Folder;
use crossfade::generate::{Pipeline, task_recipe};
use crossfade::math::GridKind;
use crossfade::models;
use crossfade::ranks;
use crossfade::rng::{Purpose, Stream};
use crossfade::task::TaskConfig;
use crossfade::task::masks::{HoleBox, Mask, random};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Sampler steps of a network whose steps are not given.
const STEPS: usize = 5;

/// Options of every task verb.
#[derive(Debug, Args)]
pub struct TaskArgs {
    /// Image or folder of images: PNG, JPEG or WebP, of any size
    #[arg(value_name = "IN")]
    pub input: PathBuf,

    /// PNG file or folder to write
    #[arg(value_name = "OUT")]
    pub output: PathBuf,

    /// Run directory or checkpoint of a network trained for this task, or the name of a model that ships [default: the model
    /// that ships for the task]
    #[arg(long, value_name = "PATH")]
    pub checkpoint: Option<PathBuf>,

    #[command(flatten)]
    pub sampler: SamplerArgs,

    /// Seed of the noise
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,

    /// Which copy of the checkpoint's weights to use
    #[arg(long, default_value = "ema")]
    pub weights: Weights,

    /// Side of a tile, in pixels of IN [default: the size used in training]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub tile: Option<u64>,

    /// Minimum overlap of neighbouring tiles, in pixels [default: a quarter of a tile]
    #[arg(long, value_name = "N")]
    pub overlap: Option<u64>,

    /// Use the tiling of the reference implementation: one tile every N pixels, averaged where they overlap
    #[arg(long, value_name = "N", conflicts_with = "overlap", value_parser = clap::value_parser!(u64).range(1..))]
    pub stride: Option<u64>,

    /// Tiles per batch; changes speed and memory, not the result
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub batch: u64,

    /// Also process the mirrored image and average both results
    #[arg(long)]
    pub flip_test: bool,
}

/// Where the holes of inpainting come from.
pub enum Holes<'a> {
    /// The task has no holes.
    None,
    /// A mask file, or a folder of masks with the names of the images.
    Files(&'a Path),
    /// The same rectangles for every image.
    Boxes(&'a [HoleBox]),
    /// Holes drawn as in training.
    Random,
}

/// A task to apply: the common options and what only some verbs have.
pub struct Request<'a> {
    /// The common options.
    pub common: &'a TaskArgs,
    /// The name of the task, which the checkpoint must have been trained for.
    pub kind: &'a str,
    /// Maps become black and white at this value.
    pub threshold: Option<f64>,
    /// The holes to fill.
    pub holes: Holes<'a>,
    /// Folder for the images with their holes.
    pub masked: Option<&'a Path>,
}

impl<'a> Request<'a> {
    /// A request with the common options only.
    pub fn new(common: &'a TaskArgs, kind: &'a str) -> Self {
        Self { common, kind, threshold: None, holes: Holes::None, masked: None }
    }
}

impl TaskArgs {
    /// The checkpoint's sampling settings with the options applied.
    fn sampling(&self, checkpoint: &Checkpoint) -> Result<SampleConfig> {
        let mut run = checkpoint.config.clone();
        // The steps of a training are chosen for its sheets, those of a model that ships by measuring it.
        if models::of(&checkpoint.path).is_none() && !matches!(run.sample.grid.kind, GridKind::Explicit { .. }) {
            run.sample.steps = STEPS;
        }
        Ok(self.sampler.options()?.applied(&run, |name| format!("--{name}"))?)
    }

    /// How images are tiled and finished.
    fn options(&self, threshold: Option<f64>) -> Options {
        let stride = self.stride.map(|stride| Blending::Reference { stride: stride as usize });
        let overlap = self.overlap.map(|overlap| Blending::Smooth { overlap: overlap as usize });
        Options {
            window: self.tile.map(|side| side as usize),
            blending: stride.or(overlap),
            batch: self.batch as usize,
            flip_test: self.flip_test,
            threshold,
        }
    }
}

impl Holes<'_> {
    /// The mask of an image, or none if the task has no masks.
    fn mask(&self, job: &ImageJob, picture: &Image16, seed: u64, task: &TaskConfig) -> Result<Option<Mask>> {
        let (width, height) = (picture.width, picture.height);
        Ok(match self {
            Self::None => None,
            Self::Boxes(boxes) => Some(Mask::boxes(width, height, boxes)?),
            Self::Random => {
                let mut stream = Stream::new(seed, job.number(), 0, Purpose::Mask);
                let brush = if let TaskConfig::Inpainting(task) = task { task.brush } else { 1.0 };
                Some(random(&mut stream, width, height, brush))
            }
            Self::Files(path) => Some(Mask::from_label(&LabelMap::read(&mask_file(path, &job.name)?)?)),
        })
    }

    /// The files that masks are read from, so that no output overwrites them.
    fn files(&self, jobs: &[ImageJob]) -> Result<Vec<PathBuf>> {
        match self {
            Self::Files(path) => jobs.iter().map(|job| mask_file(path, &job.name)).collect(),
            _ => Ok(vec![]),
        }
    }
}

/// The mask of the image `name`: the file of that name in the folder `dir`, with any image extension, or `dir` itself if it is a
/// file.
fn mask_file(dir: &Path, name: &Path) -> Result<PathBuf> {
    if !dir.is_dir() {
        return Ok(dir.to_path_buf());
    }
    let endings = IMAGE_ENDINGS.iter().flat_map(|ending| [ending.to_string(), ending.to_ascii_uppercase()]);
    let found = endings.map(|ending| dir.join(name).with_extension(ending)).find(|file| file.is_file());
    Ok(found.ok_or_else(|| Error::file(dir, format!("contains no mask for {}", name.shown())))?)
}

/// Applies the task to every input image and prints a summary.
pub fn apply(request: &Request, context: &Context) -> Result<()> {
    let Request { common, kind, threshold, holes, masked } = request;
    let checkpoint = open_or_default(common.checkpoint.as_deref(), kind)?;
    let sample = common.sampling(&checkpoint)?;
    let pipeline = Pipeline::open(&checkpoint, common.weights.into(), &sample, &context.device)?;
    let (model, evaluations) = (pipeline.task_model(kind, common.seed)?, pipeline.evaluations()?);
    let jobs = list_jobs(&common.input, &common.output)?;
    let masked: Option<Vec<PathBuf>> =
        masked.map(|folder| jobs.iter().map(|job| folder.join(&job.name).with_extension("png")).collect());
    check_overwrites(&jobs, &holes.files(&jobs)?, masked.as_deref().unwrap_or_default())?;
    let options = common.options(*threshold);
    let (keyword, text) = task_recipe(&checkpoint, kind, common.seed, &sample, evaluations);
    let application =
        Application { task: &checkpoint.config.task, model: &model, options: &options, texts: &[(keyword, &text)] };
    let began = std::time::Instant::now();
    let mut progress = context.progress("tiles", jobs.len() as u64);
    let mut own: Vec<(usize, Applied)> = Vec::new();
    // Ranks deal the images out among them.
    let group = ranks::current();
    let _folders = folders(&jobs)?;
    let _masked = Folder::of(masked.iter().flatten().map(PathBuf::as_path))?;
    for (k, job) in jobs.iter().enumerate().skip(group.rank()).step_by(group.size()) {
        group.check()?;
        let ImageJob { name, from, to } = job;
        let picture = Image16::read(from)?;
        let mask = holes
            .mask(job, &picture, common.seed, &checkpoint.config.task)
            .with_context(|| format!("the mask of {}", name.shown()))?;
        if let (Some(paths), Some(mask)) = (&masked, &mask) {
            write_masked(&paths[k], &picture, mask)?;
        }
        progress.detail(format!("image {} of {}", k + 1, jobs.len()));
        let applied = application
            .run(&picture, mask.as_ref(), job.number(), to, &mut |done, all| progress.set(done as u64, all as u64))
            .with_context(|| format!("processing {}", from.shown()))?;
        own.push((k, applied));
    }
    drop(progress);
    // Only the first rank gets what all have made, and reports it.
    let mut made = group.gather(&own)?.unwrap_or_default().concat();
    made.sort_by_key(|(k, _)| *k);
    let made: Vec<(PathBuf, Applied)> = made.into_iter().map(|(k, applied)| (jobs[k].to.clone(), applied)).collect();
    report(&made, kind, evaluations, began.elapsed().as_secs_f64(), context)
}

/// Prints what was written.
fn report(made: &[(PathBuf, Applied)], kind: &str, evaluations: usize, seconds: f64, context: &Context) -> Result<()> {
    let windows: usize = made.iter().map(|(_, applied)| applied.windows).sum();
    let what = match made {
        [(path, applied)] => format!("{}: {}x{}", path.shown(), applied.width, applied.height),
        _ => format!("{} images", made.len()),
    };
    let text = format!("{what}, {windows} tiles, {evaluations} network evaluations each, {}", duration(seconds));
    let files: Vec<_> =
        made.iter().map(|(path, applied)| json!({ "file": path.to_string_lossy(), "applied": applied })).collect();
    let facts = json!({ "task": kind, "pictures": files, "evaluations": evaluations, "seconds": seconds });
    context.print(text, facts)
}

/// Writes the image with its hole in black.
fn write_masked(path: &Path, picture: &Image16, mask: &Mask) -> Result<()> {
    let mut image = picture.to_image();
    for (pixel, known) in image.pixels.chunks_exact_mut(image.channels).zip(&mask.known) {
        if !known {
            pixel.fill(0);
        }
    }
    Ok(crossfade::files::write_atomic(path, &image.encode_png(&[])?)?)
}
