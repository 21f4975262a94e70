//! `crossfade sketch`.
use super::task::{Request, TaskArgs, apply};
use crate::context::Context;
use anyhow::Result;
use clap::Args;

/// Turn sketches into photographs with a network trained for sketches
#[derive(Debug, Args)]
#[command(after_help = "Example:
  crossfade sketch drawing.png photo.png --checkpoint runs/sketch")]
pub struct SketchArgs {
    #[command(flatten)]
    common: TaskArgs,
}

/// Draws the photographs.
pub fn run(args: &SketchArgs, context: &Context) -> Result<()> {
    apply(&Request::new(&args.common, "sketch"), context)
}
