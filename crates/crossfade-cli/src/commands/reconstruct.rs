//! `crossfade reconstruct`.
use crate::cli::Weights;
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::error::Shown;
use crossfade::latent::{Originals, reconstruct};
use serde_json::json;
use std::path::PathBuf;

/// Encode and decode images with a trained autoencoder
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade reconstruct runs/ae-faces faces out --resolution 64
  crossfade reconstruct runs/ae-faces photo.png out

Every reconstruction is written as a PNG; sheet.png shows the first ones below their originals.
The PSNR of each image and the mean are printed.")]
pub struct ReconstructArgs {
    /// Run directory or checkpoint of an autoencoder, or of a diffusion network on its latents
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,

    /// Image or folder of images
    #[arg(value_name = "IMAGES")]
    images: PathBuf,

    /// Output directory
    #[arg(value_name = "OUT")]
    out: PathBuf,

    /// Crop the images to squares and resize them to N x N first [default: keep their size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    resolution: Option<u16>,

    /// Process at most N images
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// Which copy of an autoencoder's weights to use
    #[arg(long, default_value = "ema")]
    weights: Weights,
}

/// Reconstructs the images and prints their PSNR.
pub fn run(args: &ReconstructArgs, context: &Context) -> Result<()> {
    let originals = Originals {
        path: &args.images,
        limit: args.limit.map_or(usize::MAX, |n| n as usize),
        resolution: args.resolution.map(usize::from),
    };
    let mut progress = context.progress("images", 0);
    let mut on_progress = |done, all| progress.set(done as u64, all as u64);
    let weights = args.weights.into();
    let report = reconstruct(&args.checkpoint, weights, &originals, &args.out, &context.device, &mut on_progress)
        .with_context(|| format!("reconstructing {}", args.images.shown()))?;
    drop(progress);
    let mut text = String::new();
    for (name, psnr) in report.images.iter().take(20) {
        text += &format!("{psnr:6.2} dB  {name}\n");
    }
    if report.images.len() > 20 {
        text += &format!("           and {} more (--json lists all)\n", report.images.len() - 20);
    }
    text += &format!(
        "mean PSNR {:.2} dB over {} images; downsampling factor {}, {:.1} times fewer values; contact sheet {}",
        report.mean_psnr,
        report.images.len(),
        report.factor,
        report.compression,
        report.sheet.shown()
    );
    context.print(text, json!(report))
}
