//! `crossfade data`.
use crate::context::Context;
use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use crossfade::Error;
use crossfade::config::RunConfig;
use crossfade::data::{DataConfig, Filter, Fit, Split, check};
use std::path::{Path, PathBuf};

/// What can be done with image sets.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Read every image of a set and report sizes, channels and what cannot be read
    #[command(after_help = "Examples:
  crossfade data check configs/cifar10-small.toml --data-root /data
  crossfade data check --kind folder --path pictures

The exit code is 1 if an image cannot be read; --json lists all of them.")]
    Check(CheckArgs),
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
            return Ok(RunConfig::load(file)?.with_data_root(root).data);
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
pub fn run(DataCommand::Check(args): &DataCommand, context: &Context) -> Result<()> {
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
