//! `crossfade eval saliency`.
use super::about;
use super::print;
use crate::context::Context;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use crossfade::error::Shown;
use crossfade::metrics::saliency::{Normalise, SaliencyConfig, Size, evaluate};
use std::path::PathBuf;

/// The verb.
#[derive(Debug, Subcommand)]
pub enum SaliencyCommand {
    #[command(about = about("saliency"), after_help = "Examples:
  crossfade eval saliency maps masks                        soft maps at their original size
  crossfade eval saliency maps masks --normalise toolbox    as sal_eval_toolbox computes them
  crossfade eval saliency maps masks --protocol adm         as the reference: 384x384, binary
  crossfade eval saliency maps masks --per-image scores.csv --plot curve.svg

Files belong together by their names without endings: maps/0001.png and masks/0001.jpg. Every
map needs its mask and every mask its map. \"max F\" and \"mean F\" are of the curve of mean
precision and recall; \"image mean\" is of the mean of the images' curves, as other toolboxes
have it.")]
    Saliency(SaliencyArgs),
}

/// Options of `eval saliency`.
#[derive(Debug, Args)]
pub struct SaliencyArgs {
    /// Folder of maps (grey PNG, JPEG or WebP), or one map
    maps: PathBuf,

    /// Folder of masks, or one mask; a pixel is salient from 128 of 255 on
    masks: PathBuf,

    /// Sizes and cuts: standard, or adm (the reference's: both at 384x384 and cut at one half)
    #[arg(long, default_value = "standard", conflicts_with_all = ["resize", "normalise", "binarise"])]
    protocol: Protocol,

    /// Bring maps to the size of their masks; without it another size is an error
    #[arg(long)]
    resize: bool,

    /// What to do to a map's values first [default: none]
    #[arg(long)]
    normalise: Option<NormaliseArg>,

    /// Cut maps into binary ones at this value between 0 and 1 [default: keep them soft]
    #[arg(long, value_name = "T")]
    binarise: Option<f64>,

    /// Write the scores of each image into this file, as CSV
    #[arg(long, value_name = "FILE")]
    per_image: Option<PathBuf>,

    /// Draw precision against recall into this .png or .svg
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// Original size, soft maps, unless options say otherwise
    Standard,
    /// As the reference: 384x384, map and mask cut at one half
    Adm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NormaliseArg {
    /// Take them as they are
    None,
    /// Stretch each map to 0 … 1
    MinMax,
    /// Divide each map by its maximum, stretch it for the MAE: sal_eval_toolbox
    Toolbox,
}

impl SaliencyArgs {
    fn config(&self) -> SaliencyConfig {
        if self.protocol == Protocol::Adm {
            return SaliencyConfig::adm();
        }
        SaliencyConfig {
            size: if self.resize { Size::Mask } else { Size::Original },
            normalise: match self.normalise {
                None | Some(NormaliseArg::None) => Normalise::None,
                Some(NormaliseArg::MinMax) => Normalise::MinMax,
                Some(NormaliseArg::Toolbox) => Normalise::Toolbox,
            },
            binarise: self.binarise,
        }
    }
}

/// Measures.
pub fn run(SaliencyCommand::Saliency(args): &SaliencyCommand, context: &Context) -> Result<()> {
    let mut progress = context.progress("images", 0);
    let saliency =
        evaluate(&args.maps, &args.masks, &args.config(), &mut |done, all| progress.set(done as u64, all as u64))?;
    drop(progress);
    print(saliency.report.clone(), context)?;
    if let Some(path) = &args.per_image {
        saliency.save_table(path)?;
        context.note(format_args!("the scores of each image are in {}", path.shown()));
    }
    if let Some(path) = &args.plot {
        saliency.plot(path)?;
        context.note(format_args!("the curve is in {}", path.shown()));
    }
    Ok(())
}
