//! `crossfade depth`.
use super::task::{Request, TaskArgs, apply};
use crate::context::Context;
use anyhow::Result;
use clap::Args;

/// Estimate depth maps with a network trained for depth
#[derive(Debug, Args)]
#[command(after_help = "Example:
  crossfade depth photo.jpg depth.png --checkpoint runs/depth

Depth maps are 16-bit PNGs in the unit of the training data (millimetres for NYU Depth).")]
pub struct DepthArgs {
    #[command(flatten)]
    common: TaskArgs,
}

/// Estimates the depth.
pub fn run(args: &DepthArgs, context: &Context) -> Result<()> {
    apply(&Request::new(&args.common, "depth"), context)
}
