//! `crossfade saliency`.
use super::task::{Request, TaskArgs, apply};
use crate::cli::unit_interval;
use crate::context::Context;
use anyhow::Result;
use clap::Args;

/// Predict saliency maps with a network trained for saliency
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade saliency photo.jpg map.png
  crossfade saliency photos maps --checkpoint runs/saliency --threshold 0.5

The network sees the whole image, resized to the training size, unless --tile is given.")]
pub struct SaliencyArgs {
    #[command(flatten)]
    common: TaskArgs,

    /// Write black-and-white maps: white where the value, from 0 to 1, is at least X [default: soft maps]
    #[arg(long, value_name = "X", value_parser = unit_interval)]
    threshold: Option<f64>,
}

/// Predicts the maps.
pub fn run(args: &SaliencyArgs, context: &Context) -> Result<()> {
    apply(&Request { threshold: args.threshold, ..Request::new(&args.common, "saliency") }, context)
}
