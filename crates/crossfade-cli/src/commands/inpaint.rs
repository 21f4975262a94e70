//! `crossfade inpaint`.
use super::task::{Holes, Request, TaskArgs, apply};
use crate::context::Context;
use anyhow::Result;
use clap::Args;
use crossfade::task::masks::HoleBox;
use std::path::PathBuf;

/// Fill holes in images with a network trained for inpainting
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  crossfade inpaint face.png whole.png --box 80,60,64,40
  crossfade inpaint faces whole --checkpoint runs/inpaint --mask masks
  crossfade inpaint faces whole --checkpoint runs/inpaint --random-mask

In a mask, white pixels are known and black pixels are filled in. Known pixels are copied
unchanged.")]
pub struct InpaintArgs {
    #[command(flatten)]
    common: TaskArgs,

    /// Mask of the same size as the image, or folder of masks with the names of the images
    #[arg(long, value_name = "PATH", required_unless_present_any = ["boxes", "random_mask"])]
    mask: Option<PathBuf>,

    /// Fill this rectangle, given in pixels; repeatable
    #[arg(long = "box", value_name = "X,Y,W,H", conflicts_with = "mask", value_parser = HoleBox::parse)]
    boxes: Vec<HoleBox>,

    /// Draw random holes as in training, from the seed and the name of the image
    #[arg(long, conflicts_with_all = ["mask", "boxes"])]
    random_mask: bool,

    /// Also write the images with their holes to this folder
    #[arg(long, value_name = "DIR")]
    masked: Option<PathBuf>,
}

/// Fills the holes.
pub fn run(args: &InpaintArgs, context: &Context) -> Result<()> {
    let holes = match &args.mask {
        Some(path) => Holes::Files(path),
        None if args.random_mask => Holes::Random,
        None => Holes::Boxes(&args.boxes),
    };
    let request = Request { holes, masked: args.masked.as_deref(), ..Request::new(&args.common, "inpainting") };
    apply(&request, context)
}
