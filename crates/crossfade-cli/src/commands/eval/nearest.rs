//! `crossfade eval nearest`.
use super::images;
use crate::context::Context;
use anyhow::Result;
use clap::{Args, Subcommand};
use crossfade::Error;
use crossfade::data::{Image, contact_sheet, fitted};
use crossfade::error::Shown;
use crossfade::files::write_atomic;
use crossfade::limits::NEAREST_PIXELS;
use crossfade::metrics::Report;
use crossfade::metrics::features::nearest;
use std::path::PathBuf;

/// Verbs that compare images with those that a network was trained on.
#[derive(Debug, Subcommand)]
pub enum NearestCommand {
    /// The nearest training image of each sample, side by side: shows whether a network repeats what it has seen
    #[command(after_help = "Examples:
  crossfade eval nearest samples emoji64.zip nearest.png
  crossfade eval nearest samples cifar10:train nearest.png --count 64 --columns 8 --json

Each sample is drawn with its nearest image of REFERENCE to the right of it. Nearest is by the root mean
square difference of pixels (0 to 255): a copy has 0. Images of REFERENCE are cropped and resized to the
size of the samples. A picture that is only similar, such as the same object in another colour, may not
be found this way; look at the pairs.

IMAGES and REFERENCE are what `crossfade eval fid` takes as images.")]
    Nearest(NearestArgs),
}

/// Options of `eval nearest`.
#[derive(Debug, Args)]
pub struct NearestArgs {
    /// The samples, square and of one size
    #[arg(value_name = "IMAGES")]
    images: String,

    /// The images of the training
    #[arg(value_name = "REFERENCE")]
    reference: String,

    /// PNG with the pairs to write
    #[arg(value_name = "OUT.png")]
    out: PathBuf,

    /// Number of samples; all if there are fewer
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    count: u32,

    /// Pairs in a row
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    columns: u32,
}

/// Finds the pairs and draws them.
pub fn run(NearestCommand::Nearest(args): &NearestCommand, context: &Context) -> Result<()> {
    let (samples, reference) = (images(&args.images)?, images(&args.reference)?);
    let (about, all) = (reference.describe(), reference.len());
    let count = samples.len().min(args.count as usize);
    if count == 0 {
        return Err(Error::request(format!("{} has no images", args.images)).into());
    }
    let first = samples.get(0)?;
    let pixels = (first.width * first.height * count) as u64;
    NEAREST_PIXELS.check(pixels).map_err(|why| Error::request(format!("{}: {why}; lower --count", args.images)))?;
    let samples: Vec<Image> = (0..count).map(|k| samples.get(k)).collect::<Result<_, _>>()?;
    if first.width != first.height {
        let message =
            format!("{} has images of {}x{}; the samples must be square", args.images, first.width, first.height);
        return Err(Error::request(message).into());
    }
    let reference = fitted(reference, first.width, first.channels);
    let mut progress = context.progress("training images", all as u64);
    let found = nearest(&samples, &*reference, &mut |done, all| progress.set(done as u64, all as u64))?;
    drop(progress);
    let pairs: Vec<Image> = samples
        .iter()
        .zip(&found)
        .map(|(sample, near)| contact_sheet(&[sample.clone(), near.image.clone()], 2, 0, 1))
        .collect();
    write_atomic(&args.out, &contact_sheet(&pairs, args.columns as usize, 6, 1).encode_png(&[])?)?;
    let rms: Vec<f64> = found.iter().map(|near| near.rms).collect();
    let mean = rms.iter().sum::<f64>() / rms.len() as f64;
    let report = Report::new("nearest")
        .with("distance", "root mean square difference of pixels, 0 to 255")
        .with("images", &args.images)
        .with("images count", samples.len())
        .with("reference", about)
        .with("reference count", all)
        .value("mean distance", mean)
        .value("smallest distance", rms.iter().copied().fold(f64::INFINITY, f64::min));
    let mut json = serde_json::to_value(&report)?;
    json["neighbours"] = found.iter().map(|near| serde_json::json!({ "index": near.index, "rms": near.rms })).collect();
    context.print(format_args!("{report}\npairs: {}", args.out.shown()), json)
}
