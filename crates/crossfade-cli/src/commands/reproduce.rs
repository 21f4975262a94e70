//! `crossfade reproduce`.
use crate::context::Context;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;

/// Options of `reproduce`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  crossfade reproduce pictures/000003.png --out again.png

On the same machine the pixels are the same; on others they may differ by rounding.")]
pub struct ReproduceArgs {
    /// A PNG made by `crossfade sample`
    #[arg(value_name = "IMAGE.png")]
    pub image: PathBuf,

    /// The weights, if they are not where the image says; they must be the same
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,

    /// The PNG to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Makes an image again.
pub fn run(_args: &ReproduceArgs, _context: &Context) -> Result<()> {
    bail!("reproducing images is not available yet")
}
