//! `crossfade edge`.
use super::task::{Request, TaskArgs, apply};
use crate::cli::unit_interval;
use crate::context::Context;
use anyhow::Result;
use clap::Args;

/// Detect edges with a network trained for edges
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade edge photo.jpg edges.png
  crossfade edge photos maps --checkpoint runs/edges --threshold 0.5

Large images are processed in overlapping tiles of the training size.")]
pub struct EdgeArgs {
    #[command(flatten)]
    common: TaskArgs,

    /// Write black-and-white maps: white where the value, from 0 to 1, is at least X [default: soft maps]
    #[arg(long, value_name = "X", value_parser = unit_interval)]
    threshold: Option<f64>,
}

/// Detects the edges.
pub fn run(args: &EdgeArgs, context: &Context) -> Result<()> {
    apply(&Request { threshold: args.threshold, ..Request::new(&args.common, "edges") }, context)
}
