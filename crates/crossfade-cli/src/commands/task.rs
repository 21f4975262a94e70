//! `crossfade sr`, `inpaint`, `saliency`, `edge`, `depth` and `sketch`: a trained task applied to pictures.
use super::sample::{open, samplers, share};
use crate::cli::{Weights, one_of};
use crate::context::Context;
use crate::jobs::{Job, jobs, keep_apart, make_folder_of};
use crate::output::duration;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::Error;
use crossfade::apply::{Application, Applied, Blending, Options};
use crossfade::config::SampleConfig;
use crossfade::data::{IMAGE_ENDINGS, Image16, LabelMap};
use crossfade::generate::Maker;
use crossfade::nn::named::fnv1a;
use crossfade::rng::{Purpose, Stream};
use crossfade::sample::Sampler;
use crossfade::task::masks::{HoleBox, Mask, random};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Options of every task.
#[derive(Debug, Args)]
pub struct Common {
    /// A picture, or a folder of them: PNG, JPEG or WebP of any size
    #[arg(value_name = "IN")]
    pub input: PathBuf,

    /// The PNG to write, or the folder for them
    #[arg(value_name = "OUT")]
    pub output: PathBuf,

    /// A checkpoint, or the directory of a run
    #[arg(long, value_name = "PATH")]
    pub checkpoint: PathBuf,

    /// Steps of the sampler
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: u64,

    /// The sampler [default: the configuration's]
    #[arg(long, value_name = "NAME", value_parser = one_of(samplers()))]
    pub sampler: Option<String>,

    /// Seed of the noise
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub seed: u64,

    /// Which weights of a checkpoint
    #[arg(long, default_value = "ema")]
    pub weights: Weights,

    /// Side of a window in pixels of IN [default: that of training]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub window: Option<u64>,

    /// Pixels that neighbouring windows share at least [default: a quarter of a window]
    #[arg(long, value_name = "N")]
    pub overlap: Option<u64>,

    /// The reference's windows instead: one every N pixels, plain mean where they overlap
    #[arg(long, value_name = "N", conflicts_with = "overlap", value_parser = clap::value_parser!(u64).range(1..))]
    pub stride: Option<u64>,

    /// Windows at a time; changes speed and memory and nothing else
    #[arg(long, value_name = "B", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub batch: u64,

    /// Also work on the mirrored picture and take the mean
    #[arg(long)]
    pub flip_test: bool,
}

/// Options of `sr`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade sr photo.jpg large.png --checkpoint runs/sr
  crossfade sr photos large --checkpoint runs/sr --steps 10 --seed 7

The factor is that of the checkpoint. Alpha is enlarged too; grey and 16-bit pictures stay what they are.")]
pub struct SrArgs {
    #[command(flatten)]
    pub common: Common,
}

/// Options of `inpaint`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade inpaint face.png whole.png --checkpoint runs/inpaint --box 80,60,64,40
  crossfade inpaint faces whole --checkpoint runs/inpaint --mask masks
  crossfade inpaint faces whole --checkpoint runs/inpaint --random-mask

White in a mask is known, black is filled in. Known pixels come back exactly as they were.")]
pub struct InpaintArgs {
    #[command(flatten)]
    pub common: Common,

    /// A mask of the picture's size, or a folder of masks with the names of the pictures
    #[arg(long, value_name = "PATH", required_unless_present_any = ["boxes", "random_mask"])]
    pub mask: Option<PathBuf>,

    /// Fill this rectangle, in pixels; may be given many times
    #[arg(long = "box", value_name = "X,Y,W,H", conflicts_with = "mask", value_parser = HoleBox::parse)]
    pub boxes: Vec<HoleBox>,

    /// Draw holes as in training, from the seed and the picture's name
    #[arg(long, conflicts_with_all = ["mask", "boxes"])]
    pub random_mask: bool,

