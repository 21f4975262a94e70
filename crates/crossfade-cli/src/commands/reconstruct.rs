//! `crossfade reconstruct`.
use crate::cli::Weights;
use crate::context::Context;
use anyhow::{Context as _, Result};
use clap::Args;
use crossfade::latent::{Originals, reconstruct};
use serde_json::json;
use std::path::PathBuf;

/// Options of `reconstruct`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade reconstruct runs/ae-faces faces out --resolution 64
  crossfade reconstruct runs/ae-faces photo.png out

Images go through the encoder and back. Every result is written as a PNG, the first ones also on
sheet.png, originals above; the PSNR of each and their mean are printed.")]
pub struct ReconstructArgs {
    /// The directory of an autoencoder's run, one of its checkpoints, or one of a run on its latents
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,

    /// A folder of images, or one image
    #[arg(value_name = "IMAGES")]
    images: PathBuf,

    /// Directory for what comes back
    #[arg(value_name = "OUT")]
    out: PathBuf,

    /// Cut the images square and resize them to N x N first [default: as they are]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    resolution: Option<u16>,

    /// No more than N images
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// Which weights of an autoencoder's checkpoint
    #[arg(long, default_value = "ema")]
    weights: Weights,
}

/// Shows what an autoencoder keeps.
pub fn run(args: &ReconstructArgs, context: &Context) -> Result<()> {
    let originals = Originals {
        path: &args.images,
        limit: args.limit.map_or(usize::MAX, |n| n as usize),
        resolution: args.resolution.map(usize::from),
    };
    let mut progress = context.progress("images", 0);
    let mut hear = |done, all| progress.set(done as u64, all as u64);
    let weights = args.weights.into();
    let seen = reconstruct(&args.checkpoint, weights, &originals, &args.out, &context.device, &mut hear)
        .with_context(|| format!("reconstructing {}", args.images.display()))?;
    drop(progress);
    let mut text = String::new();
    for (name, psnr) in seen.images.iter().take(20) {
        text += &format!("{psnr:6.2} dB  {name}\n");
    }
    if seen.images.len() > 20 {
        text += &format!("           and {} more (--json lists all)\n", seen.images.len() - 20);
    }
    text += &format!(
        "PSNR {:.2} dB over {} images; factor {}, {:.1} times fewer numbers; sheet {}",
        seen.mean_psnr,
        seen.images.len(),
        seen.factor,
        seen.compression,
        seen.sheet.display()
    );
    context.print(text, json!(seen))
}
