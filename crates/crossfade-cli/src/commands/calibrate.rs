//! `crossfade calibrate`.
use super::sample::open;
use crate::cli::Weights;
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::calibrate::calibrate;
use crossfade::generate::Pipeline;
use crossfade::latent::image_size;
use crossfade::math::Blend;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// Measure the best weights for combining the two heads of a trained network
#[derive(Debug, Args)]
#[command(after_help = "Example:
  crossfade calibrate runs/tiny --images 512

Prints a table of the weight w(t) with the smallest error of x0 = w * (phi head) + (1 - w) *
(eps head), in bins of equal width in sqrt(t), as a line for the [sample] section of a
configuration (docs/METHOD.md, section 10.3).")]
pub struct CalibrateArgs {
    /// Run directory or one of its checkpoints
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,

    /// Number of noised images to measure on
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    images: u32,

    /// Number of bins of the table
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    bins: u16,

    /// Directory that relative data paths start from [default: the current directory]
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,

    /// Which copy of the checkpoint's weights to use
    #[arg(long, default_value = "ema")]
    weights: Weights,
}

/// Measures and prints the table.
pub fn run(args: &CalibrateArgs, context: &Context) -> Result<()> {
    let checkpoint = open(&args.checkpoint)?;
    let config = match &args.data_root {
        Some(root) => checkpoint.config.clone().with_data_root(root),
        None => checkpoint.config.clone(),
    };
    let pipeline = Pipeline::open(&checkpoint, args.weights.into(), &config.sample, &context.device)?;
    let (side, channels) = image_size(&config, pipeline.latent());
    let set = config.data.open(side, channels).context("opening the images")?;
    let mut progress = context.progress("images", u64::from(args.images));
    let (images, bins) = (args.images as usize, usize::from(args.bins));
    let table = calibrate(&pipeline, &config, Arc::from(set), images, bins, &mut |done, all| {
        progress.set(done as u64, all as u64);
    })?;
    drop(progress);
    let rounded: Vec<f64> = table.iter().map(|w| (w * 1e4).round() / 1e4).collect();
    let blend = Blend::Table(rounded.clone());
    let text = format!("[sample]\nblend = {{ table = {rounded:?} }}");
    context.print(text, json!({ "blend": blend, "images": args.images }))
}
