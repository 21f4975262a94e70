//! `crossfade data`.
use crate::cli::text_path;
use crate::context::Context;
use crate::jobs::{ImageJob, folders, list_jobs};
use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use crossfade::Error;
use crossfade::config::{AutoencoderRun, RunConfig, is_autoencoder, read_text};
use crossfade::data::matlab_resize::{Scale, imresize_file};
use crossfade::data::{DataConfig, Filter, Fit, Split, check};
use crossfade::error::Shown;
use rayon::prelude::*;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Check and resize image datasets
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Read every image of a dataset and report sizes, channels and unreadable files
    #[command(after_help = "Examples:
  crossfade data check configs/cifar10-small.toml --data-root /data
  crossfade data check --kind folder --path pictures

The exit code is 1 if any image cannot be read; --json lists all of these.")]
    Check(CheckArgs),
    /// Resize images exactly like MATLAB's bicubic imresize, to make low-resolution inputs
    #[command(after_help = "Examples:
  crossfade data imresize Set5/HR low --scale 1/4
  crossfade data imresize low up --scale 4
  crossfade data imresize photo.png small.png --scale 1/3 --modcrop 3

The outputs are PNG files with the same names.")]
    Imresize(ImresizeArgs),
}

/// Options of `data imresize`.
#[derive(Debug, Args)]
pub struct ImresizeArgs {
    /// Image or folder of images
    #[arg(value_name = "IN")]
    input: PathBuf,

    /// PNG file or folder to write
    #[arg(value_name = "OUT")]
    output: PathBuf,

    /// Scale factor of both sides, for example 1/4, 2 or 3/2
    #[arg(long, value_name = "RATIO", value_parser = Scale::parse)]
    scale: Scale,

    /// First crop the right and bottom borders so that both sides are multiples of N
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    modcrop: Option<u32>,
}

/// Options of `data check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration whose dataset to check
    #[arg(value_name = "FILE", required_unless_present = "kind", conflicts_with = "kind")]
    config: Option<PathBuf>,

    /// Kind of dataset, instead of a configuration
    #[arg(long)]
    kind: Option<Kind>,

    /// Path of the dataset
    #[arg(long, value_name = "PATH", requires = "kind", required_if_eq_any([
        ("kind", "cifar10"), ("kind", "idx"), ("kind", "folder"), ("kind", "zip")]))]
    path: Option<PathBuf>,

    /// Check the test split of CIFAR-10 instead of the training split
    #[arg(long, requires = "kind")]
    test: bool,

    /// Directory that relative data paths of a configuration start from [default: the current directory]
    #[arg(long, value_name = "DIR", value_parser = text_path)]
    data_root: Option<PathBuf>,
}

/// Kinds of datasets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Images drawn on the fly, without files
    Procedural,
    /// CIFAR-10 in its binary or Python layout
    Cifar10,
    /// IDX files, such as MNIST
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
        let path = || self.path.clone().ok_or_else(|| Error::request("--path is required: the path of the dataset"));
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

/// Resizes one image or a folder of images; inputs are never overwritten.
fn run_imresize(args: &ImresizeArgs, context: &Context) -> Result<()> {
    let jobs = list_jobs(&args.input, &args.output)?;
    let progress = Mutex::new((0, context.progress("images", jobs.len() as u64)));
    let _folders = folders(&jobs)?;
    let multiple = args.modcrop.unwrap_or(1) as usize;
    let one = |ImageJob { from, to, .. }: &ImageJob| -> Result<()> {
        imresize_file(from, to, args.scale, multiple)?;
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.0 += 1;
        let done = progress.0;
        progress.1.set(done, jobs.len() as u64);
        Ok(())
    };
    jobs.par_iter().map(one).collect::<Vec<_>>().into_iter().collect::<Result<()>>()?;
    drop(progress);
    let (count, out) = (jobs.len(), args.output.shown());
    let text = format!("resized {count} images by {}: {out}", args.scale);
    context
        .print(text, json!({ "images": count, "scale": args.scale.to_string(), "out": args.output.to_string_lossy() }))
}

/// Reads every image of the dataset and prints the report.
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
