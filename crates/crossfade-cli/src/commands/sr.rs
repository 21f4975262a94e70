//! `crossfade sr`.
use super::task::{Request, TaskArgs, apply};
use crate::context::Context;
use anyhow::Result;
use clap::Args;

/// Upscale images with a network trained for super-resolution
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade sr photo.jpg large.png
  crossfade sr photos large --checkpoint runs/sr --steps 10 --seed 7

The scale factor is the one the network was trained for. An alpha channel is upscaled too; grey
and 16-bit images keep their format.")]
pub struct SrArgs {
    #[command(flatten)]
    common: TaskArgs,
}

/// Upscales the images.
pub fn run(args: &SrArgs, context: &Context) -> Result<()> {
    apply(&Request::new(&args.common, "super-resolution"), context)
}
