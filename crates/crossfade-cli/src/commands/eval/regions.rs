//! `crossfade eval regions`.
use super::about;
use super::print;
use crate::context::Context;
use anyhow::Result;
use clap::{Args, Subcommand};
use crossfade::error::Shown;
use crossfade::metrics::regions::{THRESHOLDS, evaluate};
use std::path::PathBuf;

/// The verb.
#[derive(Debug, Subcommand)]
pub enum RegionsCommand {
    #[command(about = about("regions"), after_help = "Examples:
  crossfade eval regions ucm2 groundTruth/test
  crossfade eval regions ucm2 groundTruth --thresholds 5 --out eval
  crossfade eval regions segs groundTruth

Files belong together by their names: 100007.mat in both folders. Segmentations are .mat files
with `ucm2` (a contour map of double size, cut at thresholds) or `segs` (a cell array of label
matrices, one a scale). Ground truth is .mat files of the BSDS with `Segmentation` in them.

Covering and PRI are better when greater, VOI when smaller. ODS takes one threshold for all
images, OIS the best one of each image, `covering best` the best one of each annotated region.")]
    Regions(RegionsArgs),
}

/// Options of `eval regions`.
#[derive(Debug, Args)]
pub struct RegionsArgs {
    /// Folder of segmentations, or one file
    segmentations: PathBuf,

    /// Folder of ground truth, or one file
    ground_truth: PathBuf,

    /// Thresholds between 0 and 1 for contour maps, 1 to 999
    #[arg(long, value_name = "N", default_value_t = THRESHOLDS)]
    thresholds: usize,

    /// Write the benchmark's own files there: eval_cover*.txt, eval_RI_VOI*.txt, and NAME_ev2.txt to NAME_ev4.txt
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Measures.
pub fn run(RegionsCommand::Regions(args): &RegionsCommand, context: &Context) -> Result<()> {
    let mut progress = context.progress("images", 0);
    let regions = evaluate(&args.segmentations, &args.ground_truth, args.thresholds, &mut |done, all| {
        progress.set(done as u64, all as u64)
    })?;
    drop(progress);
    print(regions.report.clone(), context)?;
    if let Some(folder) = &args.out {
        regions.save(folder)?;
        context.note(format_args!("the benchmark's files are in {}", folder.shown()));
    }
    Ok(())
}