    /// Also write the pictures with their holes into this folder
    #[arg(long, value_name = "DIR")]
    pub masked: Option<PathBuf>,
}

/// Options of `saliency` and `edge`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade saliency photo.jpg map.png --checkpoint runs/saliency
  crossfade edge photos maps --checkpoint runs/edges --threshold 0.5

Saliency sees the whole picture at the size of training unless --window is given; edges are found in windows.")]
pub struct MapArgs {
    #[command(flatten)]
    pub common: Common,

    /// Make maps black and white: white from this value in 0..1 on [default: soft maps]
    #[arg(long, value_name = "X", value_parser = share)]
    pub threshold: Option<f64>,
}

/// Options of `depth` and `sketch`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade depth photo.jpg depth.png --checkpoint runs/depth
  crossfade sketch drawing.png photo.png --checkpoint runs/sketch

Depth maps have 16 bits, in the unit of the training data (millimetres for NYU Depth).")]
pub struct PlainArgs {
    #[command(flatten)]
    pub common: Common,
}

/// Where holes come from.
enum Holes<'a> {
    None,
    Files(&'a Path),
    Boxes(&'a [HoleBox]),
    Random,
}

/// Super-resolution.
pub fn sr(args: &SrArgs, context: &Context) -> Result<()> {
    work(&args.common, "super-resolution", None, &Holes::None, None, context)
}

/// Inpainting.
pub fn inpaint(args: &InpaintArgs, context: &Context) -> Result<()> {
    let holes = match &args.mask {
        Some(path) => Holes::Files(path),
        None if args.random_mask => Holes::Random,
        None => Holes::Boxes(&args.boxes),
    };
    work(&args.common, "inpainting", None, &holes, args.masked.as_deref(), context)
}

/// Saliency and edges.
pub fn map(args: &MapArgs, kind: &str, context: &Context) -> Result<()> {
    work(&args.common, kind, args.threshold, &Holes::None, None, context)
}

/// Depth and sketches.
pub fn plain(args: &PlainArgs, kind: &str, context: &Context) -> Result<()> {
    work(&args.common, kind, None, &Holes::None, None, context)
}

impl Common {
    fn sampling(&self, mut config: SampleConfig) -> Result<SampleConfig> {
        config.steps = self.steps as usize;
        if let Some(name) = &self.sampler {
            config.sampler = Sampler::parse(name)?;
        }
        Ok(config)
    }

    fn options(&self, threshold: Option<f64>) -> Options {
        let stride = self.stride.map(|stride| Blending::Reference { stride: stride as usize });
        let overlap = self.overlap.map(|overlap| Blending::Smooth { overlap: overlap as usize });
        Options {
            window: self.window.map(|side| side as usize),
            blending: stride.or(overlap),
            batch: self.batch as usize,
            flip_test: self.flip_test,
            threshold,
        }
    }
}

impl Holes<'_> {
    /// The mask of a picture, if the task has masks.
    fn mask(&self, name: &str, picture: &Image16, seed: u64) -> Result<Option<Mask>> {
        let (width, height) = (picture.width, picture.height);
        Ok(match self {
            Self::None => None,
            Self::Boxes(boxes) => Some(Mask::boxes(width, height, boxes)?),
            Self::Random => {
                let mut stream = Stream::new(seed, fnv1a(name), 0, Purpose::Mask);
                Some(random(&mut stream, width, height))
            }
            Self::Files(path) => Some(Mask::from_label(&LabelMap::read(&file_of(path, name)?)?)),
        })
    }

    /// The files that masks are read from.
    fn files(&self, jobs: &[Job]) -> Result<Vec<PathBuf>> {
        match self {
            Self::Files(path) => jobs.iter().map(|job| file_of(path, &job.name)).collect(),
            _ => Ok(vec![]),
        }
    }
}

