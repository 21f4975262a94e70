//! `crossfade data`.
use crate::context::Context;
use crate::jobs::{Job, jobs, make_folder_of};
use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use crossfade::Error;
use crossfade::config::{AutoencoderRun, RunConfig, is_autoencoder, read_text};
use crossfade::data::matlab_resize::{Scale, imresize_file};
use crossfade::data::{DataConfig, Filter, Fit, Split, check};
use rayon::prelude::*;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What can be done with image sets.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Read every image of a set and report sizes, channels and what cannot be read
    #[command(after_help = "Examples:
  crossfade data check configs/cifar10-small.toml --data-root /data
  crossfade data check --kind folder --path pictures

The exit code is 1 if an image cannot be read; --json lists all of them.")]
    Check(CheckArgs),
    /// Resize images as MATLAB's imresize does (bicubic, byte for byte), to make low-resolution inputs
    #[command(after_help = "Examples:
  crossfade data imresize Set5/HR low --scale 1/4
  crossfade data imresize low up --scale 4
  crossfade data imresize photo.png small.png --scale 1/3 --modcrop 3

The results are PNG files under the same names.")]
    Imresize(ImresizeArgs),
}

/// Options of `data imresize`.
#[derive(Debug, Args)]
pub struct ImresizeArgs {
    /// A folder of images, or one image
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// The folder, or the PNG, to write
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// By how much the sides grow or shrink: 1/4, 2, 3/2
    #[arg(long, value_name = "RATIO", value_parser = Scale::parse)]
    scale: Scale,

    /// First cut the right and lower border so that the sides are multiples of N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    modcrop: Option<u32>,
}

/// Options of `data check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A configuration whose images to check
    #[arg(value_name = "FILE", required_unless_present = "kind", conflicts_with = "kind")]
    config: Option<PathBuf>,

    /// What the images are, if there is no configuration
    #[arg(long)]
    kind: Option<Kind>,

    /// Where the images are
    #[arg(long, value_name = "PATH", requires = "kind", required_if_eq_any([
        ("kind", "cifar10"), ("kind", "idx"), ("kind", "folder"), ("kind", "zip")]))]
    path: Option<PathBuf>,

    /// Check the test images of CIFAR-10 instead of the training images
    #[arg(long, requires = "kind")]
    test: bool,

    /// Directory that relative paths of a configuration start from [default: the current one]
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,
}

/// Kinds of image sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Drawn on the fly, without files
    Procedural,
    /// CIFAR-10, binary or Python layout
    Cifar10,
    /// MNIST and its like
    Idx,
    /// A folder of PNG, JPEG and WebP files
    Folder,
    /// A zip of PNG, JPEG and WebP files
    Zip,
}

impl CheckArgs {
    fn data(&self) -> Result<DataConfig> {
        if let Some(file) = &self.config {
            let root = self.data_root.as_deref().unwrap_or(Path::new(""));
            return Ok(if is_autoencoder(&read_text(file)?) {
                AutoencoderRun::load(file)?.with_data_root(root).data
            } else {
                RunConfig::load(file)?.with_data_root(root).data
            });
        }
        let path = || self.path.clone().ok_or_else(|| Error::request("--path is needed: where are the images?"));
        let split = if self.test { Split::Test } else { Split::Train };
        let (fit, filter) = (Fit::default(), Filter::default());
        Ok(match self.kind {
            Some(Kind::Procedural) | None => DataConfig::Procedural { seed: 0, len: 1000 },
            Some(Kind::Cifar10) => DataConfig::Cifar10 { path: path()?, split },
            Some(Kind::Idx) => DataConfig::Idx { path: path()? },
            Some(Kind::Folder) => DataConfig::Folder { path: path()?, fit, filter },
            Some(Kind::Zip) => DataConfig::Zip { path: path()?, fit, filter },
        })
    }
}

/// Runs a `data` command.
pub fn run(command: &DataCommand, context: &Context) -> Result<()> {
    match command {
        DataCommand::Check(args) => run_check(args, context),
        DataCommand::Imresize(args) => run_imresize(args, context),
    }
}

/// Resizes one image or a folder of them; nothing is written over an input.
fn run_imresize(args: &ImresizeArgs, context: &Context) -> Result<()> {
    let jobs = jobs(&args.input, &args.output)?;
    let progress = Mutex::new((0, context.progress("images", jobs.len() as u64)));
    let multiple = args.modcrop.unwrap_or(1) as usize;
    let one = |Job { from, to, .. }: &Job| -> Result<()> {
        make_folder_of(to)?;
        imresize_file(from, to, args.scale, multiple)?;
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.0 += 1;
        let done = progress.0;
        progress.1.set(done, jobs.len() as u64);
        Ok(())
    };
    jobs.par_iter().map(one).collect::<Vec<_>>().into_iter().collect::<Result<()>>()?;
    drop(progress);
    let (count, out) = (jobs.len(), args.output.display());
    let text = format!("{count} images at {} times their size: {out}", args.scale);
    context.print(text, json!({ "images": count, "scale": args.scale.to_string(), "out": args.output }))
}

fn run_check(args: &CheckArgs, context: &Context) -> Result<()> {
    let data = args.data()?;
    let mut progress = context.progress("images", 0);
    let report = check(&data, &mut |done, all| progress.set(done as u64, all as u64))?;
    drop(progress);
    context.print(&report, serde_json::to_value(&report)?)?;
    if !report.is_clean() {
        bail!("{} of {} images cannot be read", report.unreadable.len(), report.images);
    }
    Ok(())
}