/// The mask of a picture: the image of its name, with any ending, in the folder `dir`, or the one file.
fn file_of(dir: &Path, name: &str) -> Result<PathBuf> {
    if !dir.is_dir() {
        return Ok(dir.to_path_buf());
    }
    let endings = IMAGE_ENDINGS.iter().flat_map(|ending| [ending.to_string(), ending.to_ascii_uppercase()]);
    let found = endings.map(|ending| dir.join(name).with_extension(ending)).find(|file| file.is_file());
    Ok(found.ok_or_else(|| Error::file(dir, format!("holds no mask for {name}")))?)
}

fn work(
    common: &Common,
    kind: &str,
    threshold: Option<f64>,
    holes: &Holes,
    masked: Option<&Path>,
    context: &Context,
) -> Result<()> {
    let checkpoint = open(&common.checkpoint)?;
    let sample = common.sampling(checkpoint.config.sample.clone())?;
    let maker = Maker::open(&checkpoint, kind, common.weights.into(), sample, common.seed, &context.device)?;
    let jobs = jobs(&common.input, &common.output)?;
    let masked: Option<Vec<PathBuf>> =
        masked.map(|folder| jobs.iter().map(|job| folder.join(&job.name).with_extension("png")).collect());
    keep_apart(&jobs, &holes.files(&jobs)?, masked.as_deref().unwrap_or_default())?;
    let options = common.options(threshold);
    let recipe = json!({
        "version": env!("CARGO_PKG_VERSION"), "task": kind, "checksum": checkpoint.checksum, "seed": common.seed,
        "steps": common.steps, "evaluations": maker.evaluations()?,
    });
    let text = recipe.to_string();
    let application = Application {
        task: &checkpoint.config.task,
        model: &maker,
        options: &options,
        texts: &[("crossfade-task", &text)],
    };
    let began = std::time::Instant::now();
    let mut progress = context.progress("windows", jobs.len() as u64);
    let mut made: Vec<(PathBuf, Applied)> = Vec::new();
    for (k, Job { name, from, to }) in jobs.iter().enumerate() {
        make_folder_of(to)?;
        let picture = Image16::read(from)?;
        let mask = holes.mask(name, &picture, common.seed).with_context(|| format!("the mask of {name}"))?;
        if let (Some(paths), Some(mask)) = (&masked, &mask) {
            write_masked(&paths[k], &picture, mask)?;
        }
        progress.detail(format!("picture {} of {}", k + 1, jobs.len()));
        let applied = application
            .run(&picture, mask.as_ref(), fnv1a(name), to, &mut |done, all| progress.set(done as u64, all as u64))
            .with_context(|| format!("working on {}", from.display()))?;
        made.push((to.clone(), applied));
    }
    drop(progress);
    report(&made, kind, &maker, began.elapsed().as_secs_f64(), context)
}

fn report(made: &[(PathBuf, Applied)], kind: &str, maker: &Maker, seconds: f64, context: &Context) -> Result<()> {
    let windows: usize = made.iter().map(|(_, applied)| applied.windows).sum();
    let what = match made {
        [(path, applied)] => format!("{}: {}x{}", path.display(), applied.width, applied.height),
        _ => format!("{} pictures", made.len()),
    };
    let evaluations = maker.evaluations()?;
    let text = format!("{what}, {windows} windows, {evaluations} evaluations each, {}", duration(seconds));
    let files: Vec<_> = made.iter().map(|(path, applied)| json!({ "file": path, "applied": applied })).collect();
    let facts = json!({ "task": kind, "pictures": files, "evaluations": evaluations, "seconds": seconds });
    context.print(text, facts)
}

/// The picture with its hole in black.
fn write_masked(path: &Path, picture: &Image16, mask: &Mask) -> Result<()> {
    make_folder_of(path)?;
    let mut image = picture.to_image();
    for (pixel, known) in image.pixels.chunks_exact_mut(image.channels).zip(&mask.known) {
        if !known {
            pixel.fill(0);
        }
    }
    Ok(crossfade::files::write_atomic(path, &image.encode_png(&[])?)?)
}
